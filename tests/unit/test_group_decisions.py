"""What coordinators answer about groups, the decision that follows for each partition, and its checkpoints."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any, Dict, List, Optional

import pytest
from kafka.errors import CoordinatorNotAvailableError, GroupAuthorizationFailedError, KafkaError
from kafka.protocol.consumer import OffsetFetchResponse

from mirror_lib.facts import CommittedOffset, ConsumerGroup, OffsetRange
from mirror_lib.groups.decisions import (
    NO_ANSWER,
    Decision,
    Known,
    Outcome,
    PositionsAhead,
    decide,
    left_on_source,
    not_moved,
)
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.mm2_format import Checkpoint, encode_checkpoint
from mirror_lib.groups.mm2_topics import OURS, last_checkpoints, new_checkpoints, synced_by
from mirror_lib.groups.report import plan_lines, planned_offset, would
from mirror_lib.groups.survey import Pair, Survey
from mirror_lib.kafka.connection import Disconnected
from mirror_lib.kafka.groups import blocking_error, committed
from mirror_lib.kafka.record_batch import Record, encode_varint
from mirror_lib.kafka.reencoder import NO_HEADERS
from mirror_lib.ledger.records import GroupOffset, PartitionKey

AWAY, DENIED = CoordinatorNotAvailableError(), GroupAuthorizationFailedError()
SILENT, LOCKED_OUT = Disconnected("B: no answer"), Disconnected("B: a wrong password")
LOCKED_OUT.retriable = False


@pytest.mark.parametrize(
    ("answers", "patient", "blocking"),
    [
        pytest.param(["answer", DENIED], True, None, id="a lasting failure of one group"),
        pytest.param([DENIED], True, None, id="a lasting failure of the only group"),
        pytest.param(["answer", AWAY], True, AWAY, id="a coordinator that is away, at first"),
        pytest.param(["answer", AWAY], False, None, id="a coordinator that is away for long"),
        pytest.param([AWAY], False, None, id="the only coordinator"),
        pytest.param(["answer", SILENT], False, None, id="a silent broker"),
        pytest.param([SILENT, SILENT], False, SILENT, id="a silent cluster"),
        pytest.param(["answer", LOCKED_OUT], True, LOCKED_OUT, id="a refused login"),
    ],
)
def test_an_error_blocks_a_read_only_where_it_may_pass_or_is_the_clusters(
    answers: List[Any], patient: bool, blocking: Optional[KafkaError]
) -> None:
    assert blocking_error(answers, patient) is blocking


def test_offsets_of_a_group_are_those_that_exist_and_may_be_read() -> None:
    rows = [(0, 5, None, 0), (1, -1, "", 0), (2, 0, "text", 0), (3, -1, "", 29)]
    assert committed(fetched_group(rows)) == {("t", 0): CommittedOffset(5, ""), ("t", 2): CommittedOffset(0, "text")}
    assert isinstance(committed(fetched_group([*rows, (4, -1, "", 88)])), KafkaError), "an error that may pass"


def test_group_that_may_not_be_read_is_not_one_without_offsets() -> None:
    """Describe was taken back after the coordinator was found: a copy would start from elsewhere."""
    assert committed(fetched_group([], error_code=69)) == {}, "an absent group"
    for code in (30, 16, 24):
        assert isinstance(committed(fetched_group([], error_code=code)), KafkaError)


def fetched_group(partitions: Any, error_code: int = 0) -> Any:
    of_group = OffsetFetchResponse.OffsetFetchResponseGroup
    of_topic = of_group.OffsetFetchResponseTopics
    rows = [
        of_topic.OffsetFetchResponsePartitions(
            partition_index=number, committed_offset=offset, metadata=metadata, error_code=code
        )
        for number, offset, metadata, code in partitions
    ]
    return of_group(group_id="g", error_code=error_code, topics=[of_topic(name="t", partitions=rows)])


HERE, THERE = ("orders", 0), ("A.orders", 0)
KEY = PartitionKey("u1", "u2", "orders", 0)
MAPS = FlowMaps({KEY: array("q", [0, 50, 100, 100, 155, 20])})
EMPTY = ConsumerGroup("billing", "Empty", False, ())
FOUND = Survey(
    pairs={HERE: Pair(HERE, THERE, KEY)},
    positions={"billing": {HERE: CommittedOffset(40, "m")}},
    present={"billing": {}},
    groups={},
    logs={THERE: OffsetRange(50, 175)},
    own_logs={HERE: OffsetRange(0, 100)},
)


def decided(known: Optional[Known] = None, **changes: Any) -> Decision:
    (found,) = decide(replace(FOUND, **changes), known or Known(MAPS, {}, "B"), PositionsAhead())
    return found


def shown(decision: Decision) -> List[str]:
    """The cells of its row from its offset on."""
    return plan_lines([planned_offset(Outcome(decision, would(decision)))])[1].split()[2:]


def test_group_that_is_absent_on_the_other_side_is_written_and_one_of_unknown_state_is_not() -> None:
    decision = decided()
    assert shown(decision) == ["40", "A.orders-0", "90", "exact", "commit"]
    assert decision.move("B") == GroupOffset("B", "billing", *THERE, None, "", 90, "m", "orders", 40, "exact", "commit")
    # It has offsets there, so it exists, and a client may be working with it.
    there = {"billing": {("other", 3): CommittedOffset(7)}}
    for present, groups, verdict in (
        (there, {}, f"untranslatable: {NO_ANSWER}"),
        ({}, {}, f"untranslatable: {NO_ANSWER}"),
        (there, {"billing": EMPTY}, "exact"),
    ):
        assert decided(present=present, groups=groups).translation.verdict == verdict


def test_offset_that_a_group_was_translated_from_is_found_on_the_source_alone() -> None:
    over = GroupOffset("B", "billing", *THERE, None, "", 90, "m", "orders", 40, "exact", "commit")
    back = replace(over, cluster="A", topic="orders", from_topic="A.orders", from_offset=90, new_offset=40)
    undone = replace(over, group="other", action="undo")
    assert left_on_source([over, back, undone], "A") == {("A", "billing", "orders", 0): 40}


def test_plan_says_where_metadata_is_dropped_or_was() -> None:
    grown: Dict[str, Any] = {"own_logs": {HERE: OffsetRange(0, 120)}}
    dropped = decided(**grown)
    assert dropped.move("B").metadata == "" and planned_offset(Outcome(dropped, would(dropped))).metadata_dropped
    grown["groups"] = {"billing": EMPTY}
    for metadata, lost in (("", True), ("m", False)):
        there = decided(present={"billing": {THERE: CommittedOffset(90, metadata)}}, **grown)
        assert there.already_there and there.drops_metadata is lost
    assert not decided().drops_metadata


def test_group_that_mirrormaker_synced_is_moved_and_one_that_committed_for_itself_is_not() -> None:
    """By its checkpoints: the offset and its metadata."""
    simple = {"billing": replace(EMPTY, simple=True)}
    synced = frozenset({("billing", *THERE, CommittedOffset(60, "m"))})
    for offset, metadata, moved in ((60, "m", True), (61, "m", False), (60, "", False)):
        present = {"billing": {THERE: CommittedOffset(offset, metadata)}}
        decision = decided(Known(MAPS, {}, "B", synced=synced), present=present, groups=simple)
        assert decision.translation.commit is moved
        assert bool(not_moved([decision])) is not moved
        assert moved or decision.translation.verdict == "committed by another client"
    # Not once the mirror has moved the group: the commit is a later one of the same offset.
    key = ("B", "billing", *THERE)
    moved_on = {key: GroupOffset(*key, 55, "", 70, "", "orders", 20, "exact", "commit")}
    there = {"billing": {THERE: CommittedOffset(60, "m")}}
    later = decided(Known(MAPS, moved_on, "B", synced=synced), present=there, groups=simple)
    assert later.translation.verdict == "committed by another client"


def checkpoint(upstream: int, downstream: int, metadata: str = "", group: str = "g") -> Checkpoint:
    return Checkpoint(group, "A.orders", 0, upstream, downstream, metadata)


def record(made: Checkpoint, headers: bytes) -> Record:
    parts = (part for each in encode_checkpoint(made) for part in (encode_varint(len(each)), each))
    return Record(0, 0, b"".join(parts) + headers)


def test_every_checkpoint_of_mirrormaker_names_an_offset_that_it_may_have_committed_and_none_of_our_own_does() -> None:
    older, newest, ours = checkpoint(250, 201), checkpoint(260, 205, "m"), checkpoint(270, 210)
    found = synced_by([record(older, NO_HEADERS), record(newest, NO_HEADERS), record(ours, OURS)])
    assert found == {("g", "A.orders", 0, CommittedOffset(201)), ("g", "A.orders", 0, CommittedOffset(205, "m"))}


@pytest.mark.parametrize(
    ("now", "emitted"),
    [
        pytest.param(checkpoint(250, 201), False, id="the same again"),
        pytest.param(checkpoint(260, 201), False, id="went on over records that do not exist downstream"),
        pytest.param(checkpoint(250, 205), True, id="advanced downstream"),
        pytest.param(checkpoint(249, 200), True, id="reset to an earlier offset"),
        pytest.param(checkpoint(250, 199), True, id="an earlier checkpoint is no longer true"),
        pytest.param(checkpoint(260, 199), True, id="an earlier checkpoint would pass records"),
        pytest.param(checkpoint(10, 10, group="other"), True, id="first of another group"),
    ],
)
def test_checkpoint_is_emitted_when_it_says_something_new(now: Checkpoint, emitted: bool) -> None:
    last = last_checkpoints(dict([encode_checkpoint(checkpoint(250, 201))]))
    new = new_checkpoints(last, [now])
    assert list(new.values()) == ([now] if emitted else [])
    assert new_checkpoints({**last, **new}, [now]) == {}
