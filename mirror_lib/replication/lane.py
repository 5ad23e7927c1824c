"""The kernel of both engines: opens the lanes of one Spark task, appends to them and renews their fence.

A lane is a named set of remote partitions that are written under one transactional id. Order of effects: stop where a
remote log was truncated or is refused, fence, recover, append, fence again after old records. After a crash at any
point the next process fences first, and finds unreported records on the remote logs. Each engine has its own `Source`
of records to append, and its own recovery, which finds records on the remote logs.
"""

from __future__ import annotations

import time
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Generic,
    Hashable,
    Iterable,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    TypeVar,
)

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, LogClient, by_topic, name_of
from mirror_lib.kafka.fencing import AnswerLost, Lane, fence, idempotent_producer, refresh
from mirror_lib.kafka.fetcher import READ_UNCOMMITTED, log_ends
from mirror_lib.kafka.log_reader import LogEntries, LostTail
from mirror_lib.kafka.producer import Appender
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.replication.messages import EPOCH_KEPT_SECONDS
from mirror_lib.replication.partition import RemotePartition

# How long a lane that is fenced again retries an unavailable coordinator.
REFENCE_SECONDS = 120.0

Part = TypeVar("Part", bound=RemotePartition)


class Source(Protocol):
    """Where the batches of a task's partitions come from."""

    def poll(self) -> float:
        """Hand new batches to the partitions and send the next requests. Returns the longest time to wait for answers
        (ms). Raises `Disconnected`, `ClusterError`."""

    def ended(self, idle: bool) -> bool:
        """Whether no more batches will come and all are processed. `idle`: no request is in flight."""


