"""Row flows whose records keep their partitions: one lane for each partition, and an exact offset map in the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import DataFrame

from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.records import DATA_LOST, DeadLetterPlace, Incident, LedgerRuns, PartitionKey, Position
from mirror_lib.replication.copied_topics import recheck_size_limits
from mirror_lib.replication.copy_ranges import Range
from mirror_lib.replication.driver import FlowDriver
from mirror_lib.replication.flow import FlowContext
from mirror_lib.replication.flow_state import Lag, end_if_lost
from mirror_lib.replication.messages import CopiedPartition, PartitionReport, Stop, TaskReport, nothing_copied
from mirror_lib.replication.reconcile import left_the_log, loss_hint
from mirror_lib.replication.start_rules import UNPROVEN
from mirror_lib.rows.mirror import RowMirror
from mirror_lib.rows.partition import LaneReport, LaneTask, Ranges
from mirror_lib.rows.writer import RowsReport


class KeptMirror(RowMirror):
    """A `RowMirror` whose records keep their partitions."""

    def __init__(self, context: FlowContext) -> None:
        super().__init__(context)
        self._driver = FlowDriver(self.flow, self._source, self._target, self._journal, context.group)
        self._state = self._driver.state
        # The offset at which dead-letter records of each source partition resume, by partition of the dead letter
        # topic.
        dead = self._change.dead_letter_topic
        found = {} if dead is None else self._journal.dead_letters_at(dead, self._dead_topic_id())
        self._dead_letters_at: Dict[DeadLetterPlace, int] = dict(found)

    def stopped(self) -> Sequence[Stop]:
        return self._state.stopped()

    def _lag(self) -> Lag:
        return self._state.lag()

    def _learn_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        for source, end in ends.items():
            self._state.change(self._state.key_of(source), source_end=end)

    def _begin(self) -> Mapping[TopicPartition, int]:
        self._driver.begin(self._partitions)
        for each in self._state.going():
            if each.unrecorded and self._appends_blindly():
                self._state.stop(each.key, Stop(each.unrecorded, UNPROVEN, refused=True))
            elif each.log_start > each.start.upstream_offset:
                self._pass_loss(each)
        return {each.source: each.start.upstream_offset for each in self._state.going()}

    def _pass_loss(self, each: Range) -> None:
        """Record the loss of a partition whose source log starts past the end of its copy. Records of an interrupted
        attempt in that range are still found by their origins."""
        at, reason = each.start, left_the_log(each.source, each.start.upstream_offset, each.log_start)
        if self.flow.on_data_loss == "continue":
            lost = Incident(DATA_LOST, *each.source, at.upstream_offset, each.log_start, reason)
            self._driver.pass_loss(each.key, lost, Position(each.log_start, at.downstream_offset))
        else:
            reason = f"{reason}; {loss_hint(each.key.source_topic)}"
            self._state.stop(each.key, Stop(reason, "MIR-310", refused=True))

    def _left_out(self) -> bool:
        return self._state.some_may_resume()

    def _ranges(self, ends: Mapping[TopicPartition, int]) -> Dict[TopicPartition, Tuple[int, int]]:
        found: Dict[TopicPartition, Tuple[int, int]] = {}
        for source, end in ends.items():
            state = self._state.of_source(source)
            if state.goes and state.at.upstream_offset < end:
                found[source] = (state.at.upstream_offset, end)
        return found

    def _lanes(self, ranges: Ranges) -> List[LaneTask]:
        lanes: List[LaneTask] = []
        for source in ranges:
            state, copied = self._state.of_source(source), self._copied(source)
            lanes.append(
                LaneTask(
                    copied.remote,
                    source,
                    self._transactional_id(copied.remote),
                    state.at.downstream_offset,
                    copied.max_message_bytes,
                    shared=self.flow.shared_remote_topics,
                    isolate_until=state.isolate_until,
                )
            )
            dead = self._change.dead_letter_topic
            if dead is not None:
                number = source[1] % self._counts[dead]
                place, at = (dead, number), self._dead_letters_at.get(_dead_letter_place(copied.key, number), 0)
                name = self._transactional_id(place, source)
                lanes.append(LaneTask(place, source, name, at, self._topics.limits[dead], shared=True))
        return lanes

    def _shuffled(self, rows: DataFrame) -> DataFrame:
        # `coalesce` is a narrow dependency: the rows of a source partition stay together and in order.
        return rows.coalesce(self.flow.tasks_max)

    def _settle(self, found: Sequence[RowsReport], ranges: Ranges, seconds: float, filtered: Optional[int]) -> None:
        reports = recheck_size_limits(self.flow.name, self._topics, self._reports(found, ranges, seconds))
        self._state.resize(self._topics.partitions)
        commit = self._state.apply(reports)
        skipped = [each for report in found for each in report.incidents]
        dead_letters = self._dead_lanes(found)
        self._driver.commit(commit, self._dead_letter_runs(dead_letters), skipped, in_background=True)
        for lane in dead_letters:
            if lane.source is not None:
                place = _dead_letter_place(self._copied(lane.source).key, lane.remote[1])
                self._dead_letters_at[place] = lane.part.downstream_offset
        self._show(found, seconds, filtered)
        end_if_lost(self.flow.name, commit)

    def _dead_letter_runs(self, dead_letters: Sequence[LaneReport]) -> List[LedgerRuns]:
        found: List[LedgerRuns] = []
        for lane in dead_letters:
            if lane.source is not None and lane.part.syncs:
                topic, number = lane.remote
                dead = replace(self._copied(lane.source), remote_topic=topic, remote_topic_id=self._dead_topic_id())
                like = replace(dead.ledger_row(0, 0, 0), remote_partition=number)
                found.append(LedgerRuns(like, lane.part.syncs))
        return found

    def _reports(self, found: Sequence[RowsReport], ranges: Ranges, seconds: float) -> List[TaskReport]:
        """The task reports of a completed stage. Partitions without a row are complete as well."""
        reports = [self._task_report(report, seconds) for report in found]
        seen = {part.source for report in reports for part in report.partitions}
        silent: List[PartitionReport] = []
        for source, (_, end) in ranges.items():
            if source not in seen:
                remote, at = self._copied(source).remote_topic, self._state.of_source(source).at
                silent.append(PartitionReport(source[0], remote, source[1], end, at.downstream_offset, 0, -1))
        return [*reports, replace(nothing_copied(len(reports)), partitions=tuple(silent))]

    def _copied(self, source: TopicPartition) -> CopiedPartition:
        return self._state.copied[self._state.key_of(source)]


def _dead_letter_place(key: PartitionKey, number: int) -> DeadLetterPlace:
    return DeadLetterPlace(key.source_topic_id, key.source_topic, key.partition, number)
