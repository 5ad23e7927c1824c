"""The tables of events and of topic ACLs. Rows are only added, and each call adds its rows in one commit.

Every method raises StateError if its read or write fails.
"""

from __future__ import annotations

from dataclasses import asdict, astuple, fields
from typing import Dict, FrozenSet, List, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.facts import AclBinding, TopicPartition
from mirror_lib.ledger import events
from mirror_lib.ledger.compaction import FILES_TO_MERGE
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.events import EVENT_COLUMNS, event_row
from mirror_lib.ledger.records import (
    CUTOVER_STEP,
    OFFSETS_SKIPPED,
    PRODUCER_ID,
    TAKEN_OVER,
    TOPIC_RECREATED,
    VERIFIED,
    CutoverStep,
    Incident,
    LeftOut,
    PartitionKey,
    TakeoverRow,
    Verification,
)
from mirror_lib.ledger.tables import EVENTS, TOPIC_ACLS


class EventTable:
    """The events of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, EVENTS)
        self._has_incidents = False

    def exists(self) -> bool:
        """Raises `RefusedError` for a folder with tables that had its rows before 0.1.0, as every other method does."""
        return self._table.exists()

    def add_incidents(self, flow: str, incidents: Sequence[Incident], *, run_id: str, batch_id: int) -> None:
        self._table.append([events.incident_row(flow, run_id, batch_id, each) for each in incidents])
        self._has_incidents = True

    def merge_files(self) -> None:
        """At the end of a run that had incidents."""
        if self._has_incidents:
            self._table.tidy(FILES_TO_MERGE)

    def add_takeovers(self, flow: str, rows: Sequence[TakeoverRow], *, run_id: str) -> None:
        """Call it before the ledger's append. After a crash between the two in the other order, the ledger would count
        as complete."""
        at = [(each.key.source_topic, each.key.partition, each.resumes_at.upstream_offset) for each in rows]
        made = (event_row(flow, TAKEN_OVER, asdict(row), run_id, place=place) for row, place in zip(rows, at))
        self._table.append(list(made))

    def add_producers(self, flow: str, ids: Sequence[Tuple[int, int]], *, run_id: str) -> None:
        """Lanes and their producer ids. Call it before the first append with an id."""
        facts = ({"lane": lane, "producer_id": each} for lane, each in ids)
        self._table.append([event_row(flow, PRODUCER_ID, each, run_id) for each in facts])

    def add_verification(self, found: Verification) -> None:
        self._table.append([event_row(found.flow, VERIFIED, asdict(found), detail=found.first_difference or None)])

    def add_cutover_step(self, step: CutoverStep) -> None:
        self._table.append([event_row(step.flow, CUTOVER_STEP, asdict(step), detail=step.detail)])

    def incomplete(self, flow: str) -> FrozenSet[PartitionKey]:
        return events.incomplete(self._table.of_flow(flow, EVENT_COLUMNS, [TAKEN_OVER]))

    def producer_ids(self, flow: str) -> Dict[int, FrozenSet[int]]:
        return events.producer_ids(self._table.of_flow(flow, EVENT_COLUMNS, [PRODUCER_ID]))

    def cutover_steps(self, flow: str) -> List[CutoverStep]:
        found = events.facts_of(self._table.of_flow(flow, EVENT_COLUMNS, [CUTOVER_STEP]), CUTOVER_STEP)
        return [CutoverStep(*(facts[each.name] for each in fields(CutoverStep))) for facts in found]

    def left_out(self, flow: str) -> Dict[TopicPartition, LeftOut]:
        return events.left_out(self._table.of_flow(flow, EVENT_COLUMNS, [OFFSETS_SKIPPED, TOPIC_RECREATED]))


class TopicAclTable:
    """The ACLs that flows created on their targets: flows delete only these."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, TOPIC_ACLS)

    def made(self, flow: str) -> FrozenSet[AclBinding]:
        """The ACLs that the flow created and has not given up since."""
        return events.acls_made(self._table.of_flow(flow, events.ACL_COLUMNS))

    def created(self, flow: str, acls: Sequence[AclBinding]) -> None:
        self._record(flow, events.CREATED, acls)

    def given_up(self, flow: str, acls: Sequence[AclBinding]) -> None:
        """Call it before their deletion."""
        self._record(flow, "given up", acls)

    def _record(self, flow: str, action: str, acls: Sequence[AclBinding]) -> None:
        self._table.append([(flow, action, *astuple(acl)) for acl in acls])
