"""The small tables of events: incidents, take-overs, ACLs, producer ids, verifications, cut-overs. Rows are only added.

Every method raises StateError if its read or write fails.
"""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import Callable, ClassVar, Dict, FrozenSet, List, Sequence, Set, Tuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from mirror_lib.facts import AclBinding, TopicPartition
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.records import (
    OFFSETS_SKIPPED,
    TOPIC_RECREATED,
    CutoverStep,
    Incident,
    LeftOut,
    PartitionKey,
    TakeoverRow,
    Verification,
)
from mirror_lib.ledger.tables import (
    CUTOVERS,
    INCIDENTS,
    LANE_PRODUCERS,
    PARTITION_KEY,
    TAKEOVERS,
    TOPIC_ACLS,
    VERIFICATIONS,
    TableSchema,
    partition_key,
)
from mirror_lib.spark.jobs import local_rows

# How many ranges of a partition `IncidentTable.left_out` lists.
RANGES_SHOWN = 20
_RANGE = (("topic", "string"), ("partition", "int"), ("first", "bigint"), ("end", "bigint"))
CREATED, GIVEN_UP = "created", "given up"
_OF_ACL = tuple(AclBinding.__dataclass_fields__)


class EventTable:
    """The events of every flow that shares one `state:` folder."""

    schema: ClassVar[TableSchema]

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, self.schema)

    def _add(self, rows: Sequence[Tuple[object, ...]]) -> None:
        """In one commit. Without rows there is no commit."""
        self._table.append(rows, {})

    def _found(self, flow: str, query: Callable[[DataFrame], DataFrame], made_elsewhere: bool = False) -> List[Row]:
        return self._table.collected(
            lambda rows: query(rows.where(F.col("flow") == flow)), made_elsewhere=made_elsewhere
        )


class IncidentTable(EventTable):
    """Data that was lost, skipped, healed or copied again, and news."""

    schema = INCIDENTS

    def append(self, flow: str, incidents: Sequence[Incident], *, run_id: str, batch_id: int) -> None:
        self._add([(flow, run_id, batch_id, *astuple(each)) for each in incidents])

    def skipped(self, flow: str, ranges: Sequence[Tuple[str, int, int, int]]) -> List[Tuple[str, int, int]]:
        """Topic, partition and offset of each record that `on.error: skip` skipped within `ranges`.

        A range is topic, partition, first offset and end."""

        def query(own: DataFrame) -> DataFrame:
            asked = F.broadcast(local_rows(own.sparkSession, _RANGE, ranges))
            found = own.where(F.col("kind") == OFFSETS_SKIPPED).join(asked, ["topic", "partition"])
            found = found.where("from_offset >= first and from_offset < end")
            return found.select("topic", "partition", "from_offset").distinct()

        return [(row["topic"], row["partition"], row["from_offset"]) for row in self._found(flow, query)]

    def left_out(self, flow: str) -> Dict[TopicPartition, LeftOut]:
        """The offsets that `on.error: skip` skipped, by partition, since a topic's last re-creation."""

        def query(own: DataFrame) -> DataFrame:
            recreated = own.where(F.col("kind") == TOPIC_RECREATED).groupBy("topic").agg(F.max("at").alias("since"))
            skipped = own.where(F.col("kind") == OFFSETS_SKIPPED).join(recreated, "topic", "left")
            # After a crash a range may be recorded twice.
            once = skipped.where("since is null or at > since")
            once = once.select("topic", "partition", "from_offset", "until_offset").distinct()
            listed = f"slice(array_sort(collect_list(struct(from_offset, until_offset))), 1, {RANGES_SHOWN})"
            offsets = F.expr("sum(until_offset - from_offset)").alias("offsets")
            return once.groupBy("topic", "partition").agg(offsets, F.expr(listed).alias("ranges"))

        return {
            (row["topic"], row["partition"]): LeftOut(row["offsets"], tuple((a, b) for a, b in row["ranges"]))
            for row in self._found(flow, query)
        }


class TakeoverTable(EventTable):
    """The offsets at which partitions resume after another tool."""

    schema = TAKEOVERS

    def append(self, flow: str, rows: Sequence[TakeoverRow], *, run_id: str) -> None:
        """Call it before the ledger's append. After a crash between the two in the other order, the ledger would count
        as complete."""
        self._add([_takeover(flow, row, run_id) for row in rows])

    def incomplete(self, flow: str) -> FrozenSet[PartitionKey]:
        """The partitions whose remote log has records before the ledger's first row."""
        found = self._found(flow, lambda own: own.where("older_records").select(*PARTITION_KEY).distinct())
        return frozenset(map(partition_key, found))


def _takeover(flow: str, row: TakeoverRow, run_id: str) -> Tuple[object, ...]:
    key = row.key
    topics = (key.source_topic, row.remote_topic, key.partition, key.source_topic_id, key.remote_topic_id)
    resumes_at = (row.resumes_at.upstream_offset, row.resumes_at.downstream_offset)
    kept = -1 if row.kept_offset is None else row.kept_offset
    return (flow, *topics, row.taken_from, kept, *resumes_at, row.tail, row.doubled, row.older, run_id)


class TopicAclTable(EventTable):
    """The ACLs that flows created on their targets: flows delete only these."""

    schema = TOPIC_ACLS

    def made(self, flow: str) -> FrozenSet[AclBinding]:
        """The ACLs that the flow created and has not given up since."""

        def query(own: DataFrame) -> DataFrame:
            last = own.groupBy(*_OF_ACL).agg(F.max_by("action", "at").alias("action"))
            return last.where(F.col("action") == CREATED)

        return frozenset(AclBinding(*(row[name] for name in _OF_ACL)) for row in self._found(flow, query))

    def created(self, flow: str, acls: Sequence[AclBinding]) -> None:
        self._record(flow, CREATED, acls)

    def given_up(self, flow: str, acls: Sequence[AclBinding]) -> None:
        """Call it before their deletion."""
        self._record(flow, GIVEN_UP, acls)

    def _record(self, flow: str, action: str, acls: Sequence[AclBinding]) -> None:
        self._add([(flow, action, *astuple(acl)) for acl in acls])


class LaneProducerTable(EventTable):
    """The lanes' producer ids, each recorded before its first append."""

    schema = LANE_PRODUCERS

    def ids(self, flow: str) -> Dict[int, FrozenSet[int]]:
        """By lane of `flow`, every producer id that may have been used for appends."""
        ids: Dict[int, Set[int]] = {}
        for row in self._found(flow, lambda own: own.select("lane", "producer_id")):
            ids.setdefault(row["lane"], set()).add(row["producer_id"])
        return {lane: frozenset(own) for lane, own in ids.items()}

    def add(self, flow: str, ids: Sequence[Tuple[int, int]], *, run_id: str) -> None:
        self._add([(flow, lane, producer_id, run_id) for lane, producer_id in ids])


class VerificationTable(EventTable):
    """The result of each `mirror verify` of a flow."""

    schema = VERIFICATIONS

    def append(self, found: Verification) -> None:
        counts = (found.topics, found.records, found.differing)
        self._add([(found.flow, found.verdict, *counts, found.first_difference or None, found.scope)])


class CutoverTable(EventTable):
    """The steps of cut-overs: a row before each step, and a row with its outcome."""

    schema = CUTOVERS

    def append(self, row: CutoverStep) -> None:
        self._add([astuple(row)])

    def steps(self, flow: str) -> List[CutoverStep]:
        found = self._found(flow, lambda own: own.orderBy("at"), made_elsewhere=True)
        return [CutoverStep(*(row[each.name] for each in fields(CutoverStep))) for row in found]
