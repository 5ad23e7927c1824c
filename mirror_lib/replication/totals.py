"""Adds up what a run has copied by topic, for the closing table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import ClassVar, Collection, Dict, Iterable, List, Optional, Sequence, Tuple

from mirror_lib.errors import MirrorError
from mirror_lib.replication.messages import PartitionReport, TaskReport
from mirror_lib.text import Column, counted, grouped, size, table_lines


@dataclass(frozen=True)
class TopicTotal:
    """One topic's copy in a run. `seconds`: the longest copy time of a partition."""

    DERIVED: ClassVar[Sequence[str]] = ("records_per_second",)

    topic: str
    remote_topic: str
    partitions: int
    records: int
    bytes: int
    seconds: float

    @property
    def records_per_second(self) -> float:
        return round(self.records / self.seconds, 1) if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class FlowOutcome:
    """How a flow ended. `error` is `None` if everything was copied; `recovered`, `filtered`: as in a cycle.
    `dead_letters` were written to `dead.letter.topic`, `None` without one. After a bounded run `note` has the names in
    `topics` and `groups` that the source lacks, and patterns without a topic if nothing was copied; `waiting` is about
    offsets that wait for an open transaction."""

    flow: str
    records: int
    bytes: int
    topics: Tuple[TopicTotal, ...]
    error: Optional[MirrorError]
    note: str = ""
    recovered: int = 0
    waiting: Tuple[str, ...] = ()
    filtered: Optional[int] = None
    dead_letters: Optional[int] = None


class Totals:
    """Adds up cycles. `records` and `bytes` count the whole run; `recovered`, `filtered` and `dead_letters` are as of
    `FlowOutcome`."""

    def __init__(self) -> None:
        self._parts: Dict[Tuple[str, str, int], List[float]] = defaultdict(lambda: [0, 0, 0.0])
        self.records = 0
        self.bytes = 0
        self.recovered = 0
        self.filtered: Optional[int] = None
        self.dead_letters: Optional[int] = None

    def add(
        self,
        parts: Iterable[PartitionReport],
        uncounted: Collection[str] = (),
        filtered: Optional[int] = None,
        dead_letters: Optional[int] = None,
    ) -> None:
        """Count one cycle. Topics in `uncounted` are no rows of the table."""
        if filtered is not None:
            self.filtered = (self.filtered or 0) + filtered
        if dead_letters is not None:
            self.dead_letters = (self.dead_letters or 0) + dead_letters
        for part in parts:
            self.records += part.records
            self.bytes += part.bytes
            self.recovered += part.recovered
            if part.topic in uncounted:
                continue
            sums = self._parts[(part.topic, part.remote_topic, part.partition)]
            for i, value in enumerate((part.records, part.bytes, part.seconds)):
                sums[i] += value

    def topics(self) -> Tuple[TopicTotal, ...]:
        found: Dict[Tuple[str, str], List[List[float]]] = defaultdict(list)
        for (topic, remote, _), sums in sorted(self._parts.items()):
            if sums[0]:
                found[(topic, remote)].append(sums)
        return tuple(
            TopicTotal(
                topic=topic,
                remote_topic=remote,
                partitions=len(parts),
                records=int(sum(part[0] for part in parts)),
                bytes=int(sum(part[1] for part in parts)),
                seconds=max(part[2] for part in parts),
            )
            for (topic, remote), parts in found.items()
        )


def counted_as_copied(report: TaskReport, seconds: float) -> TaskReport:
    """A report about what a stage of this run had appended in `seconds`, before it could report."""
    return replace(
        report,
        partitions=tuple(
            replace(each, records=each.recovered, bytes=each.recovered_bytes, seconds=seconds, recovered=0)
            if each.recovered
            else each
            for each in report.partitions
        ),
    )


TOTALS = (
    Column("Topic", lambda each: each.topic),
    Column("Remote topic", lambda each: each.remote_topic),
    Column("Partitions", lambda each: each.partitions, grouped),
    Column("Records", lambda each: each.records, grouped),
    Column("Bytes", lambda each: each.bytes, size),
    Column("Seconds", lambda each: each.seconds, "{:.2f}".format),
    Column("Records/s", lambda each: round(each.records_per_second), grouped),
)


def total_lines(outcome: FlowOutcome, columns: Optional[int] = None) -> List[str]:
    """The closing table of a run, for a terminal of `columns` columns."""
    return [outcome.flow, *table_lines(TOTALS, outcome.topics, columns), *not_copied(outcome)]


def not_copied(outcome: FlowOutcome) -> List[str]:
    """How many records the flow's change dropped or failed on, where they are counted."""
    numbers = ((outcome.filtered, "read and filtered out"), (outcome.dead_letters, "written to the dead-letter topic"))
    return [
        f"{counted(number, 'record')} {'was' if number == 1 else 'were'} {what}"
        for number, what in numbers
        if number is not None
    ]
