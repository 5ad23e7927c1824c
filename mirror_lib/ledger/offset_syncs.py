"""The ledger: appends offset syncs exactly once, and reads positions, ranges and reverse look-ups."""

from __future__ import annotations

from array import array
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.delta_table import StateTable, own_session
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
)
from mirror_lib.ledger.reductions import POSITION_COLUMNS, last_positions
from mirror_lib.ledger.run_rows import Value, packed, run_rows
from mirror_lib.ledger.runs_by_partition import KEY, NUMBERS, parts_of, runs_in_parts
from mirror_lib.ledger.tables import OFFSET_SYNCS, PARTITION_KEY, partition_key, topic_pair
from mirror_lib.spark.jobs import shipped
from mirror_lib.threads import BackgroundCall

# A larger append uses a Python worker, which takes a tenth of a second to start.
ROWS_IN_A_PLAN = 5_000
STREAM = {
    # Commits that delete or rewrite rows are skipped. Delta 2.3 has no such option: there `ignoreChanges` keeps the
    # stream alive. Later versions take the first of the two where both are given.
    "skipChangeCommits": "true",
    "ignoreChanges": "true",
    # All files in one micro-batch: a part of the rows would translate wrongly.
    "maxFilesPerTrigger": str(2**31 - 1),
}
# Rows of flows that repartition records.
IS_RANGE = "upstream_until is not null"
# Only dead-letter records and ranges have a remote partition.
_IS_EXACT = "remote_partition is null"
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
        query_id: str,
        batch_id: int,
    ) -> None:
        """Add `rows` and the rows of `runs` in one commit."""
        same: Dict[str, Value] = {"flow": flow, "run_id": run_id, "query_id": query_id, "batch_id": batch_id}
        if len(rows) + sum(map(len, runs)) <= ROWS_IN_A_PLAN:
            single = (*rows, *(row for each in runs for row in each.rows()))
            self._table.append([_values(same, row) for row in single])
            return
        same[OFFSET_SYNCS.stamp] = self._table.stamp()
        given = [({**same, **vars(each.like)}, each.flat) for each in (*runs, *map(_alone, rows))]
        columns = self._table.written_columns
        stream = packed(columns, NUMBERS, given)
        with self._table.explained("write to"), shipped(self._spark, stream) as held:
            self._table.append_frame(run_rows(self._spark, columns, held))

    def begin(
        self, flow: str, rows: Sequence[LedgerRow], *, run_id: str, query_id: str, batch_id: int
    ) -> Mapping[PartitionKey, Position]:
        """Add `rows`, one for each partition, for partitions without a row, and return the position of each partition.

        If two drivers begin a partition at the same time, one of them gets the other's position.
        """
        same: Dict[str, Value] = {"flow": flow, "run_id": run_id, "query_id": query_id, "batch_id": batch_id}
        self._table.add_absent([_values(same, row) for row in rows], ("flow", *PARTITION_KEY))
        standing = self.positions(flow, sorted({row.source_topic for row in rows}))
        return {row.key: standing[row.key] for row in rows}

    def positions(self, flow: str, topics: Optional[Sequence[str]] = None) -> Mapping[PartitionKey, Position]:
        """Where each partition resumes: the ends of the row that ends last downstream. Empty before the first append.

        `topics` are source topics, `None` is all. If several rows end at one downstream offset, the latest commit
        counts, since a truncated source resumes from a lower offset. Within one commit the row with the highest
        upstream end counts. Rows that this object appends afterwards have later commit times, whatever the clock.
        """
        if topics is None:
            read = self._table.rows_without_spark(POSITION_COLUMNS, flow)
            if read is not None:
                stands = {} if read.rows is None else last_positions(read.rows)
                self._table.stamp(round(max((at[2].timestamp() for at in stands.values()), default=0) * 1e6))
                return {key: Position(at[0], at[1]) for key, at in stands.items()}

        def query(rows: DataFrame) -> DataFrame:
            own = rows if topics is None else rows.where(F.col("source_topic").isin(list(topics)))
            downstream, upstream = F.expr(_DOWNSTREAM_END), F.expr(_UPSTREAM_END)
            at = F.expr("unix_micros(committed_at)").alias("at")
            ends = F.struct(downstream.alias("downstream"), at, upstream.alias("upstream"))
            return own.groupBy(*PARTITION_KEY).agg(F.max(ends).alias("last"))

        lasts = {partition_key(row): row["last"] for row in self._found(flow, query)}
        self._table.stamp(max((last["at"] for last in lasts.values()), default=0))
        return {key: Position(last["upstream"], last["downstream"]) for key, last in lasts.items()}

    def last_records(self, flow: str) -> Mapping[PartitionKey, Position]:
        """The offsets of each partition's last recorded record on both sides, if the position follows it."""

        def query(rows: DataFrame) -> DataFrame:
            ends = F.struct(F.expr(_DOWNSTREAM_END).alias("downstream"), F.expr(_UPSTREAM_END).alias("upstream"))
            last = F.max(F.when(F.col("record_count") > 0, ends)).alias("last")
            return rows.groupBy(*PARTITION_KEY).agg(last).where("last is not null")

        lasts = {partition_key(row): row["last"] for row in self._found(flow, query)}
        at = {key: Position(last["upstream"] - 1, last["downstream"] - 1) for key, last in lasts.items()}
        stands = self.positions(flow) if at else {}
        # After a loss the copy resumes from a lower offset: the record before it is another one.
        return {key: last for key, last in at.items() if last.upstream_offset < stands[key].upstream_offset}

    def dead_letters_at(self, flow: str, remote_topic: str, remote_topic_id: str) -> Mapping[DeadLetterPlace, int]:
        """The end of the recorded dead-letter records in a dead letter topic, by their origin."""

        def query(rows: DataFrame) -> DataFrame:
            there = (F.col("remote_topic") == remote_topic) & (F.col("remote_topic_id") == remote_topic_id)
            own = rows.where(there).where("upstream_until is null")
            return own.groupBy(*DeadLetterPlace._fields).agg(F.max(F.expr(_DOWNSTREAM_END)).alias("end"))

        found = self._found(flow, query, of="remote_partition is not null")
        return {DeadLetterPlace(*row[:-1]): row["end"] for row in found}

    def triples(self, flow: str) -> Mapping[PartitionKey, Numbers]:
        """Every partition's offset syncs, flat as in `mirror_lib.ledger.intervals`.

        In upstream order, and joined by `ledger.runs_by_partition`, so each joined run takes 24 bytes. Nothing is
        checked: the reader must refuse contradictory rows. Re-created topics have another id, so another key. Raises
        StateError if a row lacks a number.
        """
        every = self._table.rows()
        if every is None:
            return {}
        with self._table.explained("read"):
            rows, parts = _of(flow, every), parts_of(self._table.count())
            if parts > 1:
                rows = _of(flow, self._table.rows_of_one_version())
            return _by_partition(flow, rows, parts)

    def stream(self, flow: str) -> Optional[DataFrame]:
        """A streaming DataFrame of the flow's rows for `triples_of`: first, in one micro-batch, the rows of now, then
        those that are added. `None` if there is no ledger yet.

        The stream reports no deleted rows, so its reader must read the whole table now and then. With Delta 2.3 it
        repeats the rows that a compaction or a deletion rewrote, merged as they are then.
        """
        if self._table.rows() is None:
            return None
        with self._table.explained("read"):
            rows = own_session(self._spark).readStream.format("delta").options(**STREAM).load(self.path)
            return _of(flow, self._table.complete(rows))

    def triples_of(self, flow: str, batch: DataFrame) -> Mapping[PartitionKey, Numbers]:
        """`triples` of a micro-batch of `stream`."""
        with self._table.explained("read"):
            return _by_partition(flow, batch, parts_of(batch.count()))

    def range_positions(self, flow: str) -> RangePositions:
        """The positions of a flow that repartitions records. Empty before its first row.

        For a re-created topic the id of the latest row counts.
        """
        read = self._table.rows_without_spark(["upstream_until"], flow)
        none = read is not None and (read.rows is None or read.rows["upstream_until"].null_count == read.rows.num_rows)
        if none:
            return RangePositions()

        def query(rows: DataFrame) -> DataFrame:
            return rows.groupBy(*PARTITION_KEY, "remote_topic", "remote_partition").agg(
                F.min("upstream_offset").alias("upstream_begin"),
                F.max("upstream_until").alias("upstream_end"),
                F.min("downstream_offset").alias("downstream_begin"),
                F.max("downstream_until").alias("downstream_end"),
                F.min("committed_at").alias("first_at"),
                F.max("committed_at").alias("last_at"),
            )

        found = sorted(self._found(flow, query, IS_RANGE), key=itemgetter("last_at"))
        sources = _log_positions(found, ("source_topic", "partition", "source_topic_id"), "upstream")
        remotes = _log_positions(found, ("remote_topic", "remote_partition", "remote_topic_id"), "downstream")
        return RangePositions(sources, remotes, frozenset(map(topic_pair, found)), _grown(found, remotes))

    def history(self, flow: str, key: PartitionKey, downstream_offset: int) -> Optional[Tuple[Position, int]]:
        """The start of the row with the lowest downstream offset, and the first upstream offset whose record is at or
        after `downstream_offset`, or would be written there next. `None` if the ledger has no row of `key`.

        For a truncated remote log: a copy from that offset on neither loses nor doubles records.
        """
        into_run = F.greatest(F.lit(0), F.lit(downstream_offset) - F.col("downstream_offset"))
        beyond = F.when(F.expr(_DOWNSTREAM_END) > downstream_offset, F.col("upstream_offset") + into_run)
        first_beyond = F.min(F.when(F.col("record_count") > 0, beyond))
        upstream = F.coalesce(first_beyond, F.max(F.expr(_UPSTREAM_END))).alias("upstream")
        first = F.min(F.struct("downstream_offset", "upstream_offset")).alias("first")
        for row in self._found(flow, lambda rows: rows.where(_is(key)).agg(first, upstream)):
            if row["first"] is not None:
                return Position(row["first"]["upstream_offset"], row["first"]["downstream_offset"]), row["upstream"]
        return None

    def void_from(self, flow: str, key: PartitionKey, downstream_offset: int) -> None:
        """Remove everything from `downstream_offset` on, in one commit: runs are cut there, later rows deleted.

        For records that a truncated remote log no longer has. Call it before the mirror copies them again.
        """
        if self._table.rows() is None:
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

    def _found(self, flow: str, query: Callable[[DataFrame], DataFrame], of: str = _IS_EXACT) -> List[Row]:
        return self._table.collected(lambda rows: query(_of(flow, rows, of)))


