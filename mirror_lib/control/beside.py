"""Topic configs, ACLs and heartbeats inside `mirror run`: kept in step before and beside the copy.

What fails is told once and tried again; it never stops the copy.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type

from mirror_lib.cluster import KafkaCluster, clusters_of
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.control.duty import Duty
from mirror_lib.control.heartbeats import HeartbeatWriter
from mirror_lib.control.last_clusters import LastClusters, LastRuns
from mirror_lib.control.pairs import beating_pairs
from mirror_lib.control.report import ControlReport
from mirror_lib.control.sync import MadeAcls, Synced, sync_topic_acls, sync_topic_configs
from mirror_lib.topics.old_brokers import settled

log = logging.getLogger(__name__)

# The copy waits for the first turns: a limit that was raised on the source is raised before a record needs it, and the
# heartbeat of a run that ends is copied in it.
LOOK_SECONDS = 30.0
STOP_SECONDS = 2.0
CONFIGS, ACLS, HEARTBEATS = "topic configs", "ACLs", "heartbeats"

Watcher = Callable[[ControlReport], None]


class ControlBeside:
    """A context for the copy of `flows`. `watcher` gets a report when something was changed, and one at the end.

    In a run that ends by itself everything is done once, before the copy. Where by `runs` another cluster stands behind
    an alias nothing is done.
    """

    def __init__(
        self,
        config: MirrorConfig,
        flows: Sequence[ReplicationFlow],
        book: MadeAcls,
        runs: LastRuns,
        watcher: Watcher,
        stop: threading.Event,
    ) -> None:
        self._stop, self._watcher = stop, watcher
        each = [_FlowControl(config, flow, book, LastClusters(runs, [flow]), watcher) for flow in flows]
        # A pair that is not copied has no runs: of its target those of the flows that are copied tell.
        told = LastClusters(runs, config.flows)
        pairs = map(only_heartbeats, beating_pairs(config, flows))
        each += [_FlowControl(config, pair, book, told, watcher) for pair in pairs]
        self._controls = [control for control in each if control.duties]

    def __enter__(self) -> ControlBeside:
        duties = self._duties()
        for duty in duties:
            duty.start()
        patient_until = time.monotonic() + LOOK_SECONDS
        while not all([duty.looked.wait(0.05) for duty in duties]):
            if self._stop.is_set() or time.monotonic() > patient_until:
                break
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        duties = self._duties()
        for duty in duties:
            duty.end()
        given_up_at = time.monotonic() + STOP_SECONDS
        ended = [duty.wait(given_up_at - time.monotonic()) for duty in duties]
        if not all(ended):
            log.warning("a cluster does not answer: configs, ACLs or heartbeats are left as they are")
        for control in self._controls:
            if all(duty.wait(0) for duty in control.duties):
                control.close()
            control.show()

    def _duties(self) -> List[Duty]:
        return [duty for control in self._controls for duty in control.duties]


def only_heartbeats(pair: ReplicationFlow) -> ReplicationFlow:
    """The pair with nothing else switched on that is done beside a copy."""
    return replace(pair, sync_topic_configs_interval=None, sync_topic_acls_interval=None)


class _FlowControl:
    """The duties of one flow and its report so far. Duties report from threads of their own."""

    def __init__(
        self, config: MirrorConfig, flow: ReplicationFlow, book: MadeAcls, clusters: LastClusters, watcher: Watcher
    ) -> None:
        self._flow, self._flows, self._book, self._watcher = flow, config.flows, book, watcher
        self._clusters = clusters
        self._lock = threading.Lock()
        self._standing: Dict[str, Tuple[str, ...]] = {}
        self._heartbeats = HeartbeatWriter(flow, self._check_target)
        self._report = ControlReport(flow.name)
        self._shown: Optional[ControlReport] = None
        turns = (
            (CONFIGS, flow.sync_topic_configs_interval, self._sync_configs),
            (ACLS, flow.sync_topic_acls_interval, self._sync_acls),
            (HEARTBEATS, flow.emit_heartbeats_interval, self._beat),
        )
        once = config.trigger == AVAILABLE_NOW
        self.duties = [
            Duty(f"{flow.name} {what}", None if once else interval, turn, partial(self._take, what))
            for what, interval, turn in turns
            if interval is not None
        ]

    def show(self) -> None:
        """Give the watcher what it was not given yet."""
        with self._lock:
            report, shown, self._shown = self._report, self._shown, self._report
        if report != shown:
            self._watcher(report)

    def close(self) -> None:
        """Drop the connections that are kept. Only when every duty has ended."""
        self._heartbeats.close()

    def _sync_configs(self) -> Synced:
        flow = self._flow
        with self._same_clusters() as (source, target):
            return sync_topic_configs(flow, self._flows, source, target)

    def _sync_acls(self) -> Synced:
        flow = self._flow
        with self._same_clusters() as (source, target):
            return sync_topic_acls(flow, self._flows, source, target, self._book)

    @contextmanager
    def _same_clusters(self) -> Iterator[Tuple[KafkaCluster, KafkaCluster]]:
        with clusters_of(self._flow) as (source, target):
            self._clusters.check({each.alias: each.cluster_id() for each in (source, target)})
            self._check_brokers(target)
            yield source, target

    def _check_target(self, target: KafkaCluster) -> None:
        self._clusters.check({target.alias: target.cluster_id()})
        self._check_brokers(target)

    def _check_brokers(self, target: KafkaCluster) -> None:
        """Raise `RefusedError` where the flow's copy is refused, so that nothing else is written there either."""
        if self._flow in self._flows:  # a pair that only gets heartbeats needs no fence
            refusal = settled(self._flow, target.guards_epochs()).refusal
            if refusal is not None:
                raise refusal

    def _beat(self) -> Synced:
        self._heartbeats.beat()
        return Synced(changed=1)

    def _take(self, what: str, synced: Synced) -> None:
        with self._lock:
            before = _sentences(self._standing)
            self._standing = {**self._standing, what: (*synced.notes, *synced.problems)}
            self._report = _counted(replace(self._report, problems=_sentences(self._standing)), what, synced)
        for problem in synced.problems:
            # The same again says nothing new, nor does it from another duty.
            if problem not in before:
                log.warning("%s: %s", self._flow.name, problem)
        if what != HEARTBEATS and synced.changed + synced.deleted:
            self.show()


def _sentences(standing: Mapping[str, Tuple[str, ...]]) -> Tuple[str, ...]:
    """Each once: a cluster that does not answer stands in the way of every duty."""
    return tuple(dict.fromkeys(sentence for sentences in standing.values() for sentence in sentences))


def _counted(report: ControlReport, what: str, synced: Synced) -> ControlReport:
    if what == CONFIGS:
        return replace(report, topic_configs=report.topic_configs + synced.changed)
    if what == HEARTBEATS:
        return replace(report, heartbeats=report.heartbeats + synced.changed)
    created, deleted = report.acls_created + synced.changed, report.acls_deleted + synced.deleted
    return replace(report, acls_created=created, acls_deleted=deleted)
