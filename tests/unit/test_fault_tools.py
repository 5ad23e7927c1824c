"""Tools of `make faults` and of crash tests: each kind of damage is found, and a crash point kills where it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import pytest

from tests.faults.checker import Id, Sample, Verdict, judge, passed_unread
from tests.lab.checkout import LabError
from tests.lab.crash import CrashPoint
from tests.lab.readers import Log, LogRecord


def record(partition: int, number: int, value: str = "x", headers: Sequence[str] = ()) -> LogRecord:
    return LogRecord(b"k", f"{partition}:{number}:{value}".encode(), tuple((each, b"h") for each in headers), 1000)


def logs(*partitions: Sequence[Optional[LogRecord]]) -> Dict[int, Log]:
    """Records at their places; `None` for an offset that has none."""
    return {
        at: {offset: each for offset, each in enumerate(log) if each is not None} for at, log in enumerate(partitions)
    }


SOURCE = logs([record(0, n) for n in range(4)], [record(1, n) for n in range(4)])
WHOLE = [record(1, n) for n in range(4)]


def verdict(**found: int) -> Verdict:
    none = {"lost": 0, "unseen": 0, "doubled": 0, "reordered": 0, "foreign": 0, "changed": 0}
    return Verdict(**{"records": 8, **none, **found})


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ([0, 1, 2, 3], {}),
        ([0, 1, 3], {"records": 7, "lost": 1}),
        ([0, 1], {"records": 6, "unseen": 2}),
        ([0, 3], {"records": 6, "lost": 2}),
        ([0, 1, 1, 2, 3], {"records": 9, "doubled": 1}),
        ([0, 1, 0, 1, 2, 3], {"records": 10, "doubled": 2}),
        ([0, 2, 1, 3], {"reordered": 1}),
        ([0, 1, 2, 3, 4], {"records": 9, "foreign": 1}),
        ([], {"records": 4, "unseen": 4}),
    ],
)
def test_what_is_wrong_is_counted(numbers: List[int], found: Dict[str, int]) -> None:
    assert judge(SOURCE, logs([record(0, n) for n in numbers], WHOLE)) == verdict(**found)


def test_a_changed_record_is_neither_lost_nor_foreign_and_the_header_of_origins_is_no_change() -> None:
    for changed in (record(0, 2, "y"), record(0, 2, headers=["more"]), record(0, 2)._replace(timestamp=1001)):
        remote = [record(0, 0), record(0, 1), changed, record(0, 3)]
        assert judge(SOURCE, logs(remote, WHOLE)) == verdict(changed=1)
    with_origin = [record(0, n)._replace(headers=(("mirror.origin", b"anything"),)) for n in range(4)]
    assert judge(SOURCE, logs(with_origin, WHOLE)).exact


def test_a_record_in_another_partition_is_foreign_unless_the_flow_repartitions() -> None:
    swapped = logs(WHOLE, [record(0, n) for n in range(4)])
    assert judge(SOURCE, swapped).foreign == 8
    assert judge(SOURCE, logs(WHOLE + [record(0, n) for n in range(4)], []), partitions_kept=False).exact
    assert judge(SOURCE, swapped, partitions_kept=False).foreign == 4, "one key in two partitions"


def test_a_flow_that_leaves_records_out_owes_the_others_alone() -> None:
    def even(_: Id, offset: int) -> bool:
        return offset % 2 == 0

    kept = logs([record(0, 0), None, record(0, 2)], [record(1, 0), None, record(1, 2)])
    assert judge(SOURCE, kept, wanted=even).exact
    first = logs([record(0, n) for n in range(3)], [])
    assert judge(SOURCE, first, wanted=even) == verdict(records=3, foreign=1, unseen=2)


def test_what_the_source_deleted_since_may_be_there_and_need_not() -> None:
    left = logs([None, None, record(0, 2), record(0, 3)], WHOLE)
    gone = {(0, 0), (0, 1)}
    assert judge(left, SOURCE, gone=gone).exact
    assert judge(left, left, gone=gone).exact
    assert judge(left, SOURCE).foreign == 2


@pytest.mark.parametrize(
    ("samples", "missed"),
    [
        ([(4, 4)], 0),
        ([(3, 4)], 0),
        ([(4, 3)], 1),
        ([(4, 0)], 4),
        ([(0, 0)], 0),
        ([(1, 1), (4, 2), (4, 4)], 2),  # it is judged at its worst moment
    ],
)
def test_a_group_that_is_moved_too_far_misses_the_records_between(samples: List[Tuple[int, int]], missed: int) -> None:
    assert passed_unread(SOURCE, SOURCE, [Sample(0, *each) for each in samples]) == missed


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
