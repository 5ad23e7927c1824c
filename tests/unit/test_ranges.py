"""Where each partition continues: the ledger and both logs decide, and no loss is passed in silence."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Optional, Tuple, Union

import pytest

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import OffsetRange
from mirror_lib.ledger.records import STARTED_LATER, PartitionKey, Position
from mirror_lib.replication.copy_ranges import Found, Range, Start, first_range, healed, next_range
from tests.lab.flows import flow_of

FAIL = flow_of()
CONTINUE = replace(FAIL, on_data_loss="continue")
LATEST = replace(FAIL, auto_offset_reset="latest")
KEY = PartitionKey("source-1", "remote-1", "orders", 0)
SOURCE, TARGET = OffsetRange(100, 500), OffsetRange(0, 300)
EMPTY = OffsetRange(0, 0)


def first(
    flow: ReplicationFlow,
    known: Dict[PartitionKey, Position],
    source: OffsetRange = SOURCE,
    target: OffsetRange = TARGET,
    key: PartitionKey = KEY,
) -> Range:
    return first_range(flow, Found(key, "", known, source, target))


CUT, GONE, IDLE = OffsetRange(7, 300), OffsetRange(7, 7), OffsetRange(500, 500)
OTHER_REMOTE = {replace(KEY, remote_topic_id="remote-0"): Position(200, 50)}


@pytest.mark.parametrize(
    ("flow", "source", "target", "expected"),
    [
        pytest.param(FAIL, SOURCE, EMPTY, Range(KEY, Position(100, 0), 500), id="nothing copied"),
        pytest.param(FAIL, SOURCE, TARGET, Range(KEY, Position(100, 0), 500), id="compared from both starts"),
        pytest.param(
            replace(FAIL, shared_remote_topics=True), SOURCE, CUT, Range(KEY, Position(100, 7), 500), id="shared"
        ),
        # Whatever the remote log held.
        *(
            pytest.param(FAIL, IDLE, each, Range(KEY, Position(500, each.end), 500, anchor=True), id=f"idle, {each}")
            for each in (TARGET, GONE)
        ),
        pytest.param(CONTINUE, SOURCE, CUT, "MIR-329", id="a remote log without its start"),
        pytest.param(CONTINUE, SOURCE, GONE, "MIR-329", id="an emptied remote log"),
        pytest.param(LATEST, SOURCE, TARGET, "MIR-329", id="latest, at a remote log with records"),
    ],
)
def test_partition_never_copied_starts_where_nothing_is_assumed(
    flow: ReplicationFlow, source: OffsetRange, target: OffsetRange, expected: Union[Range, str]
) -> None:
    decided = first(flow, {}, source, target)
    if isinstance(expected, str):
        assert decided.refused and decided.code == expected
        assert first(CONTINUE, OTHER_REMOTE, target=GONE).code == expected
    else:
        assert replace(decided, unrecorded="", incident=None) == expected
        assert bool(decided.unrecorded) == (flow == FAIL and (source, target) == (SOURCE, TARGET))


def test_latest_starts_at_the_end_and_has_to_be_remembered() -> None:
    decided = first(LATEST, {}, target=EMPTY)
    assert (decided.start, decided.behind, decided.anchor) == (Position(500, 0), 0, True)


def test_offsets_before_the_start_that_the_file_asks_for_are_recorded() -> None:
    for decided in (first(LATEST, {}, target=EMPTY), begun(Start(500, "x"), target=EMPTY)):
        assert told(decided) == (STARTED_LATER, 100, 500)
    assert first(LATEST, {}, source=IDLE, target=EMPTY).incident is None
    assert first(FAIL, {}, target=EMPTY).incident is None


NAMELESS, OTHER = replace(KEY, source_topic_id="", remote_topic_id=""), replace(KEY, partition=1)


@pytest.mark.parametrize(
    ("flow", "key", "known", "start"),
    [
        pytest.param(FAIL, KEY, {KEY: Position(200, 50)}, Position(200, 50), id="copied"),
        pytest.param(LATEST, KEY, {KEY: Position(200, 50)}, Position(200, 50), id="copied, of a flow from the end on"),
        pytest.param(FAIL, KEY, {OTHER: Position(200, 50)}, Position(100, 0), id="another partition"),
        pytest.param(FAIL, NAMELESS, {NAMELESS: Position(200, 50)}, Position(200, 50), id="brokers without ids"),
        # A longer remote log is no damage.
        pytest.param(FAIL, KEY, {KEY: Position(400, 299)}, Position(400, 299), id="less than the remote log has"),
    ],
)
def test_copied_partition_goes_on_where_the_ledger_says(
    flow: ReplicationFlow, key: PartitionKey, known: Dict[PartitionKey, Position], start: Position
) -> None:
    decided = replace(first(flow, known, key=key), unrecorded="")
    assert decided == Range(key, start, 500) and decided.behind == 500 - start.upstream_offset


def test_loss_of_a_topic_that_kafka_streams_purges_names_how_to_exclude_it() -> None:
    purged = next_range(FAIL, replace(KEY, source_topic="app-by-key-repartition"), Position(40, 10), SOURCE)
    assert purged.code == "MIR-310" and ".*-repartition to topics.exclude" in (purged.refused or "")
    assert "repartition" not in (next_range(FAIL, KEY, Position(40, 10), SOURCE).refused or "")


def told(decided: Range) -> Tuple[str, int, int]:
    """Kind and offsets of the incident."""
    assert decided.incident is not None and decided.refused is None
    return decided.incident.kind, decided.incident.from_offset, decided.incident.until_offset


def test_offsets_that_expired_before_they_were_copied_stop_the_partition_or_are_named() -> None:
    decided = next_range(FAIL, KEY, Position(40, 10), SOURCE)
    assert decided.refused == (
        "orders-0: offsets 40 to 99 left the source's log before they were copied; "
        "set on.data.loss: continue to resume from there"
    )
    assert decided.start == Position(40, 10) and decided.incident is None
    passed = next_range(CONTINUE, KEY, Position(40, 10), SOURCE)
    assert (passed.start, passed.end, passed.anchor) == (Position(100, 10), 500, True)
    assert told(passed) == ("data lost", 40, 100)


@pytest.mark.parametrize("flow", [FAIL, CONTINUE])
def test_what_expired_while_nobody_ran_is_judged_when_the_remote_log_was_looked_at(flow: ReplicationFlow) -> None:
    assert first(flow, {KEY: Position(40, 10)}) == Range(KEY, Position(40, 10), 500, log_start=100)
    assert begun(Start(40, "group g", 10), flow) == Range(KEY, Position(40, 10), 500, anchor=True, log_start=100)


@pytest.mark.parametrize("position", [100, 499, 500])
def test_position_inside_the_log_is_no_loss(position: int) -> None:
    decided = next_range(FAIL, KEY, Position(position, 0), SOURCE)
    assert decided == Range(KEY, Position(position, 0), 500) and decided.behind == 500 - position


def test_source_that_was_truncated_is_copied_on_from_its_end() -> None:
    decided = first(CONTINUE, {KEY: Position(600, 200)})
    # What was written after the ledger's position was copied from what is gone: it is left there.
    assert decided.start == Position(500, TARGET.end) and decided.anchor and told(decided)[1:] == (500, 600)


@pytest.mark.parametrize("flow", [FAIL, CONTINUE])
def test_partition_of_which_both_logs_lost_copied_records_is_refused(flow: ReplicationFlow) -> None:
    """With on.data.loss: continue the copy went on at the end of the source, past records that only it still had."""
    assert first(flow, {KEY: Position(600, 350)}).code == "MIR-312"


NEW_SOURCE = replace(KEY, source_topic_id="source-2")
NEW_REMOTE = replace(KEY, remote_topic_id="remote-2")


def test_source_topic_created_again_is_refused_or_appended_after_the_old_records() -> None:
    """What follows the ledger's rows may be of the new topic: it is compared."""
    decided = first(FAIL, {KEY: Position(600, 200)}, key=NEW_SOURCE)
    assert decided.refused == (
        "orders was deleted and created again on the source; "
        "set on.data.loss: continue to append the new topic's records after the old ones"
    )
    passed = first(CONTINUE, {KEY: Position(600, 200)}, key=NEW_SOURCE)
    assert passed.start == Position(100, 200) and passed.anchor and told(passed)[0] == "topic recreated"


