"""One partition in a lane: its queued, in-flight and acknowledged batches, and how it stops.

`RemotePartition` is shared by both engines and has the rules by which a batch counts as written. After an error the
batch stays in flight, because the error does not say whether the batch is on the remote log. In `PartitionCopy` every
source record before `acknowledged` is on the remote log. Only an acknowledged batch advances it, or a gap in the
source's log once no batch before the gap is unacknowledged.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Deque, Dict, Hashable, List, Optional, Tuple

from mirror_lib.errors import BatchError, FencedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, error_name, is_retriable, name_of
from mirror_lib.kafka.fencing import FENCED
from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.producer import Acknowledgement
from mirror_lib.kafka.record_batch import Batch, Producer, next_sequence
from mirror_lib.kafka.reencoder import Outgoing, RecordTooLarge
from mirror_lib.ledger.intervals import Runs
from mirror_lib.ledger.records import DATA_LOST, PARTITION_STOPPED, Incident
from mirror_lib.replication.encoder import Encoder
from mirror_lib.replication.messages import PartitionReport, PartitionTask, Stop

# Errors by which the target refuses one batch: the partition stops, the flow continues.
REJECTED = {
    10: "the batch is larger than the remote topic's max.message.bytes",
    18: "the batch is larger than the remote topic's segment.bytes",
    29: "not authorised to write; the target principal needs Write on the remote topic",
    32: "a timestamp is outside the remote topic's message.timestamp.before.max.ms or .after.max.ms",
    44: "the target's policy refuses the record",
    76: "the target does not take this compression codec",
    87: "the target refuses a record, for example one without a key in a compacted topic",
}
TOPIC_AUTHORIZATION_FAILED = 29
# Not about a record, so no record is skipped for it: the batch may be accepted once an ACL is granted.
OF_THE_TOPIC = frozenset([TOPIC_AUTHORIZATION_FAILED])
FOREIGN_WRITER = (
    "the batch expected at offset {} of {} was written at {}, so another producer writes to this remote topic; stop "
    "that one, or set shared.remote.topics: true if several flows may share the topic"
)
OFFSET_OUT_OF_RANGE = 1


class RemotePartition(ABC):
    """One remote partition of a lane. `source` names it in messages and incidents. `downstream` is the offset of the
    next acknowledged record, and `sequence` its producer sequence, set if a producer was handed over with it.
    `shared`: others write to it too. Without a `transactional_id` its lane fences no process."""

    def __init__(
        self,
        source: TopicPartition,
        remote: TopicPartition,
        lane: Hashable,
        transactional_id: Optional[str],
        downstream: int,
        sequence: Optional[int],
        shared: bool,
    ) -> None:
        self.source, self.remote = source, remote
        self.lane, self.transactional_id = lane, transactional_id
        self.producer: Optional[Producer] = None
        self.downstream, self.sequence = downstream, sequence or 0
        self._handed_over = sequence is not None
        self.stopped: Optional[Stop] = None
        self.incidents: List[Incident] = []
        self.syncs = Runs()
        self.last_timestamp = -1
        self.records = self.bytes = self.queued_bytes = self.recovered = 0
        self._shared = shared
        self._expected = downstream
        # The busy partitions of its task; it joins them itself, and `Lanes` removes it.
        self.busy_ones: Dict[Any, None] = {}
        self._queue: Deque[Outgoing] = deque()
        self._in_flight: Deque[Tuple[Outgoing, int]] = deque()
        self._proven = False
        # How it stops once the queued batches are acknowledged.
        self._final: Optional[Callable[[], None]] = None
        self._of_last_batch: Optional[int] = None

    def continues(self, end: int) -> bool:
        """Whether the handed-over producer may append without a fence. `end`: the end of the remote log."""
        return self._handed_over

    def fenced(self) -> None:
        """A marker with the present time is on the remote log, after all appended records."""
        self._of_last_batch = None

    def start(self, producer: Producer) -> None:
        """Append as `producer` from `downstream` on, with `sequence`. Drops queued and in-flight batches: the remote
        log was re-read since, or nothing was in flight."""
        self.producer = producer
        self._expected = self.downstream
        self.drop()
        self._proven, self._final = False, None

    def drop(self) -> None:
        self._queue.clear()
        self._in_flight.clear()
        self.queued_bytes = 0

    def put(self, outgoing: Outgoing) -> None:
        self._queue.append(outgoing)
        self.queued_bytes += outgoing.size
        self.busy_ones[self] = None

    @property
    def ends(self) -> bool:
        """Whether it has stopped, or will once the queued batches are appended."""
        return self.stopped is not None or self._final is not None

    @property
    def waits(self) -> bool:
        return bool(self._in_flight)

    @property
    def busy(self) -> bool:
        return bool(self._in_flight or (self._queue and self.stopped is None))

    def ready_bytes(self) -> int:
        """Size of the next batch to append; 0 if there is none.

        The first batch goes alone. A broker that has no state of the producer accepts any sequence, so a second batch
        must not arrive before the first is accepted.
        """
        if not self._queue or self.stopped is not None or (self._in_flight and not self._proven):
            return 0
        return self._queue[0].size

    def take_ready(self) -> Batch:
        """The next batch, now in flight and expected at the next downstream offset."""
        outgoing = self._queue.popleft()
        self.queued_bytes -= outgoing.size
        self._in_flight.append((outgoing, self._expected))
        self._expected += outgoing.record_count
        return outgoing.pieces

    def acknowledge(self, ack: Acknowledgement) -> None:
        """Process the answer for the oldest batch in flight.

        Raises `FencedError` (the lane is lost) or `Disconnected` (fence, re-read the remote log and retry); the batch
        then still counts as in flight. A foreign writer in the remote topic stops the partition.
        """
        outgoing, expected = self._in_flight[0]
        if self.stopped is None and ack.error_code in FENCED:
            raise FencedError(f"{name_of(self.remote)} was fenced by another driver")
        if self.stopped is None and ack.error_code and ack.error_code not in REJECTED:
            raise Disconnected(f"{name_of(self.remote)}: {error_name(ack.error_code)}")
        self._in_flight.popleft()
        if self.stopped is not None:
            return  # sent before the stop; the broker refuses it as out of sequence
        if ack.error_code:
            until = -1 if ack.error_code in OF_THE_TOPIC else outgoing.next_upstream
            why = f": {ack.error_message}" if ack.error_message else ""
            self.stop(f"{REJECTED[ack.error_code]}{why}", outgoing.runs[0][0], until)
        elif ack.base_offset != expected and not self._shared:
            self.refuse(FOREIGN_WRITER.format(expected, self.remote[0], ack.base_offset), code="MIR-313")
        else:
            self._proven = True
            self._accepted(outgoing, ack.base_offset)
            self.downstream = ack.base_offset + outgoing.record_count
            self.sequence = next_sequence(self.sequence, outgoing.record_count)
            self.last_timestamp = max(self.last_timestamp, outgoing.last_timestamp)
            self._of_last_batch = outgoing.last_timestamp
            self.records += outgoing.record_count
            self.bytes += outgoing.size
            self._stop_if_drained()

    @abstractmethod
    def _accepted(self, outgoing: Outgoing, base_offset: int) -> None:
        """A batch is on the remote log, starting at `base_offset`."""

    @abstractmethod
    def _stands(self) -> int:
        """The upstream offset at which it would stop now."""

    def drain_then_stop(self, reason: str, from_offset: int, until_offset: int = -1, fails: bool = False) -> None:
        """Stop once all records before `from_offset` are acknowledged: skipping one record must not skip others."""
        if self._final is None:  # else it stops before that record
            self._final = partial(self.stop, reason, from_offset, until_offset, fails=fails)
        self._stop_if_drained()

    def _stop_if_drained(self) -> None:
        if self._final is not None and not self._queue and not self._in_flight and self.stopped is None:
            self._final()

    def stop(self, reason: str, from_offset: int, until_offset: int = -1, **how: Any) -> None:
        """Stop this partition; the others continue. Without `until_offset` the offset is only the place. With it, just
        the records from `from_offset` to `until_offset` block the partition, and may be skipped. `how`: see `Stop`."""
        rejected = None if until_offset < 0 else (from_offset, until_offset)
        sentence = f"{name_of(self.source)} at offset {from_offset}: {reason}"
        self.stopped = Stop(sentence, rejected=rejected, **how)
        self.incidents.append(Incident(PARTITION_STOPPED, *self.source, from_offset, until_offset, reason))

    def refuse(self, reason: str, at: Optional[int] = None, *, code: str) -> None:
        """Stop for safety, by default at the present offset: continuing could lose or duplicate records."""
        self.stop(reason, self._stands() if at is None else at, refused=True, code=code)

    def lose_tail(self, reason: str) -> None:
        """Stop because acknowledged records are gone from the remote log. The next start of the flow repairs it."""
        self.stop(reason, self._stands(), lost_tail=True, code="MIR-312")

    def forgettable(self, before: float) -> bool:
        """True if the target may soon forget the producer: the last batch has no timestamp after `before` (ms).

        False after a refusal or a truncated log, which are left unchanged, and without a transactional id.
        """
        stop = self.stopped
        left_alone = self.transactional_id is None or (stop is not None and (stop.refused or stop.lost_tail))
        return self._of_last_batch is not None and self._of_last_batch < before and not left_alone

    def report(self, known: bool = True) -> PartitionReport:
        """Its report. Not `known`: the connections broke, and the fate of in-flight records is unknown."""
        return PartitionReport(
            topic=self.source[0],
            remote_topic=self.remote[0],
            partition=self.source[1],
            position=self._stands(),
            downstream_offset=self.downstream,
            sequence=self.sequence if known else None,
            last_timestamp=self.last_timestamp,
            records=self.records,
            bytes=self.bytes,
            recovered=self.recovered,
            stopped=self.stopped,
            incidents=tuple(self.incidents),
            syncs=self.syncs.tobytes(),
        )


# Enough for five produce requests in flight, and small enough for lanes with many partitions.
QUEUE_BYTES = 4 * 1024 * 1024


class PartitionCopy(RemotePartition):
    """Copies one partition's range. The lane feeds it; `Fetchable` and `Appendable` describe its interface."""

    def __init__(self, task: PartitionTask, transactional_id: Optional[str] = None) -> None:
        lane, at = task.lane, task.downstream_offset
        super().__init__(task.source, task.remote, lane, transactional_id, at, task.sequence, task.shared)
        self.task = task
        self.acknowledged = task.upstream_offset
        self.lost = False
        self._source_end = -1
        self.recovered_bytes = 0
        self.seconds = self._started_at = 0.0
        self._encoder: Optional[Encoder] = None
        # The end of the last fetched gap: the source has no records from the last queued record up to here.
        self._gap_end = task.upstream_offset

    def start(self, producer: Producer) -> None:
        """See `RemotePartition`. Copying resumes from the acknowledged position, and fetched records are dropped."""
        super().start(producer)
        self._gap_end = self.acknowledged
        self._encoder = Encoder(self.task, producer, self.acknowledged, self.sequence)
        self._started_at = time.monotonic() - self.seconds

    @property
    def fetch_position(self) -> int:
        return self._encoder.position if self._encoder is not None else self.acknowledged

    def hungry(self) -> bool:
        """True while the range is not completely fetched and the queue has space."""
        return not self.ends and self.fetch_position < self.task.end and self.queued_bytes < QUEUE_BYTES

    def full(self) -> bool:
        """True while only the full queue prevents a fetch."""
        return not self.ends and self.fetch_position < self.task.end and self.queued_bytes >= QUEUE_BYTES

    def finished(self, no_more: bool) -> bool:
        """True when nothing is queued or in flight, and all is fetched or no more shall be fetched (`no_more`)."""
        if self.busy:
            return False
        if self._final is not None and self.stopped is None:
            return no_more and not self._queue
        return no_more or self.stopped is not None or self.fetch_position >= self.task.end

    def take(self, position: int, gap: bool, found: Fetched) -> int:
        """Encode a fetch answer; return the number of record stretches in it. `gap`: the answer has no records because
        there are none up to the end.

        Raises `Disconnected` if the leader must be looked up again.
        """
        encoder, runs = self._encoder, 0
        if encoder is None or self.stopped is not None or position != encoder.position:
            return 0  # an answer to a request from before a recovery
        if found.error_code:
            self._fetch_error(found.error_code)
            return 0
        self._source_end = found.end
        try:
            for outgoing in encoder.encode(found):
                self.put(outgoing)
                runs += len(outgoing.runs)
        except RecordTooLarge as error:
            self.drain_then_stop(str(error), error.upstream_offset, error.upstream_offset + 1)
        except BatchError as error:
            self.drain_then_stop(str(error), encoder.position)
        if gap and encoder.position == position:
            encoder.position = max(position, min(found.end, self.task.end))
        if not self.ends:
            self._gap_end = encoder.position
            self._pass_gap()
        return runs

    def _pass_gap(self) -> None:
        """Move past a gap, once no batch before it is queued or in flight."""
        if not self._queue and not self.waits and self.stopped is None:
            self.acknowledged = max(self.acknowledged, self._gap_end)

    def _fetch_error(self, code: int) -> None:
        if code == TOPIC_AUTHORIZATION_FAILED:
            reason = "not authorised to fetch; the source principal needs Read on the topic"
        elif code == OFFSET_OUT_OF_RANGE or not is_retriable(code):
            reason = f"cannot fetch: {error_name(code)}"
        else:  # a later fetch may succeed
            raise Disconnected(f"{self.task.topic}-{self.task.partition}: {error_name(code)}")
        self.drain_then_stop(reason, self.fetch_position)

    def _accepted(self, outgoing: Outgoing, base_offset: int) -> None:
        for upstream_offset, count in outgoing.runs:
            self.syncs.append(upstream_offset, base_offset, count)
            base_offset += count
        self.acknowledged = outgoing.next_upstream
        self.seconds = time.monotonic() - self._started_at
        self._pass_gap()

    def _stands(self) -> int:
        return self.acknowledged

    def recover(self, upstream_offset: int, downstream_offset: int, count: int) -> None:
        """Count a range that reconciliation found on the remote log; a count of 0 is only a position."""
        if count:
            self.syncs.append(upstream_offset, downstream_offset, count)
            self.recovered += count
        self.acknowledged = upstream_offset + count
        self.downstream = downstream_offset + count

    def lose(self, from_offset: int, until_offset: int, reason: str, kind: str = DATA_LOST) -> None:
        """Skip lost upstream offsets. Nothing past them may be copied before the loss is recorded."""
        self.lost = True
        self.incidents.append(Incident(kind, *self.source, from_offset, until_offset, reason))

    def report(self, known: bool = True) -> PartitionReport:
        return replace(
            super().report(known),
            source_end=self._source_end,
            seconds=self.seconds,
            recovered_bytes=self.recovered_bytes,
        )
