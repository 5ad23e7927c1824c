"""The table of group offsets in few files: a flow's rows in, the same rows out. Every move stays, as undo reads it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from mirror_lib.state.compaction import TableCompaction
from mirror_lib.state.group_offsets import GROUP_OFFSETS


class MoveCompaction(TableCompaction):
    """The moves of one flow."""

    def __init__(self, spark: SparkSession, state: str, flow: str) -> None:
        super().__init__(spark, state, flow, GROUP_OFFSETS, ("group", "topic"))