@pytest.mark.parametrize("flow", [FAIL, CONTINUE, LATEST])
def test_remote_topic_created_again_is_filled_from_the_sources_start(flow: ReplicationFlow) -> None:
    decided = first(flow, {KEY: Position(400, 300)}, target=EMPTY, key=NEW_REMOTE)
    assert decided.start == Position(100, 0) and told(decided) == ("topic recreated", 100, 500)
    gone = begun(Start(200, "group g", recreated=True), flow)
    assert gone.start == Position(100, 0) and gone.anchor and told(gone)[0] == "topic recreated"


def test_partition_that_only_the_new_source_topic_has_is_refused_with_the_topic() -> None:
    known = {KEY: Position(600, 200), replace(KEY, partition=1): Position(5, 5)}
    grown = replace(NEW_SOURCE, partition=7)
    assert first(FAIL, known, key=grown, target=EMPTY).code == "MIR-316"
    # Once the operator let the new topic follow, its other partitions are in the ledger.
    followed = {**known, NEW_SOURCE: Position(100, 300)}
    assert first(FAIL, followed, key=grown, target=EMPTY) == Range(grown, Position(100, 0), 500)
    # A partition of the old topic that was not listed when the others followed is still one of a re-created topic.
    assert first(FAIL, followed, key=replace(NEW_SOURCE, partition=1)).code == "MIR-316"


