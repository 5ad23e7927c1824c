"""The ledger: appends offset syncs exactly once, and reads positions, ranges and reverse look-ups.

The columns are public: `docs/reference/tables.md` documents them for users.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Dict, FrozenSet, Mapping, Optional, Sequence, Set, Tuple

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.delta_table import COMMIT_NAME, StateTable
from mirror_lib.ledger.intervals import Numbers
from mirror_lib.ledger.records import (
    NO_PARTITION,
    DeadLetterPlace,
    LedgerRow,
    LedgerRuns,
    LogPosition,
    PartitionKey,
    Position,
    RangePositions,
    TopicPair,
)
from mirror_lib.ledger.run_rows import RunRows, Value, run_rows
from mirror_lib.ledger.runs_by_partition import KEY, NUMBERS, parts_of, runs_in_parts
from mirror_lib.ledger.table_reader import POSITION_COLUMNS, last_positions
from mirror_lib.ledger.table_schema import COPIED_PARTITION, PARTITION_KEY, Column, TableSchema, partition_key
from mirror_lib.spark.jobs import shipped
from mirror_lib.threads import BackgroundCall

OFFSET_SYNCS = TableSchema(
    name="offset_syncs",
    comment="record_count records from upstream_offset on lie at downstream_offset on, with no gap on either side",
    columns=(
        *COPIED_PARTITION,
        Column("upstream_offset", "bigint", "offset on A of the first record"),
        Column("downstream_offset", "bigint", "offset on B of the first record"),
        Column("record_count", "bigint", "records in the run; 0 is a position: what comes next, comes here"),
        Column("run_id", "string", "the driver's life that wrote the row, see the table runs"),
        Column("query_id", "string", "Spark's id of the streaming query, empty outside of one"),
        Column("batch_id", "bigint", "Spark's batch id, -1 outside of a batch"),
        Column("committed_at", "timestamp", "when the row was written, by the driver's clock"),
        Column(
            "remote_partition",
            "int",
            "partition on B of a dead-letter record or a range, -1 for a range on A; else null: as on the source",
            since=2,
        ),
        Column(
            "upstream_until",
            "bigint",
            "of a range of a flow that repartitions records: its end on A, exclusive; null elsewhere",
            since=2,
        ),
        Column(
            "downstream_until",
            "bigint",
            "of a range of such a flow: its end on B, exclusive; null elsewhere",
            since=2,
        ),
    ),
    stamp="committed_at",
)
# A larger append uses a Python worker, which takes a tenth of a second to start.
ROWS_IN_A_PLAN = 5_000
# Rows of flows that repartition records.
IS_RANGE = "upstream_until is not null"
_IS_EXACT = "remote_partition is null"
_PAIR = ("source_topic", "source_topic_id", "remote_topic", "remote_topic_id")
_UPSTREAM_END = "upstream_offset + record_count"
_DOWNSTREAM_END = "downstream_offset + record_count"


class OffsetSyncTable:
    """The ledger of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._spark = spark
        self._table = StateTable(spark, state, OFFSET_SYNCS)

    @property
    def path(self) -> str:
        return self._table.path

    def append(
        self,
        flow: str,
        rows: Sequence[LedgerRow],
        runs: Sequence[LedgerRuns] = (),
        *,
        run_id: str,
        append_number: int,
        query_id: str,
        batch_id: int,
    ) -> None:
        """Add `rows` and the rows of `runs` in one commit.

        A repeated call with the last `append_number` adds nothing if that commit exists. `run_id` is new for every run,
        `append_number` counts 0, 1, 2… in it. These two are the commit's name, not Spark's query and batch id: a
        replayed batch is planned again from the ledger and may copy other ranges. Under the same query and batch id its
        rows would then be dropped silently.
        """
        name = {COMMIT_NAME: f"{flow} {run_id} {append_number}"}
        if len(rows) + sum(map(len, runs)) <= ROWS_IN_A_PLAN:
            single = (*rows, *(row for each in runs for row in each.rows()))
            self._table.append([_values(flow, row, run_id, query_id, batch_id) for row in single], name)
            return
        same: Dict[str, Value] = {"flow": flow, "run_id": run_id}
        same.update(query_id=query_id, batch_id=batch_id)
        given = [RunRows(_same(each.like), each.flat) for each in (*runs, *map(_alone, rows))]
        with self._table.explained("write to"), shipped(self._spark, given) as held:

            def made(columns: Sequence[Tuple[str, str]], stamp: int) -> DataFrame:
                return run_rows(self._spark, columns, NUMBERS, held, {**same, OFFSET_SYNCS.stamp: stamp})

            self._table.append_made(made, name)

    def begin(
        self, flow: str, rows: Sequence[LedgerRow], *, run_id: str, query_id: str, batch_id: int
    ) -> Mapping[PartitionKey, Position]:
        """Add `rows`, one for each partition, for partitions without a row, and return the position of each partition.

        If two drivers begin a partition at the same time, one of them gets the other's position.
        """
        values = [_values(flow, row, run_id, query_id, batch_id) for row in rows]
        self._table.add_absent(values, ("flow", *PARTITION_KEY))
        standing = self.positions(flow, sorted({row.source_topic for row in rows}))
        return {row.key: standing[row.key] for row in rows}

    def positions(self, flow: str, topics: Optional[Sequence[str]] = None) -> Mapping[PartitionKey, Position]:
        """Where each partition resumes: the ends of the row that ends last downstream. Empty before the first append.

        `topics` are source topics, `None` is all. If several rows end at one downstream offset, the latest commit
        counts, since a truncated source resumes from a lower offset. Within one commit the row with the highest
        upstream end counts.
        """
        if topics is None:
            read = self._table.rows_without_spark(POSITION_COLUMNS, flow)
            if read is not None:
                stands = {} if read.rows is None else last_positions(read.rows)
                return {PartitionKey(*key): Position(at[0], at[1]) for key, at in stands.items()}
        rows = self._of_flow(flow)
        if rows is None:
            return {}
        if topics is not None:
            rows = rows.where(F.col("source_topic").isin(list(topics)))
        ends = (
            F.expr(_DOWNSTREAM_END).alias("downstream"),
            F.col("committed_at"),
            F.expr(_UPSTREAM_END).alias("upstream"),
        )
        last = F.max(F.struct(*ends))
        with self._table.explained("read"):
            found = rows.groupBy(*PARTITION_KEY).agg(last.alias("last")).collect()
        return {partition_key(row): Position(row["last"]["upstream"], row["last"]["downstream"]) for row in found}

    def last_records(self, flow: str) -> Mapping[PartitionKey, Position]:
        """The offsets of each partition's last recorded record on both sides, if the position follows it."""
        rows = self._of_flow(flow)
        if rows is None:
            return {}
        ends = F.struct(F.expr(_DOWNSTREAM_END).alias("downstream"), F.expr(_UPSTREAM_END).alias("upstream"))
        last = F.max(F.when(F.col("record_count") > 0, ends)).alias("last")
        with self._table.explained("read"):
            found = rows.groupBy(*PARTITION_KEY).agg(last).where("last is not null").collect()
        at = {partition_key(row): Position(row["last"]["upstream"] - 1, row["last"]["downstream"] - 1) for row in found}
        stands = self.positions(flow)
        # After a loss the copy resumes from a lower offset: the record before it is another one.
        return {key: last for key, last in at.items() if last.upstream_offset < stands[key].upstream_offset}

    def dead_letters_at(self, flow: str, remote_topic: str, remote_topic_id: str) -> Mapping[DeadLetterPlace, int]:
        """The end of the recorded dead-letter records in a dead letter topic, by their origin."""
        rows = self._table.rows(made_elsewhere=True)
        if rows is None:
            return {}
        own = rows.where((F.col("flow") == flow) & (F.col("remote_topic") == remote_topic))
        own = own.where("remote_partition is not null and upstream_until is null")
        own = own.where(F.col("remote_topic_id") == remote_topic_id)
        with self._table.explained("read"):
            found = own.groupBy(*DeadLetterPlace._fields).agg(F.max(F.expr(_DOWNSTREAM_END)).alias("end")).collect()
        return {DeadLetterPlace(*row[:-1]): row["end"] for row in found}

    def triples(self, flow: str) -> Mapping[PartitionKey, Numbers]:
        """Every partition's offset syncs, flat as in `mirror_lib.ledger.intervals`.

        In upstream order, and joined by `ledger.runs_by_partition`, so each joined run takes 24 bytes. Nothing is
        checked: the reader must refuse contradictory rows. Re-created topics have another id, so another key. Raises
        StateError if a row lacks a number.
        """
        rows = self._of_flow(flow)
        if rows is None:
            return {}
        with self._table.explained("read"):
            parts = parts_of(self._table.count())
            if parts > 1:
                rows = _of(flow, self._table.rows_of_one_version())
            return _by_partition(flow, rows, parts)

    def triples_of(self, flow: str, rows: DataFrame) -> Mapping[PartitionKey, Numbers]:
        with self._table.explained("read"):
            return _by_partition(flow, rows.where(_IS_EXACT), parts_of(self._table.count()))

    def range_positions(self, flow: str) -> RangePositions:
        """The positions of a flow that repartitions records. Empty before its first row.

        For a re-created topic the id of the latest row counts.
        """
        read = self._table.rows_without_spark(["upstream_until"], flow)
        none = read is not None and (read.rows is None or read.rows["upstream_until"].null_count == read.rows.num_rows)
        rows = None if none else self._ranges(flow)
        if rows is None:
            return RangePositions()
        names = ("source_topic", "source_topic_id", "partition", "remote_topic", "remote_topic_id", "remote_partition")
        with self._table.explained("read"):
            each = rows.groupBy(*names).agg(
                F.min("upstream_offset").alias("upstream_begin"),
                F.max("upstream_until").alias("upstream_end"),
                F.min("downstream_offset").alias("downstream_begin"),
                F.max("downstream_until").alias("downstream_end"),
                F.min("committed_at").alias("first_at"),
                F.max("committed_at").alias("last_at"),
            )
            found = sorted(each.collect(), key=itemgetter("last_at"))
        stand = _positions(found, "remote_partition")
        return replace(stand, grown=_grown(found, stand.remotes))

    def spans(self, flow: str) -> RangePositions:
        """The same for a flow's exact runs, whose partitions have the same number on both sides."""
        rows = self._of_flow(flow)
        if rows is None:
            return RangePositions()
        with self._table.explained("read"):
            each = rows.groupBy(*PARTITION_KEY, "remote_topic").agg(
                F.min("upstream_offset").alias("upstream_begin"),
                F.max(F.expr(_UPSTREAM_END)).alias("upstream_end"),
                F.min("downstream_offset").alias("downstream_begin"),
                F.max(F.expr(_DOWNSTREAM_END)).alias("downstream_end"),
                F.max("committed_at").alias("last_at"),
            )
            found = sorted(each.collect(), key=itemgetter("last_at"))
        return _positions(found, "partition")

    def _ranges(self, flow: str) -> Optional[DataFrame]:
        rows = self._table.rows(made_elsewhere=True)
        with self._table.explained("read"):
            return None if rows is None else rows.where(F.col("flow") == flow).where(IS_RANGE)

    def first(self, flow: str, key: PartitionKey) -> Optional[Position]:
        """The start of the row with the lowest downstream offset. `None` if the ledger has no row of `key`."""
        rows = self._of_flow(flow)
        if rows is None:
            return None
        begins = F.min(F.struct("downstream_offset", "upstream_offset"))
        with self._table.explained("read"):
            found = rows.where(_is(key)).agg(begins.alias("first")).collect()[0]["first"]
        return None if found is None else Position(found["upstream_offset"], found["downstream_offset"])

    def upstream_of(self, flow: str, key: PartitionKey, downstream_offset: int) -> Optional[int]:
        """The first upstream offset whose record is at or after `downstream_offset`, or would be written there next.

        For a truncated remote log: a copy from this offset on neither loses nor doubles records. `None` if the ledger
        has no row of `key`.
        """
        rows = self._of_flow(flow)
        if rows is None:
            return None
        into_run = F.greatest(F.lit(0), F.lit(downstream_offset) - F.col("downstream_offset"))
        beyond = F.when(F.expr(_DOWNSTREAM_END) > downstream_offset, F.col("upstream_offset") + into_run)
        first_beyond = F.min(F.when(F.col("record_count") > 0, beyond))
        with self._table.explained("read"):
            found = rows.where(_is(key)).agg(F.coalesce(first_beyond, F.max(F.expr(_UPSTREAM_END))).alias("offset"))
            offset = found.collect()[0]["offset"]
        return None if offset is None else int(offset)

    def void_from(self, flow: str, key: PartitionKey, downstream_offset: int) -> None:
        """Remove everything from `downstream_offset` on, in one commit: runs are cut there, later rows deleted.

        For records that a truncated remote log no longer has. Call it before the mirror copies them again.
        """
        if self._of_flow(flow) is None:
            return
        beyond = (F.col("flow") == flow) & _is(key) & (F.expr(_DOWNSTREAM_END) > downstream_offset)
        # One MERGE: a delete and an update would be two commits, and a crash between them would leave a wrong ledger.
        once = self._spark.range(1).toDF("_once")
        self._table.change(
            lambda: self._table.delta()
            .merge(once, beyond)
            .whenMatchedDelete(F.col("downstream_offset") >= downstream_offset)
            .whenMatchedUpdate(set={"record_count": F.lit(downstream_offset) - F.col("downstream_offset")})
            .execute()
        )

    def _of_flow(self, flow: str) -> Optional[DataFrame]:
        rows = self._table.rows(made_elsewhere=True)
        with self._table.explained("read"):
            return None if rows is None else _of(flow, rows)


