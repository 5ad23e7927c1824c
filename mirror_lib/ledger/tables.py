"""The tables beside the ledger: runs, incidents, take-overs, created ACLs, and the producer ids of lanes.

Rows are only added. A run has a row at its start, a row at its end, and signs of life in between.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Optional, Sequence, Set, Tuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.errors import RefusedError
from mirror_lib.facts import AclBinding, TopicPartition
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.records import (
    INCIDENT_KINDS,
    OFFSETS_SKIPPED,
    TOPIC_RECREATED,
    Incident,
    LeftOut,
    MirrorRun,
    PartitionKey,
    TakenOver,
)
from mirror_lib.ledger.table_schema import COPIED_PARTITION, PARTITION_KEY, Column, TableSchema, partition_key
from mirror_lib.spark.jobs import local_rows

RUNS = TableSchema(
    name="runs",
    comment="a row when a flow starts in a driver and one when it ends, signs of life in between; without the second"
    " the run was killed or is under way",
    columns=(
        Column("run_id", "string", "fresh for every driver's life"),
        Column("flow", "string", "A->B"),
        Column("kind", "string", "started, alive or ended"),
        Column("tasks_max", "int", "tasks.max: how many tasks shared the lanes"),
        Column("delivery", "string", "exactly-once or at-least-once"),
        Column("source_cluster_id", "string", "A's own id"),
        Column("target_cluster_id", "string", "B's own id"),
        Column("checkpoint", "string", "folder of Spark's checkpoint, under checkpoints/"),
        Column("outcome", "string", "null while it runs; then ok, stopped, window closed, or the error"),
        Column("records", "bigint", "records copied; null before the end"),
        Column("bytes", "bigint", "bytes of record batches written; null before the end"),
        Column("at", "timestamp", "when it started, was alive or ended, by the driver's clock"),
    ),
    stamp="at",
)
# Older signs of life say nothing that the latest one does not, and each is a file.
KEPT_SIGNS_SECONDS = 3600.0

_SIDES = ("source", "target")


def same_clusters(flow: str, clusters: Tuple[str, str], last: Optional[MirrorRun]) -> None:
    """Raise `RefusedError` where the ids of source and target are not those of the `last` run."""
    for side, now in zip(_SIDES, clusters):
        same_cluster(flow, side, now, last)


def same_cluster(flow: str, side: str, now: str, last: Optional[MirrorRun]) -> None:
    """The same of one side, `source` or `target`."""
    before = now if last is None else dict(zip(_SIDES, (last.source_cluster_id, last.target_cluster_id)))[side]
    if now != before:
        raise RefusedError(
            f"{flow}: the {side} cluster has id {now}, and the ledger was written for {before}",
            "check bootstrap.servers; for another cluster give another `state:` or another alias",
        )


@dataclass(frozen=True)
class OpenRun:
    """A run of `flow` without an end: when it started and when it last gave a sign of life, in Unix seconds."""

    flow: str
    run_id: str
    started: float
    last_sign: float


class RunTable:
    """The runs of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, RUNS)

    def started(self, run: MirrorRun) -> None:
        """Write down that `run` begins."""
        self._table.append([(*_facts(run, "started"), None, None, None)], {})

    def ended(self, run: MirrorRun, *, outcome: str, records: int, bytes: int) -> None:
        """Write down how `run` ended: `outcome` is `ok` or one sentence, free of secrets."""
        self._table.append([(*_facts(run, "ended"), outcome, records, bytes)], {})

    def alive(self, run: MirrorRun) -> None:
        """Write down that `run` is under way."""
        self._table.append([(*_facts(run, "alive"), None, None, None)], {})

    def drop_old_signs(self, flow: str) -> None:
        """Delete the signs of life of `flow` that are an hour old, and their files when no reader needs them."""
        since = F.expr(f"timestamp_micros({round((time.time() - KEPT_SIGNS_SECONDS) * 1e6)})")
        old = (F.col("kind") == "alive") & (F.col("flow") == flow) & (F.col("at") < since)
        self._table.change(lambda: self._table.delta().delete(old))
        self._table.drop_replaced_files()

    def open_runs(self, flows: Sequence[str], seconds: float) -> List[OpenRun]:
        """The runs of `flows` without an end that gave a sign of life in the last `seconds` by this driver's clock."""
        rows = self._table.rows(made_elsewhere=True)
        if rows is None:
            return []
        since = round((time.time() - seconds) * 1e6)
        with self._table.explained("read"):
            of_run = rows.where(F.col("flow").isin(list(flows))).groupBy("flow", "run_id")
            runs = of_run.agg(
                F.expr("min(unix_micros(at)) AS started"),
                F.expr("max(unix_micros(at)) AS last_sign"),
                F.max(F.col("kind") == "ended").alias("ended"),
            )
            found = runs.where(~F.col("ended") & (F.col("last_sign") > since)).orderBy("started").collect()
        return [OpenRun(row["flow"], row["run_id"], row["started"] / 1e6, row["last_sign"] / 1e6) for row in found]

    def latest(self, flow: str) -> Optional[MirrorRun]:
        """The run of `flow` that started last. `None` before the first."""
        return self.latest_with_end(flow)[0]

    def same_clusters(self, flow: str, clusters: Tuple[str, str]) -> None:
        """Raise `RefusedError` where the ids of source and target are not those of the last run of `flow`."""
        same_clusters(flow, clusters, self.latest(flow))

    def same_cluster(self, flow: str, alias: str, cluster_id: str) -> None:
        """The same of the one that is called `alias` in `flow`."""
        same_cluster(flow, "source" if flow.startswith(f"{alias}->") else "target", cluster_id, self.latest(flow))

    def latest_with_end(self, flow: str) -> Tuple[Optional[MirrorRun], bool]:
        """`latest`, and whether that run wrote down that it ended, and with nothing left over."""
        rows = self._table.rows(made_elsewhere=True)
        if rows is None:
            return None, False
        started = F.when(F.col("kind") == "started", F.struct("at", *_FACTS))
        ended_well = (F.col("kind") == "ended") & (F.col("outcome") == "ok")
        with self._table.explained("read"):
            of_run = rows.where(F.col("flow") == flow).groupBy("run_id")
            runs = of_run.agg(F.max(started).alias("run"), F.max(ended_well).alias("ended_well"))
            # One question for both: a start waits for each.
            found = runs.where("run is not null").orderBy(F.desc("run.at")).limit(1).collect()
        if not found:
            return None, False
        return MirrorRun(**{name: found[0]["run"][name] for name in _FACTS}), bool(found[0]["ended_well"])


