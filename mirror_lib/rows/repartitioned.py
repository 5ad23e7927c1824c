"""Repartitioning flows: records are assigned to partitions by key, or topics are merged or fanned out.

A shuffle brings the rows of each remote partition together. The ledger records, for each micro-batch, the upstream and
downstream ranges of each pair of partitions. A new flow starts from offsets that the ledger and both logs allow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import DataFrame

from mirror_lib.errors import ClusterError, MirrorError, RefusedError
from mirror_lib.facts import CommittedOffset, OffsetRange, TopicPartition
from mirror_lib.ledger.records import NO_PARTITION, LedgerRow, LogPosition, RangePositions
from mirror_lib.metrics import COPYING, WAITING, FlowMetrics, by_topic, counted_only, farthest_back
from mirror_lib.replication.copied_topics import CopiedPartition
from mirror_lib.replication.copy_ranges import Start, Starts
from mirror_lib.replication.flow import FlowContext
from mirror_lib.replication.flow_state import of_unlisted
from mirror_lib.replication.journal import BatchRef
from mirror_lib.replication.messages import PartitionReport
from mirror_lib.replication.positions import source_logs
from mirror_lib.replication.reconcile import left_the_log
from mirror_lib.replication.start_rules import (
    Action,
    Case,
    Ids,
    Rows,
    SourceLog,
    begins_at,
    remote_log,
    rule_of,
    unproven,
)
from mirror_lib.rows.mirror import RowMirror
from mirror_lib.rows.partition import LaneReport, LaneTask, Ranges
from mirror_lib.rows.writer import RowsReport


def beginnings(
    log_positions: Mapping[TopicPartition, LogPosition],
    partitions: Mapping[TopicPartition, CopiedPartition],
    logs: Mapping[TopicPartition, OffsetRange],
    starts: Mapping[TopicPartition, Start],
    latest: bool,
) -> Dict[TopicPartition, int]:
    """The upstream offset at which each partition of `logs` resumes. `log_positions` are the positions of the ledger.

    A partition that was never copied starts at its offset in `starts`, else at its log's start, or with `latest` at its
    end. Raises `RefusedError` if the source lost the next records, or its topic was re-created.
    """
    found: Dict[TopicPartition, int] = {}
    for source, log in logs.items():
        name, stand = f"{source[0]}-{source[1]}", log_positions.get(source)
        if stand is not None and stand.topic_id != partitions[source].source_topic_id:
            raise RefusedError(
                f"{source[0]} was deleted and created again on the source",
                "copy the new topic by a file of its own, with another `name`, `state` and remote topic",
                code="MIR-316",
            )
        at = stand.offset if stand is not None else _first(starts.get(source), log, latest)
        if at < log.log_start:
            reason = left_the_log(source, at, log.log_start)
            raise RefusedError(reason, "such a flow does not resume after lost records", code="MIR-310")
        if at > log.end:
            ends = f"the source's log ends at {log.end}"
            raise RefusedError(f"{name}: {ends}, before offset {at}, where the copy resumes", code="MIR-311")
        found[source] = at
    return found


def _first(start: Optional[Start], log: OffsetRange, latest: bool) -> int:
    if start is None:
        return log.end if latest else log.log_start
    if start.recreated:
        return log.log_start
    return log.end if start.upstream_offset < 0 else start.upstream_offset


def refuse_new_remote_topics(known: RangePositions, partitions: Sequence[CopiedPartition]) -> None:
    """Raise `RefusedError` for a remote topic that would lack earlier copied records of its source."""
    begun = {topic for topic, _ in known.sources}
    before = {(pair.topic, pair.remote_topic) for pair in known.pairs}
    for each in partitions:
        if each.topic in begun and (each.topic, each.remote_topic) not in before:
            raise RefusedError(
                f"{each.remote_topic} is a new remote topic of {each.topic}, and would lack the records copied before",
                "copy it by a file of its own, with another `name` and `state`, which begins at the start",
                code="MIR-317",
            )


ORDER = ("remote_topic", "remote_partition", "source_topic", "source_partition", "source_offset")
NAMES_SHOWN = 3


class RepartitioningMirror(RowMirror):
    """A `RowMirror` whose records are repartitioned."""

    def __init__(self, context: FlowContext) -> None:
        super().__init__(context)
        self._starts = Starts(self.flow, self._source)
        self._ledger = self._journal.range_positions()
        # By id as well: a position under another id of the same name belongs to a deleted topic.
        self._source_ids = {place: stand.topic_id for place, stand in self._ledger.sources.items()}
        self._remote_ids = {topic: stand.topic_id for (topic, _), stand in self._ledger.remotes.items()}
        self._positions = {place: stand.offset for place, stand in self._ledger.sources.items()}
        self._at = {place: stand.offset for place, stand in self._ledger.remotes.items()}
        # By source partition and remote topic.
        self._named: Dict[Tuple[TopicPartition, str], CopiedPartition] = {}
        # For micro-batches that are not in the ledger yet: the positions of the source and the remote partitions before
        # them, and the number of records from each source partition to each remote one.
        self._before: Optional[Tuple[Dict[TopicPartition, int], Dict[TopicPartition, int]]] = None
        self._brought: Dict[Tuple[TopicPartition, TopicPartition], int] = {}
        self._ends: Dict[TopicPartition, int] = {}
        self._without_answer: List[TopicPartition] = []
        self._dead_letters_at: Dict[int, int] = {}
        dead = self._change.dead_letter_topic
        if dead is not None:
            for place, at in self._journal.dead_letters_at(dead, self._dead_topic_id()).items():
                number = place.remote_partition
                self._dead_letters_at[number] = max(at, self._dead_letters_at.get(number, 0))

    def has_history(self) -> bool:
        """True if it was copied before."""
        return bool(self._ledger.pairs)

    def stopped(self) -> Sequence[PartitionReport]:
        """The partitions that the source did not report at the last check. Any other stopped partition ends the
        flow."""
        unlisted = {each.source: each for each in self._partitions.values() if each.source in self._without_answer}
        return [of_unlisted(each) for each in unlisted.values()]

    def behind(self) -> bool:
        """Whether the source had more at the last check than is copied now."""
        return any(self._left().values())

    def show_end(self) -> None:
        """See `RowMirror`."""
        self._show([], {}, BatchRef("", -1), 0.0)

    def _begin(self, batch: BatchRef) -> Mapping[TopicPartition, int]:
        copied = self._copied()
        partitions = {each.source: each for each in self._partitions.values()}
        self._named.update({(each.source, each.remote_topic): each for each in self._partitions.values()})
        refuse_new_remote_topics(self._ledger, list(self._partitions.values()))
        new = [each for source, each in partitions.items() if source not in self._positions]
        starts = self._starts.of(new)
        waiting = self._starts.without_answer(new, starts)
        log_positions = {**self._positions, **{source: start.upstream_offset for source, start in starts.items()}}
        known = {source: at for source, at in log_positions.items() if source in partitions}
        logs = source_logs(self._source, copied, known, self.flow.isolation_level)
        logs = {source: log for source, log in logs.items() if source not in waiting}
        self._without_answer = [source for source in copied if source not in logs]
        latest = self.flow.auto_offset_reset == "latest"
        positions_before = {source: LogPosition(self._source_ids[source], at) for source, at in self._positions.items()}
        begun = beginnings(positions_before, partitions, logs, starts, latest)
        remotes = self._new_remotes()
        self._ends = {source: log.end for source, log in logs.items()}
        self._anchor({source: at for source, at in begun.items() if source not in self._positions}, remotes, batch)
        self._offer()
        return {source: self._positions[source] for source in logs}

    def _anchor(
        self, sources: Mapping[TopicPartition, int], remotes: Mapping[TopicPartition, int], batch: BatchRef
    ) -> None:
        """Record where these partitions start, before anything is copied: the next run starts there too."""
        self._positions.update(sources)
        self._at.update(remotes)
        if self._before is not None:
            self._before = {**self._before[0], **sources}, {**self._before[1], **remotes}
        rows = [
            _range_row(each, NO_PARTITION, (sources[source], sources[source]), (0, 0), 0)
            for (source, _), each in self._named.items()
            if source in sources
        ]
        by_remote = {each.remote_topic: each for each in self._named.values()}
        for (topic, number), at in remotes.items():
            fed = replace(by_remote[topic], partition=NO_PARTITION)
            rows.append(_range_row(fed, number, (0, 0), (at, at), 0))
        for (source, remote), each in self._named.items():
            self._source_ids.setdefault(source, each.source_topic_id)
            self._remote_ids.setdefault(remote, each.remote_topic_id)
        self._journal.append(rows, batch)

    def _new_remotes(self) -> Dict[TopicPartition, int]:
        """The ends of the remote partitions that are not in the ledger. Other writers' records in a shared one are not
        read. Raises `ClusterError`, and `RefusedError` if a remote topic was re-created."""
        there, flow = self._target.topics(), self.flow
        names = {each.remote_topic for each in self._partitions.values()}
        for name in names:
            if self._remote_ids.get(name, there[name].topic_id) != there[name].topic_id:
                raise RefusedError(
                    f"{flow.name}: the remote topic {name} was deleted and created again",
                    "give the mirror another `name` and `state`, and the flow an empty remote topic, to copy all again",
                    code="MIR-316",
                )
        new = [(name, n) for name in names for n in range(self._counts[name]) if (name, n) not in self._at]
        reported = self._target.offsets(new, "read_uncommitted")
        for topic, number in new:
            if (topic, number) not in reported:
                who = f"{flow.name}: {flow.target.alias}"
                what = f"{who} answers with no end of {topic}-{number}"
                raise ClusterError(what, "check that the partition has a leader")
        shared = flow.shared_remote_topics
        for (topic, number), log in reported.items():
            rule = rule_of(
                Case(Rows.NONE, remote_log(log, None, shared), SourceLog.WHOLE, Ids.BOTH, begins_at(flow, True))
            )
            if rule.action is Action.STOP:
                reason = f"{flow.name}: {unproven(topic, topic, number, log, self._journal.folder)}"
                raise RefusedError(reason, code="MIR-329")
        return {place: reported[place].end if shared else reported[place].log_start for place in new}

    def _left_out(self) -> bool:
        return bool(self._without_answer)

    def _ranges(self, ends: Mapping[TopicPartition, int]) -> Dict[TopicPartition, Tuple[int, int]]:
        found: Dict[TopicPartition, Tuple[int, int]] = {}
        for source, end in ends.items():
            at = self._positions[source]
            if at < end:
                found[source] = (at, end)
        return found

    def _idle(self) -> Ranges:
        # Source partitions without a row in this micro-batch may have had some in an earlier attempt's.
        return {source: (at, at) for source, at in self._positions.items()}

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
            place, at = (str(dead), number), self._dead_letters_at.get(number, 0)
            lanes.append(LaneTask(place, None, self._transactional_id(place), at, limits[place[0]], shared=True))
        return lanes

    def _shuffled(self, rows: DataFrame) -> DataFrame:
        spread = rows.repartition(self.flow.tasks_max, *ORDER[:2])
        return spread.sortWithinPartitions(*ORDER)

    def _settle(
        self, found: Sequence[RowsReport], ranges: Ranges, batch: BatchRef, seconds: float, filtered: Optional[int]
    ) -> None:
        lanes = [lane for report in found for lane in report.lanes]
        for part in (lane.part for lane in lanes):
            if part.stopped is not None:
                kind = RefusedError if part.refused or part.lost_tail else MirrorError
                hint = None if part.refused else "see dead.letter.topic"
                raise kind(f"{self.flow.name}: {part.stopped}", hint, code=part.code or "MIR-205")
        skipped = [each for report in found for each in report.incidents]
        skipped += [each for lane in lanes for each in lane.part.incidents]
        self._journal.note(skipped, batch)
        before, remotes = self._before or (dict(self._positions), dict(self._at))
        self._positions.update({source: end for source, (_, end) in ranges.items()})
        for lane in (lane for lane in lanes if not self._is_dead(lane.remote)):
            if not lane.ahead:
                self._at[lane.remote] = lane.part.downstream_offset
            for topic, number, count in lane.counts:
                place = ((topic, number), lane.remote)
                self._brought[place] = self._brought.get(place, 0) + count
        if any(lane.ahead for lane in lanes):
            # An earlier attempt went further. Until this one has reached its end, no other task may start after it.
            self._before = before, remotes
        else:
            rows = [*self._range_rows(before, remotes), *self._dead_letter_rows(lanes, ranges)]
            self._before, self._brought = None, {}
            self._journal.append(rows, batch, in_background=self._group is None)
            self._offer()
        newest: Dict[TopicPartition, int] = {}
        for topic, partition, at in (each for lane in lanes for each in lane.newest):
            newest[(topic, partition)] = max(at, newest.get((topic, partition), -1))
        parts = [self._part(lane.remote, lane.part.records, lane.part.bytes, seconds) for lane in lanes]
        self._totals.add(parts, sum(lane.recovered for lane in lanes), self._topics.plan.uncounted, filtered)
        self._show(found, newest, batch, seconds, filtered)

    def _range_rows(
        self, before: Mapping[TopicPartition, int], remotes: Mapping[TopicPartition, int]
    ) -> Iterator[LedgerRow]:
        """The ranges between these positions as ledger rows: at least one for each source partition that moved."""
        moved = {source: at for source, at in before.items() if self._positions[source] > at}
        for (source, remote), count in self._brought.items():
            upstream, downstream = (before[source], self._positions[source]), (remotes[remote], self._at[remote])
            yield _range_row(self._named[source, remote[0]], remote[1], upstream, downstream, count)
            moved.pop(source, None)
        for (source, _), each in self._named.items():
            if source in moved:
                yield _range_row(each, NO_PARTITION, (moved.pop(source), self._positions[source]), (0, 0), 0)

    def _dead_letter_rows(self, lanes: Iterable[LaneReport], ranges: Ranges) -> List[LedgerRow]:
        """Rows for the offset from which the dead letter topic's partitions must be read back."""
        rows: List[LedgerRow] = []
        source = next(iter(ranges))
        copied = next(each for each in self._partitions.values() if each.source == source)
        for lane in (lane for lane in lanes if self._is_dead(lane.remote)):
            topic, number = lane.remote
            self._dead_letters_at[number] = lane.part.downstream_offset
            dead = replace(copied, remote_topic=topic, remote_topic_id=self._dead_topic_id())
            row = dead.ledger_row(ranges[source][1], lane.part.downstream_offset, 0)
            rows.append(replace(row, remote_partition=number))
        return rows

    def _offer(self) -> None:
        """Offer the positions in the ledger to the flow's group on the source, if it has one."""
        if self._group is not None:
            copied = set(self._copied())
            reported = {source: CommittedOffset(at, "") for source, at in self._positions.items() if source in copied}
            self._group.offer(reported)

    def _copied(self) -> List[TopicPartition]:
        return sorted({each.source for each in self._partitions.values()})

    def _left(self) -> Dict[TopicPartition, int]:
        return {source: max(0, end - self._positions.get(source, end)) for source, end in self._ends.items()}

    def _part(self, remote: TopicPartition, records: int, nbytes: int, seconds: float) -> PartitionReport:
        """The report of a remote partition for the closing table, which counts it under its source topics."""
        topics = sorted({each.topic for each in self._partitions.values() if each.remote_topic == remote[0]})
        more = len(topics) - NAMES_SHOWN
        name = ", ".join(topics[:NAMES_SHOWN] or [remote[0]]) + (f" and {more} more" if more > 0 else "")
        taken = seconds if records else 0.0
        return PartitionReport(name, *remote, -1, -1, 0, -1, records=records, bytes=nbytes, seconds=taken)

    def _show(
        self,
        found: Sequence[RowsReport],
        newest: Mapping[TopicPartition, int],
        batch: BatchRef,
        seconds: float,
        filtered: Optional[int] = None,
    ) -> None:
        left = counted_only(self._left(), self._topics.plan.uncounted)
        to_come = sum(left.values())
        lanes = [lane for report in found for lane in report.lanes if not self._is_dead(lane.remote)]
        snapshot = FlowMetrics(
            flow=self.flow.name,
            batch_id=batch.batch_id,
            records=sum(lane.part.records for lane in lanes),
            bytes=sum(lane.part.bytes for lane in lanes),
            seconds=seconds,
            copy_seconds=seconds,
            behind_records=to_come,
            behind_seconds=farthest_back(left, newest),
            recovered=sum(lane.recovered for lane in lanes),
            stopped=0,
            waiting=self._quota.word(seconds) or (COPYING if to_come else WAITING),
            filtered=filtered,
            topics=by_topic(left, None),
            next_offsets={source: self._positions[source] for source, count in left.items() if count},
        )
        self._watcher(snapshot)


def _range_row(
    copied: CopiedPartition, remote_partition: int, upstream: Tuple[int, int], downstream: Tuple[int, int], count: int
) -> LedgerRow:
    """A range of both logs, ends exclusive, with `count` records of the partition."""
    row = copied.ledger_row(upstream[0], downstream[0], count)
    return replace(row, remote_partition=remote_partition, upstream_until=upstream[1], downstream_until=downstream[1])