def _by_partition(flow: str, rows: DataFrame, parts: int) -> Mapping[PartitionKey, Numbers]:
    # Keys are long and few. Only their hashes are read with the numbers, so that Spark neither shuffles nor sorts rows.
    numbers = BackgroundCall(f"{flow} offsets", partial(runs_in_parts, _with_key(rows).select(KEY, *NUMBERS), parts))
    keys = _with_key(rows.select(*PARTITION_KEY).distinct()).collect()
    if len({row[KEY] for row in keys}) < len(keys):
        raise ValueError("two partitions have one hash")
    by_hash = numbers.result()
    # The two queries may read different versions. A key that is in one of them only was added or cut meanwhile.
    return {partition_key(row): by_hash[row[KEY]] for row in keys if row[KEY] in by_hash}


def _of(flow: str, rows: DataFrame) -> DataFrame:
    """The flow's exact rows: only dead-letter records and ranges have a `remote_partition`."""
    return rows.where(F.col("flow") == flow).where(_IS_EXACT)


def _with_key(rows: DataFrame) -> DataFrame:
    return rows.withColumn(KEY, F.xxhash64(*PARTITION_KEY))


def _values(flow: str, row: LedgerRow, run_id: str, query_id: str, batch_id: int) -> Tuple[object, ...]:
    topics = (row.source_topic, row.remote_topic, row.partition, row.source_topic_id, row.remote_topic_id)
    offsets = (row.upstream_offset, row.downstream_offset, row.record_count)
    range_columns = (row.remote_partition, row.upstream_until, row.downstream_until)
    return (flow, *topics, *offsets, run_id, query_id, batch_id, *range_columns)


