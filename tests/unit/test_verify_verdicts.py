"""What is said of a copy: the verdicts on partitions and topics, and what only one side has."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from mirror_lib.facts import OffsetRange, TopicDescription
from mirror_lib.ledger.intervals import NO_RUNS
from mirror_lib.ledger.records import PartitionKey
from mirror_lib.topics.plan import CopiedTopic, SkippedTopic, TopicPlan
from mirror_lib.verify.flow import (
    ANOTHER_TOPIC,
    DELETED,
    FILTERED,
    GONE,
    NO_LOG,
    topic_verdicts,
    unlisted,
    with_unlisted,
)
from mirror_lib.verify.ranges import EVERYTHING, Bounds, CopiedPartition, CopiedRange, Scope, copied_range
from mirror_lib.verify.verdicts import (
    DIFFERS,
    EQUAL,
    NONE_COMPARED,
    NOT_COMPARED,
    Counts,
    Difference,
    Finding,
    PartitionVerdict,
    SeenRecord,
    TopicVerdict,
    VerifyReport,
    classify,
    summary,
    with_none_compared,
)
from tests.lab.flows import flow_of

FIELDS = dict.fromkeys(("key", "value", "headers", "timestamp"), 0)


@pytest.mark.parametrize(
    ("places", "kind"),
    [
        # One copy of two equal records; a copy that another partition had anyway.
        ({"a": ([0, 0], [0]), "b": ([0], [0])}, "lost"),
        ({"a": ([0, 3], [3]), "b": ([0], [0])}, "lost"),
        # Repeated on the source too.
        ({"a": ([0], [0]), "b": ([0, 0], [0, 0])}, "swapped"),
    ],
)
def test_difference_is_named_by_how_often_each_record_is_where(places: Dict[str, Any], kind: str) -> None:
    """Record `a` faces `b` in partition 0; `places` have the partitions of each on both sides, one for each copy."""
    sources, remotes = (Counter((digest, n) for digest, of in places.items() for n in of[side]) for side in (0, 1))
    assert classify(0, SeenRecord("a", FIELDS), SeenRecord("b", FIELDS), sources, remotes)[0] == kind


def partition(
    source: Tuple[int, int, int] = (0, 10, 10), expired: int = 0, shared: bool = False, older: bool = False
) -> CopiedRange:
    """`source`: from where to where the ledger speaks of it, and where it ends."""
    first, end, log_end = source
    logs = OffsetRange(0, log_end), OffsetRange(0, 10)
    known = CopiedPartition("orders", "there", 0, array("q"), *logs, shared=shared, older=older)
    return CopiedRange(known, NO_RUNS, Bounds(first, first, end, end), Bounds(0, 0, 10, 10), expired)


def judged(copied: CopiedRange, counts: Counts, tail: Optional[Counts] = None) -> str:
    """The verdict, with the offsets before the start of the copy."""
    found = Finding(copied, counts, tail).verdict()
    return found.verdict + f", {found.before_start} before the start" * bool(found.before_start)


def begun(older: bool = False, from_the_start: bool = False, source: int = 0) -> CopiedRange:
    """A copy that began at offset 300 of the source, which holds offsets from `source` to 299."""
    place = ("orders", "there", 0, array("q", (300, 1, 0)), OffsetRange(source, 300), OffsetRange(0, 1))
    return copied_range(CopiedPartition(*place, from_the_start=from_the_start, older=older))


NO_LEDGER = (0, 0, 10)
SURPLUS, HEADS = Counts(records=6, tail=3), Counts(head_upstream=4, head_downstream=1)

PARTITIONS: Dict[str, Any] = {
    "no ledger, and records on both sides": (judged(partition(NO_LEDGER), Counts(tail=10)), NOT_COMPARED),
    "only heads": (judged(partition((4, 4, 4)), HEADS), NOT_COMPARED),
    "the remote log is empty yet": (judged(partition(NO_LEDGER), Counts()), EQUAL),
    "the source is empty": (judged(partition((0, 0, 0)), Counts(tail=3)), EQUAL),
    "cleaned away on both sides": (judged(partition(), Counts(compacted=10)), EQUAL),
    "idle since the take-over": (judged(partition((4, 4, 4), older=True), Counts()), EQUAL),
    "a surplus on the remote log alone": (judged(partition(), SURPLUS), NOT_COMPARED),
    "a surplus, and more on the source": (judged(partition((0, 10, 12)), SURPLUS), EQUAL),
    "a surplus of other writers": (judged(partition(shared=True), SURPLUS), EQUAL),
    "a surplus after a cut": (judged(replace(partition(), cut_behind=True), SURPLUS), EQUAL),
    "a surplus that is compared": (judged(partition(), SURPLUS, Counts(3)), EQUAL),
    "begun later": (judged(begun(), Counts()), "equal, 300 before the start"),
    "begun later by a take-over": (judged(begun(older=True), Counts()), EQUAL),
    "begun later, with a head": (judged(begun(), Counts(head_downstream=3)), EQUAL),
    "begun at the start": (judged(begun(from_the_start=True), Counts()), EQUAL),
    "begun at an empty log": (judged(begun(source=300), Counts()), EQUAL),
}  # fmt: skip


@pytest.mark.parametrize(("found", "expected"), PARTITIONS.values(), ids=PARTITIONS)
def test_partition_is_called_equal_only_where_nothing_comparable_was_left_out(found: str, expected: str) -> None:
    assert found == expected


def test_whole_is_said_only_of_what_was_compared_from_the_start_to_the_end_of_the_remote_log() -> None:
    def scope_of(copied: CopiedRange, counts: Counts, tail: Optional[Counts] = None, scope: Scope = EVERYTHING) -> str:
        verdict = Finding(copied, counts, tail).verdict()
        return summary(VerifyReport("A->B", (TopicVerdict("orders", "there", (verdict,)),)), scope).scope

    late, ten = Counts(records=6, head_downstream=1200), Counts(records=10)
    assert scope_of(partition(), ten) == "whole"
    assert scope_of(partition(), late) == "1,200 records not compared"
    since = scope_of(partition(), late, scope=Scope(since=0))
    assert since == "since 1970-01-01T00:00:00Z, 1,200 records not compared"
    assert scope_of(partition(expired=10), Counts(records=6)) == "10 records not compared"
    assert scope_of(partition((0, 10, 12)), SURPLUS) == "3 records not compared"
    assert scope_of(partition(), SURPLUS, Counts(3)) == scope_of(partition(shared=True), SURPLUS) == "whole"
    assert "whole" not in scope_of(partition(older=True), ten)


ORDERS = CopiedTopic(TopicDescription("orders", "id", 2), "there", "remote id", 2)
Ledger = Dict[PartitionKey, Tuple[int, int, int]]


def ledger(*partitions: int, source: str = "id", remote: str = "remote id") -> Ledger:
    return {PartitionKey(source, remote, "orders", number): (0, 0, 5) for number in partitions}


def topic_of(syncs: Ledger, *verdicts: PartitionVerdict) -> TopicVerdict:
    (topic,) = topic_verdicts([ORDERS], {("orders", "there", each.partition): each for each in verdicts}, syncs)
    return topic


E0, E1, D0 = PartitionVerdict(0, 5, EQUAL), PartitionVerdict(1, 5, EQUAL), PartitionVerdict(0, 5, DIFFERS)
EMPTY, WAITS = PartitionVerdict(0, 0, EQUAL), PartitionVerdict(1, 0, EQUAL, waiting=True)
STRANGER = Difference(1, "not on the source", None, 0, 5, "the source holds no such record")
D1 = PartitionVerdict(1, 0, DIFFERS, STRANGER)
OLD_SOURCE, OLD_REMOTE = {"source": "before"}, {"remote": "before"}
SOURCE_BEFORE, REMOTE_BEFORE = ({**ledger(0, 1, **old), **ledger(0)} for old in (OLD_SOURCE, OLD_REMOTE))


@pytest.mark.parametrize(
    ("topic", "partitions", "unknown"),
    [
        pytest.param(topic_of(ledger(0, 1), E0), [EQUAL, NOT_COMPARED], NO_LOG, id="copied, and without a leader"),
        pytest.param(topic_of(ledger(0), E0), [EQUAL, EQUAL], NO_LOG, id="never copied, and without a log"),
        pytest.param(topic_of(ledger(0, **OLD_SOURCE), E0, E1), [NOT_COMPARED, EQUAL], ANOTHER_TOPIC, id="source"),
        pytest.param(topic_of(ledger(0, **OLD_REMOTE), E0, E1), [NOT_COMPARED, EQUAL], ANOTHER_TOPIC, id="remote"),
        pytest.param(topic_of(REMOTE_BEFORE, E0, E1), [EQUAL, EQUAL], "", id="copied again"),
        # Differences, unless another topic filled the remote log.
        pytest.param(topic_of(ledger(0, **OLD_REMOTE), D0, E1), [DIFFERS, EQUAL], "", id="a difference comes first"),
        pytest.param(topic_of(SOURCE_BEFORE, E0, D1), [EQUAL, NOT_COMPARED], ANOTHER_TOPIC, id="of the topic before"),
        pytest.param(topic_of(REMOTE_BEFORE, E0, D1), [EQUAL, DIFFERS], "", id="of the remote before"),
        pytest.param(topic_of({**ledger(0, 1, **OLD_SOURCE), **ledger(0, 1)}, E0, D1), [EQUAL, DIFFERS], "", id="both"),
        pytest.param(topic_of(ledger(0), E0, D1), [EQUAL, DIFFERS], "", id="no other topic"),
        # Nothing was compared.
        pytest.param(topic_of({}, EMPTY, WAITS), [EQUAL, NOT_COMPARED], NONE_COMPARED, id="the source holds records"),
        pytest.param(topic_of({}, EMPTY, replace(WAITS, waiting=False)), [EQUAL, EQUAL], "", id="no records"),
        pytest.param(topic_of({}, E0, replace(WAITS, records=3)), [EQUAL, EQUAL], "", id="not copied to the end yet"),
    ],
)
def test_topic_is_called_equal_only_where_its_partitions_could_be_compared(
    topic: TopicVerdict, partitions: List[str], unknown: str
) -> None:
    assert {sentence for each in topic.partitions for sentence in each.unknown} == {unknown} - {""}
    worst = min(partitions, key=[DIFFERS, NOT_COMPARED, EQUAL].index)
    assert topic.verdict == worst and VerifyReport("A->B", (topic,)).equal == (worst == EQUAL)
    assert [each.verdict for each in topic.partitions] == partitions


def test_copy_is_complete_only_where_each_partition_is_known_to_be() -> None:
    known = replace(E0, not_copied=0)
    for syncs, verdicts, complete in (
        (ledger(0, 1), [known, replace(E1, not_copied=0)], True),
        (ledger(0, 1), [known, replace(E1, not_copied=3)], False),
        (ledger(0), [known], False),  # a partition that is new on the source
    ):
        assert VerifyReport("A->B", (topic_of(syncs, *verdicts),)).complete is complete


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


FLOW = flow_of(topics=("shop[.].*",))
SHOP = CopiedTopic(TopicDescription("shop.orders", "id", 2), "A.shop.orders", "remote id", 2)
COMPARED = VerifyReport("A->B", (TopicVerdict("shop.orders", "A.shop.orders", (E0,)),))
SKIPPED = (SkippedTopic("shop.back", "cycle"), SkippedTopic("shop.blocked", "cannot be created", wanted=True))


@pytest.mark.parametrize(
    ("copied", "why"),
    [("shop.gone", GONE), ("other", FILTERED), ("shop.back", FILTERED), ("shop.tmp", DELETED)],
)
def test_topic_that_was_copied_and_is_not_listed_is_named_with_the_reason(copied: str, why: str) -> None:
    # A blocked topic is reported otherwise, and a new one is on the source.
    partitions = [(name, number) for name in ("shop.orders", "shop.blocked", "shop.new", copied) for number in (0, 1)]
    remote = ["A.shop.orders", "A.shop.gone", "A.other"]
    found = unlisted(FLOW, TopicPlan((SHOP,), SKIPPED), partitions, ["shop.new"], remote)
    assert found == {copied: (why, [0, 1])}
    assert with_unlisted(FLOW, COMPARED, found).equal is (why != GONE)
    # Where nothing else was compared, nothing is called equal.
    assert not with_unlisted(FLOW, VerifyReport("A->B", ()), found).equal