_FACTS = ("run_id", "flow", "tasks_max", "delivery", "source_cluster_id", "target_cluster_id", "checkpoint")


def _facts(run: MirrorRun, kind: str) -> tuple[object, ...]:
    return (run.run_id, run.flow, kind, *(getattr(run, name) for name in _FACTS[2:]))


INCIDENTS = TableSchema(
    name="incidents",
    comment="data that was lost, skipped, healed or copied again; one row for each partition and range",
    columns=(
        Column("flow", "string", "A->B"),
        Column("run_id", "string", "the driver's life that wrote the row, see the table runs"),
        Column("batch_id", "bigint", "Spark's batch id, -1 outside of a batch"),
        Column("kind", "string", f"{', '.join(INCIDENT_KINDS[:-1])} or {INCIDENT_KINDS[-1]}"),
        Column("topic", "string", "topic on A"),
        Column("partition", "int", "its partition"),
        Column("from_offset", "bigint", "first upstream offset concerned, -1 where not known"),
        Column("until_offset", "bigint", "upstream offset after the last one, -1 where not known"),
        Column("reason", "string", "one sentence"),
        Column("at", "timestamp", "when the row was written, by the driver's clock"),
    ),
    stamp="at",
)


_RANGE = (("topic", "string"), ("partition", "int"), ("first", "bigint"), ("end", "bigint"))
# So many ranges of a partition are told of one by one.
RANGES_TOLD = 20


