"""The kernel of both engines: `Lanes` belong to one Spark task, which it opens, appends to and fences again.

A lane is a named set of remote partitions that are written under one transactional id. Order of effects: stop where a
remote log was truncated, fence, recover, append, fence again behind old records. After a crash at any point the next
process fences first, and finds on the remote logs what was not reported. Records to append come from a `Source`, and a
recovery finds the records on the remote logs; each engine has its own of both.
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
from mirror_lib.kafka.fencing import AnswerLost, LaneProducer, fence, idempotent_producer, refresh
from mirror_lib.kafka.fetcher import READ_UNCOMMITTED, log_ends
from mirror_lib.kafka.log_reader import LostTail, log_entries
from mirror_lib.kafka.producer import Appender
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.replication.partition import RemotePartition

# How long a lane that is fenced again fights for its coordinator.
REFENCE_SECONDS = 120.0

Part = TypeVar("Part", bound=RemotePartition[Any])


class Source(Protocol):
    """Where the batches of a task's partitions come from."""

    def poll(self) -> float:
        """Give the partitions what has come, and ask for more; returns how long to wait for answers at most (ms).
        Raises `Disconnected`, `ClusterError`."""

    def ended(self, idle: bool) -> bool:
        """Whether nothing more is to come and all that came is done with. `idle`: nothing is under way."""


