"""What is said of a copy: the naming of a difference, the verdicts on partitions and topics, and the report."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from mirror_lib.facts import OffsetRange, TopicDescription
from mirror_lib.ledger.intervals import NO_RUNS
from mirror_lib.ledger.records import LeftOut, PartitionKey
from mirror_lib.text import as_json
from mirror_lib.topics.plan import CopiedTopic, SkippedTopic, TopicPlan
from mirror_lib.verify.flow import (
    ANOTHER_TOPIC,
    DELETED,
    FILTERED,
    GONE,
    NO_LOG,
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
from tests.lab.flows import flow_of


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


SURPLUS = Counts(records=6, tail=3)


@pytest.mark.parametrize(
    ("copied", "counts", "verdict"),
    [
        pytest.param(partition(NO_LEDGER), Counts(tail=10), NOT_COMPARED, id="no ledger, and records on both sides"),
        pytest.param(
            *(partition((4, 4, 4)), Counts(head_upstream=4, head_downstream=1), NOT_COMPARED), id="only heads"
        ),
        pytest.param(partition(NO_LEDGER), Counts(), EQUAL, id="the remote log is empty yet"),
        pytest.param(partition((0, 0, 0)), Counts(tail=3), EQUAL, id="the source is empty"),
        pytest.param(partition(NO_LEDGER, shared=True), Counts(tail=3), EQUAL, id="of other writers"),
        pytest.param(partition(), Counts(compacted=10), EQUAL, id="cleaned away on both sides"),
        pytest.param(partition((4, 4, 4), older=True), Counts(), EQUAL, id="idle since the take-over"),
        pytest.param(
            *(partition((4, 10, 10)), Counts(records=6, head_upstream=4, head_downstream=1), EQUAL), id="some were"
        ),
        pytest.param(partition(), SURPLUS, NOT_COMPARED, id="a surplus on the remote log alone"),
        pytest.param(partition((0, 10, 12)), SURPLUS, EQUAL, id="a surplus, and more on the source"),
        pytest.param(partition(shared=True), SURPLUS, EQUAL, id="a surplus of other writers"),
        pytest.param(replace(partition(), cut_behind=True), SURPLUS, EQUAL, id="a surplus after a cut"),
        pytest.param(partition(expired=10), Counts(tail=1), EXPIRED, id="expired"),
    ],
)
def test_partition_is_called_equal_only_where_nothing_comparable_was_left_out(
    copied: CopiedRange, counts: Counts, verdict: str
) -> None:
    assert of(copied, counts).verdict == verdict


def test_records_after_the_last_row_count_as_compared() -> None:
    assert Finding(partition(), SURPLUS, Counts(3)).verdict().verdict == EQUAL
    assert Finding(partition(NO_LEDGER), Counts(tail=2), Counts(2)).verdict().verdict == EQUAL


def test_records_before_the_first_row_are_reported_on_both_sides() -> None:
    reported = of(partition((4, 10, 10), older=True), Counts(records=6, head_upstream=4, head_downstream=1)).unknown
    words = ("4 records on the source are before", "1 records in the remote log are before", "before the take-over")
    assert len(reported) == 3 and all(word in sentence for word, sentence in zip(words, reported))


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


@pytest.mark.parametrize(
    ("syncs", "compared", "verdicts", "unknown"),
    [
        pytest.param(ledger(0, 1), [0], [EQUAL, NOT_COMPARED], NO_LOG, id="copied, and without a leader"),
        pytest.param(ledger(0), [0], [EQUAL, EQUAL], NO_LOG, id="never copied, and without a log"),
        *(
            pytest.param(ledger(0, **{side: "before"}), [1], [NOT_COMPARED, EQUAL], ANOTHER_TOPIC, id=f"another {side}")
            for side in ("source", "remote")
        ),
        pytest.param({**ledger(0, 1, remote="before"), **ledger(0)}, [0, 1], [EQUAL, EQUAL], "", id="copied again"),
    ],
)
def test_partition_that_was_copied_and_cannot_be_compared_is_not_called_equal(
    syncs: Ledger, compared: List[int], verdicts: List[str], unknown: str
) -> None:
    topic = judged(syncs, *{0, *compared})
    assert [each.verdict for each in topic.partitions] == verdicts
    assert {sentence for each in topic.partitions for sentence in each.unknown} == {unknown} - {""}
    assert topic.verdict == min(verdicts, key=[NOT_COMPARED, EQUAL].index)
    assert VerifyReport("A->B", (topic,)).equal == (topic.verdict == EQUAL)


def test_difference_is_reported_before_what_is_not_compared() -> None:
    assert judged(ledger(0, remote="before"), 0, 1, verdict=DIFFERS).verdict == DIFFERS


@pytest.mark.parametrize(
    ("syncs", "verdict"),
    [
        pytest.param({**ledger(0, 1, source="before"), **ledger(0)}, NOT_COMPARED, id="of the source topic before"),
        pytest.param({**ledger(0, 1, remote="before"), **ledger(0)}, DIFFERS, id="of another remote topic"),
        pytest.param({**ledger(0, 1, source="before"), **ledger(0, 1)}, DIFFERS, id="copied again"),
        pytest.param(ledger(0), DIFFERS, id="no other topic"),
    ],
)
def test_difference_stays_one_unless_another_topic_filled_the_remote_log(syncs: Ledger, verdict: str) -> None:
    difference = Difference(1, "not on the source", None, 0, 5, "the source holds no such record")
    found = by_place([PartitionVerdict(0, 5, EQUAL), PartitionVerdict(1, 0, DIFFERS, difference)])
    (topic,) = topic_verdicts([ORDERS], found, syncs)
    assert [each.verdict for each in topic.partitions] == [EQUAL, verdict]
    assert (topic.partitions[1].unknown, topic.differences) == (
        ((ANOTHER_TOPIC,), ()) if verdict == NOT_COMPARED else ((), (difference,))
    )


@pytest.mark.parametrize(
    ("waiting", "records", "verdict"),
    [
        pytest.param((False, True), 0, NOT_COMPARED, id="the source holds records"),
        pytest.param((False, False), 0, EQUAL, id="no records"),
        pytest.param((False, True), 3, EQUAL, id="not copied to the end yet"),
    ],
)
def test_topic_of_which_nothing_was_compared_is_equal_only_without_records(
    waiting: Sequence[bool], records: int, verdict: str
) -> None:
    partitions = [PartitionVerdict(n, records, EQUAL, waiting=each) for n, each in enumerate(waiting)]
    (topic,) = topic_verdicts([ORDERS], by_place(partitions), {})
    assert topic.verdict == verdict
    assert [each.unknown for each in topic.partitions] == [(), (NONE_COMPARED,) if verdict == NOT_COMPARED else ()]


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


def test_topic_is_expired_only_where_nothing_could_be_compared() -> None:
    expired = PartitionVerdict(0, 0, "expired", None, ("2 copied records expired",))
    equal = PartitionVerdict(1, 5, "equal")
    differs = PartitionVerdict(2, 5, "differs", Difference(2, "lost", 4, None, 1, "gone"))
    for partitions, verdict in (((expired,), "expired"), ((expired, equal), "equal"), ((expired, differs), "differs")):
        topic = TopicVerdict("t", "a.t", partitions)
        report = VerifyReport("a->b", (topic,))
        assert topic.verdict == verdict and report.equal == (verdict != "differs")
    lines = "\n".join(report_lines(report))
    assert "t-2: lost at upstream offset 4" in lines and "t-0: 2 copied records expired" in lines


# --- what only one side has ---------------------------------------------------------------------------------------


FLOW = flow_of(topics=("shop[.].*",))
SHOP = CopiedTopic(TopicDescription("shop.orders", "id", 2), "A.shop.orders", "remote id", 2)
NOTHING = VerifyReport("A->B", ())
COMPARED = VerifyReport("A->B", (TopicVerdict("shop.orders", "A.shop.orders", (PartitionVerdict(0, 5, EQUAL),)),))


@pytest.mark.parametrize(
    ("copied", "skipped", "present", "missed", "equal"),
    [
        pytest.param(["shop.orders", "shop.gone"], [], [], {"shop.gone": GONE}, False, id="no longer on the source"),
        pytest.param(
            *(["shop.orders", "other", "shop.back"], [SkippedTopic("shop.back", "cycle")], []),
            *({"other": FILTERED, "shop.back": FILTERED}, True),
            id="left out by the flow now",
        ),
        pytest.param(["shop.orders", "shop.tmp"], [], [], {"shop.tmp": DELETED}, True, id="deleted on both clusters"),
        pytest.param(
            *(["shop.blocked", "shop.new"], [SkippedTopic("shop.blocked", "cannot be created", wanted=True)]),
            *(["shop.new"], {}, True),
            id="reported otherwise, or new",
        ),
    ],
)
def test_topic_that_was_copied_and_is_not_listed_is_named(
    copied: List[str], skipped: List[SkippedTopic], present: List[str], missed: Dict[str, str], equal: bool
) -> None:
    partitions = [(name, number) for name in copied for number in (0, 1)]
    remote = ["A.shop.orders", "A.shop.gone", "A.other"]
    found = unlisted(FLOW, TopicPlan((SHOP,), tuple(skipped)), partitions, present, remote)
    assert found == {name: (why, [0, 1]) for name, why in missed.items()}
    report = with_unlisted(FLOW, COMPARED, found)
    assert report.equal is equal and (report == COMPARED) is equal
    if not equal:
        (_, gone) = report.topics
        assert (gone.topic, gone.remote_topic, gone.verdict) == ("shop.gone", "A.shop.gone", NOT_COMPARED)
        assert [each.unknown for each in gone.partitions] == [(GONE,), ()]
    # Where nothing else was compared, nothing is called equal.
    alone = with_unlisted(FLOW, NOTHING, found)
    assert alone.equal is not bool(missed)
    assert [each.partitions[0].unknown for each in alone.topics] == [(why,) for why in missed.values()]


def test_each_partition_reports_how_many_offsets_were_left_out_and_which() -> None:
    partitions = tuple(PartitionVerdict(n, 9, EQUAL) for n in (0, 1))
    report = VerifyReport("A->B", (TopicVerdict("orders", "A.orders", partitions),))
    assert report_lines(with_left_out(report, {})) == report_lines(report)
    report = with_left_out(report, {("orders", 1): LeftOut(7, ((5, 6), (9, 12))), ("others", 0): LeftOut(1, ((0, 1),))})
    assert report.equal
    assert report_lines(report)[-1] == (
        "orders-1: on.error: skip left out 7 offsets, they are not on the target: 5, 9 to 11, and more"
    )
    (topic,) = json.loads(as_json(report))["topics"]
    assert [each["left_out"] for each in topic["partitions"]] == [None, {"offsets": 7, "ranges": [[5, 6], [9, 12]]}]
