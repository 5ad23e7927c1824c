"""One remote partition that a task writes rows to: fenced, read back, appended to, reported.

What lies on the remote log behind the ledger's position is read for its origins, and only rows behind the highest
origin of their source partition are appended. So a row that any attempt has written is not written again, and none is
left out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Deque, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mirror_lib.errors import FencedError, RefusedError
from mirror_lib.log.append import Acknowledgement
from mirror_lib.log.batch import HEADER_SIZE, Producer, Record, new_batch, next_sequence, read_header
from mirror_lib.log.connection import Disconnected, LogClient, error_name, name_of
from mirror_lib.log.fence import FENCED
from mirror_lib.log.fetch import READ_UNCOMMITTED
from mirror_lib.log.produce_request import Batch
from mirror_lib.log.reencode import RecordTooLarge, build_batches, cut, read_records
from mirror_lib.log.tail import LostTail, log_entries
from mirror_lib.log.visible import Entry
from mirror_lib.replicate.recovery import told_ends, up_to
from mirror_lib.replicate.rejections import FOREIGN_WRITER, OF_THE_TOPIC, REJECTED, why_rejected
from mirror_lib.replicate.sync_runs import SyncRuns
from mirror_lib.rows.columns import Partition, RowColumns
from mirror_lib.rows.origin import ORIGIN_HEADER, Provenance, origin_of, same_topic
from mirror_lib.state.records import OFFSETS_SKIPPED, PARTITION_STOPPED, Incident

Flat = bytes

# Plain bytes of a record batch: a few requests in flight fill the pipe, and other partitions get in between.
BATCH_BYTES = 512 * 1024
NO_CODEC = 0

# Upstream offsets of the micro-batch by source partition: first, and behind the last.
Ranges = Mapping[Partition, Tuple[int, int]]


@dataclass(frozen=True)
class LaneTask:
    """What a task is told of a remote partition.

    `source`: where all its rows come from; `None` where several source partitions may feed it. `transactional_id` is
    `None` under at-least-once. What the remote log holds from `downstream_offset` on is not in the ledger. `producer`
    is the last one that the driver knows of; with a `sequence` it is gone on with, else the lane is fenced. `shared`:
    others write to the partition too. Records before the upstream offset `isolate_until` go one by one.
    """

    remote: Partition
    source: Optional[Partition]
    transactional_id: Optional[str]
    downstream_offset: int
    max_message_bytes: int
    shared: bool = False
    producer: Optional[Producer] = None
    sequence: Optional[int] = None
    isolate_until: int = -1


@dataclass(frozen=True)
class LaneReport:
    """Where a lane stands after a task.

    `position`: every row of `source` before this upstream offset is done with; of other lanes -1. The next record
    belongs at `downstream`. A `sequence` of `None`: the next task has to look. `ahead`: the remote log holds records of
    behind the micro-batch, which an earlier attempt wrote. `syncs` are those of `source`, as `OffsetSyncs.flat`, and
    `newest` the highest timestamp (ms) of each source partition. The rest is as of `PartitionReport`.
    """

    remote: Partition
    source: Optional[Partition]
    position: int
    downstream: int
    producer: Optional[Producer]
    sequence: Optional[int]
    records: int = 0
    bytes: int = 0
    recovered: int = 0
    ahead: bool = False
    stopped: Optional[str] = None
    refused: bool = False
    lost_tail: bool = False
    fails: bool = False
    rejected_from: Optional[int] = None
    rejected_until: int = -1
    incidents: Tuple[Incident, ...] = ()
    syncs: Flat = b""
    newest: Tuple[Tuple[str, int, int], ...] = ()


class Written(NamedTuple):
    """What a remote log holds that the ledger does not tell of: the highest upstream offset of each source partition,
    upstream and downstream offsets of the records of `LaneTask.source`, and where the log ends."""

    highest: Mapping[Partition, int]
    matches: Sequence[Tuple[int, int]]
    end: int


def read_back(log: Iterator[Entry], task: LaneTask, provenance: Provenance, sources: Ranges) -> Written:
    """The origins that are on a remote log from the lane's position on. Pure.

    Raises `RefusedError` at a record that this flow did not write, where nobody else may write.
    """
    highest: Dict[Partition, int] = {}
    matches: List[Tuple[int, int]] = []
    end, wanted = task.downstream_offset, sources if task.source is None else (task.source,)
    for raw, header, is_data in log:
        for record in read_records(raw) if is_data else ():
            end = max(end, record.offset + 1)
            if record.offset < task.downstream_offset:
                continue
            origin = origin_of(record.body)
            ours = origin is not None and origin.cluster == provenance.cluster and origin.source in wanted
            if ours and origin is not None and same_topic(origin.topic_id, provenance.topic_ids.get(origin.topic, "")):
                highest[origin.source] = max(origin.offset, highest.get(origin.source, -1))
                if task.source is not None:
                    matches.append((origin.offset, record.offset))
            elif not task.shared:
                raise RefusedError(_foreign(task.remote, record.offset, origin is not None))
        if header is not None:
            end = max(end, header.next_offset)
    return Written(highest, matches, end)


def _foreign(remote: Partition, offset: int, has_origin: bool) -> str:
    lacks = f"an {ORIGIN_HEADER} of something else" if has_origin else f"no header {ORIGIN_HEADER}"
    return (
        f"the record at offset {offset} of {name_of(remote)} has {lacks}, so it is no copy of this flow's, and whether "
        "rows were copied already cannot be told: give the flow an empty remote topic, or set "
        "shared.remote.topics: true where others write to this one"
    )


class _Outgoing(NamedTuple):
    """A record batch of rows of one source partition, ready to be appended: upstream offsets as `runs_of` has them."""

    pieces: Batch
    source: Partition
    record_count: int
    runs: Tuple[Tuple[int, int], ...]
    newest: int

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return sum(map(len, self.pieces))


class Lane:
    """One in one task. Fed by the writer, driven by an `Appender`. `ranges` are those of the micro-batch."""

    def __init__(self, task: LaneTask, ranges: Ranges, skips: bool) -> None:
        self.task = task
        self.remote = task.remote
        self.producer = task.producer
        self.stopped: Optional[str] = None
        self.records = self.bytes = self.queued_bytes = 0
        self._ranges = ranges
        self._skips = skips
        self._end = -1 if task.source is None else ranges[task.source][1]
        self._acknowledged = -1 if task.source is None else ranges[task.source][0]
        self._downstream = self._expected = task.downstream_offset
        self._sequence = self._acknowledged_sequence = task.sequence or 0
        self._highest: Mapping[Partition, int] = {}
        self._syncs = SyncRuns(task.source or task.remote)
        self._newest: Dict[Partition, int] = {}
        self._queue: Deque[_Outgoing] = deque()
        self._in_flight: Deque[Tuple[_Outgoing, int]] = deque()
        self._last_words: Optional[Tuple[str, int, int]] = None
        self._rejected: Tuple[Optional[int], int] = (None, -1)
        self._incidents: List[Incident] = []
        self._taken: Dict[Partition, int] = {}
        self._proven = self._known = self._ahead = self._refused = self._lost_tail = self._fails = False
        self._recovered = 0
        self._of_last_batch: Optional[int] = None
        self._room = task.max_message_bytes - HEADER_SIZE

    def go_on(self, end: int) -> None:
        """Append as the producer that was handed over, where the log ends where it should. Raises `Disconnected`."""
        if end != self._downstream and not self.task.shared:
            # A zombie's, somebody else's, or a lost tail: whoever comes next looks.
            raise Disconnected(f"{name_of(self.remote)} ends at {end}, not at {self._downstream} as was acknowledged")
        self._known = True
        self._sequence = self._acknowledged_sequence = self.task.sequence or 0

    def lose_tail(self, end: int) -> None:
        """Stop before anything is appended or fenced: the log ends before what was acknowledged."""
        self._lost_tail = True
        stands = f"before offset {self._downstream} that was acknowledged"
        reason = f"the log of {name_of(self.remote)} ends at {end}, {stands}"
        self.stop(reason, max(0, self._acknowledged))

    def take_over(self, client: LogClient, provenance: Optional[Provenance]) -> None:
        """Append as `producer`, whose fence is up, behind what the remote log holds. Without `provenance` no record has
        an origin, and nothing is read. Raises `Disconnected`, `ClusterError`."""
        task = self.task
        self._known, self._sequence, self._acknowledged_sequence = True, 0, 0
        end = told_ends(client, [self.remote])[self.remote]
        try:
            entries = log_entries(client, self.remote, task.downstream_offset, READ_UNCOMMITTED)
            if provenance is None:
                entries.begin()
                self._downstream = self._expected = end
                return
            found = read_back(up_to(entries, end, name_of(self.remote)), task, provenance, self._ranges)
        except LostTail:
            self.lose_tail(end)
            return
        except RefusedError as error:
            self.refuse(error.message)
            return
        if entries.expired and not found.highest and not task.shared:
            self.refuse(
                f"{name_of(self.remote)}: retention has removed offsets {task.downstream_offset} to "
                f"{entries.start - 1}, which an interrupted attempt may have written, before they were looked at"
            )
            return
        self._take_found(found, max(found.end, end))

    def _take_found(self, found: Written, end: int) -> None:
        self._highest = found.highest
        begins = {source: of[0] for source, of in self._ranges.items()}
        behind = (at >= self._ranges[source][1] for source, at in found.highest.items())
        self._ahead = any(behind)
        self._downstream = self._expected = end
        for upstream, downstream in found.matches:
            if upstream >= self._end:
                # Its record belongs to a later micro-batch, which is to look from here on.
                self._downstream = downstream
                break
            if upstream >= begins[self.task.source or self.remote]:
                self._syncs.add(upstream, downstream, 1)
                self._acknowledged = max(self._acknowledged, upstream + 1)
                self._recovered += 1
        if self.task.source is None:
            self._recovered = sum(max(0, at + 1 - begins[source]) for source, at in found.highest.items())

    def take(self, source: Partition, rows: RowColumns, failures: Sequence[Tuple[int, str]]) -> None:
        """Encode and queue what is not on the remote log yet. The rows of a source partition come in its order; a
        failure stops a lane of one source partition behind the rows before it, unless failures are skipped."""
        if self.stopped is not None or self._last_words is not None:
            return
        begin, end = self._ranges[source]
        try:
            self._check_order(source, rows)
        except RefusedError as error:
            self.refuse(error.message)
            return
        rows = rows.within(max(begin, self._highest.get(source, -1) + 1), end)
        failed = [each for each in failures if begin <= each[0] < end]
        if failed and not self._skips:
            offset, reason = failed[0]
            self._append(source, rows.within(begin, offset))
            self._fails = True
            self._drain_then_stop(reason, offset, offset + 1)
            return
        self._incidents += [Incident(OFFSETS_SKIPPED, *source, at, at + 1, reason) for at, reason in failed]
        self._append(source, rows)

    def _check_order(self, source: Partition, rows: RowColumns) -> None:
        bad = rows.out_of_order(self._taken.get(source, -1))
        if bad is not None:
            raise RefusedError(
                f"{name_of(source)} at offset {bad}: the flow gives more than one record of it for "
                f"{name_of(self.remote)}, or out of order; let `transform` keep the order, and give each record of a "
                "source record another remote topic"
            )
        if len(rows):
            self._taken[source] = rows.last

    def _append(self, source: Partition, rows: RowColumns) -> None:
        if not len(rows):
            return
        if rows.first < self.task.isolate_until or rows.widest > self._room:
            self._append_one_by_one(source, rows.records())
            return
        for piece in rows.cut(BATCH_BYTES):
            for part in piece.cut(self._room):
                self._put(source, part)

    def _put(self, source: Partition, rows: RowColumns) -> None:
        """Queue one batch. It has the bytes that `build_batches` would give it."""
        producer, count, newest = self._held(), len(rows), rows.newest
        oldest, payload = rows.timestamps[0].as_py(), rows.payload()
        pieces = new_batch(
            NO_CODEC, count, oldest, newest, producer.producer_id, producer.epoch, self._sequence, payload
        )
        self._queue_up(_Outgoing(pieces, source, count, rows.runs(), newest))

    def _append_one_by_one(self, source: Partition, records: List[Record]) -> None:
        """The same row by row, where one may be too large, or has to go alone."""
        alone = sum(record.offset < self.task.isolate_until for record in records)
        producer, limit = self._held(), self.task.max_message_bytes
        for piece in [[record] for record in records[:alone]] + cut(records[alone:], BATCH_BYTES):
            try:
                built = build_batches(piece, NO_CODEC, producer.producer_id, producer.epoch, self._sequence, limit)
            except RecordTooLarge as error:
                before = [record for record in piece if record.offset < error.upstream_offset]
                for one in build_batches(
                    before, NO_CODEC, producer.producer_id, producer.epoch, self._sequence, limit
                ):
                    self._queue_built(source, one.data, one.record_count, one.runs)
                self._drain_then_stop(str(error), error.upstream_offset, error.upstream_offset + 1)
                return
            for one in built:
                self._queue_built(source, one.data, one.record_count, one.runs)

    def _queue_built(self, source: Partition, data: bytes, count: int, runs: Tuple[Tuple[int, int], ...]) -> None:
        self._queue_up(_Outgoing((data,), source, count, runs, read_header(data).max_timestamp))

    def _queue_up(self, outgoing: _Outgoing) -> None:
        self._sequence = next_sequence(self._sequence, outgoing.record_count)
        self._queue.append(outgoing)
        self.queued_bytes += outgoing.size

    def _held(self) -> Producer:
        assert self.producer is not None
        return self.producer

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer."""
        return bool(self._in_flight)

    @property
    def busy(self) -> bool:
        """Whether anything of it is queued or waits for an answer."""
        return bool(self._in_flight or self._queue) and self.stopped is None

    def ready_bytes(self) -> int:
        """See `Appendable`. The first batch goes alone: a broker that does not know the producer yet takes any
        sequence, so a second batch must not be there before the first is accepted."""
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
        """Take the answer for the oldest batch in flight. Raises `FencedError`, `Disconnected`: what is in flight may
        then be on the remote log or not."""
        outgoing, expected = self._in_flight[0]
        if self.stopped is None and ack.error_code in FENCED:
            raise FencedError(f"{name_of(self.remote)} was fenced by another driver")
        if self.stopped is None and ack.error_code and ack.error_code not in REJECTED:
            raise Disconnected(f"{name_of(self.remote)}: {error_name(ack.error_code)}")
        self._in_flight.popleft()
        if self.stopped is not None:
            return  # sent before the stop; the broker refuses it as out of sequence
        if ack.error_code:
            first, last = outgoing.runs[0][0], sum(outgoing.runs[-1])
            until = -1 if ack.error_code in OF_THE_TOPIC else last
            self.stop(why_rejected(ack.error_code, ack.error_message), first, until)
        elif ack.base_offset != expected and not self.task.shared:
            self.refuse(FOREIGN_WRITER.format(expected, self.remote[0], ack.base_offset))
        else:
            self._accept(outgoing, ack.base_offset)

    def _accept(self, outgoing: _Outgoing, base_offset: int) -> None:
        self._proven = True
        if self.task.source is not None:
            for upstream, count in outgoing.runs:
                self._syncs.add(upstream, base_offset, count)
                base_offset += count
            self._acknowledged = sum(outgoing.runs[-1])
        else:
            base_offset += outgoing.record_count
        self._downstream = base_offset
        self._acknowledged_sequence = next_sequence(self._acknowledged_sequence, outgoing.record_count)
        self._newest[outgoing.source] = max(outgoing.newest, self._newest.get(outgoing.source, -1))
        self._of_last_batch = outgoing.newest
        self.records += outgoing.record_count
        self.bytes += outgoing.size
        self._stop_if_drained()

    def _drain_then_stop(self, reason: str, from_offset: int, until_offset: int) -> None:
        """Stop once what lies before is acknowledged: to skip one record skips no other."""
        self._last_words = (reason, from_offset, until_offset)
        self._stop_if_drained()

    def _stop_if_drained(self) -> None:
        if self._last_words is not None and not self._queue and not self._in_flight and self.stopped is None:
            reason, from_offset, until_offset = self._last_words
            self.stop(reason, from_offset, -1 if self._fails else until_offset)

    def stop(self, reason: str, from_offset: int, until_offset: int = -1) -> None:
        """It cannot go on; others do. With `until_offset` these records alone are in the way, and may be skipped."""
        source = self.task.source or self.remote
        self._rejected = (None, -1) if until_offset < 0 else (from_offset, until_offset)
        self.stopped = f"{name_of(source)} at offset {from_offset}: {reason}"
        self._incidents.append(Incident(PARTITION_STOPPED, *source, from_offset, until_offset, reason))

    def refuse(self, reason: str) -> None:
        """Stop for safety: going on could lose or double records."""
        self._refused = True
        self.stop(reason, max(0, self._acknowledged))

    def forgettable(self, before: float) -> bool:
        """True where the target may soon forget who wrote last: the last batch has no time after `before` (ms)."""
        good = self.stopped is None and self.task.transactional_id is not None
        return good and self._of_last_batch is not None and self._of_last_batch < before

    def marked(self, producer: Optional[Producer], end: Optional[int]) -> None:
        """It was fenced again, as `producer`, and its log ends at `end` now; `None` where that is not known."""
        if producer is None or (end != self._downstream + 1 and not self.task.shared):
            self._known = False
            return
        self.producer, self._acknowledged_sequence, self._downstream = producer, 0, self._downstream + 1

    def report(self, broken: bool) -> LaneReport:
        """Where it stands. `broken`: nobody knows what became of what was in flight."""
        whole = not broken and self.stopped is None
        goes_on = whole and self._known and not self._ahead
        return LaneReport(
            remote=self.remote,
            source=self.task.source,
            position=self._end if whole else self._acknowledged,
            downstream=self._downstream,
            producer=self.producer,
            sequence=self._acknowledged_sequence if goes_on else None,
            records=self.records,
            bytes=self.bytes,
            recovered=self._recovered,
            ahead=self._ahead,
            stopped=self.stopped,
            refused=self._refused,
            lost_tail=self._lost_tail,
            fails=self._fails,
            rejected_from=self._rejected[0],
            rejected_until=self._rejected[1],
            incidents=tuple(self._incidents),
            syncs=self._syncs.now().flat,
            newest=tuple((*source, at) for source, at in self._newest.items()),
        )