def test_topic_without_an_id_that_lacks_a_copied_record_is_refused_as_a_whole() -> None:
    known = {NAMELESS: Position(200, 50)}
    for key in (NAMELESS, replace(NAMELESS, partition=7)):
        assert first_range(FAIL, Found(key, "", known, SOURCE, TARGET, unlike=True)).code == "MIR-316"
    passed = first_range(CONTINUE, Found(NAMELESS, "", known, SOURCE, TARGET, unlike=True))
    assert passed.start == Position(100, 50) and passed.anchor


def test_both_topics_created_again_are_a_fresh_start_that_is_reported() -> None:
    decided = first(FAIL, {KEY: Position(400, 300)}, key=replace(NEW_SOURCE, remote_topic_id="remote-2"))
    assert decided.start == Position(100, 0) and told(decided)


def cut(flow: ReplicationFlow, begins: Position, upstream_offset: int) -> Range:
    """The ledger stood at 400:350 and begins there; at the remote log's end, 300, belongs that upstream offset."""
    decided = first(flow, {KEY: Position(400, 350)})
    assert decided.void_from == TARGET.end == 300
    return healed(flow, decided, SOURCE, begins, upstream_offset)


def test_remote_log_that_was_truncated_is_filled_from_there() -> None:
    decided = cut(FAIL, Position(100, 1), 360)
    assert (decided.start, decided.anchor, decided.void_from) == (Position(360, 300), True, 300)
    assert told(decided) == ("remote log healed", 360, 400)
    assert "ends at 300, before offset 350 that was acknowledged" in str(decided.incident)


def test_remote_log_that_lost_what_only_another_tool_knew_is_refused_or_reported() -> None:
    refused = cut(FAIL, Position(390, 340), 390)
    assert refused.void_from is None
    assert "its offsets 300 to 339 held what the ledger does not know" in (refused.refused or "")
    passed = cut(CONTINUE, Position(390, 340), 390)
    assert (passed.start, passed.anchor, passed.void_from) == (Position(390, 300), True, 300)
    assert told(passed) == ("data lost", -1, 390)


