"""Row flows whose records keep their partitions: one lane for each partition, and an exact offset map in the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import DataFrame

from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.records import (
    DATA_LOST,
    DeadLetterPlace,
    Incident,
    LedgerRuns,
    PartitionKey,
    Position,
)
from mirror_lib.replication.copied_topics import recheck_size_limits
from mirror_lib.replication.copy_ranges import Range, next_offsets
from mirror_lib.replication.flow import FlowContext
from mirror_lib.replication.flow_state import FlowState, end_if_lost, refusal_of
from mirror_lib.replication.journal import BatchRef, position_row
from mirror_lib.replication.messages import PartitionReport, TaskReport, nothing_copied
from mirror_lib.replication.positions import Positions, SourceProgress
from mirror_lib.replication.reconcile import left_the_log, loss_hint
from mirror_lib.rows.mirror import RowMirror
from mirror_lib.rows.partition import LaneReport, LaneTask, Ranges
from mirror_lib.rows.writer import RowsReport


class KeptMirror(RowMirror):
    """A `RowMirror` whose records keep their partitions."""

    def __init__(self, context: FlowContext) -> None:
        super().__init__(context)
        flow = self.flow
        self._positions = Positions(flow, self._source, self._target, self._journal)
        self._progress = SourceProgress(self._group)
        self._state = FlowState(flow, self._positions)
        self._going: Dict[TopicPartition, Range] = {}
        # The offset at which dead-letter records of each source partition resume, by partition of the dead letter
        # topic.
        self._dead_letters_at: Dict[DeadLetterPlace, int] = {}
        if self._change.dead_letter_topic is not None:
            found = self._journal.dead_letters_at(self._change.dead_letter_topic, self._dead_topic_id())
            self._dead_letters_at.update(found)

    def has_history(self) -> bool:
        """True if the ledger has rows of this flow."""
        return self._positions.known > 0

    def stopped(self) -> Sequence[PartitionReport]:
        """The partitions that are stopped."""
        return list(self._state.stopped.parts.values())

    def behind(self) -> bool:
        """Whether the source had more at the last check than is copied now."""
        stopped = self._state.stopped.parts
        return any(self._positions.ahead(each).behind for each in self._going.values() if each.key not in stopped)

    def show_end(self) -> None:
        """See `RowMirror`."""
        self._watch([], BatchRef("", -1), 0.0)

    def _begin(self, batch: BatchRef) -> Mapping[TopicPartition, int]:
        partitions = self._partitions
        ranges = self._positions.ranges(partitions, batch)
        self._progress.begun(partitions, ranges)
        self._state.stopped.begin(partitions, ranges)
        going = [each for each in ranges if each.refused is None and each.key not in self._state.stopped.parts]
        self._pass_over_losses([each for each in going if each.log_start > each.start.upstream_offset], batch)
        self._going = {each.source: each for each in going if each.key not in self._state.stopped.parts}
        return {source: self._positions.at(each.key).upstream_offset for source, each in self._going.items()}

    def _pass_over_losses(self, lost: Sequence[Range], batch: BatchRef) -> None:
        """Record the loss of partitions whose source log starts past the end of their copy. Records of an interrupted
        attempt in that range are still found by their origins."""
        continues = self.flow.on_data_loss == "continue"
        for each in lost:
            at, reason = each.start, left_the_log(each.source, each.start.upstream_offset, each.log_start)
            copied = self._partitions[each.key]
            if not continues:
                reason = f"{reason}; {loss_hint(copied.topic)}"
                self._state.stopped.stop(each.key, refusal_of(copied, reason, "MIR-310"))
                continue
            # The incident first: a crash in between records it twice, and never moves past records silently.
            self._journal.note([Incident(DATA_LOST, *each.source, at.upstream_offset, each.log_start, reason)], batch)
            behind = Position(each.log_start, at.downstream_offset)
            self._journal.append([position_row(copied, behind)], batch)
            self._positions.move(each.key, behind)

    def _left_out(self) -> bool:
        return self._state.stopped.some_may_resume()

    def _ranges(self, ends: Mapping[TopicPartition, int]) -> Dict[TopicPartition, Tuple[int, int]]:
        found: Dict[TopicPartition, Tuple[int, int]] = {}
        for source, each in self._going.items():
            if source in ends and each.key not in self._state.stopped.parts:
                at = self._positions.at(each.key).upstream_offset
                if at < ends[source]:
                    found[source] = (at, ends[source])
        return found

    def _lanes(self, ranges: Ranges) -> List[LaneTask]:
        lanes: List[LaneTask] = []
        for source in ranges:
            key = self._going[source].key
            # The size limit of a remote topic may have been re-read since.
            copied = self._topics.partitions.get(key, self._partitions[key])
            lanes.append(
                LaneTask(
                    copied.remote,
                    source,
                    self._transactional_id(copied.remote),
                    self._positions.at(key).downstream_offset,
                    copied.max_message_bytes,
                    shared=self.flow.shared_remote_topics,
                    isolate_until=self._state.isolate_until(key),
                )
            )
            dead = self._change.dead_letter_topic
            if dead is not None:
                number = source[1] % self._counts[dead]
                place, at = (dead, number), self._dead_letters_at.get(_dead_letter_place(key, number), 0)
                name = self._transactional_id(place, source)
                lanes.append(LaneTask(place, source, name, at, self._topics.limits[dead], shared=True))
        return lanes

    def _shuffled(self, rows: DataFrame) -> DataFrame:
        # `coalesce` is a narrow dependency: the rows of a source partition stay together and in order.
        return rows.coalesce(self.flow.tasks_max)

    def _settle(
        self, found: Sequence[RowsReport], ranges: Ranges, batch: BatchRef, seconds: float, filtered: Optional[int]
    ) -> None:
        partitions = self._partitions
        reports = recheck_size_limits(self.flow.name, self._topics, self._reports(found, ranges, seconds))
        commit = self._state.apply(reports, partitions)
        skipped = [each for report in found for each in report.incidents]
        # Incidents first: a crash in between records one twice, and never moves past records silently.
        self._journal.note([*commit.incidents, *skipped], batch)
        dead_letters = [lane for report in found for lane in report.lanes if self._is_dead(lane.remote)]
        in_background = commit.plain and not self._progress.waits_for_ledger()
        runs = [*commit.runs, *self._dead_letter_runs(dead_letters)]
        self._journal.append(commit.rows, batch, runs, in_background=in_background)
        self._state.take(commit)
        self._progress.moved(partitions, commit.moves)
        for lane in dead_letters:
            if lane.source is not None:
                place = _dead_letter_place(self._going[lane.source].key, lane.remote[1])
                self._dead_letters_at[place] = lane.part.downstream_offset
        self._watch(reports, batch, seconds, filtered)
        end_if_lost(self.flow.name, commit)

    def _dead_letter_runs(self, dead_letters: Sequence[LaneReport]) -> List[LedgerRuns]:
        found: List[LedgerRuns] = []
        for lane in dead_letters:
            if lane.source is not None and lane.syncs:
                copied = self._partitions[self._going[lane.source].key]
                dead = replace(copied, remote_topic=lane.remote[0], remote_topic_id=self._dead_topic_id())
                like = replace(dead.ledger_row(0, 0, 0), remote_partition=lane.remote[1])
                found.append(LedgerRuns(like, lane.syncs))
        return found

    def _reports(self, found: Sequence[RowsReport], ranges: Ranges, seconds: float) -> List[TaskReport]:
        """The task reports of a completed stage. Partitions without a row are complete as well."""
        reports = [self._task_report(report, seconds) for report in found]
        seen = {part.source for report in reports for part in report.partitions}
        silent: List[PartitionReport] = []
        for source, (_, end) in ranges.items():
            if source not in seen:
                key = self._going[source].key
                stands = self._positions.at(key).downstream_offset
                remote = self._partitions[key].remote_topic
                silent.append(PartitionReport(source[0], remote, source[1], end, stands, 0, -1))
        return [*reports, replace(nothing_copied(len(reports)), partitions=tuple(silent))]

    def _watch(
        self, reports: Sequence[TaskReport], batch: BatchRef, seconds: float, filtered: Optional[int] = None
    ) -> None:
        stopped = self._state.stopped.parts
        going = [self._positions.ahead(each) for each in self._going.values() if each.key not in stopped]
        left, following = {each.source: each.behind for each in going}, next_offsets(going)
        self._watcher(self._counted(reports, left, following, batch, seconds, filtered, len(stopped)))


def _dead_letter_place(key: PartitionKey, number: int) -> DeadLetterPlace:
    return DeadLetterPlace(key.source_topic_id, key.source_topic, key.partition, number)
