"""What of flows that repartition records is compared: pure decisions before both logs are read, and behind that."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

import pytest

from mirror_lib.facts import OffsetRange, TopicDescription
from mirror_lib.ledger.records import LogPosition, RangePositions
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.origins import (
    BEFORE,
    BEHIND,
    GONE,
    MISSING,
    NOT_MADE,
    NOT_OURS,
    OF_ANOTHER,
    OTHER_CONTENT,
    PAIR,
    OriginCopy,
    RecordAt,
    origin_copy,
)
from mirror_lib.verify.verdicts import VerifyReport

ORDERS = CopiedTopic(TopicDescription("orders", "id-of-the-topic", 2), "there", "remote id", 2, keyed_over=3)
KNOWN = RangePositions(
    {("orders", 0): LogPosition("id-of-the-topic", 40, 30), ("orders", 1): LogPosition("id-of-the-topic", 40, 0)},
    {("there", n): LogPosition("remote id", 30, 5 + n) for n in range(3)},
)


def compared(known: RangePositions = KNOWN, end: int = 30) -> OriginCopy:
    ours = {("orders", n): OffsetRange(0, 99) for n in range(3)}
    theirs = {("there", n): OffsetRange(0, end) for n in range(3)}
    return origin_copy([ORDERS], known, ours, theirs)


def test_topic_of_which_there_is_another_by_now_is_not_compared_with_it() -> None:
    gone = {place: stand._replace(topic_id="gone") for place, stand in KNOWN.sources.items()}
    assert compared(replace(KNOWN, sources=gone)).sources == ()
    gone = {place: stand._replace(topic_id="gone") for place, stand in KNOWN.remotes.items()}
    assert compared(replace(KNOWN, remotes=gone)).others == {"there"}
    # A remote topic that is not begun is none of these.
    assert compared(replace(KNOWN, remotes={})).others == compared().others == set()


def test_source_is_compared_as_far_as_the_ledger_goes_and_the_remote_logs_to_their_ends() -> None:
    found = compared(end=33)
    assert [each.until_offset for each in found.sources] == [40, 40]
    assert [each.until_offset for each in found.remotes] == [33, 33, 33]


def test_what_the_ledger_lacks_of_each_partition_is_not_copied() -> None:
    """Of partitions 0 and 1 it has 40 of 99 offsets, of partition 2 none."""
    verdict = compared().verdict(ORDERS, {})
    assert verdict.not_copied == (99 - 40) * 2 + 99
    assert not VerifyReport("A->B", (verdict,)).complete
    caught_up = {place: stand._replace(offset=99) for place, stand in KNOWN.sources.items()}
    known = replace(KNOWN, sources={**caught_up, ("orders", 2): LogPosition("id-of-the-topic", 99)})
    copy = compared(known)
    assert VerifyReport("A->B", (copy.verdict(ORDERS, {}),)).complete
    without_leader = replace(copy, not_copied={"orders": None})
    assert not VerifyReport("A->B", (without_leader.verdict(ORDERS, {}),)).complete


COPY = compared()
FIRST = RecordAt(12, 0, 31)


def judged(found: Tuple[str, RecordAt], copy: OriginCopy) -> str:
    """The verdict on partition 0, with its kind and its offsets where it differs."""
    first = copy.verdict(ORDERS, {0: {PAIR: (3, FIRST), found[0]: (1, found[1])}}).partitions[0]
    said = first.difference
    return first.verdict if said is None else f"{said.kind} {said.upstream_offset} {said.downstream_offset}"


LOST: Tuple[str, RecordAt] = (MISSING, RecordAt(None, 0, 31))
STRANGER: Tuple[str, RecordAt] = (NOT_OURS, RecordAt(12, None, None))
UNMADE: Tuple[str, RecordAt] = (NOT_MADE, FIRST)
OTHER: Tuple[str, RecordAt] = (OTHER_CONTENT, RecordAt(12, 0, 31, 0, "key, value"))
COMPACTED, THINNED = replace(COPY, compacted={"there"}), replace(COPY, thinned={"there"})


@pytest.mark.parametrize(
    ("found", "copy", "word"),
    [
        *(((each, FIRST), COPY, "equal") for each in (GONE, OF_ANOTHER, BEFORE, BEHIND)),
        (LOST, COMPACTED, "equal"),
        (LOST, THINNED, "lost 31 None"),
        (STRANGER, replace(COPY, shared=True), "equal"),
        (STRANGER, COMPACTED, "not on the source None 12"),
        (UNMADE, THINNED, "equal"),
        (UNMADE, COMPACTED, "not on the source 31 12"),
        # It may be of a rule of before.
        (UNMADE, replace(COPY, changed=True), "not made by the flow 31 12"),
        (OTHER, replace(COMPACTED, shared=True), "changed key, value 31 12"),
    ],
)
def test_what_may_be_so_in_an_exact_copy_is_no_difference_and_anything_else_is(
    found: Tuple[str, RecordAt], copy: OriginCopy, word: str
) -> None:
    assert judged(found, copy) == word