class Lanes(Generic[Part]):
    """Of one attempt at one task, over the connections of `target`.

    `producers` are of lanes that continue without a fence, `held` the latest that the driver knows of each lane; an
    attempt behind another one is given neither, since a dead one used some of the sequences. `recover` finds out
    what lies on the remote logs of partitions whose lanes are fenced. Records must be younger than `epoch_kept_seconds`
    for the target to remember who wrote them.
    """

    def __init__(
        self,
        target: LogClient,
        recover: Callable[[Sequence[Part]], None],
        held: Mapping[Any, Producer],
        producers: Mapping[Any, Producer],
        epoch_kept_seconds: float,
    ) -> None:
        self.partitions: List[Part] = []
        # By lane, as each engine names its own.
        self.producers: Dict[Any, Producer] = dict(producers)
        # Kept when connections break: a task that has a lane by its driver's word must not take it back from another
        # process.
        self.held: Dict[Any, Producer] = dict(held)
        self._target = target
        self._recover = recover
        self._epoch_kept_seconds = epoch_kept_seconds
        self._appender = Appender(target)
        self._by_remote: Dict[TopicPartition, List[Part]] = {}
        self._idempotent: Optional[Producer] = None

    def let_go(self) -> None:
        """Connections broke: what was in flight may have been written or not. Lanes that are opened again fence."""
        self.producers.clear()
        self._appender = Appender(self._target)
        self._idempotent = None

    def open(
        self, partitions: Sequence[Part], deadline: float, ends: Optional[Mapping[TopicPartition, int]] = None
    ) -> None:
        """Give `partitions` a producer and a place to resume from. They are all the task's partitions of their lanes.

        `ends` are the ends of their remote logs where the caller knows them. Raises `Disconnected`, `ClusterError`, and
        `FencedError` where another process has a lane.
        """
        for each in partitions:
            of_remote = self._by_remote.setdefault(each.remote, [])
            if each not in of_remote:
                of_remote.append(each)
                self.partitions.append(each)
        if ends is None:
            ends = self._log_ends(partitions)
        # Before the fence: its markers would fill the offsets of acknowledged records that a log has lost.
        self._stop_at_lost_tails([each for each in partitions if each.stopped is None], ends)
        fresh = [
            each
            for each in partitions
            if each.lane not in self.producers or not each.continues(ends.get(each.remote, -1))
        ]
        # All lanes before anything else: two drivers that start at once then rarely take half of the lanes each.
        for lane, those in _by_lane(fresh).items():
            if all(each.stopped is not None for each in those):
                continue  # nothing is to be appended, and a marker might take the place of what a log lost
            self.held[lane] = self.producers[lane] = self._fence(lane, those, deadline)
            for each in partitions:
                if each.lane == lane:
                    each.sequence = 0  # a new epoch counts from 0 in every partition
        looking = [each for each in fresh if each.stopped is None]
        for each in looking:
            each.fenced()
        self._recover(looking)
        for each in partitions:
            if each.lane in self.producers:
                each.start(self.producers[each.lane])
            else:
                each.drop()  # it has stopped

    def _fence(self, lane: Hashable, partitions: Sequence[Part], deadline: float) -> Producer:
        """A new producer of the lane, after which no earlier one can append to these partitions."""
        name = partitions[0].transactional_id
        if name is None:
            # One id serves all, as sequences are by partition; but not two lanes that append to one partition.
            if any(len(self._by_remote[each.remote]) > 1 for each in partitions):
                return idempotent_producer(self._target, deadline)
            self._idempotent = self._idempotent or idempotent_producer(self._target, deadline)
            return self._idempotent
        # Not the stopped ones: a marker would take the place of what a log has lost.
        marked = by_topic(each.remote for each in partitions if each.stopped is None)
        return fence(self._target, name, marked, deadline, self.held.get(lane))

    def pump(self, source: Source) -> None:
        """Append what `source` brings until it has ended. It may open lanes meanwhile. Raises what `source` raises, and
        `Disconnected`, `FencedError`."""
        while True:
            # First of all: an answer that came during another wait would not end the wait below.
            wait_ms = source.poll()
            for ack in self._appender.acknowledgements():
                # Of several lanes in a remote partition one alone has something under way.
                next(each for each in self._by_remote[ack.remote] if each.waits).acknowledge(ack)
            self._appender.pump(self.partitions)
            if source.ended(self._appender.idle()):
                return
            self._target.network.poll(wait_ms)

    def refence(self) -> List[Part]:
        """Fence again where the last records are so old that the target would soon forget the lane's epoch.

        Returns the partitions of these lanes, which are started again. Nothing may be in flight. A crash in here leaves
        markers, which the next process skips. Raises `AnswerLost` where it is unknown whose the lane is, and what
        `open` raises.
        """
        before = (time.time() - self._epoch_kept_seconds) * 1000
        old = [each for each in self.partitions if each.forgettable(before)]
        if not old:
            return []
        self.stop_at_lost_tails(old)
        lanes = _by_lane(each for each in old if each.forgettable(before))
        held = [
            LaneProducer(str(those[0].transactional_id), self.producers[lane], by_topic(each.remote for each in those))
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

    def stop_at_lost_tails(self, partitions: Collection[Part]) -> None:
        """Stop those whose remote log ends before what was acknowledged.

        In every pass: a broker that lost a log's tail may have forgotten the producer too (it does so by the records'
        timestamps), and would take any sequence at any offset. Raises `Disconnected`.
        """
        self._stop_at_lost_tails(partitions, self._log_ends(partitions))

    def _log_ends(self, partitions: Iterable[Part]) -> Mapping[TopicPartition, int]:
        # Several lanes may be in a remote partition, and a broker answers no question that names one twice.
        return log_ends(self._target, {each.remote for each in partitions})

    def _stop_at_lost_tails(self, partitions: Collection[Part], ends: Mapping[TopicPartition, int]) -> None:
        for each in partitions:
            if ends.get(each.remote, -1) < each.downstream:
                try:
                    next(log_entries(self._target, each.remote, each.downstream, READ_UNCOMMITTED), None)
                except LostTail as error:
                    each.lose_tail(str(error))


def _by_lane(partitions: Iterable[Part]) -> Dict[Hashable, List[Part]]:
    """The partitions of each lane, in the order given."""
    lanes: Dict[Hashable, List[Part]] = {}
    for each in partitions:
        lanes.setdefault(each.lane, []).append(each)
    return lanes
