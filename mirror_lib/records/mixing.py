"""Flows that spread rows over remote partitions anew: each pass is written down before it begins.

Order of effects: ranges and remote positions to the table, lanes fenced, rows appended in one order, the next pass to
the table. A life that finds a pass does its ranges again: rows come in the same order, so what is there is found.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.offset_choice import OffsetChoice
from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import Cluster, TopicPartition
from mirror_lib.records.engine import next_offsets
from mirror_lib.records.flow_change import FlowChange
from mirror_lib.records.mixed_pass import Done, MixedPass, NotWhole
from mirror_lib.records.pass_lanes import PassLanes
from mirror_lib.records.pass_pace import PassPace
from mirror_lib.records.pass_plan import Beginnings, first_places, new_rows, next_pass, remote_rows
from mirror_lib.records.placed_progress import PlacedProgress
from mirror_lib.records.placed_snapshot import NOTHING_DONE, placed_snapshot
from mirror_lib.records.refused_rows import Origin, RefusedRows, RowsRefused
from mirror_lib.records.source_edges import SourceEdges
from mirror_lib.records.told_parts import by_source, taking
from mirror_lib.replicate.copy_hours import Halt
from mirror_lib.replicate.flow import Watcher
from mirror_lib.replicate.flow_rates import FlowRates
from mirror_lib.replicate.journal import BatchRef, Journal
from mirror_lib.replicate.lanes import PartitionReport
from mirror_lib.replicate.source_progress import SourceGroup
from mirror_lib.replicate.starts import SourceCluster
from mirror_lib.replicate.stopped import of_unlisted
from mirror_lib.replicate.tailing import Tail
from mirror_lib.replicate.topics import CopiedPartition, TopicWatch
from mirror_lib.replicate.totals import Totals
from mirror_lib.state.row_passes import REMOTE, SOURCE, PlannedByAnother, RowPass, RowPassTable
from mirror_lib.topics.ways import Ways

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 120.0
RETRY_SECONDS = 0.5
# Of the first pass, when nobody knows how large records are: such a pass cannot end before it is whole.
FIRST_OFFSETS = 10_000


class MixingMirror:
    """Such a flow in one driver's life, as `FlowMirror` is one of the others. Not thread-safe: one caller at a time."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: ReplicationFlow,
        passes: RowPassTable,
        journal: Journal,
        clusters: Tuple[SourceCluster, Cluster],
        watcher: Watcher,
        stop: Halt,
        totals: Totals,
        last: Optional[RowPass],
        until: Optional[OffsetChoice] = None,
        group: Optional[SourceGroup] = None,
        ways: Optional[Ways] = None,
        rates: Optional[FlowRates] = None,
        left_out: Sequence[Origin] = (),
    ) -> None:
        self.flow = flow
        self._pace = PassPace(rates or FlowRates(flow))
        source, self._target = clusters
        self._edges = SourceEdges(flow, source, until)
        self._progress = PlacedProgress(group)
        self._reached = self._shown = False
        self._beside = ways is not None
        self._passes = passes
        self._journal = journal
        self._watcher = watcher
        self._stop = stop
        self._totals = totals
        self._topics = TopicWatch(flow, config.flows, *clusters, ways)
        self._topics.refresh()
        self._last = last
        self._done = self._last is None or self._last.empty
        self._at: Dict[TopicPartition, int] = {}
        if self._last is not None:
            self._at = {row.place: row.from_offset for row in self._last.of(REMOTE)}
        self._offsets = FIRST_OFFSETS
        lanes = PassLanes(config.name, flow, journal, beside=self._beside)
        self._refused = RefusedRows(left_out)
        self._mixed = MixedPass(flow, self._topics, FlowChange.of(flow, self._target), lanes, self._refused)

    def has_history(self) -> bool:
        """True if a pass was planned before."""
        return self._last is not None

    def has_topics(self) -> bool:
        """Whether there was anything to copy at the last look."""
        return bool(self._topics.partitions)

    def reached(self) -> bool:
        """Whether the last look found nothing left to wait for: `--until` is reached."""
        return self._reached

    def due(self) -> bool:
        """Whether one more look may find it reached: its time is past."""
        return self._reached or self._edges.bounds.passed()

    def stopped(self) -> Sequence[PartitionReport]:
        """Those of which the source told nothing at the last look. What else stops a partition ends the flow."""
        unlisted = {each.source: each for each in self._topics.partitions.values() if each.source in self._edges.untold}
        return [of_unlisted(each) for each in unlisted.values()]

    def not_copied(self) -> Sequence[str]:
        """What `--until` names and the flow does not copy, as `topic-partition`."""
        return [f"{topic}-{number}" for topic, number in self._edges.bounds.unknown(self._copied())]

    def blocked(self) -> Sequence[str]:
        """Sentences on the topics that the flow asks for and that cannot be copied as things are."""
        return [f"{each.name}: {each.reason}" for each in self._topics.plan.blocked]

    def give_way(self) -> None:
        """Nothing: such flows do not tail."""

    def copy_batch(self, spark: SparkSession, batch: BatchRef, tail: Optional[Tail] = None) -> None:
        """Copy until every partition has reached the end that its source had when this was called; such flows do not
        tail. Raises `MirrorError`."""
        passed = self._edges.bounds.passed()
        self._topics.refresh()
        self._edges.look_anew()
        self._shown = False
        self._go_on(spark, batch)
        while not self._stop.is_set() and self._progress.has_turn():
            planned = self._next()
            new = new_rows(self._last, planned)
            if planned.empty and not new and (self._last is None or self._last.empty):
                if not self._pace.holds(planned, self._edges.ends(self._copied())):
                    self._show_nothing(batch)
                    break
                self._pace.wait()
                continue
            # Where there is nothing left the empty pass says that the one before is done. Where partitions are new it
            # says where they begin.
            self._journal.written()
            written = self._written_down(planned)
            self._journal.passed()
            self._last, self._done = written, written.empty
            self._progress.planned(written, self._remote_topics())
            if not written.empty:
                self._copy(spark, written, batch)
            elif written is planned and not self._pace.holds(planned, self._edges.ends(self._copied())):
                self._show_nothing(batch)
                break
        if not self._stop.is_set():
            self._reached = self._edges.bounds.reached(self._stands(), passed)

    def _written_down(self, planned: RowPass) -> RowPass:
        """The pass that comes next by the table. It may be one that a driver planned which was shut out of the lanes
        since, and which ends by that: whoever has them goes on with it. Raises `FencedError`."""
        try:
            self._passes.add(self.flow.name, planned, run_id=self._journal.run_id)
        except PlannedByAnother as other:
            if not self._mixed.looks_again():
                raise
            log.warning("%s: pass %d was planned by another driver", self.flow.name, other.found.number)
            for row in other.found.of(REMOTE):  # this one's markers may lie behind where that one saw the end
                self._at[row.place] = max(row.from_offset, self._at.get(row.place, 0))
            self._topics.refresh()  # it may have topics that were not there at the last look
            return other.found
        return planned

    def _go_on(self, spark: SparkSession, batch: BatchRef) -> None:
        """Tell where the last pass stands, and do it where it may not be done. It may be another process's."""
        if self._last is None:
            return
        if self._done:
            self._progress.whole(self._last, self._remote_topics(), self._at)
        else:
            self._progress.planned(self._last, self._remote_topics())
            self._edges.logs(self._copied(), self._stands())  # what is left behind that pass is told as well
            self._copy(spark, self._last, batch)

    def _remote_topics(self) -> Dict[TopicPartition, Set[str]]:
        found: Dict[TopicPartition, Set[str]] = {}
        for each in self._topics.partitions.values():
            found.setdefault(each.source, set()).add(each.remote_topic)
        return found

    def _copied(self) -> List[TopicPartition]:
        return sorted({each.source for each in self._topics.partitions.values()})

    def _stands(self) -> Dict[TopicPartition, int]:
        """Where the source's partitions stand, the pass under way being done."""
        return {row.place: row.stands for row in self._last.of(SOURCE)} if self._last is not None else {}

    def _next(self) -> RowPass:
        partitions = list(self._topics.partitions.values())
        stands = self._stands()
        starts = self._edges.begins([each for each in partitions if each.source not in stands])
        stands.update({each: start.upstream_offset for each, start in starts.items()})
        logs = self._edges.logs(self._copied(), stands)
        names = {each.remote_topic for each in partitions}
        there = self._target.topics()
        for name in names - there.keys():
            raise ClusterError(f"{self.flow.name}: there is no topic {name} on {self.flow.target.alias}")
        found = {name: (there[name].topic_id, there[name].partitions) for name in names}
        self._check_remotes(found)
        self._check_sizes(partitions, found)
        new = [(name, n) for name, (_, count) in found.items() for n in range(count) if (name, n) not in self._at]
        self._at.update(self._places(new))
        begins = Beginnings(starts, self.flow.auto_offset_reset == "latest")
        # Topics that are not copied now may be again.
        left = [row for row in self._last.of(REMOTE) if row.topic not in names] if self._last is not None else []
        remotes = [*remote_rows(found, self._at), *(replace(row, from_offset=self._at[row.place]) for row in left)]
        ends = self._edges.ends(self._copied())
        room = self._pace.room(ends, self._offsets)
        return next_pass(self._last, partitions, logs, remotes, room, begins, ends)

    def _places(self, new: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where remote partitions stand that no pass knows. What others wrote is not compared with what comes."""
        told, target = self._target.offsets(new, "read_uncommitted"), self.flow.target.alias
        return first_places(f"{self.flow.name}: {target}", new, told, behind=self.flow.shared_remote_topics)

    def _check_sizes(self, partitions: Sequence[CopiedPartition], found: Mapping[str, Tuple[str, int]]) -> None:
        """Raise ClusterError where a broker does not know yet that a remote topic has grown."""
        if self.flow.change is None or not self.flow.change.keeps_partitions:
            return
        for each in partitions:
            if each.partition >= found[each.remote_topic][1]:
                raise ClusterError(f"{self.flow.name}: {each.remote_topic} has no partition {each.partition} yet")

    def _check_remotes(self, found: Mapping[str, Tuple[str, int]]) -> None:
        """Refuse a remote topic that is another one than the last pass had, by its id."""
        before = {row.topic: row.topic_id for row in self._last.of(REMOTE)} if self._last is not None else {}
        for name, (topic_id, _) in found.items():
            if before.get(name, topic_id) != topic_id:
                raise RefusedError(
                    f"{self.flow.name}: the remote topic {name} was deleted and created again",
                    "give the mirror another `name` and `state`, and the flow an empty remote topic, to copy all again",
                )

    def _copy(self, spark: SparkSession, planned: RowPass, batch: BatchRef) -> None:
        """Do a pass, again and again until it is whole. Raises `MirrorError` where that cannot be."""
        started, deadline = time.monotonic(), time.monotonic() + PATIENCE_SECONDS
        self._refused.begin()
        while True:
            read = self._pace.begun(planned)
            try:
                done = self._mixed.copy(spark, planned, read)
                break
            except RowsRefused as error:
                self._leave_out(error, batch)
            except NotWhole as error:
                log.warning("%s: %s; the pass is done again", self.flow.name, error)
                if time.monotonic() > deadline:
                    raise ClusterError(f"{self.flow.name}: {error}", "is the cluster healthy?") from error
                time.sleep(RETRY_SECONDS)
                self._topics.refresh()  # a topic that is another one by now is not copied in its place
            finally:
                self._pace.pay(read)
        # A word on what is doubled, before the pass is said to be whole. Its rows are counted, and have no offsets.
        told = [replace(each, from_offset=-1) for part in done.parts for each in part.incidents]
        self._journal.note(told, batch)
        self._at.update(done.at)
        self._done = True
        self._progress.whole(planned, self._remote_topics(), self._at)
        seconds = time.monotonic() - started
        pairs = ((each.topic, each.remote_topic) for each in self._topics.partitions.values())
        self._totals.add(taking(by_source(done.parts, pairs), seconds))
        self._offsets = next_offsets(self._offsets, done.offsets, seconds, self.flow.batch_max_seconds)
        self._show(done, batch, seconds)

    def _leave_out(self, refused: RowsRefused, batch: BatchRef) -> None:
        incidents = self._refused.found(refused, self.flow.name)
        self._journal.note(incidents, batch)
        self._refused.leave_out(incidents)
        for each in incidents:
            log.warning("%s: %s-%d: %s; it is left out", self.flow.name, each.topic, each.partition, each.reason)

    def _show(self, done: Done, batch: BatchRef, seconds: float) -> None:
        stands, ends = self._stands(), self._edges.ends(self._copied())
        left = {each: max(0, end - stands.get(each, end)) for each, end in ends.items()}
        held = self._pace.word(seconds)
        self._watcher(placed_snapshot(self.flow.name, batch.batch_id, done, left, seconds, held))
        self._shown = True

    def _show_nothing(self, batch: BatchRef) -> None:
        """That there is nothing to do, unless the batch did something, or the mirror beside this one says it."""
        if not (self._shown or self._beside):
            self._show(NOTHING_DONE, batch, 0.0)
