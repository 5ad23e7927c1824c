"""The table of group offsets: each commit is recorded before it is made, and a rollback reads the rows."""

from __future__ import annotations

from operator import attrgetter
from types import MappingProxyType
from typing import Dict, Mapping, Optional, Sequence, Tuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.ledger.compaction import Upkeep
from mirror_lib.ledger.delta_table import StateTable, seconds_ago
from mirror_lib.ledger.records import DAY_SECONDS, GroupOffset, MoveKey
from mirror_lib.ledger.tables import GROUP_OFFSETS

# The most runs that move a group at once. No offset is this one.
RUNS, NONE = 3, -1
_WHERE = ("cluster", "group", "topic", "partition")
_MOVE = tuple(GroupOffset.__dataclass_fields__)
_of_move = attrgetter(*_MOVE)
_REST = tuple(name for name in _MOVE if name not in _WHERE)


class MoveCompaction(Upkeep):
    """Compacts the table, and deletes rows of one flow after `days`."""

    def __init__(self, spark: SparkSession, state: str, flow: str, days: int) -> None:
        super().__init__(StateTable(spark, state, GROUP_OFFSETS), flow)
        self._days = days

    def expire(self) -> None:
        """Delete the flow's old rows. For each partition of a group the rows of its last day stay: they tell who set
        the committed offset."""
        rows, since = self.table.rows(), seconds_ago(self._days * DAY_SECONDS)
        of_flow = F.col("flow") == self._flow
        if rows is None or not rows.where(of_flow).where(f"at < {since}").take(1):
            return
        last = rows.where(of_flow).groupBy("flow", *_WHERE).agg(F.max("at").alias("last_at"))
        same = " AND ".join(f"old.`{name}` = last.`{name}`" for name in ("flow", *_WHERE))
        outdated = f"{same} AND old.at < {since} AND old.at < last.last_at - INTERVAL 1 DAY"
        self.table.change(
            lambda: self.table.delta().alias("old").merge(last.alias("last"), outdated).whenMatchedDelete().execute()
        )


class GroupOffsetTable:
    """The offset commits of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, GROUP_OFFSETS)

    @property
    def path(self) -> str:
        return self._table.path

    def append(self, flow: str, rows: Sequence[GroupOffset], *, run_id: str, append_number: int) -> None:
        """Add `rows` in one commit. `run_id` is new for every run, `append_number` counts 0, 1, 2… in it for each flow,
        also the appends that failed. Call it before the offset commits.
        """
        # A crash after this leaves rows of offset commits that were not made. They are harmless: the next cycle and a
        # rollback read the offset that the group has committed.
        self._table.append([(flow, run_id, append_number, number, *_of_move(row)) for number, row in enumerate(rows)])

    def latest(
        self, flow: str, present: Mapping[MoveKey, Optional[int]] = MappingProxyType({})
    ) -> Mapping[MoveKey, GroupOffset]:
        """The last offset commit of each cluster, group, topic and partition. Empty before the first append.

        Within a run the order of its appends counts, between runs the time by the drivers' clocks. If two runs moved a
        group at once, the later row may be of the commit that was refused: of the last rows of the last runs the one
        counts whose new offset is the `present` one.
        """
        found = self._table.collected(lambda rows: _last_moves(rows.where(F.col("flow") == flow)))
        last: Dict[MoveKey, GroupOffset] = {}
        for row in found:
            moves = [GroupOffset(*(row[name] for name in _WHERE), **each["move"].asDict()) for each in row["runs"]]
            key = moves[0].key
            last[key] = next((each for each in moves if each.new_offset == present.get(key, NONE)), moves[0])
        return last

    def of_run(self, run_id: str) -> Sequence[Tuple[str, GroupOffset]]:
        """Flow and row of everything that the run wrote: by flow, then in the order of writing."""

        def query(rows: DataFrame) -> DataFrame:
            of_run = rows.where(F.col("run_id") == run_id).orderBy("flow", "append_number", "move_number")
            return of_run.select("flow", *_MOVE)

        return tuple((row["flow"], GroupOffset(*row[1:])) for row in self._table.collected(query))


def _last_moves(rows: DataFrame) -> DataFrame:
    """Reduces in two steps, since a clock that was set back must not change the order within a run."""
    move = F.struct(*_REST).alias("move")
    in_run = F.max(F.struct("append_number", "move_number", "at", move)).alias("last")
    last_of_run = rows.groupBy(*_WHERE, "run_id").agg(in_run)
    of_runs = F.collect_list(F.struct("last.at", "last.append_number", "last.move"))
    return last_of_run.groupBy(*_WHERE).agg(F.slice(F.sort_array(of_runs, asc=False), 1, RUNS).alias("runs"))
