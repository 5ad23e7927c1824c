"""Where each partition continues: the ledger and both logs decide, and no loss is passed in silence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Mapping, Optional

import pytest

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.record_change import RecordChange
from mirror_lib.config.values import OffsetChoice
from mirror_lib.facts import OffsetRange
from mirror_lib.ledger.records import PartitionKey, Position
from mirror_lib.replication.copy_ranges import Found, Range, Start, first_range, healed, next_range
from tests.lab.flows import flow_of

FAIL = flow_of()
CONTINUE, LATEST = replace(FAIL, on_data_loss="continue"), replace(FAIL, auto_offset_reset="latest")
SHARED = replace(FAIL, shared_remote_topics=True)
SEARCH = replace(FAIL, start_position=OffsetChoice(group="g"))
BLIND = replace(FAIL, change=RecordChange(where="true", provenance=False))
KEY = PartitionKey("source-1", "remote-1", "orders", 0)
NAMELESS, OTHER = replace(KEY, source_topic_id="", remote_topic_id=""), replace(KEY, partition=1)
NEW_SOURCE, NEW_REMOTE = replace(KEY, source_topic_id="source-2"), replace(KEY, remote_topic_id="remote-2")
SOURCE, TARGET = OffsetRange(100, 500), OffsetRange(0, 300)
EMPTY, CUT, GONE, IDLE = OffsetRange(0, 0), OffsetRange(7, 300), OffsetRange(7, 7), OffsetRange(500, 500)


def first(
    flow: ReplicationFlow = FAIL,
    known: Optional[Mapping[PartitionKey, Position]] = None,
    key: PartitionKey = KEY,
    source: OffsetRange = SOURCE,
    target: OffsetRange = TARGET,
    start: Optional[Start] = None,
    unlike: bool = False,
) -> Range:
    return first_range(flow, Found(key, "", known or {}, source, target, start, unlike))


def said(decided: Range) -> str:
    """The code of a refusal. Otherwise both offsets of the start, what must be recorded before, and the incident."""
    if decided.refused:
        assert decided.incident is None and not decided.anchor
        return decided.code
    assert decided.end == SOURCE.end and decided.behind == decided.end - decided.start.upstream_offset
    words = [f"{decided.start.upstream_offset}:{decided.start.downstream_offset}"]
    words += ["anchor"] * decided.anchor + [f"log starts at {decided.log_start}"] * bool(decided.log_start)
    words += [] if decided.void_from is None else [f"void from {decided.void_from}"]
    found = decided.incident
    return ", ".join(words if found is None else [*words, f"{found.kind} {found.from_offset} to {found.until_offset}"])


def at(upstream: int, downstream: int, **others: PartitionKey) -> Dict[PartitionKey, Position]:
    """The ledger's position of the partition, or of the `key` that is given."""
    return {others.get("key", KEY): Position(upstream, downstream)}


OLD_REMOTE = at(200, 50, key=replace(KEY, remote_topic_id="remote-0"))
OLD_SOURCE = {KEY: Position(600, 200), OTHER: Position(5, 5)}
FOLLOWED = {**OLD_SOURCE, NEW_SOURCE: Position(100, 300)}  # the operator let the new topic follow the old one
RECREATED = "topic recreated 100 to 500"
BEGUN_AGAIN, COMPARED_AGAIN = f"100:0, anchor, {RECREATED}", f"100:0, {RECREATED}"
NEW_7, NEW_BOTH = replace(NEW_SOURCE, partition=7), replace(NEW_SOURCE, remote_topic_id="remote-2")
NEW_COPY: Dict[str, Any] = {"known": at(400, 300), "key": NEW_REMOTE, "target": EMPTY}
NO_ID: Dict[str, Any] = {"known": at(200, 50, key=NAMELESS), "key": NAMELESS, "unlike": True}
EARLY: Dict[str, Any] = {"start": Start(40, "group g")}
LATE: Dict[str, Any] = {"start": Start(501, "group g")}
EXPIRED: Dict[str, Any] = {"start": Start(40, "group g", -1)}

