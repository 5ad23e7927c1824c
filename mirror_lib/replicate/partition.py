"""One partition on its way through a lane: what was fetched, what is in flight, what the target acknowledged.

Every record of the source before `acknowledged` is on the remote log. Later ones may or may not be. Two things alone
move `acknowledged`: an answer of the target that accepts a batch, and a gap of the source's log, once no batch before
the gap waits for an answer. A batch whose answer is an error stays in flight: the error does not say whether the batch
is on the remote log, so the position stays before it until recovery has read that log.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Deque, Dict, Iterable, List, Optional, Tuple

from mirror_lib.errors import BatchError, FencedError
from mirror_lib.log.append import Acknowledgement
from mirror_lib.log.batch import Producer, next_sequence
from mirror_lib.log.connection import Disconnected, error_name
from mirror_lib.log.fence import FENCED
from mirror_lib.log.fetch import Fetched
from mirror_lib.log.produce_request import Batch
from mirror_lib.log.reencode import RecordTooLarge
from mirror_lib.replicate.encode import Encoder, Outgoing
from mirror_lib.replicate.lanes import PartitionReport, PartitionTask
from mirror_lib.replicate.rejections import FOREIGN_WRITER, OF_THE_TOPIC, REJECTED, why_not_fetched, why_rejected
from mirror_lib.replicate.sync_runs import SyncRuns
from mirror_lib.state.records import DATA_LOST, PARTITION_STOPPED, Incident, Position

# Enough to keep five produce requests in flight, little enough that a lane of many partitions stays small.
QUEUE_BYTES = 4 * 1024 * 1024


class PartitionCopy:
    """Copies one partition's range. Fed by the lane; see `Fetchable` and `Appendable` for what it offers."""

    def __init__(self, task: PartitionTask) -> None:
        self.task = task
        self.acknowledged = task.upstream_offset
        self.downstream = task.downstream_offset
        self.sequence = task.sequence or 0
        self.syncs = SyncRuns(task.source)
        self.incidents: List[Incident] = []
        self.stopped: Optional[str] = None
        self.refused = self.lost = self._lost_tail = self._proven = False
        self._rejected: Tuple[Optional[int], int] = (None, -1)
        self.last_timestamp = self._source_end = -1
        self._of_last_batch: Optional[int] = None
        self.records = self.bytes = self.re_encoded = 0
        self.seconds = self._started_at = 0.0
        self._last_words: Optional[Tuple[str, int, int]] = None
        self._encoder: Optional[Encoder] = None
        self._expected = task.downstream_offset
        self._queue: Deque[Outgoing] = deque()
        self.queued_bytes = 0
        self._in_flight: Deque[Tuple[Outgoing, int]] = deque()
        # The end of the last gap that was fetched: from the last record put before it up to here the source has none.
        self._gap_end = task.upstream_offset
        self._told: Tuple[Position, Optional[str]] = (self.position, None)

    def told(self) -> None:
        """All that was reported is the driver's now; from here on it is counted anew."""
        self.syncs.clear()
        self._told = (self.position, self.stopped)
        self.records = self.bytes = self.re_encoded = 0
        self.seconds, self._started_at = 0.0, time.monotonic()

    def news(self) -> bool:
        """Whether there is something to report that was not told yet."""
        return len(self.syncs) > 0 or (self.position, self.stopped) != self._told

    @property
    def position(self) -> Position:
        """Where the next attempt may resume: every record of the source before it is on the remote log before it."""
        return Position(self.acknowledged, self.downstream)

    def start(self, producer: Producer) -> None:
        """Resume as `producer` from what is acknowledged. Drops what was fetched or in flight: recovery has read the
        remote log since, or nothing was."""
        self._gap_end = self.acknowledged
        self._encoder = Encoder(self.task, producer, self.acknowledged, self.sequence)
        self._expected = self.downstream
        self._started_at = time.monotonic() - self.seconds
        self._queue.clear()
        self._in_flight.clear()
        self.queued_bytes = 0
        self._proven, self._last_words = False, None

    @property
    def source(self) -> Tuple[str, int]:
        """(source topic, partition)."""
        return self.task.source

    @property
    def remote(self) -> Tuple[str, int]:
        """(remote topic, partition)."""
        return self.task.remote

    @property
    def fetch_position(self) -> int:
        """The next upstream offset to ask for."""
        return self._encoder.position if self._encoder is not None else self.acknowledged

    def hungry(self) -> bool:
        """True while the range is not fetched and the queue has room."""
        stopping = self.stopped is not None or self._last_words is not None
        return not stopping and self.fetch_position < self.task.end and self.queued_bytes < QUEUE_BYTES

    def full(self) -> bool:
        """True while only the queue's lack of room keeps it from asking for more."""
        stopping = self.stopped is not None or self._last_words is not None
        return not stopping and self.fetch_position < self.task.end and self.queued_bytes >= QUEUE_BYTES

    def finished(self, no_more: bool) -> bool:
        """True when nothing is queued or in flight, and all is fetched or nothing more shall be (`no_more`)."""
        if self._in_flight or (self._queue and self.stopped is None):
            return False
        if self._last_words is not None and self.stopped is None:
            return no_more and not self._queue
        return no_more or self.stopped is not None or self.fetch_position >= self.task.end

    def take(self, position: int, gap: bool, found: Fetched) -> int:
        """Encode what a fetch brought; return how many runs of records it was. `gap`: it brought nothing as there is
        nothing up to the end.

        Raises `Disconnected` where the leader must be looked up again.
        """
        encoder, runs = self._encoder, 0
        if encoder is None or self.stopped is not None or position != encoder.position:
            return 0  # an answer to a question from before a recovery
        if found.error_code:
            self._fetch_error(found.error_code)
            return 0
        self._source_end = found.end
        try:
            for outgoing in encoder.encode(found):
                self.put(outgoing)
                runs += len(outgoing.runs)
        except RecordTooLarge as error:
            self.reject(error.upstream_offset, str(error))
        except BatchError as error:
            self._drain_then_stop(str(error), encoder.position)
        if gap and encoder.position == position:
            encoder.position = max(position, min(found.end, self.task.end))
        if self._last_words is None:
            self._gap_end = encoder.position
            self._pass_gap()
        return runs

    def _pass_gap(self) -> None:
        """Move over a gap, once no batch before it is queued or waits for the target to accept it."""
        if not self._queue and not self._in_flight and self.stopped is None:
            self.acknowledged = max(self.acknowledged, self._gap_end)

    def put(self, outgoing: Outgoing) -> None:
        """Queue a batch behind those that are queued; its sequence goes on from theirs."""
        self._queue.append(outgoing)
        self.queued_bytes += outgoing.size

    def reject(self, upstream_offset: int, reason: str) -> None:
        """Stop at a record that cannot be sent, once what lies before it is acknowledged: to skip it skips no other."""
        self._drain_then_stop(reason, upstream_offset, upstream_offset + 1)

    def _drain_then_stop(self, reason: str, from_offset: int, until_offset: int = -1) -> None:
        self._last_words = (reason, from_offset, until_offset)
        self._stop_if_drained()

    def _stop_if_drained(self) -> None:
        if self._last_words is not None and not self._queue and not self._in_flight and self.stopped is None:
            self.stop(*self._last_words)

    def _fetch_error(self, code: int) -> None:
        reason = why_not_fetched(code)
        if reason is None:
            raise Disconnected(f"{self.task.topic}-{self.task.partition}: {error_name(code)}")
        self._drain_then_stop(reason, self.fetch_position)

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
            raise FencedError(f"{self.remote[0]}-{self.remote[1]} was fenced by another driver")
        if self.stopped is None and ack.error_code and ack.error_code not in REJECTED:
            raise Disconnected(f"{self.remote[0]}-{self.remote[1]}: {error_name(ack.error_code)}")
        self._in_flight.popleft()
        if self.stopped is not None:
            return  # sent before the stop; the broker refuses it as out of sequence
        if ack.error_code:
            until = -1 if ack.error_code in OF_THE_TOPIC else outgoing.next_upstream
            self.stop(why_rejected(ack.error_code, ack.error_message), outgoing.runs[0][0], until)
        elif ack.base_offset != expected and not self.task.shared:
            self.refuse(FOREIGN_WRITER.format(expected, self.task.remote_topic, ack.base_offset))
        else:
            self._accept(outgoing, ack.base_offset)

    def _accept(self, outgoing: Outgoing, base_offset: int) -> None:
        self._proven = True
        for upstream_offset, count in outgoing.runs:
            self.syncs.add(upstream_offset, base_offset, count)
            base_offset += count
        self.acknowledged = outgoing.next_upstream
        self.downstream = base_offset
        self.sequence = next_sequence(self.sequence, outgoing.record_count)
        self.last_timestamp = max(self.last_timestamp, outgoing.last_timestamp)
        self._of_last_batch = outgoing.last_timestamp
        self.records += outgoing.record_count
        self.bytes += outgoing.size
        self.re_encoded += outgoing.record_count if outgoing.re_encoded else 0
        self.seconds = time.monotonic() - self._started_at
        self._pass_gap()
        self._stop_if_drained()

    def fenced(self) -> None:
        """A marker with the present time is on the remote log, behind all that was appended."""
        self._of_last_batch = None

    def forgettable(self, before: float) -> bool:
        """True where the target may soon forget who wrote last: the last batch has no time after `before` (ms).

        A log that is not as it should be is left alone.
        """
        suspect = self.refused or self._lost_tail
        return self._of_last_batch is not None and self._of_last_batch < before and not suspect

    def recover(self, upstream_offset: int, downstream_offset: int, count: int) -> None:
        """Take over what reconciliation found on the remote log; a count of 0 is a position only."""
        if count:
            self.syncs.add(upstream_offset, downstream_offset, count)
        self.acknowledged = upstream_offset + count
        self.downstream = downstream_offset + count

    def lose(self, from_offset: int, until_offset: int, reason: str, kind: str = DATA_LOST) -> None:
        """Pass over upstream offsets. Nothing behind them may be copied before that is written down."""
        self.lost = True
        self.incidents.append(Incident(kind, *self.source, from_offset, until_offset, reason))

    def refuse(self, reason: str, at: Optional[int] = None) -> None:
        """Stop for safety, by default where it stands: going on could lose or double records."""
        self.refused = True
        self.stop(reason, self.acknowledged if at is None else at)

    def lose_tail(self, reason: str) -> None:
        """Stop because acknowledged records are gone from the remote log; the flow heals it when it starts again."""
        self._lost_tail = True
        self.stop(reason, self.acknowledged)

    def stop(self, reason: str, from_offset: int, until_offset: int = -1) -> None:
        """This partition cannot go on; the others do. The offsets name what it stopped at: with `until_offset` these
        records alone are in the way, and may be skipped."""
        self._rejected = (None, -1) if until_offset < 0 else (from_offset, until_offset)
        self.stopped = f"{self.task.topic}-{self.task.partition} at offset {from_offset}: {reason}"
        self.incidents.append(Incident(PARTITION_STOPPED, *self.source, from_offset, until_offset, reason))

    def report(self, known: bool = True) -> PartitionReport:
        """Where it stands. Not `known`: the connections broke, and nobody knows what became of what was in flight."""
        return PartitionReport(
            topic=self.task.topic,
            remote_topic=self.task.remote_topic,
            partition=self.task.partition,
            position=self.acknowledged,
            downstream_offset=self.downstream,
            sequence=self.sequence if known else None,
            source_end=self._source_end,
            last_timestamp=self.last_timestamp,
            records=self.records,
            bytes=self.bytes,
            seconds=self.seconds,
            stopped=self.stopped,
            refused=self.refused,
            lost_tail=self._lost_tail,
            rejected_from=self._rejected[0],
            rejected_until=self._rejected[1],
            incidents=tuple(self.incidents),
        )


def by_lane(copies: Iterable[PartitionCopy]) -> Dict[int, List[PartitionCopy]]:
    """Those of each lane, in the order given."""
    lanes: Dict[int, List[PartitionCopy]] = {}
    for copy in copies:
        lanes.setdefault(copy.task.lane, []).append(copy)
    return lanes
