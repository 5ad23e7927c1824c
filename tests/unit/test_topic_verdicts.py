"""The verdict on a topic that was compared in part."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Sequence, Tuple

import pytest

from mirror_lib.facts import TopicDescription
from mirror_lib.ledger.records import PartitionKey
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.flow import ANOTHER_TOPIC, EXTRA, NO_LOG, topic_verdicts
from mirror_lib.verify.ranges import EVERYTHING
from mirror_lib.verify.verdicts import (
    DIFFERS,
    EQUAL,
    NONE_COMPARED,
    NOT_COMPARED,
    Difference,
    PartitionVerdict,
    TopicVerdict,
    VerifyReport,
    summary,
    with_none_compared,
)

ORDERS = CopiedTopic(TopicDescription("orders", "id", 2), "there", "remote id", 2)
ROW = (0, 0, 5)
Ledger = Dict[PartitionKey, Tuple[int, int, int]]


def ledger(*partitions: int, source: str = "id", remote: str = "remote id") -> Ledger:
    return {PartitionKey(source, remote, "orders", number): ROW for number in partitions}


def by_place(verdicts: Sequence[PartitionVerdict]) -> Dict[Tuple[str, str, int], PartitionVerdict]:
    return {("orders", "there", each.partition): each for each in verdicts}


def judged(syncs: Ledger, *compared: int, verdict: str = EQUAL) -> TopicVerdict:
    (topic,) = topic_verdicts([ORDERS], by_place([PartitionVerdict(n, 5, verdict) for n in compared]), syncs)
    return topic


def test_partition_that_was_copied_and_has_no_leader_is_not_called_equal() -> None:
    topic = judged(ledger(0, 1), 0)
    assert [each.verdict for each in topic.partitions] == [EQUAL, NOT_COMPARED]
    assert topic.partitions[1].unknown == (NO_LOG,)
    assert topic.verdict == NOT_COMPARED
    assert not VerifyReport("A->B", (topic,)).equal


def test_partition_that_was_never_copied_may_have_no_log_yet() -> None:
    topic = judged(ledger(0), 0)
    assert (topic.verdict, topic.partitions[1].unknown) == (EQUAL, (NO_LOG,))


@pytest.mark.parametrize("ids", [{"source": "before"}, {"remote": "before"}])
def test_topic_that_took_the_name_of_the_one_that_was_copied_is_not_called_equal(ids: Dict[str, str]) -> None:
    topic = judged(ledger(0, **ids), 0, 1)
    assert [each.verdict for each in topic.partitions] == [NOT_COMPARED, EQUAL]
    assert topic.partitions[0].unknown == (ANOTHER_TOPIC,)


def test_topic_that_is_copied_anew_since_is_compared_by_its_own_rows() -> None:
    assert judged({**ledger(0, 1, remote="before"), **ledger(0)}, 0, 1).verdict == EQUAL


def test_difference_is_told_before_what_is_not_compared() -> None:
    assert judged(ledger(0, remote="before"), 0, 1, verdict=DIFFERS).verdict == DIFFERS


def test_topic_that_is_copied_to_two_is_not_taken_for_another() -> None:
    second = CopiedTopic(TopicDescription("orders", "id", 2), "also there", "second id", 2)
    found = topic_verdicts([ORDERS, second], {}, ledger(0))
    assert [topic.verdict for topic in found] == [NOT_COMPARED, EQUAL]


def differing(syncs: Ledger) -> TopicVerdict:
    """Partition 0 is equal, and 1 is not."""
    difference = Difference(1, "not on the source", None, 0, 5, "the source holds no such record")
    verdicts = [PartitionVerdict(0, 5, EQUAL), PartitionVerdict(1, 0, DIFFERS, difference)]
    return topic_verdicts([ORDERS], by_place(verdicts), syncs)[0]


def test_records_of_the_source_topic_that_had_the_name_before_are_no_difference() -> None:
    topic = differing({**ledger(0, 1, source="before"), **ledger(0)})
    assert [each.verdict for each in topic.partitions] == [EQUAL, NOT_COMPARED]
    assert topic.partitions[1].unknown == (ANOTHER_TOPIC,) and topic.differences == ()


@pytest.mark.parametrize(
    "syncs",
    [{**ledger(0, 1, remote="before"), **ledger(0)}, {**ledger(0, 1, source="before"), **ledger(0, 1)}, ledger(0)],
    ids=["another remote topic", "copied again", "no other topic"],
)
def test_difference_stays_one_where_no_other_topic_filled_the_remote_log(syncs: Ledger) -> None:
    assert differing(syncs).verdict == DIFFERS


def test_remote_partition_beyond_those_of_the_source_is_not_passed_over() -> None:
    verdicts = [PartitionVerdict(number, 5, EQUAL) for number in (0, 1)]
    (topic,) = topic_verdicts([ORDERS], by_place(verdicts), ledger(0, 1), {"there": [3]})
    assert [(each.partition, each.unknown) for each in topic.partitions] == [(0, ()), (1, ()), (3, (EXTRA,))]
    assert topic.verdict == NOT_COMPARED


def of_nothing(*waiting: bool, records: int = 0) -> TopicVerdict:
    partitions = [PartitionVerdict(n, records, EQUAL, waiting=each) for n, each in enumerate(waiting)]
    (topic,) = topic_verdicts([ORDERS], by_place(partitions), {})
    return topic


def test_topic_of_which_nothing_was_compared_is_not_equal_where_the_source_holds_records() -> None:
    topic = of_nothing(False, True)
    assert topic.verdict == NOT_COMPARED
    assert [each.unknown for each in topic.partitions] == [(), (NONE_COMPARED,)]


def test_topic_whose_copy_starts_after_all_records_is_not_compared_and_no_fault() -> None:
    """Otherwise a quiet topic would hold up each cut-over of a flow that starts at `latest`."""
    begun = PartitionVerdict(0, 0, EQUAL, before_start=5)
    for partitions, fine in (((begun,), True), ((replace(begun, waiting=True),), False)):
        topic = TopicVerdict("orders", "there", with_none_compared(partitions))
        report = VerifyReport("A->B", (topic,))
        assert (topic.verdict, topic.fine, report.equal) == (NOT_COMPARED, fine, fine)
        assert (summary(report, EVERYTHING).verdict == EQUAL) is fine
        assert "5 source offsets before the start" in summary(report, EVERYTHING).scope
    compared = TopicVerdict("orders", "there", with_none_compared((replace(begun, records=3),)))
    assert compared.verdict == EQUAL


def test_topic_without_records_is_equal_and_so_is_one_that_the_flow_has_not_copied_to_the_end() -> None:
    assert of_nothing(False, False).verdict == EQUAL
    assert of_nothing(False, True, records=3).verdict == EQUAL