DECISIONS: Dict[str, Any] = {
    # Never copied: nothing is assumed of what a remote log holds.
    "both logs begin": ({"target": EMPTY}, "100:0"),
    "a remote log with records is compared": ({}, "100:0"),
    "shared: others' records may have expired": ({"flow": SHARED, "target": CUT}, "100:7"),
    "a source without a record": ({"source": IDLE}, "500:300, anchor"),
    "both logs without a record": ({"source": IDLE, "target": EMPTY}, "500:0, anchor"),
    "a source without a record, and an emptied remote log": ({"source": IDLE, "target": GONE}, "500:7, anchor"),
    "a remote log without its start proves nothing": ({"flow": CONTINUE, "target": CUT}, "MIR-329"),
    "an emptied remote log proves nothing": ({"flow": CONTINUE, "target": GONE}, "MIR-329"),
    "the same of an older remote topic": ({"flow": CONTINUE, "known": OLD_REMOTE, "target": CUT}, "MIR-329"),
    "latest, at a remote log with records": ({"flow": LATEST}, "MIR-329"),
    "latest": ({"flow": LATEST, "target": EMPTY}, "500:0, anchor, copy starts later 100 to 500"),
    "latest, without a record": ({"flow": LATEST, "source": IDLE, "target": EMPTY}, "500:0, anchor"),
    # Copied.
    "where the ledger says": ({"known": at(200, 50)}, "200:50"),
    "where the ledger says, also from the latest on": ({"flow": LATEST, "known": at(200, 50)}, "200:50"),
    "another partition is in the ledger": ({"known": at(200, 50, key=OTHER)}, "100:0"),
    "brokers without ids": ({"known": at(200, 50, key=NAMELESS), "key": NAMELESS}, "200:50"),
    "a longer remote log is no damage": ({"known": at(400, 299)}, "400:299"),
    # What expired is judged once the remote log was read.
    "expired": ({"known": at(40, 10)}, "40:10, log starts at 100"),
    "expired, and the flow continues": ({"flow": CONTINUE, "known": at(40, 10)}, "40:10, log starts at 100"),
    "expired after the group's offset": ({"start": Start(40, "group g", 10)}, "40:10, anchor, log starts at 100"),
    # What followed the ledger's position was copied from what is gone: it is left there.
    "a truncated source": ({"known": at(600, 200)}, "MIR-311"),
    "it continues": ({"flow": CONTINUE, "known": at(600, 200)}, "500:300, anchor, data lost 500 to 600"),
    # Which of the copied records each log still has is unknown.
    "both logs are truncated": ({"known": at(600, 350)}, "MIR-312"),
    "both logs are truncated, and the flow continues": ({"flow": CONTINUE, "known": at(600, 350)}, "MIR-312"),
    # Topics that were created again. What follows the ledger's rows may be of the new source topic: it is compared.
    "a new source topic": ({"known": at(600, 200), "key": NEW_SOURCE}, "MIR-316"),
    "the same, of which nothing was copied": ({"known": at(500, 0), "key": NEW_SOURCE, "target": EMPTY}, "100:0"),
    "it is appended": ({"flow": CONTINUE, "known": at(600, 200), "key": NEW_SOURCE}, f"100:200, anchor, {RECREATED}"),
    "a new remote topic": (NEW_COPY, BEGUN_AGAIN),
    "a new remote topic, and the flow continues": ({**NEW_COPY, "flow": CONTINUE}, BEGUN_AGAIN),
    "a new remote topic, from the latest on": ({**NEW_COPY, "flow": LATEST}, BEGUN_AGAIN),
    "both topics are new": ({"known": at(400, 300), "key": NEW_BOTH}, COMPARED_AGAIN),
    "both topics are new, and no record is": (
        {"known": at(400, 300), "key": NEW_BOTH, "source": IDLE}, "500:300, anchor, topic recreated 500 to 500",
    ),
    "a partition of the new source topic alone": ({"known": OLD_SOURCE, "key": NEW_7, "target": EMPTY}, "MIR-316"),
    "the new topic follows": ({"known": FOLLOWED, "key": NEW_7, "target": EMPTY}, "100:0"),
    "a partition of the old topic that was not listed when the others followed": (
        {"known": FOLLOWED, "key": replace(NEW_SOURCE, partition=1)}, "MIR-316",
    ),
    # A topic without an id that lacks a copied record is another one as a whole.
    "no id": (NO_ID, "MIR-316"),
    "no id, a new partition": ({**NO_ID, "key": replace(NAMELESS, partition=7)}, "MIR-316"),
    "no id, it is appended": ({**NO_ID, "flow": CONTINUE}, f"100:50, anchor, {RECREATED}"),
    # The ledger is past the end of the remote log.
    "a truncated remote log": ({"known": at(400, 350)}, "400:350, void from 300"),
    "an emptied remote log": ({"known": at(400, 350), "target": EMPTY}, "400:350, void from 0"),
    # The start position of a partition that was never copied. Where it must be proved it is not recorded before.
    "an offset": ({"start": Start(200, "start.position")}, "200:0"),
    "an offset that may change": ({"flow": SEARCH, "start": Start(200, "group g")}, "200:0, anchor"),
    "offset 0": ({"start": Start(0, "start.position"), "source": OffsetRange(0, 500)}, "0:0"),
    "no later record": ({"start": Start(-1, "start.position")}, "500:0"),
    "the end": ({"start": Start(500, "x"), "target": EMPTY}, "500:0, anchor, copy starts later 100 to 500"),
    "a group": ({"start": Start(200, "group g", 250)}, "200:250, anchor"),
    "after what another tool wrote": ({"start": Start(200, "group g", -1)}, "200:300, anchor"),
    "the remote log is compared first": ({"start": Start(40, "group g", 0)}, "40:0, anchor, log starts at 100"),
    "a take-over from an expired offset": (EXPIRED, "MIR-310"),
    "that take-over continues": ({**EXPIRED, "flow": CONTINUE}, "100:300, anchor, data lost 40 to 100"),
    "before the log": (EARLY, "MIR-310"),
    "before the log, it continues": ({**EARLY, "flow": CONTINUE}, "100:0, data lost 40 to 100"),
    "after the log": (LATE, "MIR-311"),
    "after the log, it continues": ({**LATE, "flow": CONTINUE}, "500:0, data lost 500 to 501"),
    "after the remote log": ({"flow": CONTINUE, "start": Start(200, "group g", 301)}, "MIR-312"),
    "the group's remote topic is gone": (
        {"flow": LATEST, "start": Start(200, "group g", recreated=True)}, COMPARED_AGAIN,
    ),
    "a partition that was copied": ({"start": Start(450, "start.position"), "known": at(200, 50)}, "200:50"),
    "copied to an older remote topic": ({"start": Start(450, "start.position"), "known": OLD_REMOTE}, COMPARED_AGAIN),
    "nothing can be compared": ({"flow": BLIND, "target": EMPTY}, "100:0, anchor"),
}  # fmt: skip


