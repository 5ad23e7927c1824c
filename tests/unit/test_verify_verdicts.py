"""What is said of a copy: the naming of a difference, the verdicts on partitions and topics, and the report."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, cast

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.facts import Cluster, OffsetRange, TopicDescription, TopicPartition
from mirror_lib.ledger.intervals import NO_RUNS
from mirror_lib.ledger.records import LeftOut, PartitionKey
from mirror_lib.text import as_json
from mirror_lib.topics.plan import CopiedTopic, SkippedTopic, TopicPlan
from mirror_lib.verify.flow import (
    ANOTHER_TOPIC,
    DELETED,
    EXTRA,
    FILTERED,
    GONE,
    NO_LOG,
    extra_partitions,
    topic_verdicts,
    unlisted,
    with_left_out,
    with_unlisted,
)
from mirror_lib.verify.ranges import EVERYTHING, Bounds, CopiedPartition, CopiedRange, Scope, copied_range
from mirror_lib.verify.verdicts import (
    DIFFERS,
    EQUAL,
    EXPIRED,
    NONE_COMPARED,
    NOT_COMPARED,
    Counts,
    Difference,
    Facing,
    Finding,
    PartitionVerdict,
    SeenRecord,
    TopicVerdict,
    VerifyReport,
    classify,
    report_lines,
    summary,
    with_none_compared,
)


def record(content: str, **fields: str) -> SeenRecord:
    named = {name: hash(fields.get(name)) for name in ("key", "value", "headers", "timestamp")}
    return SeenRecord(content, named)


def named(
    upstream: Optional[SeenRecord], downstream: Optional[SeenRecord], **places: Tuple[Sequence[int], Sequence[int]]
) -> str:
    """The kind for partition 0; `places` give each digest's partitions upstream and downstream, one for each copy."""
    sources, remotes = (Counter((digest, n) for digest, of in places.items() for n in of[side]) for side in (0, 1))
    return classify(0, upstream, downstream, sources, remotes)[0]


A, B = record("a"), record("b")


@pytest.mark.parametrize(
    ("upstream", "downstream", "places", "kind"),
    [
        (A, B, {"a": ([0], []), "b": ([0], [0])}, "lost"),
        (A, None, {"a": ([0], [])}, "lost"),
        # One copy of two equal records; a copy that another partition had anyway.
        (A, B, {"a": ([0, 0], [0]), "b": ([0], [0])}, "lost"),
        (A, B, {"a": ([0, 3], [3]), "b": ([0], [0])}, "lost"),
        (A, B, {"a": ([0], [0]), "b": ([0], [0, 0])}, "doubled"),
        (None, B, {"b": ([0], [0, 0])}, "doubled"),
        # Repeated on the source too.
        (A, B, {"a": ([0], [0]), "b": ([0, 0], [0, 0])}, "swapped"),
        (A, B, {"a": ([0], [3]), "b": ([0], [0])}, "wrong partition"),
        (A, B, {"a": ([0], [0]), "b": ([3], [0])}, "wrong partition"),
        (None, B, {"b": ([], [0])}, "not on the source"),
        (A, A, {"a": ([0], [0])}, "ledger is wrong"),
        (None, None, {}, "ledger is wrong"),
    ],
)
def test_difference_is_named_by_where_both_records_are(
    upstream: Optional[SeenRecord], downstream: Optional[SeenRecord], places: Dict[str, Any], kind: str
) -> None:
    assert named(upstream, downstream, **places) == kind


@pytest.mark.parametrize("field", ["key", "value", "headers", "timestamp"])
def test_a_changed_record_is_named_by_the_field(field: str) -> None:
    assert named(record("a"), record("b", **{field: "other"}), a=([0], []), b=([], [0])) == f"changed {field}"


# --- partitions ---------------------------------------------------------------------------------------------------


def partition(
    source: Tuple[int, int, int] = (0, 10, 10),
    expired: int = 0,
    shared: bool = False,
    changed: bool = False,
    older: bool = False,
) -> CopiedRange:
    """`source`: from where to where the ledger speaks of it, and where it ends."""
    first, end, log_end = source
    logs = OffsetRange(0, log_end), OffsetRange(0, 10)
    known = CopiedPartition("orders", "there", 0, array("q"), *logs, shared=shared, changed=changed, older=older)
    return CopiedRange(known, NO_RUNS, Bounds(first, first, end, end), Bounds(0, 0, 10, 10), expired)


