"""Tools by which tests are run: a skip fails in CI, and a process is killed where it is to be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Optional, Sequence

import pytest

from tests.lab.checkout import ROOT, LabError
from tests.lab.crash import CrashPoint

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


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_skip_fails_a_run_of_ci_and_says_what_to_do(tmp_path: Path, options: Sequence[str]) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.lab.skips"]\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *options],
        cwd=tmp_path,
        env={**os.environ, "CI": "true", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    said = ran.stdout.replace("\n", " ")
    assert ran.returncode and "1 failed, 1 passed, 1 xfailed, 2 errors" in said
    for reason in ("no library here", "no disk here", "no broker here"):
        assert f"was skipped: {reason}. A run of CI must run it" in said


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
    late = CrashPoint("toy:Ledger.append", call=3, token=tmp_path / "late")
    assert run_toy(tmp_path, late).returncode == 0 and not late.reached


def test_point_that_names_nothing_fails_instead_of_passing(tmp_path: Path) -> None:
    assert run_toy(tmp_path, CrashPoint("toy:Ledger.no_such_method")).returncode == 1
    with pytest.raises(LabError, match="is not a point"):
        CrashPoint("toy:Ledger.append", "during").environment()
