"""The schemas of the tables under `state:`, and the check of a table of another release. Pure.

The columns are public: `docs/reference/tables.md` has their comments.

A release that adds columns gives them the next version in `since`. Each column has that number in its metadata, so a
table's version is the highest of them and is read without a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Sequence, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.ledger.records import PartitionKey, TopicPair

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
    """A public table: folder name under `state:`, meaning of a row, columns. The commit fills the column `stamp`.

    `replaced`: tables that had its rows before 0.1.0."""

    name: str
    comment: str
    columns: Tuple[Column, ...]
    stamp: str = "at"
    replaced: Tuple[str, ...] = ()

    @property
    def version(self) -> int:
        return max(column.since for column in self.columns)

    def given(self) -> Sequence[Tuple[str, str]]:
        """Name and type of the columns that a writer fills: all but `stamp`."""
        return [(column.name, column.type) for column in self.columns if column.name != self.stamp]


def lacking(schema: TableSchema, found: Mapping[str, int], path: str) -> List[Column]:
    """The columns that a table of an older release lacks.

    `found` has the table's columns with the version that added each. Raises `RefusedError` for a table of a newer
    release, and for columns that no release wrote.
    """
    version = max(found.values(), default=1)
    unknown = [name for name in found if name not in {column.name for column in schema.columns}]
    lacks = [column for column in schema.columns if column.name not in found]
    if version > schema.version:
        raise RefusedError(
            f"the table {path} has version {version} of its schema, and this release knows version {schema.version}: "
            "nothing was read or written there",
            "run the release that wrote it or a newer one, or name another folder as `state`",
            code="MIR-321",
        )
    odd = unknown or [column.name for column in lacks if column.since <= version]
    if odd:
        raise RefusedError(
            f"the table {path} {'has' if unknown else 'lacks'} the columns {', '.join(odd)}, unlike version {version} "
            "of its schema: nothing was read or written there",
            "it was changed by hand: restore an earlier version of the table, or name another folder as `state`",
            code="MIR-322",
        )
    return lacks


FLOW = Column("flow", "string", "`A->B`")
RUN_ID = Column("run_id", "string", "as in `runs`")
BATCH_ID = Column("batch_id", "bigint", "Spark's batch id; -1 outside of a batch")
AT = Column("at", "timestamp", "commit time")
COPIED_PARTITION = (
    FLOW,
    Column("source_topic", "string", "on A"),
    Column("remote_topic", "string", "on B"),
    Column("partition", "int", "on A; the same on B except for dead-letter records"),
    Column("source_topic_id", "string", "Kafka's topic id; empty if brokers have none"),
    Column("remote_topic_id", "string", "the same of the remote topic"),
)
# In the order of PartitionKey's fields.
PARTITION_KEY = ("source_topic_id", "remote_topic_id", "source_topic", "partition")


def partition_key(row: Any) -> PartitionKey:
    """The partition key of a row, of Spark or of Arrow, with the columns of PARTITION_KEY."""
    return PartitionKey(*(row[name] for name in PARTITION_KEY))


# In the order of TopicPair's fields.
TOPIC_PAIR = ("source_topic", "source_topic_id", "remote_topic", "remote_topic_id")


def topic_pair(row: Any) -> TopicPair:
    return TopicPair(*(row[name] for name in TOPIC_PAIR))


OFFSET_SYNCS = TableSchema(
    name="offset_syncs",
    comment="The ledger. Each row is a range of copied records",
    columns=(
        *COPIED_PARTITION,
        Column("upstream_offset", "bigint", "first offset on A"),
        Column("downstream_offset", "bigint", "first offset on B"),
        Column("record_count", "bigint", "records in the range; 0 in a position"),
        RUN_ID,
        Column("query_id", "string", "Spark's query id; empty outside of a query"),
        BATCH_ID,
        Column("committed_at", "timestamp", "commit time"),
        Column(
            "remote_partition",
            "int",
            "partition on B of a dead-letter record or of a range, -1 for a range on A; otherwise null",
            since=2,
        ),
        Column("upstream_until", "bigint", "end of a range on A, exclusive; otherwise null", since=2),
        Column("downstream_until", "bigint", "end of a range on B, exclusive; otherwise null", since=2),
    ),
    stamp="committed_at",
)

RUNS = TableSchema(
    name="runs",
    comment="Starts and ends of each flow's runs. A run adds a row `alive` every 3 minutes. After an hour the mirror "
    "keeps one `alive` row for each hour, for `history.days`",
    columns=(
        Column("run_id", "string", "new for each run of the driver"),
        FLOW,
        Column("kind", "string", "`started`, `alive` or `ended`"),
        Column("tasks_max", "int", "`tasks.max`"),
        Column("delivery", "string", "`exactly-once` or `at-least-once`"),
        Column("source_cluster_id", "string", "A's cluster id"),
        Column("target_cluster_id", "string", "B's cluster id"),
        Column("checkpoint", "string", "its folder under `checkpoints/`"),
        Column("outcome", "string", "`ok`, `stopped` or the error with its code; null in other rows than `ended`"),
        Column("records", "bigint", "records copied so far; null at the start"),
        Column("bytes", "bigint", "bytes of the record batches written so far; null at the start"),
        AT,
        Column("driver", "string", "host, PID namespace and process id", since=2),
        Column("lag_records", "bigint", "upstream offsets still to copy; in rows `alive` only", since=2),
        Column("lag_seconds", "double", "age of the oldest last-copied record; in rows `alive` only", since=2),
        Column(
            "filtered",
            "bigint",
            "records read so far that `where` or `transform` dropped; null at the start, and if they are not counted",
            since=3,
        ),
        Column(
            "dead_letters",
            "bigint",
            "records written so far to `dead.letter.topic`; null at the start, and without one",
            since=4,
        ),
    ),
)

GROUP_OFFSETS = TableSchema(
    name="group_offsets",
    comment="The audit trail of offset commits for consumer groups, which a rollback reads. The mirror writes a row "
    "before it commits the offset. After a crash, or if the broker refused the commit, the offset may be uncommitted. "
    "Rows are kept for `history.days`, and the rows of the last day on which the partition was committed for longer",
    columns=(
        FLOW,
        RUN_ID,
        Column("append_number", "bigint", "number of the commit, from 0"),
        Column("move_number", "int", "row in the commit, from 0"),
        Column("cluster", "string", "B, or A for a translation back"),
        Column("group", "string", "consumer group"),
        Column("topic", "string", "topic on that cluster"),
        Column("partition", "int", "its partition"),
        Column("previous_offset", "bigint", "null if none"),
        Column("previous_metadata", "string", "empty if none"),
        Column("new_offset", "bigint", "null if the offset was deleted"),
        Column("metadata", "string", "of the new offset; empty if none, or if it was dropped"),
        Column("from_topic", "string", "on the other cluster"),
        Column("from_offset", "bigint", "the group's offset there"),
        Column("verdict", "string", "of the translation, e.g. `exact`"),
        Column("action", "string", "`commit`, or `rollback` to the previous offset"),
        AT,
    ),
)

TOPIC_ACLS = TableSchema(
    name="topic_acls",
    comment="ACLs that a flow created on its target. The mirror writes a row after it creates an ACL and before it "
    "deletes one",
    columns=(
        FLOW,
        Column("action", "string", "`created`, or `given up`: deleted right after the row"),
        Column("topic", "string", "name or prefix on B; `*` for every topic"),
        Column("pattern_type", "string", "`LITERAL` or `PREFIXED`"),
        Column("principal", "string", "e.g. `User:alice`"),
        Column("host", "string", "address; `*` for any"),
        Column("operation", "string", "e.g. `READ`"),
        Column("permission", "string", "`ALLOW` or `DENY`"),
        AT,
    ),
)

EVENTS = TableSchema(
    name="events",
    comment="What an operator looks up later: incidents, take-overs, verifications and cut-overs; and the producer ids "
    "of flows with `shared.remote.topics: true` that copy whole record batches",
    columns=(
        FLOW,
        Column("run_id", "string", "as in `runs`; null outside of a run"),
        BATCH_ID,
        Column("kind", "string", "see below"),
        Column("topic", "string", "on A; null if the event concerns none"),
        Column("partition", "int", "its partition; -1 for an event of the whole topic"),
        Column("from_offset", "bigint", "upstream; -1 if unknown"),
        Column("until_offset", "bigint", "exclusive; -1 if unknown"),
        Column("detail", "string", "one sentence; null if none"),
        Column("facts", "string", "JSON: further values of the kind"),
        AT,
    ),
    replaced=("incidents", "takeovers", "lane_producers", "verifications", "cutovers"),
)
