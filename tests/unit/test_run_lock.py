"""The lock that keeps a second run on the same machine away, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from mirror_lib import run_lock as locks
from mirror_lib.run_lock import died_here, run_lock, this_driver

HOLD = """
import time
from mirror_lib.run_lock import run_lock
with run_lock("/state", "A->B", False):
    print(flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(locks, "LEAVING_SECONDS", 0.5)


@pytest.fixture
def holding() -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the lock."""
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_killed_process_holds_no_lock(holding: subprocess.Popen[str], tmp_path: Path) -> None:
    with run_lock("/state", "A->B", False) as holder:
        assert holder == holding.pid
    holding.kill()
    holding.wait()
    with run_lock("/state", "A->B", False) as holder:
        assert holder is None
    assert list(tmp_path.iterdir()) == []


def test_other_flows_and_other_folders_have_locks_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    with run_lock("./state", "A->B", False):
        monkeypatch.chdir(tmp_path / "two")
        for state, flow in (("./state", "A->B"), (f"{tmp_path}/one/state", "B->A")):
            with run_lock(state, flow, False) as holder:
                assert holder is None, (state, flow)


def test_one_folder_has_one_lock_in_every_notation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    (project / "state").mkdir(parents=True)
    (tmp_path / "link").symlink_to(project)
    monkeypatch.chdir(project)
    names = [f"{project}/state", f"{project}/state/", f"file:{project}/state", f"file://{project}/state"]
    with run_lock("./state", "A->B", False):
        for name in [*names, "state", f"{tmp_path}/link/state"]:
            with run_lock(name, "A->B", False) as holder:
                assert holder is not None, name
    with run_lock("s3a://bucket/state/", "A->B", False), run_lock("s3a://bucket/state", "A->B", False) as holder:
        assert holder is not None


ASK = "import sys; from mirror_lib.run_lock import died_here; print(died_here(sys.argv[1]))"
IN_NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]


def test_process_of_another_pid_namespace_is_not_called_dead() -> None:
    ask = [sys.executable, "-c", ASK, this_driver()]
    assert subprocess.run(ask, stdout=subprocess.PIPE, text=True, check=True).stdout == "False\n"
    asked = subprocess.run([*IN_NAMESPACE, *ask], capture_output=True, text=True)
    if "unshare" in asked.stderr:
        pytest.skip(f"no PID namespace: {asked.stderr}")
    # This process has no id there.
    assert asked.stdout == "False\n"


def test_dead_process_is_called_so_only_by_its_own_namespace_and_host() -> None:
    here = this_driver().rpartition(" process ")[0]
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert died_here(f"{here} process {ended.pid}")  # a zombie
    assert died_here(f"{here} process {ended.pid}")
    assert not any(died_here(f"{other} process {ended.pid}") for other in (f"{here}/1", "elsewhere"))
    assert not died_here(this_driver()) and not died_here(None)


def test_lock_that_was_taken_over_stays_with_the_later_run(tmp_path: Path) -> None:
    first = run_lock("/state", "A->B", False)
    assert first.__enter__() is None
    with run_lock("/state", "A->B", True) as second:
        assert second is None
        first.__exit__(None, None, None)
        with run_lock("/state", "A->B", False) as third:
            assert third is not None
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with run_lock("/state", "A->B", False) as holder:
        assert holder is None
