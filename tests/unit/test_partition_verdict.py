"""The verdict on a partition by what was counted in it: above all where hardly anything was."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Tuple

import pytest

from mirror_lib.facts import OffsetRange
from mirror_lib.ledger.intervals import NO_RUNS
from mirror_lib.verify.ranges import EVERYTHING, Bounds, CopiedPartition, CopiedRange, Scope, copied_range
from mirror_lib.verify.verdicts import (
    DIFFERS,
    EQUAL,
    EXPIRED,
    NOT_COMPARED,
    Counts,
    Facing,
    Finding,
    PartitionVerdict,
    TopicVerdict,
    VerifyReport,
    summary,
)


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
