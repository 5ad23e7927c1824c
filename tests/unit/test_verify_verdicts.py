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


def judged(copied: CopiedRange, counts: Counts, tail: Optional[Counts] = None, **more: Any) -> str:
    """The verdict, with the kind of the difference and the offsets before the start of the copy."""
    found = Finding(copied, counts, tail, **more).verdict()
    kind = f", {found.difference.kind}" if found.difference else ""
    return found.verdict + kind + f", {found.before_start} before the start" * bool(found.before_start)


def begun(older: bool = False, from_the_start: bool = False, source: int = 0) -> CopiedRange:
    """A copy that began at offset 300 of the source, which holds offsets from `source` to 299."""
    place = ("orders", "there", 0, array("q", (300, 1, 0)), OffsetRange(source, 300), OffsetRange(0, 1))
    return copied_range(CopiedPartition(*place, from_the_start=from_the_start, older=older))


NO_LEDGER, LATER = (0, 0, 10), partition((4, 10, 10))
SURPLUS, HEADS = Counts(records=6, tail=3), Counts(head_upstream=4, head_downstream=1)
DIFFERING = Counts(records=6, differing=1)
AT_5: Dict[str, Any] = {"first": Facing(5, 5)}
LOST, UNKNOWN, CHANGED = (("lost", "gone"), ("not on the source", "gone"), ("changed value", "gone"))

PARTITIONS: Dict[str, Any] = {
    "no ledger, and records on both sides": (judged(partition(NO_LEDGER), Counts(tail=10)), NOT_COMPARED),
    "only heads": (judged(partition((4, 4, 4)), HEADS), NOT_COMPARED),
    "heads, and some were compared": (judged(LATER, replace(HEADS, records=6)), EQUAL),
    "the remote log is empty yet": (judged(partition(NO_LEDGER), Counts()), EQUAL),
    "the source is empty": (judged(partition((0, 0, 0)), Counts(tail=3)), EQUAL),
    "of other writers": (judged(partition(NO_LEDGER, shared=True), Counts(tail=3)), EQUAL),
    "cleaned away on both sides": (judged(partition(), Counts(compacted=10)), EQUAL),
    "idle since the take-over": (judged(partition((4, 4, 4), older=True), Counts()), EQUAL),
    "a surplus on the remote log alone": (judged(partition(), SURPLUS), NOT_COMPARED),
    "a surplus, and more on the source": (judged(partition((0, 10, 12)), SURPLUS), EQUAL),
    "a surplus of other writers": (judged(partition(shared=True), SURPLUS), EQUAL),
    "a surplus after a cut": (judged(replace(partition(), cut_behind=True), SURPLUS), EQUAL),
    "a surplus that is compared": (judged(partition(), SURPLUS, Counts(3)), EQUAL),
    "no ledger, and all is compared": (judged(partition(NO_LEDGER), Counts(tail=2), Counts(2)), EQUAL),
    "expired": (judged(partition(expired=10), Counts(tail=1)), EXPIRED),
    "lost": (judged(partition(), DIFFERING, kind=LOST, **AT_5), "differs, lost"),
    "lost before the first row": (
        judged(LATER, Counts(records=6, head_upstream=4), kind=LOST, first=Facing(0, None)), "differs, lost",
    ),
    # A record that the present rule makes otherwise may be of an earlier rule.
    "where drops more now": (judged(partition(changed=True), DIFFERING, kind=UNKNOWN, **AT_5),
        "differs, not made by the flow"),
    "where drops less now": (judged(partition(changed=True), DIFFERING, kind=LOST, **AT_5), "differs, lost"),
    "select changes more now": (judged(partition(changed=True), DIFFERING, kind=CHANGED, **AT_5),
        "differs, changed value"),
    "no rule": (judged(partition(), DIFFERING, kind=UNKNOWN, **AT_5), "differs, not on the source"),
    "begun later": (judged(begun(), Counts()), "equal, 300 before the start"),
    "begun later by a take-over": (judged(begun(older=True), Counts()), EQUAL),
    "begun later, with a head": (judged(begun(), Counts(head_downstream=3)), EQUAL),
    "begun at the start": (judged(begun(from_the_start=True), Counts()), EQUAL),
    "begun at an empty log": (judged(begun(source=300), Counts()), EQUAL),
}  # fmt: skip