class IncidentTable:
    """The incidents of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, INCIDENTS)

    def append(self, flow: str, incidents: Sequence[Incident], *, run_id: str, batch_id: int) -> None:
        """Add `incidents` in one commit; none, no commit."""
        self._table.append([_incident_values(flow, incident, run_id, batch_id) for incident in incidents], {})

    def skipped(self, flow: str, ranges: Sequence[Tuple[str, int, int, int]]) -> List[Tuple[str, int, int]]:
        """Topic, partition and offset of what `on.error: skip` left out within `ranges`: topic, partition, first offset
        and end. Raises StateError."""
        rows = self._table.rows()
        if rows is None:
            return []
        with self._table.explained("read"):
            asked = local_rows(rows.sparkSession, _RANGE, ranges)
            own = rows.where((F.col("flow") == flow) & (F.col("kind") == OFFSETS_SKIPPED))
            found = own.join(F.broadcast(asked), ["topic", "partition"])
            found = found.where("from_offset >= first and from_offset < end")
            told = found.select("topic", "partition", "from_offset").distinct().collect()
        return [(row["topic"], row["partition"], row["from_offset"]) for row in told]

    def left_out(self, flow: str) -> Dict[TopicPartition, LeftOut]:
        """What `on.error: skip` left out, by partition of the topics that are there now. Raises StateError."""
        rows = self._table.rows()
        if rows is None:
            return {}
        with self._table.explained("read"):
            own = rows.where(F.col("flow") == flow)
            recreated = own.where(F.col("kind") == TOPIC_RECREATED).groupBy("topic").agg(F.max("at").alias("since"))
            skipped = own.where(F.col("kind") == OFFSETS_SKIPPED).join(recreated, "topic", "left")
            # A range may be told twice, after a crash.
            once = skipped.where("since is null or at > since")
            once = once.select("topic", "partition", "from_offset", "until_offset").distinct()
            found = once.groupBy("topic", "partition").agg(
                F.expr("sum(until_offset - from_offset)").alias("offsets"),
                F.expr(f"slice(array_sort(collect_list(struct(from_offset, until_offset))), 1, {RANGES_TOLD})").alias(
                    "ranges"
                ),
            )
            told = found.collect()
        return {
            (row["topic"], row["partition"]): LeftOut(row["offsets"], tuple((a, b) for a, b in row["ranges"]))
            for row in told
        }


def _incident_values(flow: str, incident: Incident, run_id: str, batch_id: int) -> tuple[object, ...]:
    where = (incident.topic, incident.partition, incident.from_offset, incident.until_offset)
    return (flow, run_id, batch_id, incident.kind, *where, incident.reason)


TAKEOVERS = TableSchema(
    name="takeovers",
    comment="one row for each partition that was taken over from another tool",
    columns=(
        *COPIED_PARTITION,
        Column("taken_from", "string", "where the position was kept: a topic on B, or a group on A"),
        Column("kept_offset", "bigint", "the next upstream offset by that position; -1 where none was kept"),
        Column("upstream_offset", "bigint", "where the mirror goes on"),
        Column("downstream_offset", "bigint", "the end of the remote log, where it goes on writing"),
        Column("tail_records", "bigint", "records that lay on the remote log behind the kept position"),
        Column("doubled_records", "bigint", "records that lay there once more"),
        Column("older_records", "boolean", "whether the remote log holds records before those that were compared"),
        Column("run_id", "string", "the take-over's life, see the table runs"),
        Column("at", "timestamp", "when the row was written, by the driver's clock"),
    ),
    stamp="at",
)


class TakeoverTable:
    """The take-overs of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, TAKEOVERS)

    def append(self, flow: str, rows: Sequence[TakenOver], *, run_id: str) -> None:
        """Add `rows` in one commit. Before the ledger's: rows that are believed must be known to be incomplete."""
        self._table.append([_takeover_values(flow, row, run_id) for row in rows], {})

    def incomplete(self, flow: str) -> FrozenSet[PartitionKey]:
        """The partitions whose remote log holds records before the ledger's first row."""
        rows = self._table.rows()
        if rows is None:
            return frozenset()
        with self._table.explained("read"):
            older = rows.where((F.col("flow") == flow) & F.col("older_records"))
            found = older.select(*PARTITION_KEY).distinct().collect()
        return frozenset(map(partition_key, found))


