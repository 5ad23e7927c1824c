"""Flows that place records anew: by their keys, or where topics are merged or fanned out. A shuffle brings the rows of
each remote partition together; what a micro-batch wrote where is told by its ranges on both sides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import DataFrame

from mirror_lib.errors import ClusterError, MirrorError, RefusedError
from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.metrics import FlowMetrics, farthest_back
from mirror_lib.replicate.journal import BatchRef
from mirror_lib.replicate.lanes import PartitionReport
from mirror_lib.replicate.positions import Bounds, source_logs
from mirror_lib.replicate.starts import Starts
from mirror_lib.replicate.stopped import of_unlisted
from mirror_lib.rows.beginnings import beginnings, refuse_new_remote_topics
from mirror_lib.rows.lane import LaneReport, LaneTask, Ranges
from mirror_lib.rows.mirror import Given, RowMirror
from mirror_lib.rows.writer import RowsReport
from mirror_lib.state.records import LedgerRow
from mirror_lib.state.row_passes import REMOTE, SOURCE, PassRow, RowPass, RowPassTable

ORDER = ("remote_topic", "remote_partition", "source_topic", "source_partition", "source_offset")
NAMES_TOLD = 3


class PlacedMirror(RowMirror):
    """See `RowMirror`. `last` is the flow's last row in `passes`."""

    def __init__(self, given: Given, passes: RowPassTable, last: Optional[RowPass]) -> None:
        super().__init__(given)
        self._passes = passes
        self._last = last
        self._starts = Starts(self.flow, self._source)
        self._bounds = Bounds(given.until, self._source, self.flow.isolation_level)
        # By id as well: what stands under another id of a name is of a topic that is gone.
        self._source_rows: Dict[TopicPartition, PassRow] = {}
        self._remote_rows: Dict[TopicPartition, PassRow] = {}
        if last is not None:
            self._source_rows = {row.place: row for row in last.of(SOURCE)}
            self._remote_rows = {row.place: row for row in last.of(REMOTE)}
        self._stands = {place: row.from_offset for place, row in self._source_rows.items()}
        self._at = {place: row.from_offset for place, row in self._remote_rows.items()}
        # Of micro-batches that are not in the table yet: where the source and the remote partitions stood before them.
        self._before: Optional[Tuple[Dict[TopicPartition, int], Dict[TopicPartition, int]]] = None
        self._ends: Dict[TopicPartition, int] = {}
        self._untold: List[TopicPartition] = []
        self._letters_at: Dict[int, int] = {}
        dead = self._change.dead_letter_topic
        if dead is not None:
            for place, at in self._journal.letters_at(dead, self._dead_topic_id()).items():
                number = place.remote_partition
                self._letters_at[number] = max(at, self._letters_at.get(number, 0))

    def has_history(self) -> bool:
        """True if it was copied before."""
        return self._last is not None

    def due(self) -> bool:
        """Whether one more look may find `--until` reached: its time is past."""
        return self._reached or self._bounds.passed()

    def passed(self) -> bool:
        """Whether the time of `--until` is past."""
        return self._bounds.passed()

    def stopped(self) -> Sequence[PartitionReport]:
        """Those of which the source told nothing at the last look. What else stops a partition ends the flow."""
        unlisted = {each.source: each for each in self._partitions.values() if each.source in self._untold}
        return [of_unlisted(each) for each in unlisted.values()]

    def not_copied(self) -> Sequence[str]:
        """What `--until` names and the flow does not copy, as `topic-partition`."""
        return [f"{topic}-{number}" for topic, number in self._bounds.unknown(self._copied())]

    def behind(self) -> bool:
        """Whether the source had more at the last look than is copied by now."""
        return any(self._left().values())

    def look(self, passed: bool) -> None:
        """See `RowMirror`."""
        self._reached = self._bounds.reached(self._stands, passed)
        self._show([], {}, BatchRef("", -1), 0.0)

    def _begin(self, batch: BatchRef) -> Mapping[TopicPartition, int]:
        copied = self._copied()
        partitions = {each.source: each for each in self._partitions.values()}
        refuse_new_remote_topics(self._last, list(self._partitions.values()))
        new = [each for source, each in partitions.items() if source not in self._stands]
        starts = self._starts.of(new)
        waiting = self._starts.untold(new, starts)
        stands = {**self._stands, **{source: start.upstream_offset for source, start in starts.items()}}
        known = {source: at for source, at in stands.items() if source in partitions}
        logs = source_logs(self._source, copied, known, self.flow.isolation_level)
        logs = {source: log for source, log in logs.items() if source not in waiting}
        self._untold = [source for source in copied if source not in logs]
        latest = self.flow.auto_offset_reset == "latest"
        begun = beginnings(self._source_rows, self._stands, partitions, logs, starts, latest)
        remotes = self._new_remotes()
        bounds = self._bounds.of(copied)
        self._ends = {source: min(log.end, bounds.get(source, log.end)) for source, log in logs.items()}
        if set(begun) - set(self._stands) or remotes or (self._last is not None and not self._last.empty):
            self._stands.update(begun)
            self._at.update({row.place: row.from_offset for row in remotes})
            self._remote_rows.update({row.place: row for row in remotes})
            for source in begun:
                each = partitions[source]
                self._source_rows[source] = PassRow(SOURCE, each.topic, each.source_topic_id, each.partition, 0, 0)
            # Before anything is copied: the next life begins where this one did.
            self._write_down([self._row_pass(0, self._stands, self._stands, self._at)])
        self._offer()
        return {source: self._stands[source] for source in logs}

    def _new_remotes(self) -> List[PassRow]:
        """The remote partitions that the table does not know, as they stand: what others wrote to a shared one is not
        looked at. Raises `ClusterError`, and `RefusedError` where a remote topic is another one by now."""
        there, flow = self._target.topics(), self.flow
        names = {each.remote_topic for each in self._partitions.values()}
        before = {row.topic: row.topic_id for row in self._remote_rows.values()}
        for name in names:
            if before.get(name, there[name].topic_id) != there[name].topic_id:
                raise RefusedError(
                    f"{flow.name}: the remote topic {name} was deleted and created again",
                    "give the mirror another `name` and `state`, and the flow an empty remote topic, to copy all again",
                )
        new = [(name, n) for name in names for n in range(self._counts[name]) if (name, n) not in self._at]
        told = self._target.offsets(new, "read_uncommitted")
        for topic, number in new:
            if (topic, number) not in told:
                who = f"{flow.name}: {flow.target.alias}"
                raise ClusterError(f"{who} tells no end of {topic}-{number}", "has it lost its leader?")
        shared = flow.shared_remote_topics
        return [
            PassRow(REMOTE, topic, there[topic].topic_id, number, log.end if shared else log.log_start)
            for (topic, number), log in ((place, told[place]) for place in new)
        ]

    def _left_out(self) -> bool:
        return bool(self._untold)

    def _ranges(self, ends: Mapping[TopicPartition, int]) -> Dict[TopicPartition, Tuple[int, int]]:
        bounds = self._bounds.of(self._copied())
        found: Dict[TopicPartition, Tuple[int, int]] = {}
        for source, end in ends.items():
            at, end = self._stands[source], min(end, bounds.get(source, end))
            if at < end:
                found[source] = (at, end)
        return found

    def _lanes(self, ranges: Ranges) -> List[LaneTask]:
        limits, shared = self._topics.limits, self.flow.shared_remote_topics
        names = {each.remote_topic for each in self._partitions.values()}
        lanes = [
            LaneTask(place, None, self._transactional_id(place), at, limits[place[0]], shared=shared)
            for place, at in self._at.items()
            if place[0] in names
        ]
        dead = self._change.dead_letter_topic
        for number in range(0 if dead is None else self._counts[dead]):
            place, at = (str(dead), number), self._letters_at.get(number, 0)
            lanes.append(LaneTask(place, None, self._transactional_id(place), at, limits[place[0]], shared=True))
        return lanes

    def _shuffled(self, rows: DataFrame) -> DataFrame:
        spread = rows.repartition(self._rates.tasks(self.flow.tasks_max), *ORDER[:2])
        return spread.sortWithinPartitions(*ORDER)

    def _settle(self, found: Sequence[RowsReport], ranges: Ranges, batch: BatchRef, seconds: float) -> None:
        lanes = [lane for report in found for lane in report.lanes]
        for lane in lanes:
            if lane.stopped is not None:
                kind = RefusedError if lane.refused or lane.lost_tail else MirrorError
                raise kind(f"{self.flow.name}: {lane.stopped}", None if lane.refused else "see dead.letter.topic")
        skipped = [each for report in found for each in report.incidents]
        skipped += [each for lane in lanes for each in lane.incidents]
        self._journal.note(skipped, batch)
        before, remotes = self._before or (dict(self._stands), dict(self._at))
        self._stands.update({source: end for source, (_, end) in ranges.items()})
        ahead = any(lane.ahead for lane in lanes)
        for lane in (lane for lane in lanes if not self._is_dead(lane.remote) and not lane.ahead):
            self._at[lane.remote] = lane.downstream
        if ahead:
            # An earlier attempt went further. Until this one has come so far, nobody else is to begin behind it.
            self._before = before, remotes
        else:
            self._before = None
            number = 0 if self._last is None else self._last.number + 1
            self._write_down(
                [
                    replace(self._row_pass(0, before, self._stands, remotes), number=number),
                    self._row_pass(1, self._stands, self._stands, self._at),
                ]
            )
            self._note_letters(lanes, ranges, batch)
        newest: Dict[TopicPartition, int] = {}
        for topic, partition, at in (each for lane in lanes for each in lane.newest):
            newest[(topic, partition)] = max(at, newest.get((topic, partition), -1))
        parts = [self._part(lane.remote, lane.records, lane.bytes, seconds) for lane in lanes]
        self._totals.add(parts)
        self._show(found, newest, batch, seconds)

    def _row_pass(
        self,
        step: int,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        remotes: Mapping[TopicPartition, int],
    ) -> RowPass:
        """What lies between these places, as the table has it."""
        number = (0 if self._last is None else self._last.number + 1) + step
        sources = [
            replace(row, from_offset=begins.get(place, ends[place]), until_offset=ends[place])
            for place, row in self._source_rows.items()
        ]
        at = {**self._at, **remotes}
        there = [replace(row, from_offset=at[place]) for place, row in self._remote_rows.items()]
        return RowPass(number, (*sources, *there))

    def _write_down(self, passes: Sequence[RowPass]) -> None:
        """Raises `FencedError` where another driver wrote there."""
        for each in passes:
            self._passes.add(self.flow.name, each, run_id=self._journal.run_id)
            self._last = each
        self._journal.passed()
        self._offer()

    def _note_letters(self, lanes: Iterable[LaneReport], ranges: Ranges, batch: BatchRef) -> None:
        """Write down up to where the dead letter topic's partitions need not be read back any more."""
        rows: List[LedgerRow] = []
        source = next(iter(ranges))
        copied = next(each for each in self._partitions.values() if each.source == source)
        for lane in (lane for lane in lanes if self._is_dead(lane.remote)):
            topic, number = lane.remote
            self._letters_at[number] = lane.downstream
            dead = replace(copied, remote_topic=topic, remote_topic_id=self._dead_topic_id())
            row = dead.ledger_row(ranges[source][1], lane.downstream, 0)
            rows.append(replace(row, remote_partition=number))
        self._journal.append(rows, batch)

    def _offer(self) -> None:
        """Tell the flow's group on the source, if it has one, what is in the table."""
        if self._group is not None:
            copied = set(self._copied())
            told = {source: CommittedOffset(at, "") for source, at in self._stands.items() if source in copied}
            self._group.offer(told)

    def _copied(self) -> List[TopicPartition]:
        return sorted({each.source for each in self._partitions.values()})

    def _left(self) -> Dict[TopicPartition, int]:
        return {source: max(0, end - self._stands.get(source, end)) for source, end in self._ends.items()}

    def _part(self, remote: TopicPartition, records: int, nbytes: int, seconds: float) -> PartitionReport:
        """What the table at a run's end counts, under the source topics of a remote topic."""
        topics = sorted({each.topic for each in self._partitions.values() if each.remote_topic == remote[0]})
        more = len(topics) - NAMES_TOLD
        name = ", ".join(topics[:NAMES_TOLD] or [remote[0]]) + (f" and {more} more" if more > 0 else "")
        taken = seconds if records else 0.0
        return PartitionReport(name, *remote, -1, -1, 0, -1, records=records, bytes=nbytes, seconds=taken)

    def _show(
        self, found: Sequence[RowsReport], newest: Mapping[TopicPartition, int], batch: BatchRef, seconds: float
    ) -> None:
        left = self._left()
        to_come = sum(left.values())
        lanes = [lane for report in found for lane in report.lanes if not self._is_dead(lane.remote)]
        snapshot = FlowMetrics(
            flow=self.flow.name,
            batch_id=batch.batch_id,
            records=sum(lane.records for lane in lanes),
            bytes=sum(lane.bytes for lane in lanes),
            seconds=seconds,
            copy_seconds=seconds,
            behind_records=to_come,
            behind_seconds=farthest_back(left, newest),
            recovered=sum(lane.recovered for lane in lanes),
            stopped=0,
            waiting=self._pace.word(seconds) or ("copying" if to_come else "waiting for records"),
        )
        self._watcher(snapshot)
