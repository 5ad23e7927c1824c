"""Tools by which tests are run: what is skipped, which shard has a file, where a process is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Optional, Sequence

import pytest

from tests.lab.checkout import ROOT, LabError
from tests.lab.crash import CrashPoint
from tests.lab.shards import in_shard
from tests.lab.skips import ALLOWED, why_allowed

TESTS = """
import pytest


@pytest.mark.skipif(True, reason="no library here")
def test_by_mark(): ...

def test_by_call():
    pytest.skip("no disk here")

@pytest.fixture
def missing():
    pytest.skip("no broker here")

def test_by_fixture(missing): ...

@pytest.mark.xfail
def test_expected_failure():
    assert False

def test_that_runs(): ...
"""


def run(folder: Path, text: str, *options: str) -> str:
    """What pytest with the plugin alone prints in CI of a file with this text."""
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.lab.skips"]\n')
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(text)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={**os.environ, "CI": "true", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ran.returncode
    return ran.stdout.replace("\n", " ")


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_skip_fails_a_run_of_ci_and_says_what_to_do(tmp_path: Path, options: Sequence[str]) -> None:
    said = run(tmp_path, TESTS, *options)
    assert "1 failed, 1 passed, 1 xfailed, 2 errors" in said
    for reason in ("no library here", "no disk here", "no broker here"):
        assert f"was skipped: {reason}. A run of CI must run it" in said


def test_file_that_is_skipped_as_a_whole_fails_a_run_of_ci(tmp_path: Path) -> None:
    whole = 'import pytest\npytest.importorskip("no_such_module", reason="no module here")\n'
    assert "no module here. A run of CI must run it" in run(tmp_path, whole)


def test_only_the_listed_file_may_skip_and_only_for_its_reason() -> None:
    assert [each.file for each in ALLOWED if not (ROOT / each.file).is_file()] == []
    (file, reason, why), *_ = ALLOWED
    assert why_allowed(f"{file}::test_a", f"because {reason}") == why
    assert why_allowed(f"{file}::test_a", "no time today") is None
    assert why_allowed("tests/unit/test_batch.py::test_a", reason) is None


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_file_is_in_one_shard_and_none_is_empty(count: int) -> None:
    files = [f"tests/integration/test_{n}.py" for n in range(100)]
    shards = [[file for file in files if in_shard(file, number, count)] for number in range(1, count + 1)]
    assert sorted(file for shard in shards for file in shard) == sorted(files)
    assert min(map(len, shards)) > 100 / count / 3
    assert in_shard("a.py::test_b[c]", 1, count) == in_shard("a.py::test_d", 1, count)


TOY = """
import sys
class Ledger:
    def append(self, n):
        print("append", n, flush=True)
    @classmethod
    def opened(cls):
        print("opened", flush=True)
        return cls()
def numbers():
    yield 1
    yield 2
    print("exhausted", flush=True)
"""


MAIN = """
from toy import Ledger, numbers
ledger = Ledger.opened()
for n in numbers():
    ledger.append(n)
print("end", flush=True)
"""


def run_toy(folder: Path, crash: CrashPoint) -> subprocess.CompletedProcess[str]:
    (folder / "toy.py").write_text(TOY)
    (folder / "main.py").write_text(MAIN)
    command = [sys.executable, str(folder / "main.py")]
    return subprocess.run(command, env=crash.environment(), stdout=subprocess.PIPE, text=True, check=False)


@pytest.mark.parametrize(
    ("function", "when", "call", "printed"),
    [
        ("toy:Ledger.append", "before", 1, ["opened"]),
        ("toy:Ledger.append", "before", 2, ["opened", "append 1"]),
        ("toy:Ledger.append", "after", 2, ["opened", "append 1", "append 2"]),
        ("toy:Ledger.opened", "after", 1, ["opened"]),
        ("toy:numbers", "before", 1, ["opened"]),
        ("toy:numbers", "after", 1, ["opened", "append 1", "append 2", "exhausted"]),
    ],
)
def test_process_is_killed_before_or_after_the_named_call(
    tmp_path: Path, function: str, when: str, call: int, printed: list[str]
) -> None:
    done = run_toy(tmp_path, CrashPoint(function, when, call))
    assert (done.returncode, done.stdout.splitlines()) == (-9, printed)


@pytest.mark.parametrize("token", [None, "died"])
def test_second_run_lives_only_with_a_token(tmp_path: Path, token: Optional[str]) -> None:
    point = CrashPoint("toy:Ledger.append", call=2, token=tmp_path / token if token else None)
    assert run_toy(tmp_path, point).returncode == -9
    assert run_toy(tmp_path, point).returncode == (0 if token else -9)


def test_point_that_is_not_reached_is_known(tmp_path: Path) -> None:
    point = CrashPoint("toy:Ledger.append", call=3, token=tmp_path / "died")
    assert run_toy(tmp_path, point).returncode == 0
    assert not point.reached


def test_point_that_names_nothing_fails_instead_of_passing(tmp_path: Path) -> None:
    assert run_toy(tmp_path, CrashPoint("toy:Ledger.no_such_method")).returncode == 1
    with pytest.raises(LabError, match="is not a point"):
        CrashPoint("toy:Ledger.append", "during").environment()
