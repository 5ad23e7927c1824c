"""The rows of the table `events`: what is written is read back, and an earlier release is refused by name."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, List

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from mirror_lib.errors import StateError
from mirror_lib.ledger import events
from mirror_lib.ledger.records import (
    CUTOVER_STEP,
    DATA_LOST,
    OFFSETS_SKIPPED,
    TOPIC_RECREATED,
    VERIFIED,
    CutoverStep,
    Incident,
    LeftOut,
    PartitionKey,
    Position,
    TakeoverRow,
    Verification,
)
from mirror_lib.ledger.table_reader import TableReader
from mirror_lib.ledger.tables import EVENTS

FLOW = "A->B"
LOST = Incident(DATA_LOST, "orders", 0, 1, 2, "expired")
COMPARED = Verification(FLOW, "differs", 1, 2, 1, "lost at 4", "whole")
STEP = CutoverStep(FLOW, "one", CutoverStep.OVER, "fence", "done", "fenced", '[["orders"]]')


def taken(partition: int, older: bool) -> TakeoverRow:
    key = PartitionKey("source-id", "remote-id", "orders", partition)
    return TakeoverRow(key, "A.orders", "group mm1", None, Position(40, 27), 7, 1, older)


def rows(*made: events.Values) -> List[Dict[str, Any]]:
    """As read from the table, one second apart."""
    names = [name for name, _ in EVENTS.given()]
    return [{**dict(zip(names, values)), "at": float(second)} for second, values in enumerate(made)]


ALL = rows(
    events.producer_row(FLOW, "run", 3, 1234),
    events.cutover_row(STEP),
    events.takeover_row(FLOW, "run", taken(0, older=True)),
    events.takeover_row(FLOW, "run", taken(1, older=False)),
    events.verification_row(COMPARED),
    events.incident_row(FLOW, "run", 5, LOST),
    events.producer_row(FLOW, "run", 3, 1235),
)


@pytest.mark.parametrize("read", [ALL, ALL[::-1]])
def test_what_was_recorded_is_read_back_in_the_order_of_time(read: List[Dict[str, Any]]) -> None:
    assert events.producer_ids(read) == {3: frozenset([1234, 1235])}
    assert events.facts_of(read, CUTOVER_STEP) == [{**vars(STEP), "at": 1.0}]
    assert events.incomplete(read) == {taken(0, True).key}
    assert events.facts_of(read, VERIFIED) == [{**vars(COMPARED), "at": 4.0}]
    assert events.incidents(read) == [{**vars(LOST), "at": 5.0}]


def test_skipped_offsets_count_once_and_since_the_topic_was_created_again() -> None:
    def skipped(topic: str, start: int, until: int) -> events.Values:
        return events.incident_row(FLOW, "run", 5, Incident(OFFSETS_SKIPPED, topic, 0, start, until, "too large"))

    recreated = events.incident_row(FLOW, "run", 5, Incident(TOPIC_RECREATED, "orders", -1, -1, -1, "re-created"))
    read = rows(skipped("orders", 1, 2), skipped("other", 9, 12), skipped("other", 5, 6), recreated)
    assert events.left_out(read) == {("other", 0): LeftOut(4, ((5, 6), (9, 12)))}
    read += rows(*[skipped("other", 5, 6)] * 5, skipped("orders", 3, 5))[4:]
    assert events.left_out(read[::-1])[("other", 0)] == LeftOut(4, ((5, 6), (9, 12)))
    assert events.left_out(read)[("orders", 0)] == LeftOut(2, ((3, 5),))


@pytest.mark.parametrize("name", EVENTS.replaced)
def test_events_that_are_still_in_a_table_of_an_earlier_release_are_not_taken_for_none(
    tmp_path: Path, name: str
) -> None:
    reader = TableReader(str(tmp_path))
    assert reader.rows("events", events.EVENT_COLUMNS, FLOW) == []
    at = pa.array([datetime.now(timezone.utc)], pa.timestamp("us", "UTC"))
    write_deltalake(str(tmp_path / name), pa.table({"flow": ["another->flow"], "at": at}))
    with pytest.raises(StateError, match=f"has the table {name} of an earlier release"):
        reader.rows("events", events.EVENT_COLUMNS, FLOW)