def test_remote_log_that_lost_all_is_filled_where_nothing_can_have_been_before_the_ledger() -> None:
    assert cut(FAIL, Position(100, 340), 100).start == Position(100, 300)
    decided = first(FAIL, {KEY: Position(400, 350)}, target=EMPTY)
    assert decided.void_from == 0
    assert healed(FAIL, decided, SOURCE, Position(100, 0), 100).start == Position(100, 0)


def test_records_of_a_deleted_source_topic_that_the_remote_log_lost_are_named() -> None:
    known = {KEY: Position(600, 350)}
    passed = first(CONTINUE, known, key=NEW_SOURCE)
    assert passed.start == Position(100, 300) and passed.incident is not None
    assert "ends at 300, before offset 350 that was acknowledged" in passed.incident.reason
    # The loss is found when records of the new topic lie after it.
    found = Found(NEW_SOURCE, "", {**known, NEW_SOURCE: Position(140, 380)}, SOURCE, TARGET)
    assert found.had_other_records(300) and not found.had_other_records(350)
    decided = healed(FAIL, first_range(FAIL, found), SOURCE, Position(100, 350), 100, older=True)
    assert decided.code == "MIR-312" and decided.refused


def begun(
    start: Start,
    flow: ReplicationFlow = FAIL,
    known: Optional[Dict[PartitionKey, Position]] = None,
    source: OffsetRange = SOURCE,
    target: OffsetRange = TARGET,
) -> Range:
    decided = first_range(flow, Found(KEY, "", known or {}, source, target, start))
    return replace(decided, unrecorded="")


@pytest.mark.parametrize(
    ("start", "source", "at", "log_start"),
    [
        (Start(200, "start.position"), SOURCE, Position(200, 0), 0),
        (Start(0, "start.position"), OffsetRange(0, 500), Position(0, 0), 0),
        (Start(-1, "start.position"), SOURCE, Position(500, 0), 0),
        (Start(200, "group g", 250), SOURCE, Position(200, 250), 0),
        # After what another tool wrote.
        (Start(200, "group g", -1), SOURCE, Position(200, 300), 0),
        # The remote log is read before what expired is judged.
        (Start(40, "group g", 0), SOURCE, Position(40, 0), 100),
    ],
)
def test_start_position_counts_for_a_partition_that_was_never_copied_and_is_remembered(
    start: Start, source: OffsetRange, at: Position, log_start: int
) -> None:
    decided = begun(start, source=source)
    assert (decided.start, decided.end, decided.anchor, decided.log_start) == (at, 500, True, log_start)


def test_takeover_at_the_end_of_the_remote_log_has_lost_what_expired() -> None:
    refused = begun(Start(40, "group g", -1))
    assert (refused.start, refused.anchor, refused.log_start) == (Position(40, 300), False, 0)
    assert "group g is at offset 40, and the source's log starts at 100 by now" in (refused.refused or "")
    passed = begun(Start(40, "group g", -1), CONTINUE)
    assert (passed.start, passed.anchor) == (Position(100, 300), True) and told(passed) == ("data lost", 40, 100)


def test_start_position_never_moves_a_partition_that_was_copied() -> None:
    assert begun(Start(450, "start.position"), known={KEY: Position(200, 50)}) == Range(KEY, Position(200, 50), 500)
    assert begun(Start(450, "start.position"), known=OTHER_REMOTE).start == Position(100, 0)


@pytest.mark.parametrize(("at", "says"), [(40, "starts at 100 by now"), (501, "ends at 500")])
def test_start_position_outside_the_log_is_refused_or_passed_with_an_incident(at: int, says: str) -> None:
    refused = begun(Start(at, "group g"))
    assert refused.refused is not None
    assert f"orders-0: group g is at offset {at}, and the source's log {says}" in refused.refused
    passed = begun(Start(at, "group g"), CONTINUE)
    assert passed.start.upstream_offset == (100 if at == 40 else 500) and passed.incident is not None


def test_start_beyond_the_remote_log_is_refused() -> None:
    assert "the remote log, which ends at 300" in (begun(Start(200, "group g", 301), CONTINUE).refused or "")