class Lanes(Generic[Part]):
    """The lanes of one attempt at one task, over the connections of `target`.

    `producers` are the producers of lanes that continue without a fence. `held` are the latest producers of all lanes,
    as far as the driver knows. A repeated attempt gets neither, since the previous attempt used some of the sequences.
    `recover` reads the remote logs of partitions whose lanes are fenced. `look` may refuse some of them before, by the
    ends of their remote logs. Records must be younger than `EPOCH_KEPT_SECONDS`, or the target forgets their producer.
    """

    def __init__(
        self,
        target: LogClient,
        recover: Callable[[Sequence[Part]], None],
        held: Mapping[Any, Producer],
        producers: Mapping[Any, Producer],
        look: Callable[[Sequence[Part], Mapping[TopicPartition, int]], None] = lambda partitions, ends: None,
    ) -> None:
        self.partitions: List[Part] = []
        # Those with batches that are queued or in flight, and those that just had: what moves, among many.
        self.busy: Dict[Part, None] = {}
        # By lane; each engine has its own lane keys.
        self.producers: Dict[Any, Producer] = dict(producers)
        # Kept when connections break: a task whose lane the driver confirmed must not take it back from another
        # process.
        self.held: Dict[Any, Producer] = dict(held)
        # Partitions that were appended to since their remote logs were last looked at.
        self._appended: Dict[Part, None] = {}
        self._target = target
        self._recover = recover
        self._look = look
        self._appender = Appender(target)
        self._by_remote: Dict[TopicPartition, List[Part]] = {}
        self._idempotent: Optional[Producer] = None

    def let_go(self) -> None:
        """Connections broke: batches in flight may or may not have been written. Reopened lanes are fenced."""
        self.producers.clear()
        self._appender = Appender(self._target)
        self._idempotent = None

    def open(
        self, partitions: Sequence[Part], deadline: float, ends: Optional[Mapping[TopicPartition, int]] = None
    ) -> None:
        """Give `partitions` a producer and a position to resume from. They must be all partitions of their lanes in the
        task.

        `ends` are the ends of their remote logs, if the caller has them. Raises `Disconnected`, `ClusterError`, and
        `FencedError` if another process has a lane.
        """
        for each in partitions:
            of_remote = self._by_remote.setdefault(each.remote, [])
            if each not in of_remote:
                of_remote.append(each)
                self.partitions.append(each)
                each.busy_ones = self.busy
        if ends is None:
            ends = self._log_ends(partitions)
        # Before the fence: its markers would fill the offsets of acknowledged records that a truncated log has lost.
        self._stop_at_lost_tails([each for each in partitions if each.stopped is None], ends)
        going = [each for each in partitions if each.stopped is None]
        fresh = [
            each
            for each in going
            if each.lane not in self.producers or not each.continues(ends.get(each.remote, -1))
        ]
        self._look(fresh, ends)
        # Where nothing is to be appended, a marker might take the place of what a log lost.
        fresh = [each for each in fresh if each.stopped is None]
        fenced = self._fence(_by_lane(fresh), deadline)
        self.held.update(fenced)
        self.producers.update(fenced)
        for each in partitions:
            if each.lane in fenced:
                each.sequence = 0  # a new epoch counts from 0 in every partition
        for each in fresh:
            each.fenced()
        self._recover(fresh)
        for each in partitions:
            if each.lane in self.producers:
                each.start(self.producers[each.lane])
            else:
                each.drop()  # it has stopped

    def _fence(self, lanes: Mapping[Hashable, Sequence[Part]], deadline: float) -> Dict[Hashable, Producer]:
        """New producers of the lanes, after which no earlier ones can append to these partitions."""
        named = {lane: str(those[0].transactional_id) for lane, those in lanes.items() if those[0].transactional_id}
        # What is held of a lane is outdated as soon as the coordinator has a request for a new epoch.
        asked = [
            Lane(name, by_topic(each.remote for each in lanes[lane]), self.held.pop(lane, None))
            for lane, name in named.items()
        ]
        producers = fence(self._target, asked, deadline)
        found: Dict[Hashable, Producer] = {lane: producers[name] for lane, name in named.items()}
        for lane, those in lanes.items():
            if lane not in named:
                found[lane] = self._unfenced(those, deadline)
        return found

    def _unfenced(self, partitions: Sequence[Part], deadline: float) -> Producer:
        # One id serves all lanes, as sequences are per partition. Two lanes in one partition need two ids.
        if any(len(self._by_remote[each.remote]) > 1 for each in partitions):
            return idempotent_producer(self._target, deadline)
        self._idempotent = self._idempotent or idempotent_producer(self._target, deadline)
        return self._idempotent

    def pump(self, source: Source) -> None:
        """Append the batches of `source` until it has ended. It may open lanes meanwhile. Raises the errors of
        `source`, `Disconnected` and `FencedError`."""
        while True:
            # Poll first: an answer that arrived during another wait would not end the wait below.
            wait_ms = source.poll()
            for each in [each for each in self.busy if not each.busy]:
                del self.busy[each]
            for ack in self._appender.acknowledgements():
                # Of several lanes in a remote partition, only one has a batch in flight.
                partition = next(each for each in self._by_remote[ack.remote] if each.waits)
                partition.acknowledge(ack)
                self._appended[partition] = None
            self._appender.pump(self.busy)
            if source.ended(self._appender.idle()):
                return
            self._target.network.poll(wait_ms)

    def refence(self) -> List[Part]:
        """Fence again where the last records are so old that the target would soon forget the lane's epoch.

        Returns the partitions of these lanes, restarted. No batch may be in flight. A crash in here leaves markers,
        which the next process skips. Raises the errors of `open`, and `AnswerLost` if it is unknown which process has
        the lane.
        """
        before = (time.time() - EPOCH_KEPT_SECONDS) * 1000
        # A lane whose partitions had all stopped when it was opened has no producer.
        old = [each for each in self.partitions if each.lane in self.producers and each.forgettable(before)]
        if not old:
            return []
        self._stop_at_lost_tails(old, self._log_ends(old))
        lanes = _by_lane(each for each in old if each.forgettable(before))
        held = [
            Lane(str(those[0].transactional_id), by_topic(each.remote for each in those), self.producers[lane])
            for lane, those in lanes.items()
        ]
        try:
            producers = refresh(self._target, held, time.monotonic() + REFENCE_SECONDS)
        except AnswerLost:
            for lane in lanes:  # fenced again, as by the next process
                del self.held[lane], self.producers[lane]
            raise
        for lane, those in lanes.items():
            self.held[lane] = self.producers[lane] = producers[str(those[0].transactional_id)]
        renewed = [each for each in self.partitions if each.lane in lanes]
        for each in renewed:
            each.sequence = 0  # also where no marker was written: the epoch is the lane's
        self._step_over_markers([each for those in lanes.values() for each in those])
        for each in renewed:
            each.start(self.producers[each.lane])
        return renewed

    def _step_over_markers(self, partitions: Sequence[Part]) -> None:
        ends = self._log_ends(partitions)
        for each in partitions:
            each.fenced()
            end = ends.get(each.remote, -1)
            if end <= each.downstream:  # the leader has changed, and does not show the marker yet
                raise Disconnected(f"{self._target.alias}: {name_of(each.remote)} does not tell the end of its log")
            if end == each.downstream + 1:
                each.downstream = end
            else:  # a marker that was written twice, or another writer's records
                self._recover([each])

    def stop_at_lost_tails(self) -> None:
        """Stop partitions whose remote log ends before the last acknowledged record, of those that were appended to
        since the last call. The others were looked at when they were opened.

        Needed in every cycle: a broker that truncated a log may have forgotten the producer too (it does so by the
        records' timestamps), and would accept any sequence at any offset. Raises `Disconnected`.
        """
        appended = [each for each in self._appended if each.stopped is None]
        self._stop_at_lost_tails(appended, self._log_ends(appended))
        self._appended.clear()

    def _log_ends(self, partitions: Iterable[Part]) -> Mapping[TopicPartition, int]:
        # Several lanes may share a remote partition, and a broker refuses a request that names a partition twice.
        return log_ends(self._target, {each.remote for each in partitions})

    def _stop_at_lost_tails(self, partitions: Collection[Part], ends: Mapping[TopicPartition, int]) -> None:
        for each in partitions:
            if ends.get(each.remote, -1) < each.downstream:
                try:
                    next(LogEntries(self._target, each.remote, each.downstream, READ_UNCOMMITTED), None)
                except LostTail as error:
                    each.lose_tail(str(error))


def _by_lane(partitions: Iterable[Part]) -> Dict[Hashable, List[Part]]:
    lanes: Dict[Hashable, List[Part]] = {}
    for each in partitions:
        lanes.setdefault(each.lane, []).append(each)
    return lanes
