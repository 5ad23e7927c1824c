"""Flows that spread rows over remote partitions anew: each pass is written down before it begins.

Order of effects: ranges and remote positions to the table, lanes fenced, rows appended in one order, the next pass to
the table. A life that finds a pass does its ranges again: rows come in the same order, so what is there is found.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Dict, Mapping, Optional, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import Cluster, TopicPartition
from mirror_lib.progress import ProgressSnapshot
from mirror_lib.records.engine import next_offsets
from mirror_lib.records.flow_change import FlowChange
from mirror_lib.records.mixed_pass import Done, MixedPass, NotWhole
from mirror_lib.records.pass_plan import next_pass, remote_rows
from mirror_lib.replicate.copy_hours import Halt
from mirror_lib.replicate.flow import Watcher
from mirror_lib.replicate.journal import BatchRef, Journal
from mirror_lib.replicate.lanes import PartitionReport
from mirror_lib.replicate.tailing import Tail
from mirror_lib.replicate.topics import TopicWatch
from mirror_lib.replicate.totals import Totals
from mirror_lib.state.row_passes import REMOTE, RowPass, RowPassTable

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
        clusters: Tuple[Cluster, Cluster],
        watcher: Watcher,
        stop: Halt,
        totals: Totals,
    ) -> None:
        self.flow = flow
        self._source, self._target = clusters
        self._passes = passes
        self._journal = journal
        self._watcher = watcher
        self._stop = stop
        self._totals = totals
        self._topics = TopicWatch(flow, config.flows, *clusters)
        self._topics.refresh()
        self._last = passes.latest(flow.name)
        self._done = self._last is None or self._last.empty
        self._at: Dict[TopicPartition, int] = {}
        if self._last is not None:
            self._at = {row.place: row.from_offset for row in self._last.of(REMOTE)}
        self._offsets = FIRST_OFFSETS
        self._mixed = MixedPass(config.name, flow, self._topics, FlowChange.of(flow, self._target))

    def has_history(self) -> bool:
        """True if a pass was planned before."""
        return self._last is not None

    def reached(self) -> bool:
        """Such flows have no `--until`."""
        return False

    def due(self) -> bool:
        """Such flows have no `--until`."""
        return False

    def stopped(self) -> Sequence[PartitionReport]:
        """None: what stops a partition ends the flow."""
        return []

    def not_copied(self) -> Sequence[str]:
        """None: such flows have no `--until`."""
        return []

    def blocked(self) -> Sequence[str]:
        """Sentences on the topics that the flow asks for and that cannot be copied as things are."""
        return [f"{each.name}: {each.reason}" for each in self._topics.plan.blocked]

    def copy_batch(self, spark: SparkSession, batch: BatchRef, tail: Optional[Tail] = None) -> None:
        """Copy until every partition has reached the end that its source has; such flows do not tail. Raises
        `MirrorError`."""
        self._topics.refresh()
        if self._last is not None and not self._done:
            self._copy(spark, self._last, batch)
        while not self._stop.is_set():
            planned = self._next()
            if planned.empty and (self._last is None or self._last.empty):
                break
            # Where there is nothing left the empty pass says that the one before is done.
            self._journal.begun()
            self._passes.add(self.flow.name, planned, run_id=self._journal.run_id)
            self._last, self._done = planned, planned.empty
            if planned.empty:
                break
            self._copy(spark, planned, batch)

    def _next(self) -> RowPass:
        partitions = list(self._topics.partitions.values())
        logs = self._source.offsets([each.source for each in partitions], self.flow.isolation_level)
        names = {each.remote_topic for each in partitions}
        there = self._target.topics()
        for name in names - there.keys():
            raise ClusterError(f"{self.flow.name}: there is no topic {name} on {self.flow.target.alias}")
        found = {name: (there[name].topic_id, there[name].partitions) for name in names}
        self._check_remotes(found)
        new = [(name, n) for name, (_, count) in found.items() for n in range(count) if (name, n) not in self._at]
        self._at.update({each: log.log_start for each, log in self._target.offsets(new, "read_uncommitted").items()})
        latest = self.flow.auto_offset_reset == "latest"
        # Topics that are not copied now may be again.
        left = [row for row in self._last.of(REMOTE) if row.topic not in names] if self._last is not None else []
        remotes = [*remote_rows(found, self._at), *(replace(row, from_offset=self._at[row.place]) for row in left)]
        return next_pass(self._last, partitions, logs, remotes, self._offsets, latest)

    def _check_remotes(self, found: Mapping[str, Tuple[str, int]]) -> None:
        """Refuse a remote topic that is another one than the last pass had, by its id."""
        before = {row.topic: row.topic_id for row in self._last.of(REMOTE)} if self._last is not None else {}
        for name, (topic_id, _) in found.items():
            if before.get(name, topic_id) != topic_id:
                raise RefusedError(
                    f"{self.flow.name}: the remote topic {name} was deleted and created again",
                    "give the mirror another name, and the flow an empty remote topic, to copy everything again",
                )

    def _copy(self, spark: SparkSession, planned: RowPass, batch: BatchRef) -> None:
        """Do a pass, again and again until it is whole. Raises `MirrorError` where that cannot be."""
        started, deadline = time.monotonic(), time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                done = self._mixed.copy(spark, planned)
                break
            except NotWhole as error:
                log.warning("%s: %s; the pass is done again", self.flow.name, error)
                if time.monotonic() > deadline:
                    raise ClusterError(f"{self.flow.name}: {error}", "is the cluster healthy?") from error
                time.sleep(RETRY_SECONDS)
        # A word on what is doubled, before the pass is said to be whole. Its rows are counted, and have no offsets.
        told = [replace(each, from_offset=-1) for part in done.parts for each in part.incidents]
        self._journal.note(told, batch)
        self._at.update(done.at)
        self._done = True
        self._totals.add(done.parts)
        seconds = time.monotonic() - started
        self._offsets = next_offsets(self._offsets, done.offsets, seconds, self.flow.batch_max_seconds)
        self._watcher(self._snapshot(done, batch, seconds))

    def _snapshot(self, done: Done, batch: BatchRef, seconds: float) -> ProgressSnapshot:
        return ProgressSnapshot(
            flow=self.flow.name,
            batch_id=batch.batch_id,
            records=sum(part.records for part in done.parts),
            bytes=sum(part.bytes for part in done.parts),
            seconds=seconds,
            copy_seconds=seconds,
            behind_records=0,
            behind_seconds=None,
            recovered=done.recovered,
            stopped=0,
            waiting="copying",
        )