@pytest.mark.parametrize(("found", "expected"), PARTITIONS.values(), ids=PARTITIONS)
def test_partition_is_called_equal_only_where_nothing_comparable_was_left_out(found: str, expected: str) -> None:
    assert found == expected


def detail(copied: CopiedRange, counts: Counts, **more: Any) -> str:
    difference = Finding(copied, counts, kind=LOST, **more).verdict().difference
    return difference.detail if difference else ""


def test_difference_that_may_have_another_cause_names_it() -> None:
    changed = detail(partition(changed=True), DIFFERING, first=Facing(5, 5))
    assert "was `where`, `select` or `transform` changed meanwhile" in changed
    head = detail(LATER, Counts(records=6, head_upstream=4), first=Facing(0, None))
    assert "by a start.position that is no longer in the file" in head
    assert detail(partition(), DIFFERING, first=Facing(5, 5)) == "gone"
    assert any("300 earlier" in sentence for sentence in Finding(begun(), Counts()).verdict().unknown)


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


# --- topics -------------------------------------------------------------------------------------------------------


ORDERS = CopiedTopic(TopicDescription("orders", "id", 2), "there", "remote id", 2)
ROW = (0, 0, 5)
Ledger = Dict[PartitionKey, Tuple[int, int, int]]


def ledger(*partitions: int, source: str = "id", remote: str = "remote id") -> Ledger:
    return {PartitionKey(source, remote, "orders", number): ROW for number in partitions}


def topic_of(syncs: Ledger, *verdicts: PartitionVerdict) -> TopicVerdict:
    (topic,) = topic_verdicts([ORDERS], {("orders", "there", each.partition): each for each in verdicts}, syncs)
    return topic


E0, E1, D0 = PartitionVerdict(0, 5, EQUAL), PartitionVerdict(1, 5, EQUAL), PartitionVerdict(0, 5, DIFFERS)
EMPTY, WAITS = PartitionVerdict(0, 0, EQUAL), PartitionVerdict(1, 0, EQUAL, waiting=True)
STRANGER = Difference(1, "not on the source", None, 0, 5, "the source holds no such record")
D1 = PartitionVerdict(1, 0, DIFFERS, STRANGER)
OLD_SOURCE, OLD_REMOTE = {"source": "before"}, {"remote": "before"}


@pytest.mark.parametrize(
    ("topic", "partitions", "unknown"),
    [
        pytest.param(topic_of(ledger(0, 1), E0), [EQUAL, NOT_COMPARED], NO_LOG, id="copied, and without a leader"),
        pytest.param(topic_of(ledger(0), E0), [EQUAL, EQUAL], NO_LOG, id="never copied, and without a log"),
        *(
            pytest.param(topic_of(ledger(0, **old), E0, E1), [NOT_COMPARED, EQUAL], ANOTHER_TOPIC, id=f"another: {old}")
            for old in (OLD_SOURCE, OLD_REMOTE)
        ),
        pytest.param(topic_of({**ledger(0, 1, **OLD_REMOTE), **ledger(0)}, E0, E1), [EQUAL] * 2, "", id="copied again"),
        # Differences, unless another topic filled the remote log.
        pytest.param(topic_of(ledger(0, **OLD_REMOTE), D0, E1), [DIFFERS, EQUAL], "", id="a difference comes first"),
        pytest.param(
            *(topic_of({**ledger(0, 1, **OLD_SOURCE), **ledger(0)}, E0, D1), [EQUAL, NOT_COMPARED], ANOTHER_TOPIC),
            id="of the source topic before",
        ),
        pytest.param(topic_of({**ledger(0, 1, **OLD_REMOTE), **ledger(0)}, E0, D1), [EQUAL, DIFFERS], "", id="remote"),
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
    differs = PartitionVerdict(2, 5, "differs", Difference(2, "lost", 4, None, 1, "gone"))
    for partitions, verdict in (((expired,), "expired"), ((expired, E1), "equal"), ((expired, differs), "differs")):
        report = VerifyReport("a->b", (TopicVerdict("t", "a.t", partitions),))
        assert report.topics[0].verdict == verdict and report.equal == (verdict != "differs")
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
