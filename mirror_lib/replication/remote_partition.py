"""One remote partition that a task appends to: what is queued for it, in flight and acknowledged, and how it ends.

Both engines append through this, so the rules by which a batch counts as written stand here alone. A batch whose answer
is an error stays in flight: the error does not say whether the batch is on the remote log, so the position stays before
it until somebody has read that log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from enum import Enum
from typing import Deque, Generic, List, Optional, Protocol, Tuple, TypeVar

from mirror_lib.errors import FencedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, error_name, name_of
from mirror_lib.kafka.fencing import FENCED
from mirror_lib.kafka.produce_request import Batch
from mirror_lib.kafka.producer import Acknowledgement
from mirror_lib.kafka.record_batch import next_sequence
from mirror_lib.ledger.records import PARTITION_STOPPED, Incident
from mirror_lib.replication.rejections import FOREIGN_WRITER, OF_THE_TOPIC, REJECTED, why_rejected


class Appended(Protocol):
    """A record batch on its way. `runs` are upstream offsets and record counts of each stretch without a gap;
    `next_upstream` is where it ends."""

    @property
    def pieces(self) -> Batch:
        """Its bytes."""

    @property
    def record_count(self) -> int:
        """How many records it has."""

    @property
    def runs(self) -> Tuple[Tuple[int, int], ...]:
        """See above."""

    @property
    def next_upstream(self) -> int:
        """See above."""

    @property
    def size(self) -> int:
        """Its bytes, counted."""

    @property
    def last_timestamp(self) -> int:
        """The newest in it (ms), by which the target judges the age of its producer."""


Outgoing = TypeVar("Outgoing", bound=Appended)


class State(Enum):
    """Where a remote partition is. It moves down this list, and back to the first alone, by its own methods."""

    RECOVERING = "what lies on the remote log is not known yet"
    COPYING = "batches are queued and appended"
    DRAINING = "what is queued is appended, then it stops"
    STOPPED = "it does not go on in this task"


class RemotePartition(ABC, Generic[Outgoing]):
    """`source` names it in messages and incidents; `downstream` is where the next acknowledged record belongs."""

    def __init__(
        self, source: TopicPartition, remote: TopicPartition, downstream: int, sequence: int, shared: bool
    ) -> None:
        self.state = State.RECOVERING
        self.source, self.remote = source, remote
        self.downstream, self.sequence = downstream, sequence
        self.stopped: Optional[str] = None
        self.refused = self.lost_tail = False
        self.rejected: Tuple[Optional[int], int] = (None, -1)
        self.incidents: List[Incident] = []
        self.last_timestamp = -1
        self.records = self.bytes = self.queued_bytes = 0
        self._shared = shared
        self._expected = downstream
        self._queue: Deque[Outgoing] = deque()
        self._in_flight: Deque[Tuple[Outgoing, int]] = deque()
        self._proven = False
        self._last_words: Optional[Tuple[str, int, int]] = None
        self._of_last_batch: Optional[int] = None

    def begin(self) -> None:
        """Append from `downstream` on, with `sequence`. What was queued or in flight is dropped: the remote log has
        been read since, or nothing was."""
        if self.stopped is None:
            self.state = State.COPYING
        self._expected = self.downstream
        self._queue.clear()
        self._in_flight.clear()
        self.queued_bytes = 0
        self._proven, self._last_words = False, None

    def put(self, outgoing: Outgoing) -> None:
        """Queue a batch behind those that are queued; its sequence goes on from theirs."""
        self._queue.append(outgoing)
        self.queued_bytes += outgoing.size

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer."""
        return bool(self._in_flight)

    @property
    def busy(self) -> bool:
        """Whether anything of it is queued or waits for an answer."""
        return bool(self._in_flight or (self._queue and self.stopped is None))

    def ready_bytes(self) -> int:
        """Size of the next batch to append; 0 if there is none.

        The first batch goes alone: a broker that does not know the producer yet takes any sequence, so a second
        batch must not be there before the first is accepted.
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
        """Take the answer for the oldest batch in flight.

        Raises `FencedError` (the lane is lost) or `Disconnected` (fence, look and try again); the batch then counts as
        in flight still. A foreign writer in the remote topic stops the partition.
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
            self.stop(why_rejected(ack.error_code, ack.error_message), outgoing.runs[0][0], until)
        elif ack.base_offset != expected and not self._shared:
            self.refuse(FOREIGN_WRITER.format(expected, self.remote[0], ack.base_offset))
        else:
            self._proven = True
            self._accepted(outgoing, ack.base_offset)
            self.downstream = ack.base_offset + outgoing.record_count
            self.sequence = next_sequence(self.sequence, outgoing.record_count)
            self.last_timestamp = max(self.last_timestamp, outgoing.last_timestamp)
            self._of_last_batch = outgoing.last_timestamp
            self.records += outgoing.record_count
            self.bytes += outgoing.size
            self._settled()
            self._stop_if_drained()

    def _accepted(self, outgoing: Outgoing, base_offset: int) -> None:
        """A batch is on the remote log from there on."""

    def _settled(self) -> None:
        """All is counted of a batch that was accepted."""

    @abstractmethod
    def _stands(self) -> int:
        """The upstream offset at which it would stop now."""

    def drain_then_stop(self, reason: str, from_offset: int, until_offset: int = -1) -> None:
        """Stop once what lies before is acknowledged: to skip one record skips no other."""
        if self.stopped is None:
            self.state = State.DRAINING
        self._last_words = (reason, from_offset, until_offset)
        self._stop_if_drained()

    def _stop_if_drained(self) -> None:
        if self._last_words is not None and not self._queue and not self._in_flight and self.stopped is None:
            self.stop(*self._last_words)

    def stop(self, reason: str, from_offset: int, until_offset: int = -1) -> None:
        """This partition cannot go on; the others do. The offsets name what it stopped at: with `until_offset` these
        records alone are in the way, and may be skipped."""
        self.state = State.STOPPED
        self.rejected = (None, -1) if until_offset < 0 else (from_offset, until_offset)
        self.stopped = f"{name_of(self.source)} at offset {from_offset}: {reason}"
        self.incidents.append(Incident(PARTITION_STOPPED, *self.source, from_offset, until_offset, reason))

    def refuse(self, reason: str, at: Optional[int] = None) -> None:
        """Stop for safety, by default where it stands: going on could lose or double records."""
        self.refused = True
        self.stop(reason, self._stands() if at is None else at)

    def lose_tail(self, reason: str) -> None:
        """Stop because acknowledged records are gone from the remote log; the flow heals it when it starts again."""
        self.lost_tail = True
        self.stop(reason, self._stands())

    def fenced(self) -> None:
        """A marker with the present time is on the remote log, behind all that was appended."""
        self._of_last_batch = None

    def forgettable(self, before: float) -> bool:
        """True where the target may soon forget who wrote last: the last batch has no time after `before` (ms).

        A log that is not as it should be is left alone.
        """
        suspect = self.refused or self.lost_tail
        return self._of_last_batch is not None and self._of_last_batch < before and not suspect
