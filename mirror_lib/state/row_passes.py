"""The table of passes whose rows are spread over partitions anew: what each is to copy, written before it begins.

Older ones are merged in time (`pass_thinning`). The last pass of a flow is the one that may be half done; an empty one
says that none is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Collection, Iterator, Mapping, Optional, Tuple

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from mirror_lib.errors import FencedError
from mirror_lib.state.schema import Column, TableSchema
from mirror_lib.state.tables import StateTable

ROW_PASSES = TableSchema(
    name="row_passes",
    comment="what a pass that places records anew copies: ranges of the source, and where remote logs stood before",
    columns=(
        Column("flow", "string", "A->B"),
        Column("pass", "bigint", "counts the passes of the flow from 0"),
        Column("side", "string", "source, remote, or elsewhere: another ledger has the passes before this one"),
        Column("topic", "string", "topic on that side"),
        Column("topic_id", "string", "Kafka's id of the topic, empty where brokers have none"),
        Column("partition", "int", "partition of the topic"),
        Column(
            "from_offset",
            "bigint",
            "source: first offset of the range; remote: where its first record belongs; elsewhere: the pass before",
        ),
        Column("until_offset", "bigint", "source: end of the range, exclusive; otherwise null"),
        Column("run_id", "string", "the driver's life that planned it, see the table runs"),
        Column("at", "timestamp", "when the row was written, by the driver's clock"),
    ),
    stamp="at",
)
SOURCE, REMOTE, ELSEWHERE = "source", "remote", "elsewhere"
# The columns that name a partition, and those of a `PassRow`.
PLACE = ("side", "topic", "topic_id", "partition")
_PASS_ROW = (*PLACE, "from_offset", "until_offset")


@dataclass(frozen=True)
class PassRow:
    """One partition of a pass. `until_offset` is there on the side of the source only."""

    side: str
    topic: str
    topic_id: str
    partition: int
    from_offset: int
    until_offset: Optional[int] = None

    @property
    def place(self) -> Tuple[str, int]:
        """(topic, partition)."""
        return self.topic, self.partition

    @property
    def stands(self) -> int:
        """Where the partition stands once the pass is done; of a remote one, before it."""
        return self.from_offset if self.until_offset is None else self.until_offset


@dataclass(frozen=True)
class RowPass:
    """Pass `number` of a flow. `told`: a group told of it, and it may be in another process's table only."""

    number: int
    rows: Tuple[PassRow, ...]
    told: bool = field(default=False, compare=False)

    def of(self, side: str) -> Tuple[PassRow, ...]:
        """The partitions of one side."""
        return tuple(row for row in self.rows if row.side == side)

    @property
    def empty(self) -> bool:
        """Whether it copies nothing: all before it is done."""
        return all(row.from_offset == row.until_offset for row in self.of(SOURCE))


class PlannedByAnother(FencedError):
    """Another driver planned the pass `found`."""

    def __init__(self, flow: str, found: RowPass) -> None:
        super().__init__(f"{flow}: another driver copies this flow", "let one driver run each flow")
        self.found = found


class RowPassTable:
    """The passes of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, ROW_PASSES)

    def latest(self, flow: str) -> Optional[RowPass]:
        """The last pass of `flow`. `None` before the first."""
        number, rows, _ = self._latest(flow)
        return RowPass(number, rows) if rows else None

    def since(self, flow: str, number: int) -> Iterator[RowPass]:
        """The passes of `flow` behind pass `number`, in order. Only the last one has all its rows; of the others those
        are left out that copied nothing, or that found a remote log where it was before. Raises StateError."""
        rows = self._table.rows()
        if rows is None:
            return
        with self._table.explained("read"):
            own = rows.where((F.col("flow") == flow) & (F.col("pass") > number)).select("pass", *_PASS_ROW)
            copied = "side = 'source' and until_offset > from_offset"
            last = own.agg(F.max("pass").alias("last"))
            stood = own.where("side != 'source'").groupBy(*_PASS_ROW).agg(F.min("pass").alias("pass"))
            whole = own.join(F.broadcast(last), own["pass"] == last["last"]).where(f"not ({copied})").drop("last")
            found = own.where(copied).unionByName(stood).unionByName(whole).orderBy("pass")
            # One by one: a flow that goes on for months has millions of them.
            for each, together in groupby(found.toLocalIterator(), key=itemgetter("pass")):
                yield RowPass(each, tuple(map(_pass_row, together)))

    def firsts(self, flow: str) -> Tuple[Tuple[int, PassRow], ...]:
        """The first row of every partition that a pass of `flow` ever had, and the number of that pass."""
        rows = self._table.rows()
        if rows is None:
            return ()
        with self._table.explained("read"):
            each = rows.where(F.col("flow") == flow).groupBy(*PLACE)
            first = F.min(F.struct("pass", "from_offset", "until_offset")).alias("first")
            found = each.agg(first).select(*PLACE, "first.*").collect()
        return tuple((row["pass"], _pass_row(row)) for row in found)

    def numbered(self, flow: str, numbers: Collection[int]) -> Mapping[int, RowPass]:
        """Those passes of `flow`."""
        rows = self._table.rows() if numbers else None
        if rows is None:
            return {}
        with self._table.explained("read"):
            found = rows.where((F.col("flow") == flow) & F.col("pass").isin(list(numbers))).collect()
        return {n: RowPass(n, tuple(_pass_row(row) for row in found if row["pass"] == n)) for n in numbers}

    def add(self, flow: str, planned: RowPass, *, run_id: str) -> None:
        """Write a pass down, in one commit. PlannedByAnother where another driver has planned one of that number."""
        given = [
            (flow, planned.number, row.side, row.topic, row.topic_id, row.partition, row.from_offset, row.until_offset)
            for row in planned.rows
        ]
        # Of two that do this at the same time Delta refuses one, which then finds the other's rows.
        self._table.add_absent([(*row, run_id) for row in given], ("flow", "pass"))
        number, rows, written_by = self._latest(flow)
        if (number, written_by) != (planned.number, run_id):
            raise PlannedByAnother(flow, RowPass(number, rows))

    def _latest(self, flow: str) -> Tuple[int, Tuple[PassRow, ...], str]:
        rows = self._table.rows()
        if rows is None:
            return -1, (), ""
        with self._table.explained("read"):
            own = rows.where(F.col("flow") == flow)
            last = own.agg(F.max("pass").alias("pass")).collect()[0]["pass"]
            found = own.where(F.col("pass") == last).collect() if last is not None else []
        written_by = str(found[0]["run_id"]) if found else ""
        return last or 0, tuple(map(_pass_row, found)), written_by


def _pass_row(row: Row) -> PassRow:
    return PassRow(*(row[name] for name in _PASS_ROW))
