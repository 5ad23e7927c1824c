"""The range to compare and the naming of differences: pure decisions of verify."""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import chain
from typing import Any, Dict, Optional, Sequence, Tuple

import pytest

from mirror_lib.facts import OffsetRange
from mirror_lib.verify.ranges import CopiedPartition, CopiedRange, copied_range
from mirror_lib.verify.verdicts import (
    Difference,
    PartitionVerdict,
    SeenRecord,
    TopicVerdict,
    VerifyReport,
    classify,
    report_lines,
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


def ranged(
    *runs: Tuple[int, int, int],
    source: Tuple[int, int] = (0, 100),
    remote: Tuple[int, int] = (0, 100),
    source_compacted: bool = False,
    from_the_start: bool = True,
) -> CopiedRange:
    syncs = array("q", chain.from_iterable(runs))
    logs = (OffsetRange(*source), OffsetRange(*remote))
    return copied_range(
        CopiedPartition(
            *("orders", "a.orders", 0, syncs, *logs), source_compacted=source_compacted, from_the_start=from_the_start
        )
    )


def test_the_range_is_what_the_ledger_speaks_of_and_the_heads_before_it() -> None:
    found = ranged((5, 2, 10), (20, 13, 10))

    assert (found.source.read_from, found.source.first, found.source.end, found.source.read_until) == (0, 5, 30, 30)
    assert (found.remote.read_from, found.remote.first, found.remote.end, found.remote.read_until) == (0, 2, 23, 100)


def test_range_ends_with_the_logs_and_begins_with_heads_where_the_remote_log_is_whole() -> None:
    assert ranged((5, 2, 10), from_the_start=False).source.read_from == 5
    assert ranged((5, 2, 10), remote=(1, 100)).source.read_from == 5
    found = ranged((0, 0, 50), source=(0, 40), remote=(0, 30))
    assert (found.source.read_until, found.remote.read_until) == (40, 30)
    assert ranged((0, 0, 50), source_compacted=True).source.read_until == 100


def test_both_logs_start_at_the_first_pair_that_both_still_hold() -> None:
    found = ranged((0, 0, 10), (20, 10, 10), source=(4, 100), remote=(7, 100))

    assert (found.source.read_from, found.remote.read_from) == (7, 7)
    assert (found.expired_upstream, found.expired_downstream) == (4, 3)


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


def test_a_ledger_that_contradicts_itself_is_no_map() -> None:
    found = ranged((0, 0, 10), (5, 20, 1))

    assert len(found.runs) == 0
    assert "contradicts itself" in (found.contradiction or "")


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
