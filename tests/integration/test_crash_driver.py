"""A driver killed with `kill -9` at each step: the next run completes the copy, with no record lost or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.crash import CrashPoint, run_mirror
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FENCE, LANES = "mirror_lib.kafka.fencing:fence", "mirror_lib.replication.stage:run_tasks"
LEDGER = "mirror_lib.ledger.offset_syncs:OffsetSyncTable.append"


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("crash", records=600)


@pytest.mark.parametrize(
    ("function", "when", "call", "how", "copied"),
    [
        pytest.param(LANES, "before", 1, "kill", "nothing", id="before-the-lanes", marks=pytest.mark.long),
        pytest.param(FENCE, "after", 1, "kill driver", "some", id="after-a-fence", marks=pytest.mark.long),
        pytest.param(*ABOUT_TO_WRITE, "kill driver", "some", id="mid-lane"),
        pytest.param(LANES, "after", 1, "kill", "all", id="after-the-lanes", marks=pytest.mark.long),
        pytest.param(LEDGER, "after", 1, "kill", "all", id="after-the-ledger", marks=pytest.mark.long),
        pytest.param(
            *("mirror_lib.replication.flow:FlowMirror.copy_batch", "after", 1, "kill", "all"),
            id="before-spark-commits",
            marks=pytest.mark.long,
        ),
    ],
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
    flow.settings["tasks.max"] = 3 if function == FENCE else 2  # lanes are the same whatever tasks.max is
    flow.copy(spark, exact=True)
