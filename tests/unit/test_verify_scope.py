"""How much of a copy `mirror verify --since` compares."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Tuple

import pytest

from mirror_lib.cli import command_line
from mirror_lib.commands.verify import scope_of
from mirror_lib.errors import ConfigError
from mirror_lib.facts import OffsetRange
from mirror_lib.verify.ranges import EVERYTHING, CopiedPartition, CopiedRange, Scope, copied_range
from mirror_lib.verify.verdicts import (
    EQUAL,
    NOT_COMPARED,
    Counts,
    Finding,
    PartitionVerdict,
    TopicVerdict,
    with_none_in_scope,
)


def copied(*runs: Tuple[int, int, int], since: int = 0, compacted: bool = False) -> CopiedRange:
    flat = array("q", [number for run in runs for number in run])
    source = OffsetRange(0, max(up + count for up, _, count in runs))
    remote = OffsetRange(0, max(down + count for _, down, count in runs))
    known = CopiedPartition("t", "r", 0, flat, source, remote, compacted, compacted, since=since)
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
    known = CopiedPartition("t", "r", 0, late, *logs, from_the_start=False)
    found = copied_range(known)
    assert (found.source.read_from, found.remote.read_from, found.remote.first) == (40, 7, 60)
    for other in (replace(known, older=True), replace(known, shared=True)):
        assert copied_range(other).remote.read_from == 60


def test_partition_out_of_scope_is_neutral_and_a_flow_out_of_scope_is_not_equal() -> None:
    idle = Finding(copied((0, 0, 100), since=100), Counts()).verdict()
    assert (idle.verdict, idle.records) == (EQUAL, 0)
    topic = TopicVerdict("t", "r", (idle,))
    busy = TopicVerdict("u", "r", (PartitionVerdict(0, 5, EQUAL),))
    assert [each.verdict for each in with_none_in_scope([topic, busy])] == [EQUAL, EQUAL]
    assert [each.verdict for each in with_none_in_scope([topic])] == [NOT_COMPARED]


def test_tail_of_a_partition_without_rows_is_not_compared_from_a_later_time() -> None:
    known = CopiedPartition("t", "r", 0, array("q"), OffsetRange(0, 10), OffsetRange(0, 3))
    assert not copied_range(known).cut_behind
    assert copied_range(replace(known, since=2)).cut_behind


def test_command_without_a_time_compares_everything() -> None:
    def scope(*options: str) -> Scope:
        return scope_of(command_line().parse_args(["verify", "mirror.yaml", *options]))

    assert scope() == EVERYTHING
    assert scope("--since", "1970-01-01T00:00:01Z") == Scope(since=1000)
    with pytest.raises(ConfigError, match="--since"):
        scope("--since", "yesterday")
