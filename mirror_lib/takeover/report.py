"""Decisions about a take-over in, the lines and JSON of `mirror takeover` out. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

from mirror_lib.columns import aligned
from mirror_lib.ledger.records import PartitionKey
from mirror_lib.takeover.verdicts import REFUSED, TAKE_OVER, Verdict
from mirror_lib.text import counted

_HEADER = ("TOPIC", "PARTITION", "KEPT", "TAIL", "DOUBLED", "GOES ON AT", "REMOTE TOPIC", "AT", "COMPARED", "VERDICT")


@dataclass(frozen=True)
class PartitionTakeover:
    """One row: a partition, its kept position (the next upstream offset, `None`: not kept) and what was decided."""

    key: PartitionKey
    remote_topic: str
    taken_from: str
    kept_offset: Optional[int]
    verdict: Verdict


def refused(decided: Sequence[PartitionTakeover]) -> int:
    """How many partitions cannot be taken over."""
    return sum(each.verdict.action == REFUSED for each in decided)


def takeover_lines(decided: Sequence[PartitionTakeover]) -> List[str]:
    """A header and one line for each partition, the reason behind the word; then a closing sentence."""
    if not decided:
        return ["the flow copies no topic that is on the target"]
    counts = Counter(each.verdict.action for each in decided)
    listed = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    table = aligned([_HEADER, *(_cells(each) for each in decided)], right=(1, 2, 3, 4, 5, 7, 8))
    return [*table, f"{counted(len(decided), 'partition')}: {listed}"]


def _cells(each: PartitionTakeover) -> List[str]:
    verdict, at = each.verdict, each.verdict.goes_on_at
    taken = verdict.action == TAKE_OVER
    numbers = [each.kept_offset, *((verdict.tail, verdict.doubled) if taken else (None, None))]
    places = (at.upstream_offset, at.downstream_offset) if at else (None, None)
    numbers += [*places, compared(verdict) if taken else None]
    cells = ["-" if number is None else str(number) for number in numbers]
    words = f"{verdict.action}: {verdict.reason}" if verdict.reason else verdict.action
    return [each.key.source_topic, str(each.key.partition), *cells[:4], each.remote_topic, *cells[4:], words]


def compared(verdict: Verdict) -> int:
    """How many records of the remote log were compared with their source records and are in the ledger's map."""
    return sum(run.record_count for run in verdict.runs)


def takeover_json(each: PartitionTakeover) -> Dict[str, object]:
    """One row as a JSON document, null where there is nothing to say."""
    verdict, at = each.verdict, each.verdict.goes_on_at
    return {
        "topic": each.key.source_topic,
        "partition": each.key.partition,
        "remote_topic": each.remote_topic,
        "taken_from": each.taken_from,
        "kept_offset": each.kept_offset,
        "upstream_offset": at and at.upstream_offset,
        "downstream_offset": at and at.downstream_offset,
        "tail_records": verdict.tail,
        "doubled_records": verdict.doubled,
        "compared_records": compared(verdict),
        "older_records": verdict.older,
        "verdict": verdict.action,
        "reason": verdict.reason,
    }
