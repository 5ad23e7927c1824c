"""Keeps topic configs, ACLs and heartbeats in step before and during the copy of `mirror run`.

A failure is reported once and retried; it never stops the copy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Callable, Dict, Generator, Iterator, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.control.heartbeats import HeartbeatWriter, beating_pairs
from mirror_lib.control.sync import MadeAcls, Synced, WriterCheck, sync_topic_acls, sync_topic_configs
from mirror_lib.errors import LoginError, MirrorError, RefusedError, cause_of
from mirror_lib.kafka.admin import KafkaCluster, clusters_of
from mirror_lib.ledger.records import MirrorRun, same_clusters
from mirror_lib.text import counted
from mirror_lib.threads import Repeating, running
from mirror_lib.topics.old_brokers import settled

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ControlReport:
    """Counts since the start of the run. `problems`: what blocks it now."""

    flow: str
    topic_configs: int = 0
    acls_created: int = 0
    acls_deleted: int = 0
    heartbeats: int = 0
    problems: Tuple[str, ...] = ()


def control_line(report: ControlReport) -> str:
    """`A->B control · 3 topic configs changed · 2 ACLs created · 1 heartbeat · no ACLs are copied: …`."""
    counts = (
        (report.topic_configs, "topic config", " changed"),
        (report.acls_created, "ACL", " created"),
        (report.acls_deleted, "ACL", " deleted"),
        (report.heartbeats, "heartbeat", ""),
    )
    reported = [f"{counted(count, what)}{done}" for count, what, done in counts if count]
    return " · ".join([f"{report.flow} control", *(reported or ["nothing to change"]), *report.problems])


# The copy waits for the first turns: a limit that was raised on the source is raised before a record needs it, and the
# heartbeat of a run that ends is copied in it.
CHECK_SECONDS = 30.0
STOP_SECONDS = 2.0
CONFIGS, ACLS, HEARTBEATS = "topic configs", "ACLs", "heartbeats"
# The count of a report that a duty's changes go into.
COUNTED = {CONFIGS: "topic_configs", ACLS: "acls_created", HEARTBEATS: "heartbeats"}

Watcher = Callable[[ControlReport], None]

# What failed is tried again after a minute, also where its interval is longer; a login that was refused also where its
# interval is shorter, as any attempt may be the one that locks an account.
RETRY_SECONDS = 60.0


class Duty(Repeating):
    """One task alongside the copy, in a thread of its own: a turn at once, and then every `interval` seconds; `None` is
    once.

    `reported` gets the result of each turn, errors as problems. `checked` is set when the first turn is over."""

    def __init__(
        self, name: str, interval: Optional[float], turn: Callable[[], Synced], reported: Callable[[Synced], None]
    ) -> None:
        super().__init__(name, self._paused())
        self._interval, self._turn, self._reported = interval, turn, reported
        self.checked = threading.Event()

    def _paused(self) -> Generator[float, None, None]:
        pause: Optional[float] = 0.0
        while pause is not None:
            yield pause
            began = time.monotonic()
            synced = self._try()
            self._reported(synced)
            self.checked.set()
            pause = pause_after(self._interval, synced, time.monotonic() - began)

    def _try(self) -> Synced:
        try:
            return self._turn()
        except MirrorError as error:
            return Synced(problems=(str(error),), refused=isinstance(error, LoginError))
        except Exception as error:
            # The thread's last resort: without it a duty could end in silence.
            log.debug("%s failed", self.name, exc_info=True)
            return Synced(problems=(f"{type(error).__name__}: {cause_of(error)}",))


def pause_after(interval: Optional[float], synced: Synced, taken: float) -> Optional[float]:
    """Seconds until the next turn, counted from the start of this one; `None` for no further turn. Pure."""
    if interval is None:
        return None
    wanted = min(interval, RETRY_SECONDS) if synced.problems else interval
    return max(0.0, (RETRY_SECONDS if synced.refused else wanted) - taken)


# The run of a flow that started last; `None` before the first. May raise StateError.
LastRun = Callable[[str], Optional[MirrorRun]]


def read_once(last_run: LastRun) -> LastRun:
    """`last_run` for the duties of a flow, which all ask at their start: one reads, and the others wait for its answer.
    Only a run is kept: a flow without one is read again, as its first run may have begun meanwhile."""
    known: Dict[str, MirrorRun] = {}
    reading = threading.Lock()

    def last(flow: str) -> Optional[MirrorRun]:
        with reading:
            found = known.get(flow) or last_run(flow)
            if found is not None:
                known[flow] = found
            return found

    return last


def refuse_other_clusters(last_run: LastRun, flows: Sequence[ReplicationFlow], ids: Mapping[str, str]) -> None:
    """Raise `RefusedError` if a cluster of `ids`, by alias, differs from the last run of one of `flows`; `StateError`.
    A flow without a run is accepted."""
    for flow in flows:
        sides = flow.source.alias, flow.target.alias
        last = None if ids.keys().isdisjoint(sides) else last_run(flow.name)
        if last is not None:
            source, target = ids.get(sides[0], last.source_cluster_id), ids.get(sides[1], last.target_cluster_id)
            same_clusters(flow.name, (source, target), last.clusters)


@contextmanager
def background_control(
    config: MirrorConfig,
    flows: Sequence[ReplicationFlow],
    book: MadeAcls,
    last_run: LastRun,
    watcher: Watcher,
    stop: threading.Event,
    writers: Mapping[str, WriterCheck] = MappingProxyType({}),
) -> Iterator[None]:
    """A context for the copy of `flows`. `watcher` gets a report when something was changed, and one at the end.

    In a bounded run all duties run once, before the copy. If the table `runs` has another cluster for an alias, nothing
    is changed. Nor is anything for a flow that `writers`, by the flow's name, refuses.
    """
    controls = []
    for flow in flows:
        check = partial(refuse_other_clusters, read_once(last_run), [flow])
        controls.append(_FlowControl(config, flow, book, check, watcher, flow.copied, writers.get(flow.name)))
    # A pair that is not copied has no runs: the runs of the flows that are copied show the id of its target.
    check = partial(refuse_other_clusters, read_once(last_run), config.flows)
    for each in beating_pairs(config, flows):
        pair = replace(each, sync_topic_configs_interval=None, sync_topic_acls_interval=None)
        controls.append(_FlowControl(config, pair, book, check, watcher, copies=False))
    duties = [duty for control in controls for duty in control.duties]
    try:
        with running(duties, STOP_SECONDS):
            patient_until = time.monotonic() + CHECK_SECONDS
            while not all([duty.checked.wait(0.05) for duty in duties]):
                if stop.is_set() or time.monotonic() > patient_until:
                    break
            yield
    finally:
        if any(duty.thread.is_alive() for duty in duties):
            log.warning("a cluster does not answer: configs, ACLs or heartbeats stay unchanged")
        for control in controls:
            if control.duties:
                control.end()


class _FlowControl:
    """The duties of one flow and its report so far. Duties report from threads of their own."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: ReplicationFlow,
        book: MadeAcls,
        check_clusters: Callable[[Mapping[str, str]], None],
        watcher: Watcher,
        copies: bool,
        writers: Optional[WriterCheck] = None,
    ) -> None:
        self._flow, self._flows, self._watcher = flow, config.flows, watcher
        self._check_clusters, self._writers = check_clusters, writers
        self._lock = threading.Lock()
        self._standing: Dict[str, Tuple[str, ...]] = {}
        self._heartbeats = HeartbeatWriter(flow, self._check_target, copies)
        self._counts: Counter[str] = Counter()
        self._report = ControlReport(flow.name)
        self._shown: Optional[ControlReport] = None
        configs = partial(sync_topic_configs, recorded=None if writers is None else writers.recorded_topics)
        turns = (
            (CONFIGS, flow.sync_topic_configs_interval, partial(self._sync, configs)),
            (ACLS, flow.sync_topic_acls_interval, partial(self._sync, partial(sync_topic_acls, book=book))),
            (HEARTBEATS, flow.emit_heartbeats_interval, self._beat),
        )
        once = config.trigger == AVAILABLE_NOW
        self.duties = [
            Duty(
                f"{flow.name} {what}",
                None if once else interval,
                partial(_unless_refused, turn) if copies else turn,
                partial(self._take, what),
            )
            for what, interval, turn in turns
            if interval is not None
        ]

    def show(self) -> None:
        with self._lock:
            report, shown, self._shown = self._report, self._shown, self._report
        if report != shown:
            self._watcher(report)

    def end(self) -> None:
        if not any(duty.thread.is_alive() for duty in self.duties):
            self._heartbeats.close()
        self.show()

    def _sync(self, sync: Callable[..., Synced]) -> Synced:
        with self._same_clusters() as (source, target):
            return sync(self._flow, self._flows, source, target)

    @contextmanager
    def _same_clusters(self) -> Iterator[Tuple[KafkaCluster, KafkaCluster]]:
        with clusters_of(self._flow) as (source, target):
            self._check_clusters({each.alias: each.cluster_id() for each in (source, target)})
            self._check_brokers(target)
            if self._writers is not None:
                self._writers.refuse(source, target)
            yield source, target

    def _check_target(self, target: KafkaCluster) -> None:
        if self._writers is not None:
            with self._same_clusters():
                return
        self._check_clusters({target.alias: target.cluster_id()})
        self._check_brokers(target)

    def _check_brokers(self, target: KafkaCluster) -> None:
        """Raise `RefusedError` if the flow's copy is refused, so that the control writes nothing there either."""
        if self._flow in self._flows:  # a pair that only gets heartbeats needs no fence
            refusal = settled(self._flow, target.missing_for_fence()).refusal
            if refusal is not None:
                raise refusal

    def _beat(self) -> Synced:
        self._heartbeats.beat()
        return Synced(changed=1)

    def _take(self, what: str, synced: Synced) -> None:
        with self._lock:
            before = _sentences(self._standing)
            self._standing = {**self._standing, what: (*synced.notes, *synced.problems)}
            self._counts[COUNTED[what]] += synced.changed
            self._counts["acls_deleted"] += synced.deleted
            self._report = ControlReport(self._flow.name, **self._counts, problems=_sentences(self._standing))
        for problem in synced.problems:
            # The same again says nothing new, nor does it from another duty.
            if problem not in before:
                log.warning("%s: %s", self._flow.name, problem)
        if what != HEARTBEATS and synced.changed + synced.deleted:
            self.show()


def _unless_refused(turn: Callable[[], Synced]) -> Synced:
    """The turn of a flow that is copied. A refusal is not a problem of its own: it ends the copy, which reports it."""
    try:
        return turn()
    except RefusedError as error:
        log.debug("nothing is changed: %s", error)
        return Synced(refused=True)


def _sentences(standing: Mapping[str, Tuple[str, ...]]) -> Tuple[str, ...]:
    """Each sentence once: a cluster that does not answer blocks every duty."""
    return tuple(dict.fromkeys(sentence for sentences in standing.values() for sentence in sentences))