def _by_partition(flow: str, rows: DataFrame, parts: int) -> Mapping[PartitionKey, Numbers]:
    # Keys are long and few. Only their hashes are read with the numbers, so that Spark neither shuffles nor sorts rows.
    numbers = BackgroundCall(f"{flow} offsets", partial(runs_in_parts, _with_key(rows).select(KEY, *NUMBERS), parts))
    keys = _with_key(rows.select(*PARTITION_KEY).distinct()).collect()
    if len({row[KEY] for row in keys}) < len(keys):
        raise ValueError("two partitions have one hash")
    by_hash = numbers.result()
    # The two queries may read different versions. A key that is in one of them only was added or cut meanwhile.
    return {partition_key(row): by_hash[row[KEY]] for row in keys if row[KEY] in by_hash}


def _of(flow: str, rows: DataFrame, of: str = _IS_EXACT) -> DataFrame:
    return rows.where(F.col("flow") == flow).where(of)


def _with_key(rows: DataFrame) -> DataFrame:
    return rows.withColumn(KEY, F.xxhash64(*PARTITION_KEY))


def _values(same: Mapping[str, Value], row: LedgerRow) -> Tuple[object, ...]:
    values = {**same, **vars(row)}
    return tuple(values[name] for name, _ in OFFSET_SYNCS.given())


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


def _alone(row: LedgerRow) -> LedgerRuns:
    return LedgerRuns(row, array("q", (row.upstream_offset, row.downstream_offset, row.record_count)).tobytes())


def _is(key: PartitionKey) -> SparkColumn:
    condition = F.col("partition") == key.partition
    for name in ("source_topic_id", "remote_topic_id", "source_topic"):
        condition = condition & (F.col(name) == getattr(key, name))
    return condition
