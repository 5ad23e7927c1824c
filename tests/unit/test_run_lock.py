"""The lock that keeps a second run on the same machine away, with real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mirror_lib import run_lock as locks
from mirror_lib.run_lock import run_lock

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


def test_killed_process_holds_no_lock(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with run_lock("/state", "A->B", False) as holder:
            assert holder == process.pid
        process.kill()
    with run_lock("/state", "A->B", False) as holder:
        assert holder is None
    assert list(tmp_path.iterdir()) == []


def test_other_flows_and_other_tables_have_locks_of_their_own() -> None:
    another, elsewhere = run_lock("/state", "B->A", False), run_lock("/elsewhere", "A->B", False)
    with run_lock("/state", "A->B", False), another as second, elsewhere as third:
        assert (second, third) == (None, None)


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
