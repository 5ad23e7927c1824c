"""One partition on its way through a lane: what was fetched, and how far all of it is on the remote log.

Every record of the source before `acknowledged` is on the remote log. Later ones may or may not be. Two things alone
move `acknowledged`: an answer of the target that accepts a batch, and a gap of the source's log, once no batch before
the gap waits for an answer.
"""

from __future__ import annotations

import time
from typing import Dict, Iterable, List, Optional, Tuple

from mirror_lib.errors import BatchError
from mirror_lib.kafka.connection import Disconnected, error_name
from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.kafka.reencoder import RecordTooLarge
from mirror_lib.ledger.intervals import Runs
from mirror_lib.ledger.records import DATA_LOST, Incident, Position
from mirror_lib.replication.encoder import Encoder, Outgoing
from mirror_lib.replication.messages import PartitionReport, PartitionTask
from mirror_lib.replication.rejections import why_not_fetched
from mirror_lib.replication.remote_partition import RemotePartition, State

ENDING = (State.DRAINING, State.STOPPED)
# Enough to keep five produce requests in flight, little enough that a lane of many partitions stays small.
QUEUE_BYTES = 4 * 1024 * 1024


class PartitionCopy(RemotePartition[Outgoing]):
    """Copies one partition's range. Fed by the lane; see `Fetchable` and `Appendable` for what it offers."""

    def __init__(self, task: PartitionTask) -> None:
        super().__init__(task.source, task.remote, task.downstream_offset, task.sequence or 0, task.shared)
        self.task = task
        self.acknowledged = task.upstream_offset
        self.syncs = Runs()
        self.lost = False
        self._source_end = -1
        self.re_encoded = 0
        self.seconds = self._started_at = 0.0
        self._encoder: Optional[Encoder] = None
        # The end of the last gap that was fetched: from the last record put before it up to here the source has none.
        self._gap_end = task.upstream_offset
        self._told: Tuple[Position, Optional[str]] = (self.position, None)

    def told(self) -> None:
        """All that was reported is the driver's now; from here on it is counted anew."""
        self.syncs = Runs()
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
        self._started_at = time.monotonic() - self.seconds
        self.begin()

    @property
    def fetch_position(self) -> int:
        """The next upstream offset to ask for."""
        return self._encoder.position if self._encoder is not None else self.acknowledged

    def hungry(self) -> bool:
        """True while the range is not fetched and the queue has room."""
        return self.state not in ENDING and self.fetch_position < self.task.end and self.queued_bytes < QUEUE_BYTES

    def full(self) -> bool:
        """True while only the queue's lack of room keeps it from asking for more."""
        return self.state not in ENDING and self.fetch_position < self.task.end and self.queued_bytes >= QUEUE_BYTES

    def finished(self, no_more: bool) -> bool:
        """True when nothing is queued or in flight, and all is fetched or nothing more shall be (`no_more`)."""
        if self.busy:
            return False
        if self.state is State.DRAINING:
            return no_more and not self._queue
        return no_more or self.state is State.STOPPED or self.fetch_position >= self.task.end

    def take(self, position: int, gap: bool, found: Fetched) -> int:
        """Encode what a fetch brought; return how many runs of records it was. `gap`: it brought nothing as there is
        nothing up to the end.

        Raises `Disconnected` where the leader must be looked up again.
        """
        encoder, runs = self._encoder, 0
        if encoder is None or self.state is State.STOPPED or position != encoder.position:
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
            self.drain_then_stop(str(error), encoder.position)
        if gap and encoder.position == position:
            encoder.position = max(position, min(found.end, self.task.end))
        if self.state is not State.DRAINING:
            self._gap_end = encoder.position
            self._pass_gap()
        return runs

    def _pass_gap(self) -> None:
        """Move over a gap, once no batch before it is queued or waits for the target to accept it."""
        if not self._queue and not self.waits and self.state is not State.STOPPED:
            self.acknowledged = max(self.acknowledged, self._gap_end)

    def reject(self, upstream_offset: int, reason: str) -> None:
        """Stop at a record that cannot be sent, once what lies before it is acknowledged: to skip it skips no other."""
        self.drain_then_stop(reason, upstream_offset, upstream_offset + 1)

    def _fetch_error(self, code: int) -> None:
        reason = why_not_fetched(code)
        if reason is None:
            raise Disconnected(f"{self.task.topic}-{self.task.partition}: {error_name(code)}")
        self.drain_then_stop(reason, self.fetch_position)

    def _accepted(self, outgoing: Outgoing, base_offset: int) -> None:
        for upstream_offset, count in outgoing.runs:
            self.syncs.append(upstream_offset, base_offset, count)
            base_offset += count
        self.acknowledged = outgoing.next_upstream
        self.re_encoded += outgoing.record_count if outgoing.re_encoded else 0
        self.seconds = time.monotonic() - self._started_at

    def _settled(self) -> None:
        self._pass_gap()

    def _stands(self) -> int:
        return self.acknowledged

    def recover(self, upstream_offset: int, downstream_offset: int, count: int) -> None:
        """Take over what reconciliation found on the remote log; a count of 0 is a position only."""
        if count:
            self.syncs.append(upstream_offset, downstream_offset, count)
        self.acknowledged = upstream_offset + count
        self.downstream = downstream_offset + count

    def lose(self, from_offset: int, until_offset: int, reason: str, kind: str = DATA_LOST) -> None:
        """Pass over upstream offsets. Nothing behind them may be copied before that is written down."""
        self.lost = True
        self.incidents.append(Incident(kind, *self.source, from_offset, until_offset, reason))

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
            lost_tail=self.lost_tail,
            rejected_from=self.rejected[0],
            rejected_until=self.rejected[1],
            incidents=tuple(self.incidents),
        )


def by_lane(copies: Iterable[PartitionCopy]) -> Dict[int, List[PartitionCopy]]:
    """Those of each lane, in the order given."""
    lanes: Dict[int, List[PartitionCopy]] = {}
    for copy in copies:
        lanes.setdefault(copy.task.lane, []).append(copy)
    return lanes