@pytest.mark.parametrize(("found", "decision"), DECISIONS.values(), ids=DECISIONS)
def test_first_range(found: Dict[str, Any], decision: str) -> None:
    assert said(first(**found)) == decision


def test_remote_log_with_records_that_the_ledger_does_not_have_is_named() -> None:
    assert first().unrecorded and not first(target=EMPTY).unrecorded and not first(known=at(200, 50)).unrecorded


@pytest.mark.parametrize(
    ("flow", "position", "decision"),
    [
        (FAIL, 40, "MIR-310"),
        (CONTINUE, 40, "100:10, anchor, data lost 40 to 100"),
        *((FAIL, position, f"{position}:10") for position in (100, 499, 500)),
    ],
)
def test_next_range(flow: ReplicationFlow, position: int, decision: str) -> None:
    assert said(next_range(flow, KEY, Position(position, 10), SOURCE)) == decision


def cut(flow: ReplicationFlow, begins: Position, upstream_offset: int, target: OffsetRange = TARGET) -> Range:
    """The ledger is at 400:350 and begins there; at the end of the remote log belongs that upstream offset."""
    return healed(flow, first(known=at(400, 350), target=target), SOURCE, begins, upstream_offset)


@pytest.mark.parametrize(
    ("healed", "decision"),
    [
        (cut(FAIL, Position(100, 1), 360), "360:300, void from 300, remote log healed 360 to 400"),
        # Offsets 300 to 339 held what only another tool knew.
        (cut(CONTINUE, Position(390, 340), 390), "390:300, void from 300, data lost -1 to 390"),
        # Nothing can have been before the ledger's first row.
        (cut(FAIL, Position(100, 340), 100), "100:300, void from 300, remote log healed 100 to 400"),
        (cut(FAIL, Position(100, 0), 100, EMPTY), "100:0, void from 0, remote log healed 100 to 400"),
    ],
)
def test_remote_log_that_was_truncated_is_filled_from_there(healed: Range, decision: str) -> None:
    assert said(replace(healed, anchor=False, log_start=0)) == decision and healed.anchor


def test_remote_log_that_lost_what_only_another_tool_knew_is_refused() -> None:
    assert "ends at 300, before offset 350 that was acknowledged" in str(cut(FAIL, Position(100, 1), 360).incident)
    refused = cut(FAIL, Position(390, 340), 390)
    assert refused.void_from is None
    assert "its offsets 300 to 339 held what the ledger does not know" in (refused.refused or "")


def test_records_of_a_deleted_source_topic_that_the_remote_log_lost_are_named() -> None:
    passed = first(CONTINUE, at(600, 350), NEW_SOURCE)
    assert passed.start == Position(100, 300)
    assert "ends at 300, before offset 350 that was acknowledged" in str(passed.incident)
    # The same, found when records of the new topic are after them.
    found = Found(NEW_SOURCE, "", {**at(600, 350), NEW_SOURCE: Position(140, 380)}, SOURCE, TARGET)
    assert found.had_other_records(300) and not found.had_other_records(350)
    lost = healed(FAIL, first_range(FAIL, found), SOURCE, Position(100, 350), 100, older=True)
    assert said(replace(lost, log_start=0)) == "MIR-312"
