"""How much of a copy `mirror verify --since` and `--sample` look at."""

from __future__ import annotations

import random
from typing import List, Sequence, Tuple

import pytest

from mirror_lib.config.values import moment, share
from mirror_lib.facts import OffsetRange
from mirror_lib.ledger.intervals import Numbers
from mirror_lib.verify.ranges import STRETCH, CopiedPartition, CopiedRange, copied_range, sample
from mirror_lib.verify.verdicts import (
    DIFFERS,
    EQUAL,
    LOST,
    NOT_COMPARED,
    Difference,
    PartitionVerdict,
    sampled_verdict,
)


def copied(*runs: Tuple[int, int, int], since: int = 0, compacted: bool = False) -> CopiedRange:
    flat = Numbers("q", [number for run in runs for number in run])
    source = OffsetRange(0, max(up + count for up, _, count in runs))
    remote = OffsetRange(0, max(down + count for _, down, count in runs))
    known = CopiedPartition("t", "r", 0, flat, source, remote, compacted, compacted, True, False, since=since)
    return copied_range(known)


def spans(ranges: Sequence[CopiedRange]) -> List[Tuple[int, int, int, int]]:
    return [(r.source.first, r.source.end, r.remote.first, r.remote.end) for r in ranges]


def test_what_is_older_than_the_time_is_counted_and_not_read() -> None:
    found = copied((0, 0, 100), (110, 100, 50), since=120)
    assert (found.not_asked, found.expired_upstream, found.runs.records) == (110, 0, 40)
    assert (found.source.read_from, found.remote.read_from) == (120, 110)


def test_time_before_the_log_begins_leaves_nothing_out() -> None:
    assert copied((0, 0, 100), since=0).not_asked == 0


def test_sample_is_made_of_stretches_that_lie_at_their_pairs() -> None:
    whole = copied((0, 0, 3 * STRETCH), (4 * STRETCH, 3 * STRETCH + 1, STRETCH))
    parts = sample(whole, 1.0, random.Random(1))
    assert spans(parts) == [
        (0, STRETCH, 0, STRETCH),
        (STRETCH, 2 * STRETCH, STRETCH, 2 * STRETCH),
        (2 * STRETCH, 3 * STRETCH, 2 * STRETCH, 3 * STRETCH),
        (3 * STRETCH, 5 * STRETCH, 3 * STRETCH, 4 * STRETCH + 1),  # what lies between two stretches is looked at
    ]


def test_stretch_may_span_several_runs() -> None:
    whole = copied((0, 0, STRETCH - 10), (STRETCH, STRETCH - 10, 2 * STRETCH))
    first = sample(whole, 1.0, random.Random(1))[0]
    assert [tuple(run) for run in first.runs] == [(0, 0, STRETCH - 10), (STRETCH, STRETCH - 10, 10)]


@pytest.mark.parametrize(("part", "pieces"), [(0.001, 1), (0.25, 5), (0.5, 10)])
def test_sample_is_as_large_as_asked_and_the_seed_decides(part: float, pieces: int) -> None:
    whole = copied((0, 0, 20 * STRETCH))
    found = sample(whole, part, random.Random(7))
    assert len(found) == pieces
    assert spans(found) == spans(sample(whole, part, random.Random(7)))
    assert all(each.runs.records == STRETCH for each in found)


def test_small_and_compacted_partitions_are_compared_whole() -> None:
    for whole in (copied((0, 0, STRETCH)), copied((0, 0, 9 * STRETCH), compacted=True)):
        assert sample(whole, 0.01, random.Random(1)) == [whole]


def test_verdict_on_a_sample_is_the_worst_of_its_stretches() -> None:
    whole = copied((0, 0, 9 * STRETCH))
    equal = PartitionVerdict(0, STRETCH, 10, EQUAL)
    lost = PartitionVerdict(0, STRETCH, 10, DIFFERS, Difference(0, LOST, 5, 5, 2, "gone"))
    assert sampled_verdict(whole, [equal, equal]).verdict == EQUAL
    red = sampled_verdict(whole, [equal, lost, lost])
    assert (red.verdict, red.records, red.difference and red.difference.records) == (DIFFERS, 3 * STRETCH, 4)
    assert sampled_verdict(whole, [PartitionVerdict(0, 0, 0, EQUAL)]).verdict == NOT_COMPARED


def test_share_and_time_are_read() -> None:
    assert (share("5%"), share("0.05"), share("100%")) == (0.05, 0.05, 1.0)
    assert moment("1970-01-01T00:00:01Z") == 1000


@pytest.mark.parametrize("text", ["0", "0%", "-1", "2", "101%", "few", ""])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="share"):
        share(text)
