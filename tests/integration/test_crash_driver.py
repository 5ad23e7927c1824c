"""A driver killed with `kill -9` at each step: the next run completes the copy, with no record lost or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.crash import CrashPoint, run_mirror
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LANES = "mirror_lib.replication.stage:run_tasks"
POINTS = [
    (*ABOUT_TO_WRITE, "kill driver", "some"),
    (LANES, "before", 1, "kill", "nothing"),
    ("mirror_lib.kafka.fencing:fence", "after", 1, "kill driver", "some"),
    (LANES, "after", 1, "kill", "all"),
    ("mirror_lib.ledger.offset_syncs:OffsetSyncTable.append", "after", 1, "kill", "all"),
    ("mirror_lib.replication.flow:FlowMirror.copy_batch", "after", 1, "kill", "all"),
]


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("crash", records=600)


@pytest.mark.parametrize(
    ("function", "when", "call", "how", "copied"),
    [POINTS[0], *(pytest.param(*point, marks=pytest.mark.long) for point in POINTS[1:])],
)
def test_copy_is_exact_after_a_driver_killed(
    spark: SparkSession, flow: OneFlow, function: str, when: str, call: int, how: str, copied: str
) -> None:
    crash = CrashPoint(function, when, call, flow.directory / "died", how)
    # Some die in continuous mode, and what they leave behind is the same.
    flow.trigger = "1 second" if how == "kill driver" else "availableNow"
    assert run_mirror(flow.config, crash=crash) == -9
    assert crash.reached
    before, everything = flow.copies(), flow.everything
    assert {"nothing": before == 0, "some": before < everything, "all": before == everything}[copied]
    flow.fill(200)
    flow.trigger = "availableNow"
    flow.settings["tasks.max"] = 3 if "fencing" in function else 2  # lanes are the same whatever tasks.max is
    flow.copy(spark, exact=True)