def _positions(rows: Sequence[Row], remote_partition: str) -> RangePositions:
    sources = _log_positions(rows, ("source_topic", "partition", "source_topic_id"), "upstream")
    remotes = _log_positions(rows, ("remote_topic", remote_partition, "remote_topic_id"), "downstream")
    return RangePositions(sources, remotes, frozenset(TopicPair(*(row[name] for name in _PAIR)) for row in rows))


def _log_positions(rows: Sequence[Row], columns: Tuple[str, str, str], side: str) -> Dict[TopicPartition, LogPosition]:
    """The positions of the partitions on one side. `rows` are ordered by commit time."""
    found: Dict[TopicPartition, LogPosition] = {}
    for row in rows:
        topic, number, topic_id = (row[name] for name in columns)
        if number == NO_PARTITION:
            continue
        stand, before = LogPosition(topic_id, row[f"{side}_end"], row[f"{side}_begin"]), found.get((topic, number))
        if before is not None and before.topic_id == topic_id:
            stand = LogPosition(topic_id, max(stand.offset, before.offset), min(stand.begin, before.begin))
        found[topic, number] = stand
    return found


def _grown(rows: Sequence[Row], remotes: Mapping[TopicPartition, LogPosition]) -> FrozenSet[str]:
    """Remote topics whose partitions do not all have their first row in the same commit."""
    firsts: Dict[TopicPartition, datetime] = {}
    for row in rows:
        place = (row["remote_topic"], row["remote_partition"])
        if place in remotes and remotes[place].topic_id == row["remote_topic_id"]:
            firsts[place] = min(row["first_at"], firsts.get(place, row["first_at"]))
    begun: Dict[str, Set[datetime]] = {}
    for (topic, _), at in firsts.items():
        begun.setdefault(topic, set()).add(at)
    return frozenset(topic for topic, found in begun.items() if len(found) > 1)


def _same(row: LedgerRow) -> Mapping[str, Value]:
    return {name: getattr(row, name) for name in LedgerRow.__dataclass_fields__ if name not in NUMBERS}


def _alone(row: LedgerRow) -> LedgerRuns:
    return LedgerRuns(row, array("q", (row.upstream_offset, row.downstream_offset, row.record_count)).tobytes())


def _is(key: PartitionKey) -> SparkColumn:
    condition = F.col("partition") == key.partition
    for name in ("source_topic_id", "remote_topic_id", "source_topic"):
        condition = condition & (F.col(name) == getattr(key, name))
    return condition
