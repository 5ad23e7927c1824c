"""What was compared of a partition and what was counted in, its verdict out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from mirror_lib.verify.comparison import Counts, TailCounts
from mirror_lib.verify.first_differences import Facing
from mirror_lib.verify.ranges import CopiedRange
from mirror_lib.verify.verdicts import (
    DIFFERS,
    EQUAL,
    EXPIRED,
    FOREIGN,
    LEDGER,
    LOST,
    NOT_COMPARED,
    Difference,
    PartitionVerdict,
    by_the_rule,
)

# So many first differences are looked at closely; further partitions are reported without a kind.
EXAMINED = 100
# The ledger says where the flow began, and nobody why it did.
OR_BEGUN_LATER = "it was lost, or the copy began behind it, by a start.position that is no longer in the file"
# The source may hold the record that it was made of.
NO_SUCH_RECORD = "the flow makes no such record of the source's"


@dataclass(frozen=True)
class Finding:
    """What was found in a partition: `first` is where it first differs, `kind` the difference and a sentence on it."""

    counts: Counts
    tail: Optional[TailCounts] = None
    first: Optional[Facing] = None
    kind: Optional[Tuple[str, str]] = None


def lost_at_the_head(counts: Counts) -> bool:
    """Whether the source begins with records that were never copied. A remote log with records before the ledger's
    first run was begun by someone else: nothing is known then."""
    return counts.head_upstream > 0 and counts.head_downstream == 0


def partition_verdict(copied: CopiedRange, finding: Finding) -> PartitionVerdict:
    """The verdict on a partition that both clusters have."""
    counts, tail = finding.counts, finding.tail
    records = counts.records + (tail.records if tail else 0)
    size = counts.bytes + (tail.bytes if tail else 0)
    difference = _difference(copied, finding)
    equal = NOT_COMPARED if _surplus(copied, finding) else EQUAL
    verdict = DIFFERS if difference else equal if records else _of_no_pair(copied, counts)
    return PartitionVerdict(copied.partition, records, size, verdict, difference, _unknown(copied, counts, tail))


def _surplus(copied: CopiedRange, finding: Finding) -> bool:
    """Whether the remote log goes on, uncompared, where the source does not: somebody else wrote there, or an attempt
    again."""
    ended = copied.source.log_end <= copied.source.end
    return ended and finding.counts.tail > 0 and finding.tail is None and not (copied.shared or copied.cut_behind)


def _of_no_pair(copied: CopiedRange, counts: Counts) -> str:
    """Of a partition of which no two records were compared: nothing is known of those that both logs hold all the same.
    What others wrote into a shared topic, or what lay there before a take-over, is nothing that should be known."""
    if copied.expired_upstream or copied.expired_downstream:
        return EXPIRED
    before = counts.head_upstream and counts.head_downstream
    behind = counts.tail and copied.source.log_end > copied.source.end
    return NOT_COMPARED if (before or behind) and not copied.shared else EQUAL


def _difference(copied: CopiedRange, finding: Finding) -> Optional[Difference]:
    if copied.contradiction:
        return Difference(copied.partition, LEDGER, None, None, 0, copied.contradiction)
    if finding.first is None:
        return None
    counts, tail = finding.counts, finding.tail
    head = counts.head_upstream if lost_at_the_head(counts) else 0
    places = counts.differing + head + (tail.differing if tail else 0)
    kind, detail = finding.kind or (DIFFERS, f"not looked at closely: more than {EXAMINED} partitions differ")
    detail = f"{detail}; {OR_BEGUN_LATER}" if head and kind == LOST else detail
    if copied.changed:
        kind, detail = by_the_rule(kind, NO_SUCH_RECORD if kind == FOREIGN else detail)
    return Difference(copied.partition, kind, finding.first.upstream, finding.first.downstream, places, detail)


def _unknown(copied: CopiedRange, counts: Counts, tail: Optional[TailCounts]) -> Tuple[str, ...]:
    behind = "compared by rank" if tail else "not compared"
    head = 0 if lost_at_the_head(counts) else counts.head_upstream
    said: Dict[str, int] = {
        "{} copied records expired on the source and cannot be compared": copied.expired_upstream,
        "{} copied records expired on the remote log and cannot be compared": copied.expired_downstream,
        "{} copied records were compacted away on a side and cannot be compared": counts.compacted,
        "{} records lie on the source before the ledger's first row: not compared": head,
        "{} records lie in the remote log before the ledger's first row: not compared": counts.head_downstream,
        "what the remote log held when it was taken over was not all compared, and is not now": copied.older,
        f"{{}} records lie in the remote log behind the ledger's last row: {behind}": counts.tail,
    }
    return tuple(sentence.format(count) for sentence, count in said.items() if count)