NO_LEDGER = (0, 0, 10)


def of(copied: CopiedRange, counts: Counts) -> PartitionVerdict:
    return Finding(copied, counts).verdict()


def test_both_logs_hold_records_and_none_was_compared() -> None:
    for copied, counts in (
        (partition(NO_LEDGER), Counts(tail=10)),
        (partition((4, 4, 4)), Counts(head_upstream=4, head_downstream=1)),
    ):
        assert of(copied, counts).verdict == NOT_COMPARED


@pytest.mark.parametrize(
    ("copied", "counts"),
    [
        pytest.param(partition(NO_LEDGER), Counts(), id="the remote log is empty yet"),
        pytest.param(partition((0, 0, 0)), Counts(tail=3), id="the source is empty"),
        pytest.param(partition(NO_LEDGER, shared=True), Counts(tail=3), id="of other writers"),
        pytest.param(partition(), Counts(compacted=10), id="cleaned away on both sides"),
        pytest.param(partition((4, 4, 4), older=True), Counts(), id="idle since the take-over"),
        pytest.param(partition((4, 10, 10)), Counts(records=6, head_upstream=4, head_downstream=1), id="some were"),
    ],
)
def test_what_need_not_be_known_is_not_held_against_a_copy(copied: CopiedRange, counts: Counts) -> None:
    assert of(copied, counts).verdict == EQUAL


SURPLUS = Counts(records=6, tail=3)


def test_remote_log_that_goes_on_uncompared_where_the_source_does_not_is_not_called_equal() -> None:
    assert of(partition(), SURPLUS).verdict == NOT_COMPARED
    for known in (partition((0, 10, 12)), partition(shared=True), replace(partition(), cut_behind=True)):
        assert of(known, SURPLUS).verdict == EQUAL
    assert Finding(partition(), SURPLUS, Counts(3)).verdict().verdict == EQUAL


def test_what_expired_is_told_as_expired() -> None:
    assert of(partition(expired=10), Counts(tail=1)).verdict == EXPIRED


def test_records_before_the_first_row_are_told_on_both_sides() -> None:
    reported = of(partition((4, 10, 10), older=True), Counts(records=6, head_upstream=4, head_downstream=1)).unknown
    assert reported == (
        "4 records on the source are before the ledger's first row: not compared",
        "1 records in the remote log are before the ledger's first row: not compared",
        "the records of the remote log before the take-over were not all compared, and are not now",
    )


@pytest.mark.parametrize(("older", "head", "reported"), [(False, 0, True), (True, 0, False), (False, 3, False)])
def test_offsets_before_the_start_of_the_copy_are_counted(older: bool, head: int, reported: bool) -> None:
    anchor = array("q", (300, 1, 0))
    logs = OffsetRange(0, 300), OffsetRange(0, 1)
    known = CopiedPartition("orders", "there", 0, anchor, *logs, from_the_start=False, older=older)
    found = of(copied_range(known), Counts(head_downstream=head))
    assert (found.before_start == 300) is reported
    assert any("offset 300" in sentence and "300 earlier" in sentence for sentence in found.unknown) is reported
    assert not of(copied_range(replace(known, from_the_start=True)), Counts()).before_start
    assert not of(copied_range(replace(known, source=OffsetRange(300, 300))), Counts()).before_start


def test_whole_is_said_only_of_what_was_compared_from_the_start_to_the_end_of_the_remote_log() -> None:
    def scope_of(finding: Finding, scope: Scope = EVERYTHING) -> str:
        report = VerifyReport("A->B", (TopicVerdict("orders", "there", (finding.verdict(),)),))
        return summary(report, scope).scope

    late, since = Counts(records=6, head_downstream=1200), Scope(since=0)
    assert scope_of(Finding(partition(), Counts(records=10))) == "whole"
    assert scope_of(Finding(partition(), late)) == "1,200 records not compared"
    assert scope_of(Finding(partition(), late), since) == "since 1970-01-01T00:00:00Z, 1,200 records not compared"
    assert scope_of(Finding(partition(expired=10), Counts(records=6))) == "10 records not compared"
    assert scope_of(Finding(partition((0, 10, 12)), SURPLUS)) == "3 records not compared"
    assert scope_of(Finding(partition(), SURPLUS, Counts(3))) == "whole"
    assert scope_of(Finding(partition(shared=True), SURPLUS)) == "whole"
    assert "whole" not in scope_of(Finding(partition(older=True), Counts(records=10)))


