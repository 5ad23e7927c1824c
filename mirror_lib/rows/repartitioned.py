"""Repartitioning flows: records are assigned to partitions by key.

A shuffle brings the rows of each remote partition together. The ledger records, in one commit for each micro-batch, the
range that each source partition advanced and the range that each remote partition got. A new flow starts from offsets
that the ledger and both logs allow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import DataFrame

from mirror_lib.errors import ClusterError, MirrorError, RefusedError
from mirror_lib.facts import CommittedOffset, OffsetRange, TopicPartition
from mirror_lib.kafka.offsets import first_records
from mirror_lib.ledger.records import NO_PARTITION, LedgerRow, LogPosition, RangePositions
from mirror_lib.replication.copy_ranges import Start
from mirror_lib.replication.driver import starting_logs
from mirror_lib.replication.flow import FlowContext
from mirror_lib.replication.flow_state import Lag, unlisted
from mirror_lib.replication.messages import CopiedPartition, Stop
from mirror_lib.replication.reconcile import left_the_log
from mirror_lib.replication.start_rules import Action, Case, Rows, SourceLog, begins_at, remote_log, rule_of, unproven
from mirror_lib.rows.mirror import RowMirror
from mirror_lib.rows.partition import LaneReport, LaneTask, Ranges
from mirror_lib.rows.transform import placement
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


@dataclass
class LogState:
    """The position of a source partition, or the end of a remote one. Partitions that are no longer copied keep theirs.

    The ledger has it up to the offset `recorded`. Micro-batches that are not in the ledger yet brought a remote
    partition `records` since. `copied` is the source partition, or one that feeds the remote topic. `end` is the end of
    the source's log at the last check, if the source reported it.
    """

    at: LogPosition
    recorded: int
    copied: Optional[CopiedPartition] = None
    records: int = 0
    end: Optional[int] = None

    @property
    def offset(self) -> int:
        return self.at.offset

    def move(self, offset: int) -> None:
        """Remember a new offset, which the ledger does not have yet."""
        self.at = self.at._replace(offset=offset)


LogStates = Dict[TopicPartition, LogState]


def _states(positions: Mapping[TopicPartition, LogPosition]) -> LogStates:
    return {place: LogState(at, at.offset) for place, at in positions.items()}


class RepartitioningMirror(RowMirror):
    """A `RowMirror` whose records are repartitioned."""

    def __init__(self, context: FlowContext) -> None:
        super().__init__(context)
        self._group = context.group
        self._ledger = self._journal.range_positions()
        # The topic's id belongs to a position: under another id of the same name it is of a deleted topic.
        self._sources, self._remotes = _states(self._ledger.sources), _states(self._ledger.remotes)
        self.placement = placement(self._spark, self._change)
        before = "" if context.unfinished is None else context.unfinished.checkpoint
        if "." in before and not before.endswith(self.placement):
            # Here, since a run that has begun is recorded with its own placement.
            way = "run it once with the former settings and Spark, or give"
            self._refuse_tails({name for name, _ in self._remotes}, "keys get other partitions", way)
        self._without_answer: List[CopiedPartition] = []
        self._dead_letters_at: Dict[int, int] = {}
        dead = self._change.dead_letter_topic
        if dead is not None:
            for place, at in self._journal.dead_letters_at(dead, self._dead_topic_id()).items():
                number = place.remote_partition
                self._dead_letters_at[number] = max(at, self._dead_letters_at.get(number, 0))

    def stopped(self) -> Sequence[Stop]:
        """The partitions that the source did not report at the last check. Any other stopped partition ends the
        flow."""
        return [unlisted(each) for each in self._without_answer]

    def _lag(self) -> Lag:
        return {source: (each.offset, each.end) for source, each in self._sources.items() if each.end is not None}

    def _learn_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        for source, end in ends.items():
            self._sources[source].end = end

    def _begin(self) -> Mapping[TopicPartition, int]:
        partitions = {each.source: each for each in self._partitions.values()}
        refuse_new_remote_topics(self._ledger, list(partitions.values()))
        known = {source: each.at for source, each in self._sources.items()}
        stands = {source: known[source].offset for source in partitions if source in known}
        starts, logs = starting_logs(self.flow, self._source, [partitions[each] for each in sorted(partitions)], stands)
        self._without_answer = [partitions[source] for source in sorted(partitions) if source not in logs]
        begun = beginnings(known, partitions, logs, starts, self.flow.auto_offset_reset == "latest")
        begins = {
            source: LogPosition(partitions[source].source_topic_id, at)
            for source, at in begun.items()
            if source not in known
        }
        self._anchor(begins, self._new_remotes())
        for source, each in self._sources.items():
            each.end = logs[source].end if source in logs else None
        self._offer()
        return {source: self._sources[source].offset for source in logs}

    def _anchor(
        self, sources: Mapping[TopicPartition, LogPosition], remotes: Mapping[TopicPartition, LogPosition]
    ) -> None:
        """Record where these partitions start, before anything is copied: the next run starts there too."""
        self._sources.update(_states(sources))
        self._remotes.update(_states(remotes))
        for copied in self._partitions.values():
            if copied.source in self._sources:
                self._sources[copied.source].copied = copied
        feeding = {copied.remote_topic: copied for copied in self._partitions.values()}
        for (topic, _), each in self._remotes.items():
            each.copied = feeding.get(topic, each.copied)
        rows = [self._source_row(source) for source in sources]
        rows += [self._remote_row(remote) for remote in remotes]
        self._journal.append(rows)

    def _source_row(self, source: TopicPartition) -> LedgerRow:
        """The row of a source partition that advanced from its recorded position to the present one."""
        each = self._sources[source]
        row = _copied(each).ledger_row(each.recorded, 0, 0)
        return replace(row, remote_partition=NO_PARTITION, upstream_until=each.offset, downstream_until=0)

    def _remote_row(self, remote: TopicPartition) -> LedgerRow:
        """The row of a remote partition that got records from its recorded end to the present one."""
        each = self._remotes[remote]
        row = _copied(each).ledger_row(0, each.recorded, each.records)
        return replace(
            row, partition=NO_PARTITION, remote_partition=remote[1], upstream_until=0, downstream_until=each.offset
        )

    def _new_remotes(self) -> Mapping[TopicPartition, LogPosition]:
        """The ends of the remote partitions that are not in the ledger. Other writers' records in a shared one are not
        read. Raises `ClusterError`, and `RefusedError` if a remote topic was re-created."""
        there, flow = self._target.topics(), self.flow
        names = {each.remote_topic for each in self._partitions.values()}
        for (name, _), known in self._remotes.items():
            if name in names and known.at.topic_id != there[name].topic_id:
                raise RefusedError(
                    f"{flow.name}: the remote topic {name} was deleted and created again",
                    "give the mirror another `name` and `state`, and the flow an empty remote topic, to copy all again",
                    code="MIR-316",
                )
        new = [(name, n) for name in names for n in range(self._counts[name]) if (name, n) not in self._remotes]
        reported = self._target.offsets(new, "read_uncommitted")
        for topic, number in new:
            if (topic, number) not in reported:
                who = f"{flow.name}: {flow.target.alias}"
                what = f"{who} answers with no end of {topic}-{number}"
                raise ClusterError(what, "check that the partition has a leader")
        shared, grown = flow.shared_remote_topics, {name for name, _ in new} & {name for name, _ in self._remotes}
        if not shared:
            self._refuse_tails(grown, "a remote topic got more partitions", "give")
        for (topic, number), log in reported.items():
            case = Case(Rows.NONE, remote_log(log, None, shared), SourceLog.RECORDS, begins_at(flow, True))
            action = rule_of(case).action
            if action is Action.STOP or (action is Action.COMPARE and self._appends_blindly()):
                reason = f"{flow.name}: {unproven(topic, topic, number, log, self._journal.folder)}"
                raise RefusedError(reason, code="MIR-329")
        return {
            place: LogPosition(there[place[0]].topic_id, log.end if shared else log.log_start)
            for place, log in reported.items()
        }

    def _refuse_tails(self, topics: Collection[str], what: str, way: str) -> None:
        """Raise `RefusedError` if remote `topics` have records past the ledger's positions: they would be looked for in
        the partitions to which the flow sends them now."""
        flow = self.flow
        asked = topics if self._change.provenance else ()
        tails = {place: each.offset for place, each in self._remotes.items() if place[0] in asked}
        found = first_records(flow.target, tails)
        for topic, number in sorted(tails.keys() - found.without):
            if (topic, number) not in found.records:
                unknown = f"{flow.name}: the end of {topic}-{number} cannot be read now"
                raise ClusterError(unknown, "check that the partition has a leader")
            raise RefusedError(
                f"{flow.name}: {what}, and an interrupted run left records in {topic}-{number}",
                f"{way} the mirror another `name` and `state`, and the flow an empty remote topic, to copy all again",
                code="MIR-317",
            )

    def _left_out(self) -> bool:
        return bool(self._without_answer)

    def _ranges(self, ends: Mapping[TopicPartition, int]) -> Dict[TopicPartition, Tuple[int, int]]:
        stands = {source: self._sources[source].offset for source in ends}
        return {source: (at, ends[source]) for source, at in stands.items() if at < ends[source]}

    def _idle(self) -> Ranges:
        # Source partitions without a row in this micro-batch may have had some in an earlier attempt's.
        return {source: (each.offset, each.offset) for source, each in self._sources.items()}

    def _lanes(self, ranges: Ranges) -> List[LaneTask]:
        limits, shared = self._topics.limits, self.flow.shared_remote_topics
        names = {each.remote_topic for each in self._partitions.values()}
        lanes = [
            LaneTask(place, None, self._transactional_id(place), at.offset, limits[place[0]], shared=shared)
            for place, at in self._remotes.items()
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

    def _settle(self, found: Sequence[RowsReport], ranges: Ranges, seconds: float, filtered: Optional[int]) -> None:
        every = [lane for report in found for lane in report.lanes]
        for stop in (lane.part.stopped for lane in every):
            if stop is not None:
                kind = RefusedError if stop.refused or stop.lost_tail else MirrorError
                hint = None if stop.refused else "dead.letter.topic receives records whose expression fails"
                raise kind(f"{self.flow.name}: {stop}", hint, code=stop.code or "MIR-205")
        skipped = [each for report in found for each in report.incidents]
        skipped += [each for lane in every for each in lane.part.incidents]
        self._journal.note(skipped)
        for source, (_, end) in ranges.items():
            self._sources[source].move(end)
        for lane in (lane for lane in every if not self._is_dead(lane.remote)):
            remote = self._remotes[lane.remote]
            if not lane.ahead:
                remote.move(lane.part.downstream_offset)
            remote.records += lane.part.recovered + lane.part.records
        # An earlier attempt may have gone further. Until this one has reached its end, no other task may start after
        # it.
        if not any(lane.ahead for lane in every):
            dead = (lane for lane in every if self._is_dead(lane.remote))
            rows = [*self._range_rows(), *self._dead_letter_rows(dead, ranges)]
            for each in (*self._sources.values(), *self._remotes.values()):
                each.recorded, each.records = each.offset, 0
            self._journal.append(rows, in_background=self._group is None)
            self._offer()
        self._show(found, seconds, filtered)

    def _range_rows(self) -> Iterator[LedgerRow]:
        for source, each in self._sources.items():
            if each.offset != each.recorded:
                yield self._source_row(source)
        for remote, each in self._remotes.items():
            if each.offset != each.recorded:
                yield self._remote_row(remote)

    def _dead_letter_rows(self, lanes: Iterable[LaneReport], ranges: Ranges) -> Iterator[LedgerRow]:
        """Rows for the offset from which the dead letter topic's partitions must be read back."""
        source = next(iter(ranges))
        for lane in lanes:
            topic, number = lane.remote
            self._dead_letters_at[number] = lane.part.downstream_offset
            dead = replace(_copied(self._sources[source]), remote_topic=topic, remote_topic_id=self._dead_topic_id())
            row = dead.ledger_row(ranges[source][1], lane.part.downstream_offset, 0)
            yield replace(row, remote_partition=number)

    def _offer(self) -> None:
        """Offer the positions in the ledger to the flow's group on the source, if it has one."""
        if self._group is not None:
            copied = {each.source for each in self._partitions.values()}
            at = {source: CommittedOffset(self._sources[source].offset) for source in copied & self._sources.keys()}
            self._group.offer(at)


def _copied(each: LogState) -> CopiedPartition:
    assert each.copied is not None
    return each.copied
