"""The part of a partition to compare: as far as the ledger goes and both logs hold it, and from a time on."""

from __future__ import annotations

from array import array
from itertools import chain
from typing import Any, Dict, Tuple

import pytest

from mirror_lib.cli import command_line
from mirror_lib.commands.verify import scope_of
from mirror_lib.errors import ConfigError
from mirror_lib.facts import OffsetRange
from mirror_lib.verify.ranges import EVERYTHING, CopiedPartition, CopiedRange, Scope, a_few, copied_range


def ranged(
    *runs: Tuple[int, int, int], source: Tuple[int, int] = (0, 100), remote: Tuple[int, int] = (0, 100), **more: Any
) -> CopiedRange:
    logs = (OffsetRange(*source), OffsetRange(*remote))
    return copied_range(CopiedPartition("t", "r", 0, array("q", chain.from_iterable(runs)), *logs, **more))


def test_range_ends_with_the_logs_and_begins_with_heads_where_the_remote_log_is_whole() -> None:
    assert ranged((5, 2, 10), from_the_start=False).source.read_from == 5
    assert ranged((5, 2, 10), remote=(1, 100)).source.read_from == 5
    found = ranged((0, 0, 50), source=(0, 40), remote=(0, 30))
    assert (found.source.read_until, found.remote.read_until) == (40, 30)
    assert ranged((0, 0, 50), source_compacted=True).source.read_until == 100


def test_behind_runs_that_expired_whole_both_logs_are_read_from_where_these_ended() -> None:
    source = ranged((0, 0, 40), (60, 40, 40), source=(45, 100))
    assert (source.source.read_from, source.source.first) == (45, 45)
    assert (source.remote.read_from, source.remote.first) == (40, 40)
    remote = ranged((0, 0, 40), (60, 45, 40), remote=(43, 100))
    assert (remote.source.read_from, remote.remote.read_from) == (40, 43)
    # What lay behind the last record that expired, before the first one that did not, may have been copied.
    assert ranged((0, 0, 40), (60, 40, 40), source=(70, 100)).source.read_from == 70
    # Nothing of it is left.
    assert ranged((0, 0, 40), (60, 40, 40), source=(100, 100)).source.read_from == 100


def test_logs_that_begin_behind_the_ledger_are_told_for_their_records_have_other_ranks() -> None:
    assert ranged((0, 0, 50), source=(60, 100)).cut_behind and ranged((0, 0, 50), remote=(51, 100)).cut_behind
    assert not ranged((0, 0, 50), source=(50, 100), remote=(50, 100)).cut_behind
    assert not ranged((0, 0, 50), source=(0, 40)).cut_behind and not ranged(source=(60, 100)).cut_behind


def test_what_is_older_than_the_time_is_counted_and_not_read() -> None:
    found = ranged((0, 0, 100), (110, 100, 50), source=(0, 160), remote=(0, 150), since=120)
    assert (found.not_asked, found.expired_upstream, found.runs.records) == (110, 0, 40)
    assert (found.source.read_from, found.remote.read_from) == (120, 110)
    assert ranged((0, 0, 100)).not_asked == 0


def test_remote_log_is_read_before_the_first_row_also_where_the_flow_did_not_begin_at_the_start() -> None:
    late: Dict[str, Any] = {"source": (0, 50), "remote": (7, 70), "from_the_start": False}
    found = ranged((40, 60, 10), **late)
    assert (found.source.read_from, found.remote.read_from, found.remote.first) == (40, 7, 60)
    assert ranged((40, 60, 10), **late, older=True).remote.read_from == 60
    assert ranged((40, 60, 10), **late, shared=True).remote.read_from == 60


def test_tail_of_a_partition_without_rows_is_not_compared_from_a_later_time() -> None:
    assert not ranged(source=(0, 10), remote=(0, 3)).cut_behind
    assert ranged(source=(0, 10), remote=(0, 3), since=2).cut_behind


def scope(*options: str) -> Scope:
    return scope_of(command_line().parse_args(["verify", "mirror.yaml", *options]))


def test_command_without_a_time_compares_everything() -> None:
    assert scope("--seed", "0") == EVERYTHING
    assert scope("--seed", "7", "--since", "1970-01-01T00:00:01Z") == Scope(since=1000, seed=7)
    with pytest.raises(ConfigError, match="--since"):
        scope("--since", "yesterday")


def test_each_comparison_reads_other_records_one_by_one_and_a_seed_those_of_an_earlier_one() -> None:
    copied = ranged((0, 0, 100_000), source=(0, 100_000), remote=(0, 100_000))
    few = {seed: a_few(copied, seed).runs[0] for seed in range(20)}
    assert {run.record_count for run in few.values()} == {1000} and len(set(few.values())) == 20
    assert [a_few(copied, seed).runs[0] for seed in few] == list(few.values())
    assert len({scope().seed for _ in range(20)}) > 1