def test_records_before_the_first_row_are_lost_or_were_never_asked_for() -> None:
    lost = ("lost", "it is not there")
    head = Counts(records=6, head_upstream=4)
    verdict = Finding(partition((4, 10, 10)), head, first=Facing(0, None), kind=lost).verdict()
    assert verdict.verdict == DIFFERS and verdict.difference is not None and verdict.unknown == ()
    assert "by a start.position that is no longer in the file" in verdict.difference.detail
    other = Finding(partition(), Counts(records=6, differing=1), first=Facing(5, 5), kind=lost).verdict().difference
    assert other is not None and other.detail == "it is not there"


@pytest.mark.parametrize(
    ("kind", "reported"),
    [
        pytest.param("not on the source", "not made by the flow", id="where drops more now"),
        pytest.param("lost", "lost", id="where drops less now"),
        pytest.param("changed value", "changed value", id="select makes other values now"),
    ],
)
def test_record_that_the_present_rule_makes_otherwise_may_be_of_an_earlier_rule(kind: str, reported: str) -> None:
    there = (kind, "the source holds no such record")
    finding = Finding(partition(changed=True), Counts(records=6, differing=1), first=Facing(5, 5), kind=there)
    found = finding.verdict().difference
    assert found is not None and found.kind == reported
    assert "was `where`, `select` or `transform` changed meanwhile" in found.detail
    assert kind == reported or "the source holds no such record" not in found.detail
    without = replace(finding, copied=partition()).verdict().difference
    assert without is not None and (without.kind, without.detail) == there


def test_records_behind_the_last_row_count_as_compared() -> None:
    assert Finding(partition(NO_LEDGER), Counts(tail=2), Counts(2)).verdict().verdict == EQUAL


# --- topics -------------------------------------------------------------------------------------------------------


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


def test_a_topic_is_expired_only_where_nothing_could_be_compared() -> None:
    expired, equal = PartitionVerdict(0, 0, "expired"), PartitionVerdict(1, 5, "equal")
    differs = PartitionVerdict(2, 5, "differs", Difference(2, "lost", 4, None, 1, "gone"))

    assert TopicVerdict("t", "a.t", (expired,)).verdict == "expired"
    assert TopicVerdict("t", "a.t", (expired, equal)).verdict == "equal"
    assert TopicVerdict("t", "a.t", (expired, equal, differs)).verdict == "differs"


def test_the_report_names_the_difference_and_what_expired() -> None:
    difference = Difference(1, "lost", 4, None, 1, "the remote log does not hold the record")
    partitions = (
        PartitionVerdict(0, 5, "equal", None, ("2 copied records expired",)),
        PartitionVerdict(1, 4, "differs", difference, not_copied=3),
    )
    report = VerifyReport("a->b", (TopicVerdict("t", "a.t", partitions), TopicVerdict("longer", "a.longer", ())))
    lines = report_lines(report)
    assert "t-1: lost at upstream offset 4" in lines[3] and lines[4] == "t-0: 2 copied records expired"
    assert not report.equal


# --- what only one side has ---------------------------------------------------------------------------------------


FLOW = ReplicationFlow(
    ClusterConfig("A", {"bootstrap.servers": "a:9092"}),
    ClusterConfig("B", {"bootstrap.servers": "b:9092"}),
    topics=("shop[.].*",),
)
SHOP = CopiedTopic(TopicDescription("shop.orders", "id", 2), "A.shop.orders", "remote id", 2)
NOTHING = VerifyReport("A->B", ())
COMPARED = VerifyReport("A->B", (TopicVerdict("shop.orders", "A.shop.orders", (PartitionVerdict(0, 5, EQUAL),)),))


def missed_of(
    *copied: str, skipped: Sequence[SkippedTopic] = (), present: Sequence[str] = ()
) -> Mapping[str, Tuple[str, Sequence[int]]]:
    partitions = [(name, number) for name in copied for number in (0, 1)]
    remote = ["A.shop.orders", "A.shop.gone", "A.other"]
    return unlisted(FLOW, TopicPlan((SHOP,), tuple(skipped)), partitions, present, remote)


