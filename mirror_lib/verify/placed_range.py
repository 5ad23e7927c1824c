"""What of a flow that places records anew is to be compared. In: its passes, its topics, both logs. Out: a PlacedCopy.

Pure. Everything before a flow's last pass is whole: all of the source before it lies before it on the remote logs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.facts import OffsetRange, TopicPartition
from mirror_lib.state.row_passes import REMOTE, SOURCE, PassRow, RowPass
from mirror_lib.topics.plan import CopiedTopic

# Side, topic, its id, partition.
Identity = Tuple[str, str, str, int]


@dataclass(frozen=True)
class Passes:
    """A flow's: the first row of each partition with the number of its pass, and the last pass. `grown` holds, by
    number, those passes with which a partition was added to a remote topic."""

    firsts: Tuple[Tuple[int, PassRow], ...]
    last: RowPass
    grown: Mapping[int, RowPass] = field(default_factory=dict)


@dataclass(frozen=True)
class Remote:
    """A remote partition: `log` is what can be read of what the flow copied; `expired` offsets of it are gone."""

    slot: int
    topic: str
    partition: int
    log: OffsetRange
    expired: int


@dataclass(frozen=True)
class Origin:
    """A source partition, as one of those that are copied into one remote topic."""

    number: int
    remote_topic: str
    topic: str
    partition: int
    log: OffsetRange
    expired: int


@dataclass(frozen=True)
class PlacedCopy:
    """Remote partitions by slot and origins by number. `grown`: remote topics of which only what was copied since
    their last growth is compared, as keys moved then. `under_way`: a pass may have written behind what is compared.
    `compacted`: remote topics that are; `thinned`: those that have a source that is. `others`: remote topics by whose
    name the flow knows another topic. `unknown`: those of which it knows nothing, while they and a source of theirs
    hold records."""

    remotes: Tuple[Remote, ...]
    origins: Tuple[Origin, ...]
    grown: Collection[str] = ()
    under_way: bool = False
    compacted: Collection[str] = ()
    thinned: Collection[str] = ()
    others: Collection[str] = ()
    unknown: Collection[str] = ()

    def counts(self) -> Mapping[str, int]:
        """Over how many partitions of each remote topic records were spread."""
        found: Dict[str, int] = {}
        for each in self.remotes:
            found[each.topic] = found.get(each.topic, 0) + 1
        return found


def growths(firsts: Sequence[Tuple[int, PassRow]]) -> Mapping[str, int]:
    """Remote topics whose partitions did not all begin together, with the pass from which on all were there."""
    numbers: Dict[str, List[int]] = {}
    for number, row in (each for each in firsts if each[1].side == REMOTE):
        numbers.setdefault(row.topic, []).append(number)
    return {topic: max(found) for topic, found in numbers.items() if max(found) > min(found)}


def placed_copy(
    copied: Sequence[CopiedTopic],
    passes: Passes,
    by_number: bool,
    source: Mapping[TopicPartition, OffsetRange],
    remote: Mapping[TopicPartition, OffsetRange],
) -> PlacedCopy:
    """What to compare of the topics `copied`, whose present ids count. `by_number`: records keep the number of their
    partition, so they do not move when a topic grows. `source` and `remote` are the logs as they are now."""
    grown = {} if by_number else growths(passes.firsts)
    begins = _Begins(passes, grown)
    remotes: List[Remote] = []
    known = {row.topic for row in passes.last.of(REMOTE)}
    for name, topic_id in dict.fromkeys((each.remote_topic, each.remote_topic_id) for each in copied):
        for row in sorted(_own(passes.last, REMOTE, name, topic_id), key=lambda row: row.partition):
            log, expired = _readable(begins.of(row, name), row.from_offset, remote.get(row.place))
            remotes.append(Remote(len(remotes), name, row.partition, log, expired))
    origins: List[Origin] = []
    for each in copied:
        for row in _own(passes.last, SOURCE, each.source.name, each.source.topic_id):
            log, expired = _readable(begins.of(row, each.remote_topic), row.from_offset, source.get(row.place))
            origins.append(Origin(len(origins), each.remote_topic, row.topic, row.partition, log, expired))
    others = known - {each.topic for each in remotes}
    return PlacedCopy(tuple(remotes), tuple(origins), tuple(grown), not passes.last.empty, others=others)


def _own(last: RowPass, side: str, topic: str, topic_id: str) -> List[PassRow]:
    return [row for row in last.of(side) if (row.topic, row.topic_id) == (topic, topic_id)]


class _Begins:
    """Where the compared part of a partition begins."""

    def __init__(self, passes: Passes, grown: Mapping[str, int]) -> None:
        self._first = {_identity(row): row.from_offset for _, row in passes.firsts}
        self._since = {
            topic: {_identity(row): row.from_offset for row in passes.grown[number].rows}
            for topic, number in grown.items()
        }

    def of(self, row: PassRow, remote_topic: str) -> int:
        own = _identity(row)
        return self._since.get(remote_topic, {}).get(own, self._first.get(own, row.from_offset))


def _identity(row: PassRow) -> Identity:
    return row.side, row.topic, row.topic_id, row.partition


def _readable(begin: int, end: int, log: Optional[OffsetRange]) -> Tuple[OffsetRange, int]:
    """What of `[begin, end)` a log holds, and how many offsets of it are gone. All of it where there is no log."""
    first = end if log is None else min(end, max(begin, log.log_start))
    until = end if log is None else max(first, min(end, log.end))
    return OffsetRange(first, until), first - begin
