"""Deletes the files of commits from Delta's log that a later checkpoint replaces. Only where the operator opts in.

Delta's own retention removes whole days, and every commit lists all files of the log.
"""

from __future__ import annotations

from typing import Any, Sequence

from pyspark.sql import SparkSession

from mirror_lib.state.folders import hadoop_folder

# A log that was never shortened takes several turns.
MOST_AT_ONCE = 1000
# Commits before the first checkpoint that is left, of a table as `tables` makes it.
BEFORE_A_CHECKPOINT = 100
# Of one file. Those of several parts have other names, and do not count.
CHECKPOINT = ".checkpoint.parquet"
SUFFIXES = (".json", ".crc", CHECKPOINT)


def dispensable(checkpoints: Sequence[int], kept: int) -> range:
    """The commits, by version, to delete next: all before the last of `checkpoints` that has `kept` versions behind it.

    At most MOST_AT_ONCE, the oldest first. Behind the newest checkpoint there may be more commits. Pure.
    """
    needed = [version for version in checkpoints if version <= max(checkpoints) - kept]
    if not needed:
        return range(0)
    first = max(min(checkpoints) - BEFORE_A_CHECKPOINT, 0)
    return range(first, min(max(needed), first + MOST_AT_ONCE))


class CommitLog:
    """The log of the table in folder `path`. Each call raises what Hadoop raises."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._paths = jvm.org.apache.hadoop.fs
        self._folder, self._files = hadoop_folder(spark, f"{path}/_delta_log")

    def checkpoints(self) -> Sequence[int]:
        """The versions that have a checkpoint."""
        found = self._files.listStatus(self._folder, self._paths.GlobFilter(f"*{CHECKPOINT}"))
        names = [status.getPath().getName()[: -len(CHECKPOINT)] for status in found]
        return [int(name) for name in names if name.isdigit()]

    def delete(self, versions: range) -> None:
        """Delete these commits, their checkpoints included."""
        # The oldest first: killed anywhere, what is left is a log without gaps that begins later.
        for version in versions:
            for suffix in SUFFIXES:
                self._files.delete(self._paths.Path(self._folder, f"{version:020d}{suffix}"), False)
