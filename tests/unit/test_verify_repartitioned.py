"""What of flows that repartition records is compared: pure decisions before both logs are read, and behind that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Sequence

import pytest

from mirror_lib.facts import OffsetRange, TopicDescription
from mirror_lib.ledger.records import LogPosition, RangePositions
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.origins import (
    ChangedRecord,
    Judging,
    OriginCopy,
    OriginCounts,
    RecordAt,
    SlotFacts,
    nothing_compared,
    origin_copy,
    verdicts,
)

ORDERS = CopiedTopic(TopicDescription("orders", "id-of-the-topic", 2), "there", "remote id", 2, keyed_over=3)
KNOWN = RangePositions(
    {("orders", 0): LogPosition("id-of-the-topic", 40, 30), ("orders", 1): LogPosition("id-of-the-topic", 40, 0)},
    {("there", n): LogPosition("remote id", 30, 5 + n) for n in range(3)},
)


def compared(known: RangePositions = KNOWN, starts: Sequence[int] = (0, 0), end: int = 30) -> OriginCopy:
    """`starts` are the present ones of both logs, of the source's and of the remote ones, which end at `end`."""
    ours = {("orders", n): OffsetRange(starts[0], 99) for n in range(3)}
    theirs = {("there", n): OffsetRange(starts[1], end) for n in range(3)}
    return origin_copy([ORDERS], known, ours, theirs)


def test_source_is_compared_as_far_as_the_ledger_goes_and_the_remote_logs_to_their_ends() -> None:
    found = compared(end=33)
    assert [each.log for each in found.sources] == [OffsetRange(30, 40), OffsetRange(0, 40)]
    assert [each.log for each in found.remotes] == [OffsetRange(5, 33), OffsetRange(6, 33), OffsetRange(7, 33)]
    assert not any([each.expired for each in found.sources] + [each.expired for each in found.remotes])
    assert [(each.first, each.until) for each in found.feeds()] == [(30, 40), (0, 40)]
    assert {each.topic_id for each in found.feeds()} == {"id-of-"}
    assert found.slot_facts() == [SlotFacts(n, False, True, False) for n in range(3)]


def test_what_expired_since_is_counted_and_not_looked_for() -> None:
    found = compared(starts=(35, 7))
    assert [(each.log.log_start, each.expired) for each in found.sources] == [(35, 5), (35, 35)]
    assert [(each.log.log_start, each.expired) for each in found.remotes] == [(7, 2), (7, 1), (7, 0)]
    assert [each.expired for each in found.slot_facts()] == [True, True, False]
    assert [each.log for each in compared(starts=(50, 0)).sources] == [OffsetRange(40, 40)] * 2


def test_topic_of_which_there_is_another_by_now_is_not_compared_with_it() -> None:
    gone = {place: stand._replace(topic_id="other id") for place, stand in KNOWN.sources.items()}
    assert compared(replace(KNOWN, sources=gone)).sources == ()


def test_remote_topic_that_took_the_name_of_the_one_copied_to_is_told_from_one_that_is_not_begun() -> None:
    gone = {place: stand._replace(topic_id="gone") for place, stand in KNOWN.remotes.items()}
    assert compared(replace(KNOWN, remotes=gone)).others == {"there"}
    assert compared(replace(KNOWN, remotes={})).others == compared().others == set()


def test_records_of_a_remote_topic_that_grew_are_looked_for_in_all_of_its_partitions_where_keys_move() -> None:
    grown = replace(KNOWN, grown=frozenset(["there"]))
    assert [each.keeps_places for each in compared(grown).slot_facts()] == [False] * 3
    assert [each.unsure for each in compared(grown, starts=(0, 6)).slot_facts()] == [True] * 3
    assert compared(grown).counts() == {"there": 3}


COPY = compared()
ALL = Judging()
FIRST = RecordAt(12, 0, 31)


def judged(copy: OriginCopy = COPY, by: Judging = ALL, **found: Any) -> str:
    """The verdict on partition 0, with its kind and its offsets where it differs."""
    (topic,) = verdicts([ORDERS], copy, {0: OriginCounts(records=3, **found)}, by)
    first = topic.partitions[0]
    said = first.difference
    return first.verdict if said is None else f"{said.kind} {said.upstream_offset} {said.downstream_offset}"


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ({}, "equal"),
        ({"missing": 1, "first_missing": RecordAt(None, 0, 31)}, "lost 31 None"),
        ({"missing": 1, "first_missing": RecordAt(None, 0, 31, 2)}, "wrong partition 31 None"),
        ({"doubled": 1, "first_doubled": FIRST}, "doubled 31 12"),
        ({"elsewhere": 1, "first_elsewhere": RecordAt(12, 0, 31, 2)}, "wrong partition 31 12"),
        ({"swapped": 1, "first_swapped": FIRST}, "swapped 31 12"),
        ({"changed": 1, "first_changed": ChangedRecord(12, 0, 31, "key, value")}, "changed key, value 31 12"),
        ({"not_made": 1, "first_not_made": FIRST}, "not on the source 31 12"),
        ({"foreign": 1, "first_foreign": RecordAt(12, None, None)}, "not on the source None 12"),
        ({"gone": 1, "other": 1, "before": 1, "behind": 1}, "equal"),
    ],
)
def test_each_difference_has_its_word_and_its_places(found: Any, word: str) -> None:
    assert judged(**found) == word


def test_what_may_be_so_in_an_exact_copy_is_no_difference_and_anything_else_is() -> None:
    lost: Any = {"missing": 1, "first_missing": RecordAt(None, 0, 31)}
    stranger: Any = {"foreign": 1, "first_foreign": RecordAt(12, None, None)}
    unmade: Any = {"not_made": 1, "first_not_made": FIRST}
    other: Any = {"changed": 1, "first_changed": ChangedRecord(12, 0, 31, "value")}
    unsure = Judging(content_unsure="rand()"), Judging(content_unsure="rand()", choice_unsure="rand()")
    compacted, thinned = replace(COPY, compacted={"there"}), replace(COPY, thinned={"there"})
    assert judged(compacted, **lost) == judged(COPY, unsure[1], **lost) == "equal"
    assert judged(COPY, Judging(shared=True), **stranger) == "equal"
    assert judged(thinned, **unmade) == judged(COPY, unsure[1], **unmade) == "equal"
    assert judged(COPY, unsure[0], **other) == "equal"
    assert judged(thinned, unsure[0], **lost) == "lost 31 None"
    assert judged(compacted, unsure[1], **stranger) == "not on the source None 12"
    assert judged(compacted, unsure[0], **unmade) == "not on the source 31 12"
    assert judged(compacted, Judging(shared=True), **other) == "changed value 31 12"


def test_record_that_the_flow_does_not_make_now_may_be_of_a_rule_of_before() -> None:
    assert judged(COPY, Judging(changed=True), not_made=1, first_not_made=FIRST).startswith("not made by the flow")


def test_without_origins_nothing_is_compared() -> None:
    (topic,) = nothing_compared([ORDERS])
    assert (topic.verdict, len(topic.partitions)) == ("not compared", 3)
    assert "provenance is off" in topic.partitions[0].unknown[0]
