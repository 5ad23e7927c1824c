"""The negative control of `mirror_lib.replication.tail`: the job with a tail that keeps the slots that it once had."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from mirror_lib.cli import main
from mirror_lib.replication import flow

SLOTS = 4


def _as_at_first(spark: SparkSession) -> int:
    return SLOTS


def _keep(self: flow.FlowMirror) -> None:
    """The commit waits."""


if __name__ == "__main__":
    for name in ("most_slots", "task_slots"):
        setattr(flow, name, _as_at_first)
    setattr(flow.FlowMirror, flow.FlowMirror.give_way.__name__, _keep)
    sys.exit(main(["run", *sys.argv[1:]]))
