"""Which flows and remote partitions can make their ledger again, and which are refused by what code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest

from mirror_lib.commands.state_check import REFUSALS_SHOWN, flow_lines, ledger_is_lost
from mirror_lib.commands.state_rebuild import _chosen
from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.record_change import RecordChange
from mirror_lib.config.values import OffsetChoice
from mirror_lib.facts import OffsetRange
from mirror_lib.kafka.record_batch import Record
from mirror_lib.ledger.state_check import DAMAGED, FINE, MISSING, STATE_TABLES, TableState
from mirror_lib.rebuild.decisions import (
    COMPARED,
    COPIED,
    GROUP,
    ORIGINS,
    FlowFacts,
    FlowRebuild,
    Logs,
    PartitionRebuild,
    Refusal,
    flow_refusal,
    rebuilt_batches,
    rebuilt_rows,
)

FLOW = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))
ROWS = replace(FLOW, change=RecordChange())
KEYED = replace(FLOW, change=RecordChange(partitioner="key"))
REMOTE = ("A.orders", 0)
# No key, no value, no headers.
BODY = b"\x01\x01\x00"
ORIGIN = b"\x01\x01\x02\x1amirror.origin\x1aA/orders/0/7/"
HAS_COPIED = FlowFacts(copied=True, taken_over=False, producers=True)


def shared(flow: ReplicationFlow) -> ReplicationFlow:
    return replace(flow, shared_remote_topics=True)


def record(offset: int, body: bytes = BODY, timestamp: int = 5) -> Record:
    return Record(offset, timestamp, body)


def logs(source: OffsetRange = OffsetRange(0, 10), remote: OffsetRange = OffsetRange(0, 12), **given: Any) -> Logs:  # noqa: B008
    return Logs(source, remote, **{"source_first": record(0), "remote_first": record(1), **given})


def code(refusal: Optional[Refusal]) -> Optional[str]:
    assert refusal is None or (refusal.reason and refusal.way_out)
    return None if refusal is None else refusal.code


@pytest.mark.parametrize(
    ("flow", "facts", "wanted"),
    [
        (FLOW, {}, None),
        (ROWS, {}, None),
        (KEYED, {}, None),
        (replace(FLOW, delivery="at-least-once"), {}, None),
        (replace(ROWS, change=RecordChange(provenance=False)), {}, "no origins"),
        (shared(KEYED), {}, "shared"),
        (shared(ROWS), {"producers": False}, None),
        (shared(FLOW), {}, None),
        (shared(FLOW), {"producers": False}, "shared"),
        (FLOW, {"taken_over": True}, "taken over"),
        (replace(FLOW, auto_offset_reset="latest"), {}, "latest"),
        (replace(FLOW, auto_offset_reset="latest", start_position=OffsetChoice(timestamp=7)), {}, None),
    ],
)
def test_flow_is_refused_where_neither_log_shows_what_was_copied(
    flow: ReplicationFlow, facts: Any, wanted: Optional[str]
) -> None:
    assert code(flow_refusal(flow, replace(HAS_COPIED, **facts))) == wanted
    # Without a record on the target there is nothing to find out.
    assert flow_refusal(flow, replace(HAS_COPIED, copied=False, **facts)) is None


@pytest.mark.parametrize(
    ("found", "how", "wanted"),
    [
        (logs(), COMPARED, None),
        (logs(from_group=True), GROUP, None),
        (logs(remote=OffsetRange(0, 0), remote_first=None), COPIED, None),
        (logs(remote_first=None), COMPARED, None),
        (logs(remote_first=record(1, b"\x01\x02x\x00")), COMPARED, "unlike"),
        (logs(remote_first=record(1, timestamp=9)), COMPARED, "unlike"),
        (logs(remote_first=record(1, timestamp=9), log_append_time=True), COMPARED, None),
        (logs(OffsetRange(4, 10), source_first=record(4, timestamp=9)), COMPARED, "expired on the source"),
        (logs(OffsetRange(10, 10), source_first=None), COMPARED, "expired on the source"),
        (logs(remote_first=record(1, timestamp=9), compacted=True), COMPARED, None),
        (logs(remote=OffsetRange(12, 12), remote_first=None), COPIED, "expired on the target"),
        (logs(OffsetRange(10, 10), OffsetRange(12, 12), source_first=None, remote_first=None), COPIED, None),
        (logs(remote=OffsetRange(12, 12), remote_first=None, from_group=True), COPIED, None),
    ],
)
def test_record_batches_are_compared_from_the_first_record_of_both_logs(
    found: Logs, how: str, wanted: Optional[str]
) -> None:
    judged = rebuilt_batches(FLOW, REMOTE, found)
    assert (judged.how, code(judged.refusal)) == (how, wanted)
    assert judged.records == (0 if how == COPIED else found.remote.end - found.remote.log_start)


def test_shared_remote_log_may_begin_with_a_record_of_others_but_must_be_whole() -> None:
    others = logs(remote_first=record(0, timestamp=9))
    assert rebuilt_batches(shared(FLOW), REMOTE, others).refusal is None
    cut = replace(others, remote=OffsetRange(3, 12))
    assert code(rebuilt_batches(shared(FLOW), REMOTE, cut).refusal) == "expired on the target"


@pytest.mark.parametrize(
    ("flow", "found", "wanted"),
    [
        (ROWS, logs(remote_first=record(1, ORIGIN)), None),
        (ROWS, logs(OffsetRange(9, 10), remote_first=record(1, ORIGIN)), None),
        (ROWS, logs(remote=OffsetRange(3, 12), remote_first=record(3, ORIGIN)), None),
        (KEYED, logs(remote=OffsetRange(3, 12), remote_first=record(3, ORIGIN)), "expired on the target"),
        (shared(ROWS), logs(remote=OffsetRange(3, 12), remote_first=record(3, ORIGIN)), "expired on the target"),
        (ROWS, logs(remote=OffsetRange(12, 12), remote_first=None), "expired on the target"),
        (ROWS, logs(), "no origins"),
        (shared(ROWS), logs(), None),
        (ROWS, logs(remote_first=None), None),
    ],
)
def test_changed_records_are_found_by_their_origins(flow: ReplicationFlow, found: Logs, wanted: Optional[str]) -> None:
    judged = rebuilt_rows(flow, REMOTE, found)
    assert code(judged.refusal) == wanted and judged.how in (ORIGINS, COPIED)
    assert rebuilt_rows(flow, REMOTE, replace(found, remote=OffsetRange(0, 0))).how == COPIED


def test_refusals_of_a_flow_are_its_own_and_those_of_its_partitions() -> None:
    refusal = Refusal("unlike", "they differ", "delete it")
    partitions = tuple(PartitionRebuild(("A.orders", n), COMPARED, 10, refusal) for n in range(REFUSALS_SHOWN + 2))
    found = FlowRebuild("A->B", 1, partitions)
    assert (found.records, len(found.refusals)) == (10 * len(partitions), len(partitions))
    assert len(flow_lines(found)) == 1 + REFUSALS_SHOWN + 1
    assert replace(found, refusal=refusal).refusals[0] is refusal
    assert len(flow_lines(FlowRebuild("A->B", 1, ()))) == 1


def test_damaged_tables_are_chosen_and_the_one_that_is_named_where_it_exists() -> None:
    states = [TableState(name, FINE, 1) for name in STATE_TABLES]
    assert _chosen(states, None) == [] and _chosen(states, "runs") == ["runs"]
    states[0] = TableState("offset_syncs", DAMAGED)
    states[2] = TableState("incidents", MISSING)
    assert _chosen([*states, TableState("other", DAMAGED)], "incidents") == ["offset_syncs"]


def test_ledger_is_lost_where_it_is_missing_and_flows_ran() -> None:
    runs, ledger = TableState("runs", FINE, 2), TableState("offset_syncs", MISSING)
    assert ledger_is_lost([ledger, runs]) and not ledger_is_lost([ledger, replace(runs, status=MISSING, rows=None)])
    assert not ledger_is_lost([replace(ledger, status=FINE, rows=0), runs])
