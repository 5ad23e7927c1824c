"""A crash point kills a process before or after the named call, once, and one that is never reached is no success."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest

from tests.lab.checkout import LabError
from tests.lab.crash import CrashPoint

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
