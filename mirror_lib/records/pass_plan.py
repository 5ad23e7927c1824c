"""The last planned pass and what both logs hold in; the next pass of a flow which mixes partitions out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import OffsetRange, TopicPartition
from mirror_lib.records.pass_room import Room
from mirror_lib.replicate.loss import left_the_log
from mirror_lib.replicate.starts import Start
from mirror_lib.replicate.topics import CopiedPartition
from mirror_lib.state.row_passes import ELSEWHERE, REMOTE, SOURCE, PassRow, RowPass

Identity = Tuple[str, str, int]


@dataclass(frozen=True)
class Beginnings:
    """Where partitions begin that were never copied: where `starts` says, else at the log's start, or with `latest` at
    its end."""

    starts: Mapping[TopicPartition, Start]
    latest: bool

    def of(self, source: TopicPartition, log: OffsetRange) -> int:
        """An offset, which the log need not hold any more. RefusedError where another ledger tells of the copy."""
        start = self.starts.get(source)
        if start is None:
            return log.end if self.latest else log.log_start
        if start.recreated:
            return log.log_start
        if start.downstream_offset is not None and start.downstream_offset >= 0:
            raise RefusedError(
                f"{source[0]}-{source[1]}: {start.says} was committed by a mirror that keeps partitions, and whose "
                "ledger is another one",
                "give this one the same `state`",
            )
        return log.end if start.upstream_offset < 0 else start.upstream_offset


AT_LOG_STARTS = Beginnings({}, False)


def next_pass(
    last: Optional[RowPass],
    partitions: Sequence[CopiedPartition],
    logs: Mapping[TopicPartition, OffsetRange],
    remotes: Sequence[PassRow],
    room: Room,
    begins: Beginnings = AT_LOG_STARTS,
    ends: Optional[Mapping[TopicPartition, int]] = None,
) -> RowPass:
    """What comes behind `last`, which is done: as much of `logs` as there is `room` for, to where `remotes` stand.

    Partitions that `last` does not know begin as `begins` says. None goes beyond `ends`, by default its log's end.
    Raises `RefusedError` where the source lost what is to come next, its topic is another one by now, or has one more
    remote topic.
    """
    _check_new(last, partitions)
    known = {identity(row): row for row in last.of(SOURCE)} if last is not None else {}
    names = {(row.topic, row.partition): row for row in known.values()}
    # A partition that tells no offsets now goes on where it stands, once it does.
    starts = {own: (row.stands, row.stands) for own, row in known.items()}
    for each in (each for each in partitions if each.source in logs):
        log, own = logs[each.source], (each.topic, each.source_topic_id, each.partition)
        row = known.get(own)
        if row is None and each.source in names:
            raise RefusedError(
                f"{each.topic} was deleted and created again on the source",
                "copy the new topic by a file of its own, with another `name`, `state` and remote topic",
            )
        at = begins.of(each.source, log) if row is None else row.stands
        _check(at, log, each.source)
        starts[own] = (at, max(at, log.end if ends is None else ends.get(each.source, at)))
    number = 0 if last is None else last.number + 1
    return RowPass(number, (*_ranges(starts, room), *remotes, *_others(last)))


def _others(last: Optional[RowPass]) -> Sequence[PassRow]:
    """A word on passes that are in another process's table only."""
    return [PassRow(ELSEWHERE, "", "", 0, last.number)] if last is not None and last.told else []


def _check_new(last: Optional[RowPass], partitions: Sequence[CopiedPartition]) -> None:
    """Refuse a remote topic that would lack what was copied of its source before: passes go on where they stand."""
    before = {row.topic for row in last.of(REMOTE)} if last is not None else set()
    begun = {row.topic for row in last.of(SOURCE)} if last is not None else set()
    for each in partitions:
        if each.topic in begun and each.remote_topic not in before:
            raise RefusedError(
                f"{each.remote_topic} is a new remote topic of {each.topic}, and would lack what was copied before",
                "copy it by a file of its own, with another `name` and `state`, which begins at the start",
            )


def identity(row: PassRow) -> Identity:
    """Topic, topic id and partition."""
    return row.topic, row.topic_id, row.partition


def new_rows(last: Optional[RowPass], planned: RowPass) -> List[PassRow]:
    """The source's partitions that `last` did not know."""
    known = {identity(row) for row in last.of(SOURCE)} if last is not None else set()
    return [row for row in planned.of(SOURCE) if identity(row) not in known]


def _check(at: int, log: OffsetRange, source: TopicPartition) -> None:
    if at < log.log_start:
        raise RefusedError(left_the_log(source, at, log.log_start), "such a flow does not go on behind lost records")
    if at > log.end:
        name = f"{source[0]}-{source[1]}"
        raise RefusedError(f"{name}: the source's log ends at {log.end}, before offset {at}, where the copy goes on")


def _ranges(starts: Mapping[Identity, Tuple[int, int]], room: Room) -> List[PassRow]:
    shares = room.shares({own: end - start for own, (start, end) in starts.items()})
    return [PassRow(SOURCE, *own, starts[own][0], starts[own][0] + share) for own, share in shares.items()]


def first_places(
    who: str, new: Sequence[TopicPartition], told: Mapping[TopicPartition, OffsetRange], *, behind: bool
) -> Dict[TopicPartition, int]:
    """Where the `new` remote partitions stand: at the starts of their logs, or `behind` all that they hold.
    ClusterError, with the cluster by `who`, where one has not `told` its offsets."""
    for topic, number in new:
        if (topic, number) not in told:
            raise ClusterError(f"{who} tells no end of {topic}-{number}", "has it lost its leader?")
    return {each: told[each].end if behind else told[each].log_start for each in new}


def remote_rows(topics: Mapping[str, Tuple[str, int]], at: Mapping[TopicPartition, int]) -> List[PassRow]:
    """Where the partitions of remote topics stand: `topics` tells id and partition count, `at` the offsets."""
    return [
        PassRow(REMOTE, topic, topic_id, number, at[(topic, number)])
        for topic, (topic_id, count) in sorted(topics.items())
        for number in range(count)
    ]
