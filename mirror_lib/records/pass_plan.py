"""The last planned pass and what both logs hold in; the next pass of a flow which mixes partitions out. Pure."""

from __future__ import annotations

from typing import List, Mapping, Optional, Sequence, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.facts import OffsetRange, TopicPartition
from mirror_lib.replicate.ranges import left_the_log
from mirror_lib.replicate.topics import CopiedPartition
from mirror_lib.state.row_passes import REMOTE, SOURCE, PassRow, RowPass

Identity = Tuple[str, str, int]


def next_pass(
    last: Optional[RowPass],
    partitions: Sequence[CopiedPartition],
    logs: Mapping[TopicPartition, OffsetRange],
    remotes: Sequence[PassRow],
    offsets: int,
    latest: bool = False,
) -> RowPass:
    """What comes behind `last`, which is done: about `offsets` offsets of `logs` in all, to where `remotes` stand.

    Partitions that `last` does not know begin at their log's start, or with `latest` at its end. Raises `RefusedError`
    where the source lost what is to come next, or its topic is another one by now.
    """
    known = {identity(row): row for row in last.of(SOURCE)} if last is not None else {}
    names = {(row.topic, row.partition): row for row in known.values()}
    # A partition that tells no offsets now goes on where it stands, once it does.
    starts = {own: (_stands(row), _stands(row)) for own, row in known.items()}
    for each in (each for each in partitions if each.source in logs):
        log, own = logs[each.source], (each.topic, each.source_topic_id, each.partition)
        row = known.get(own)
        if row is None and each.source in names:
            raise RefusedError(
                f"{each.topic} was deleted and created again on the source",
                "copy the new topic by a flow with another `rename`, or under another name of the mirror",
            )
        starts[own] = (_start(row, log, each.source, latest), log.end)
    number = 0 if last is None else last.number + 1
    return RowPass(number, (*_ranges(starts, offsets), *remotes))


def identity(row: PassRow) -> Identity:
    """Topic, topic id and partition."""
    return row.topic, row.topic_id, row.partition


def _start(row: Optional[PassRow], log: OffsetRange, source: TopicPartition, latest: bool) -> int:
    if row is None:
        return log.end if latest else log.log_start
    at = _stands(row)
    if at < log.log_start:
        raise RefusedError(left_the_log(source, at, log.log_start), "such a flow does not go on behind lost records")
    if at > log.end:
        name = f"{source[0]}-{source[1]}"
        raise RefusedError(f"{name}: the source's log ends at {log.end}, before offset {at} that was copied")
    return at


def _stands(row: PassRow) -> int:
    return row.from_offset if row.until_offset is None else row.until_offset


def _ranges(starts: Mapping[Identity, Tuple[int, int]], offsets: int) -> List[PassRow]:
    room, left = offsets, len(starts)
    rows: List[PassRow] = []
    for own, (start, end) in sorted(starts.items(), key=lambda item: item[1][1] - item[1][0]):
        share = min(end - start, max(1, room // left))
        rows.append(PassRow(SOURCE, *own, start, start + share))
        room, left = max(0, room - share), left - 1
    return rows


def remote_rows(topics: Mapping[str, Tuple[str, int]], at: Mapping[TopicPartition, int]) -> List[PassRow]:
    """Where the partitions of remote topics stand: `topics` tells id and partition count, `at` the offsets."""
    return [
        PassRow(REMOTE, topic, topic_id, number, at[(topic, number)])
        for topic, (topic_id, count) in sorted(topics.items())
        for number in range(count)
    ]