def test_topic_that_is_no_longer_on_the_source_is_told_once_and_is_not_called_equal() -> None:
    report = with_unlisted(FLOW, COMPARED, missed_of("shop.orders", "shop.gone"))
    orders, gone = report.topics
    assert (orders.verdict, gone.verdict, report.equal) == (EQUAL, NOT_COMPARED, False)
    assert (gone.topic, gone.remote_topic) == ("shop.gone", "A.shop.gone")
    assert [each.unknown for each in gone.partitions] == [(GONE,), ()]


def test_topic_that_the_flow_leaves_out_now_is_named_and_does_no_harm() -> None:
    missed = missed_of("shop.orders", "other", "shop.back", skipped=[SkippedTopic("shop.back", "cycle")])
    assert missed == {"other": (FILTERED, [0, 1]), "shop.back": (FILTERED, [0, 1])}
    assert with_unlisted(FLOW, COMPARED, missed) == COMPARED


def test_where_the_flow_leaves_out_all_that_it_copied_nothing_is_called_equal() -> None:
    report = with_unlisted(FLOW, NOTHING, missed_of("other"))
    assert not report.equal
    assert [each.partitions[0].unknown for each in report.topics] == [(FILTERED,)]


def test_topic_that_is_told_of_otherwise_or_came_just_now_is_not_gone() -> None:
    blocked = [SkippedTopic("shop.blocked", "cannot be created", wanted=True)]
    missed = missed_of("shop.blocked", "shop.new", skipped=blocked, present=["shop.new"])
    assert missed == {}


def test_topic_that_was_deleted_on_both_clusters_fails_nothing_but_is_not_called_equal_alone() -> None:
    missed = missed_of("shop.orders", "shop.tmp")
    assert missed == {"shop.tmp": (DELETED, [0, 1])}
    assert with_unlisted(FLOW, COMPARED, missed) == COMPARED
    alone = with_unlisted(FLOW, NOTHING, missed)
    assert not alone.equal and [each.partitions[0].unknown for each in alone.topics] == [(DELETED,)]


def described(name: str, partitions: int) -> TopicDescription:
    return TopicDescription(name, name, partitions)


def cluster(topic: TopicDescription, filled: Sequence[int] = ()) -> Cluster:
    def offsets(asked: Sequence[TopicPartition], isolation_level: str) -> Dict[TopicPartition, OffsetRange]:
        return {(name, number): OffsetRange(0, int(number in filled)) for name, number in asked}

    return cast(Cluster, SimpleNamespace(topics=lambda: {topic.name: topic}, offsets=offsets))


def extra(of_source: int, planned: int) -> Dict[str, Sequence[int]]:
    """The source has so many partitions by now, and had `planned`; the remote topic has 6, and 3 to 5 hold
    something."""
    copied = CopiedTopic(described("orders", planned), "a.orders", "id", planned)
    target = cluster(described("a.orders", 6), (3, 4, 5))
    return dict(extra_partitions(cluster(described("orders", of_source)), target, [copied]))


def test_partitions_that_the_source_never_had_are_told() -> None:
    assert extra(of_source=4, planned=4) == {"a.orders": [4, 5]}


def test_partitions_that_came_to_the_source_since_are_its_own() -> None:
    assert extra(of_source=6, planned=4) == {}
    assert extra(of_source=5, planned=4) == {"a.orders": [5]}


REPORT = VerifyReport(
    "A->B", (TopicVerdict("orders", "A.orders", tuple(PartitionVerdict(n, 9, EQUAL) for n in (0, 1))),)
)


def test_each_partition_tells_how_many_offsets_and_which() -> None:
    report = with_left_out(REPORT, {("orders", 1): LeftOut(7, ((5, 6), (9, 12))), ("others", 0): LeftOut(1, ((0, 1),))})
    assert report.equal
    assert report_lines(report)[-1] == (
        "orders-1: on.error: skip left out 7 offsets, they are not on the target: 5, 9 to 11, and more"
    )
    (topic,) = json.loads(as_json(report))["topics"]
    assert [each["left_out"] for each in topic["partitions"]] == [None, {"offsets": 7, "ranges": [[5, 6], [9, 12]]}]


def test_nothing_is_said_where_nothing_was_left_out() -> None:
    assert report_lines(with_left_out(REPORT, {})) == report_lines(REPORT)
