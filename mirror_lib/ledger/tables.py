"""The schemas of the tables under `state:`, and the check of a table of another release. Pure.

The columns are public: `docs/reference/tables.md` documents them for users.

A release that adds columns gives them the next version in `since`. Each column has that number in its metadata, so a
table's version is the highest of them and is read without a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Sequence, Tuple

from mirror_lib.errors import ForeignTableError, NewerTableError
from mirror_lib.ledger.records import INCIDENT_KINDS, PartitionKey

SINCE = "mirror.since"


@dataclass(frozen=True)
class Column:
    """A column of a public table: name, Spark SQL type, what its value means, and the version that added it."""

    name: str
    type: str
    comment: str
    since: int = 1

    def metadata(self) -> Mapping[str, object]:
        return {"comment": self.comment, SINCE: self.since}


@dataclass(frozen=True)
class TableSchema:
    """A public table: folder name under `state:`, meaning of a row, columns. The commit fills the column `stamp`."""

    name: str
    comment: str
    columns: Tuple[Column, ...]
    stamp: str = "at"

    @property
    def version(self) -> int:
        return max(column.since for column in self.columns)

    def given(self) -> Sequence[Tuple[str, str]]:
        """Name and type of the columns that a writer fills: all but `stamp`."""
        return [(column.name, column.type) for column in self.columns if column.name != self.stamp]


def lacking(schema: TableSchema, found: Mapping[str, int], path: str) -> List[Column]:
    """The columns that a table of an older release lacks.

    `found` has the table's columns with the version that added each. Raises `NewerTableError` for a table of a newer
    release, `ForeignTableError` for columns that no release wrote.
    """
    version = max(found.values(), default=1)
    unknown = [name for name in found if name not in {column.name for column in schema.columns}]
    lacks = [column for column in schema.columns if column.name not in found]
    if version > schema.version:
        raise NewerTableError(
            f"the table {path} has version {version} of its schema, and this release knows version {schema.version}: "
            "nothing was read or written there",
            "run the release that wrote it or a newer one, or name another folder as `state`",
        )
    odd = unknown or [column.name for column in lacks if column.since <= version]
    if odd:
        raise ForeignTableError(
            f"the table {path} {'has' if unknown else 'lacks'} the columns {', '.join(odd)}, unlike version {version} "
            "of its schema: nothing was read or written there",
            "it was changed by hand: restore an earlier version of the table, or name another folder as `state`",
        )
    return lacks


FLOW = Column("flow", "string", "A->B")
RUN_ID = Column("run_id", "string", "the driver's life that wrote the row, see the table runs")
BATCH_ID = Column("batch_id", "bigint", "Spark's batch id, -1 outside of a batch")
AT = Column("at", "timestamp", "when the row was written, by the driver's clock")
COPIED_PARTITION = (
    FLOW,
    Column("source_topic", "string", "topic on A"),
    Column("remote_topic", "string", "its copy on B"),
    Column("partition", "int", "the same on both sides"),
    Column("source_topic_id", "string", "Kafka's id of the source topic, empty where brokers have none"),
    Column("remote_topic_id", "string", "Kafka's id of the remote topic, empty where brokers have none"),
)
# In the order of PartitionKey's fields.
PARTITION_KEY = ("source_topic_id", "remote_topic_id", "source_topic", "partition")


def partition_key(row: Any) -> PartitionKey:
    """The partition key of a row, of Spark or of Arrow, with the columns of PARTITION_KEY."""
    return PartitionKey(*(row[name] for name in PARTITION_KEY))


OFFSET_SYNCS = TableSchema(
    name="offset_syncs",
    comment="record_count records from upstream_offset on lie at downstream_offset on, with no gap on either side",
    columns=(
        *COPIED_PARTITION,
        Column("upstream_offset", "bigint", "offset on A of the first record"),
        Column("downstream_offset", "bigint", "offset on B of the first record"),
        Column("record_count", "bigint", "records in the run; 0 is a position: what comes next, comes here"),
        RUN_ID,
        Column("query_id", "string", "Spark's id of the streaming query, empty outside of one"),
        BATCH_ID,
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

RUNS = TableSchema(
    name="runs",
    comment="a row when a flow starts in a driver and one when it ends, signs of life in between; without the second"
    " the run was killed or is under way",
    columns=(
        Column("run_id", "string", "fresh for every driver's life"),
        FLOW,
        Column("kind", "string", "started, alive or ended"),
        Column("tasks_max", "int", "tasks.max: how many tasks shared the lanes"),
        Column("delivery", "string", "exactly-once or at-least-once"),
        Column("source_cluster_id", "string", "A's own id"),
        Column("target_cluster_id", "string", "B's own id"),
        Column("checkpoint", "string", "folder of Spark's checkpoint, under checkpoints/"),
        Column("outcome", "string", "null while it runs; then ok, stopped, or the error with its code"),
        Column("records", "bigint", "records copied so far; null at the start"),
        Column("bytes", "bigint", "bytes of record batches written so far; null at the start"),
        Column("at", "timestamp", "when it started, was alive or ended, by the driver's clock"),
        Column("driver", "string", "host, PID namespace and process id of the driver", since=2),
        Column("lag_records", "bigint", "upstream offsets still to copy, in rows of kind alive", since=2),
        Column("lag_seconds", "double", "age of the oldest last-copied record among the partitions with lag", since=2),
        Column(
            "filtered",
            "bigint",
            "records read so far that where or transform dropped; null at the start, and where they are not counted",
            since=3,
        ),
    ),
)

GROUP_OFFSETS = TableSchema(
    name="group_offsets",
    comment="one row for each move of a group's committed offset on one partition, written before the move is made",
    columns=(
        FLOW,
        Column("run_id", "string", "the driver's life that wrote the row"),
        Column("append_number", "bigint", "commits of this run and flow, counted from 0"),
        Column("move_number", "int", "place of the row in its commit, from 0"),
        Column("cluster", "string", "where the offset was written: B, or A for a translation back"),
        Column("group", "string", "consumer group"),
        Column("topic", "string", "topic on that cluster"),
        Column("partition", "int", "its partition"),
        Column("previous_offset", "bigint", "what was committed before, null if nothing was"),
        Column("previous_metadata", "string", "text committed with the previous offset, empty if there was none"),
        Column("new_offset", "bigint", "what was written, null if the offset was deleted"),
        Column("metadata", "string", "text committed with the new offset, empty if there was none"),
        Column("from_topic", "string", "topic on the other cluster that the offset was translated from"),
        Column("from_offset", "bigint", "the group's offset there"),
        Column("verdict", "string", "how good the translation is, e.g. exact"),
        Column("action", "string", "commit, or rollback where it puts back the previous offset"),
        AT,
    ),
)

INCIDENTS = TableSchema(
    name="incidents",
    comment="data that was lost, skipped, healed or copied again; one row for each partition and range",
    columns=(
        FLOW,
        RUN_ID,
        BATCH_ID,
        Column("kind", "string", f"{', '.join(INCIDENT_KINDS[:-1])} or {INCIDENT_KINDS[-1]}"),
        Column("topic", "string", "topic on A"),
        Column("partition", "int", "its partition, -1 for the whole topic"),
        Column("from_offset", "bigint", "first upstream offset concerned, -1 where not known"),
        Column("until_offset", "bigint", "upstream offset after the last one, -1 where not known"),
        Column("reason", "string", "one sentence"),
        AT,
    ),
)

TAKEOVERS = TableSchema(
    name="takeovers",
    comment="one row for each partition that resumes after another tool",
    columns=(
        *COPIED_PARTITION,
        Column("taken_from", "string", "where the position was kept: a topic on B, or a group on A"),
        Column("kept_offset", "bigint", "the next upstream offset by that position; -1 where none was kept"),
        Column("upstream_offset", "bigint", "where the mirror resumes"),
        Column("downstream_offset", "bigint", "the end of the remote log, where it continues to write"),
        Column("tail_records", "bigint", "records that lay on the remote log behind the kept position"),
        Column("doubled_records", "bigint", "records that lay there once more"),
        Column("older_records", "boolean", "whether the remote log holds records before those that were compared"),
        Column("run_id", "string", "the take-over's life, see the table runs"),
        AT,
    ),
)

TOPIC_ACLS = TableSchema(
    name="topic_acls",
    comment="ACLs of remote topics that flows created on their targets, and gave up again",
    columns=(
        FLOW,
        Column("action", "string", "created, or given up: deleted right after the row was written"),
        Column("topic", "string", "name or prefix on B, * for every topic"),
        Column("pattern_type", "string", "LITERAL or PREFIXED"),
        Column("principal", "string", "e.g. User:alice"),
        Column("host", "string", "address, or * for any"),
        Column("operation", "string", "e.g. READ"),
        Column("permission", "string", "ALLOW or DENY"),
        AT,
    ),
)

LANE_PRODUCERS = TableSchema(
    name="lane_producers",
    comment="one row for each producer id that a lane appends under; only of flows with shared.remote.topics",
    columns=(
        FLOW,
        Column("lane", "int", "the lane, 0 to 63; 64 to 127 of topics whose records go by their keys alongside others"),
        Column("producer_id", "bigint", "the producer id in the lane's record batches on B"),
        Column("run_id", "string", "the driver's life that was given the id, see the table runs"),
        AT,
    ),
)

VERIFICATIONS = TableSchema(
    name="verifications",
    comment="one row for each flow that `mirror verify` compared",
    columns=(
        FLOW,
        Column("verdict", "string", "equal, differs or not compared: the worst of the topics"),
        Column("topics", "int", "topics that were compared"),
        Column("records", "bigint", "pairs of records that were compared"),
        Column("differing", "int", "topics whose copy differs"),
        Column("first_difference", "string", "one sentence on the first difference; null without one"),
        Column("scope", "string", "whole, or which part was compared"),
        Column("at", "timestamp", "when the comparison ended, by the clock of the machine that compared"),
    ),
)

CUTOVERS = TableSchema(
    name="cutovers",
    comment="a row before each step of a cut-over, and one with what came of it",
    columns=(
        FLOW,
        Column("cutover_id", "string", "the same in all rows of one cut-over, also where it was resumed"),
        Column("direction", "string", "over, or back"),
        Column("step", "string", "fence, silence, copy, verify, groups, check or unfence"),
        Column("status", "string", "started, done or failed"),
        Column("detail", "string", "one sentence"),
        Column("facts", "string", "JSON that later steps need: log ends of the silent source, ACLs of the fence"),
        AT,
    ),
)
