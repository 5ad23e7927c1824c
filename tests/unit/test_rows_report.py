"""A task's report is one line of JSON on its way to the driver, and the same there."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.records import Incident
from mirror_lib.replication.messages import PartitionReport
from mirror_lib.rows.partition import LaneReport
from mirror_lib.rows.stage import report_from, report_text
from mirror_lib.rows.writer import RowsReport

PLACES = st.tuples(st.text(max_size=5), st.integers(0, 9))
TEXTS = st.one_of(st.none(), st.text(max_size=9))
NUMBERS = st.integers(-1, 2**63 - 1)
INCIDENTS = st.builds(Incident, st.text(max_size=5), st.text(max_size=5), NUMBERS, NUMBERS, NUMBERS, st.text())
PARTS = st.builds(
    PartitionReport,
    topic=st.text(max_size=5),
    remote_topic=st.text(max_size=5),
    partition=NUMBERS,
    position=NUMBERS,
    downstream_offset=NUMBERS,
    sequence=st.one_of(st.none(), st.integers(0, 2**31 - 1)),
    last_timestamp=NUMBERS,
    records=NUMBERS,
    bytes=NUMBERS,
    stopped=TEXTS,
    refused=st.booleans(),
    lost_tail=st.booleans(),
    fails=st.booleans(),
    rejected_from=st.one_of(st.none(), NUMBERS),
    rejected_until=NUMBERS,
    incidents=st.lists(INCIDENTS, max_size=2).map(tuple),
)
LANES = st.builds(
    LaneReport,
    remote=PLACES,
    source=st.one_of(st.none(), PLACES),
    part=PARTS,
    producer=st.one_of(st.none(), st.builds(Producer, NUMBERS, st.integers(0, 32_767))),
    recovered=NUMBERS,
    ahead=st.booleans(),
    syncs=st.binary(max_size=48),
    newest=st.lists(st.tuples(st.text(max_size=5), NUMBERS, NUMBERS), max_size=2).map(tuple),
    counts=st.lists(st.tuples(st.text(max_size=5), NUMBERS, NUMBERS), max_size=2).map(tuple),
)
REPORTS = st.builds(
    RowsReport,
    task=st.integers(0, 99),
    lanes=st.lists(LANES, max_size=3).map(tuple),
    fenced=st.booleans(),
    broken=st.booleans(),
    retried=st.booleans(),
    failed=st.lists(st.tuples(PLACES, NUMBERS, st.text()), max_size=2).map(tuple),
    incidents=st.lists(INCIDENTS, max_size=2).map(tuple),
)


@given(REPORTS)
def test_report_is_the_same_on_the_other_side(report: RowsReport) -> None:
    text = report_text(report)
    assert "\n" not in text
    found = report_from(text)
    assert found == report
    # Equal is not enough: a list is no tuple where it is to be a key.
    assert [type(getattr(found, each.name)) for each in fields(found)] == [
        type(getattr(report, each.name)) for each in fields(report)
    ]
    assert all(hash(lane) for lane in found.lanes)


@pytest.mark.parametrize("change", [{"ahead": True}, {"syncs": b"\x01"}, {"producer": None}, {"recovered": 8}])
def test_reports_that_differ_are_told_apart(change: object) -> None:
    part = PartitionReport("orders", "A.orders", 0, 7, 5, None, -1)
    lane = LaneReport(("A.orders", 0), ("orders", 0), part, Producer(3, 1))
    assert isinstance(change, dict)
    other = report_from(report_text(RowsReport(0, (replace(lane, **change),))))
    assert other != RowsReport(0, (lane,)) and report_from(report_text(RowsReport(0, (lane,)))).lanes == (lane,)