def _takeover_values(flow: str, row: TakenOver, run_id: str) -> Tuple[object, ...]:
    key = row.key
    topics = (key.source_topic, row.remote_topic, key.partition, key.source_topic_id, key.remote_topic_id)
    goes_on_at = (row.goes_on_at.upstream_offset, row.goes_on_at.downstream_offset)
    kept = -1 if row.kept_offset is None else row.kept_offset
    return (flow, *topics, row.taken_from, kept, *goes_on_at, row.tail, row.doubled, row.older, run_id)


CREATED, GIVEN_UP = "created", "given up"
_OF_ACL = tuple(AclBinding.__dataclass_fields__)

TOPIC_ACLS = TableSchema(
    name="topic_acls",
    comment="ACLs of remote topics that flows created on their targets, and gave up again",
    columns=(
        Column("flow", "string", "A->B"),
        Column("action", "string", "created, or given up: deleted right after the row was written"),
        Column("topic", "string", "name or prefix on B, * for every topic"),
        Column("pattern_type", "string", "LITERAL or PREFIXED"),
        Column("principal", "string", "e.g. User:alice"),
        Column("host", "string", "address, or * for any"),
        Column("operation", "string", "e.g. READ"),
        Column("permission", "string", "ALLOW or DENY"),
        Column("at", "timestamp", "when the row was written, by the driver's clock"),
    ),
    stamp="at",
)


class TopicAclTable:
    """The ACLs of every flow that shares one `state:` folder. Each method raises StateError where the table fails."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, TOPIC_ACLS)

    def made(self, flow: str) -> FrozenSet[AclBinding]:
        """Those that the flow created and has not given up since."""
        rows = self._table.rows()
        if rows is None:
            return frozenset()
        with self._table.explained("read"):
            last = rows.where(F.col("flow") == flow).groupBy(*_OF_ACL).agg(F.max_by("action", "at").alias("action"))
            found = last.where(F.col("action") == CREATED).collect()
        return frozenset(AclBinding(*(row[name] for name in _OF_ACL)) for row in found)

    def created(self, flow: str, acls: Sequence[AclBinding]) -> None:
        """The flow created these."""
        self._append(flow, CREATED, acls)

    def given_up(self, flow: str, acls: Sequence[AclBinding]) -> None:
        """These are no longer the flow's."""
        self._append(flow, GIVEN_UP, acls)

    def _append(self, flow: str, action: str, acls: Sequence[AclBinding]) -> None:
        self._table.append([(flow, action, *(getattr(acl, name) for name in _OF_ACL)) for acl in acls], {})


LANE_PRODUCERS = TableSchema(
    name="lane_producers",
    comment="one row for each producer id that a lane appends under; only of flows with shared.remote.topics",
    columns=(
        Column("flow", "string", "A->B"),
        Column("lane", "int", "the lane, 0 to 63; 64 to 127 of topics whose records go by their keys beside others"),
        Column("producer_id", "bigint", "the producer id in the lane's record batches on B"),
        Column("run_id", "string", "the driver's life that was given the id, see the table runs"),
        Column("at", "timestamp", "when the row was written, by the driver's clock"),
    ),
    stamp="at",
)


class LaneProducerTable:
    """The producer ids of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, LANE_PRODUCERS)

    def ids(self, flow: str) -> Dict[int, FrozenSet[int]]:
        """Every producer id that each lane of `flow` may have appended under."""
        rows = self._table.rows()
        if rows is None:
            return {}
        with self._table.explained("read"):
            found = rows.where(F.col("flow") == flow).select("lane", "producer_id").collect()
        ids: Dict[int, Set[int]] = {}
        for row in found:
            ids.setdefault(row["lane"], set()).add(row["producer_id"])
        return {lane: frozenset(own) for lane, own in ids.items()}

    def add(self, flow: str, ids: Sequence[Tuple[int, int]], *, run_id: str) -> None:
        """Add pairs of lane and producer id in one commit; nothing for none."""
        self._table.append([(flow, lane, producer_id, run_id) for lane, producer_id in ids], {})
