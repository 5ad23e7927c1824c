"""How much of a copy `mirror verify --since` and `--sample` look at."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import List, Tuple

import pytest

from mirror_lib.cli import command_line
from mirror_lib.commands.verify import scope_of
from mirror_lib.config.values import moment, share
from mirror_lib.facts import OffsetRange
from mirror_lib.verify import ranges
from mirror_lib.verify.ranges import CopiedPartition, CopiedRange, copied_range, sample
from mirror_lib.verify.verdicts import (
    EQUAL,
    NOT_COMPARED,
    Counts,
    Finding,
    PartitionVerdict,
    TopicVerdict,
    partition_verdict,
    with_none_in_scope,
)


def copied(*runs: Tuple[int, int, int], since: int = 0, compacted: bool = False) -> CopiedRange:
    flat = array("q", [number for run in runs for number in run])
    source = OffsetRange(0, max(up + count for up, _, count in runs))
    remote = OffsetRange(0, max(down + count for _, down, count in runs))
    known = CopiedPartition("t", "r", 0, flat, source, remote, compacted, compacted, True, False, since=since)
    return copied_range(known)


def test_what_is_older_than_the_time_is_counted_and_not_read() -> None:
    found = copied((0, 0, 100), (110, 100, 50), since=120)
    assert (found.not_asked, found.expired_upstream, found.runs.records) == (110, 0, 40)
    assert (found.source.read_from, found.remote.read_from) == (120, 110)


def test_time_before_the_log_begins_leaves_nothing_out() -> None:
    assert copied((0, 0, 100), since=0).not_asked == 0


def test_remote_log_is_read_before_the_first_row_also_where_the_flow_did_not_begin_at_the_start() -> None:
    late = array("q", (40, 60, 10))
    logs = (OffsetRange(0, 50), OffsetRange(7, 70))
    known = CopiedPartition("t", "r", 0, late, *logs, False, False, False, False)
    found = copied_range(known)
    assert (found.source.read_from, found.remote.read_from, found.remote.first) == (40, 7, 60)
    for other in (replace(known, older=True), replace(known, shared=True)):
        assert copied_range(other).remote.read_from == 60


LEAST = ranges.LEAST_SAMPLE


def test_sample_is_one_stretch_as_large_as_asked_and_lies_at_its_pairs() -> None:
    whole = copied((0, 0, 100 * LEAST), (150 * LEAST, 100 * LEAST + 1, 100 * LEAST))
    found = sample(whole, 0.05, 7)
    assert (found.runs.records, found.not_asked) == (10 * LEAST, 190 * LEAST)
    assert all(whole.runs.to_downstream(run.upstream_offset).offset == run.downstream_offset for run in found.runs)
    assert (found.source.end, found.remote.end) == (found.runs.upstream_end, found.runs.downstream_end)


def test_seed_decides_the_place_of_each_partition() -> None:
    whole = copied((0, 0, 100 * LEAST))
    other = replace(whole, partition=1)
    assert sample(whole, 0.05, 7) == sample(whole, 0.05, 7)
    places = {sample(each, 0.05, seed).source.first for each in (whole, other) for seed in range(5)}
    assert len(places) == 10


def test_what_lies_between_two_runs_before_the_stretch_is_looked_at() -> None:
    """The stretch begins right after the record before it, whose offsets the gap follows."""
    whole = copied((0, 0, LEAST), (LEAST + 5, LEAST, LEAST))
    begins = {sample(whole, 0.5, seed).source.first for seed in range(200)}
    assert begins <= {*range(LEAST + 1)}
    assert [tuple(run) for run in sample(whole, 0.5, 3).runs][-1][0] in (0, LEAST + 5)


def test_small_and_compacted_partitions_are_compared_whole() -> None:
    for whole in (copied((0, 0, LEAST)), copied((0, 0, 9 * LEAST), compacted=True)):
        assert sample(whole, 0.01, 1) == whole


def test_partition_out_of_scope_is_neutral_and_a_flow_out_of_scope_is_not_equal() -> None:
    idle = partition_verdict(copied((0, 0, 100), since=100), Finding(Counts()))
    assert (idle.verdict, idle.records) == (EQUAL, 0)
    topic = TopicVerdict("t", "r", (idle,))
    busy = TopicVerdict("u", "r", (PartitionVerdict(0, 5, EQUAL),))
    assert [each.verdict for each in with_none_in_scope([topic, busy])] == [EQUAL, EQUAL]
    assert [each.verdict for each in with_none_in_scope([topic])] == [NOT_COMPARED]


def test_tail_of_a_partition_without_rows_is_not_compared_from_a_later_time() -> None:
    known = CopiedPartition("t", "r", 0, array("q"), OffsetRange(0, 10), OffsetRange(0, 3), False, False, True, False)
    assert not copied_range(known).cut_behind
    assert copied_range(replace(known, since=2)).cut_behind


@pytest.mark.parametrize(
    ("options", "narrowed"),
    [([], False), (["--seed", "7"], False), (["--sample", "5%"], True), (["--since", "2026-01-01T00:00:00Z"], True)],
)
def test_command_without_a_scope_compares_everything(options: List[str], narrowed: bool) -> None:
    assert scope_of(command_line().parse_args(["verify", "mirror.yaml", *options])).narrowed == narrowed


def test_share_and_time_are_read() -> None:
    assert (share("5%"), share("0.05"), share("100%")) == (0.05, 0.05, 1.0)
    assert moment("1970-01-01T00:00:01Z") == 1000


@pytest.mark.parametrize("text", ["0", "0%", "-1", "2", "101%", "few", ""])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="share"):
        share(text)
