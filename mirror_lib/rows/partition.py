"""One remote partition to which a task writes rows: its present records, its appends, its report.

The remote log after the ledger's position is read for its origins. Only rows with offsets greater than the highest
origin of their source partition are appended. So a row that any attempt has written is not written again, and none is
skipped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Deque, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, LogClient, name_of
from mirror_lib.kafka.fetcher import READ_UNCOMMITTED, required_ends
from mirror_lib.kafka.log_reader import Entry, LogEntries, LostTail
from mirror_lib.kafka.record_batch import HEADER_SIZE, Producer, new_batch, next_sequence
from mirror_lib.kafka.reencoder import Outgoing, RecordTooLarge, read_records
from mirror_lib.ledger.intervals import Run, Runs
from mirror_lib.ledger.records import OFFSETS_SKIPPED, Incident
from mirror_lib.replication.messages import PartitionReport
from mirror_lib.replication.partition import RemotePartition
from mirror_lib.replication.recovery import up_to
from mirror_lib.rows.columns import RowColumns
from mirror_lib.rows.origin import ORIGIN_HEADER, Provenance, origin_of, same_topic

# Plain bytes of a record batch: small enough for a few requests in flight, and for other partitions in between.
BATCH_BYTES = 512 * 1024
NO_CODEC = 0

# Upstream offsets of the micro-batch by source partition: the first, and the end (exclusive).
Ranges = Mapping[TopicPartition, Tuple[int, int]]


@dataclass(frozen=True)
class LaneTask:
    """A remote partition as a task gets it.

    `source`: the source partition of all its rows; `None` if several may feed it. `transactional_id` is `None` under
    at-least-once. Records of the remote log from `downstream_offset` on are not in the ledger. `producer` is the last
    one that the driver has. With a `sequence` the producer continues, otherwise the lane is fenced. `shared`: others
    write to the partition too. Records before the upstream offset `isolate_until` are written one by one.
    """

    remote: TopicPartition
    source: Optional[TopicPartition]
    transactional_id: Optional[str]
    downstream_offset: int
    max_message_bytes: int
    shared: bool = False
    producer: Optional[Producer] = None
    sequence: Optional[int] = None
    isolate_until: int = -1


@dataclass(frozen=True)
class LaneReport:
    """The state of a lane after a task.

    `part` is the report of its `source`; for lanes without one its position has no meaning. A `part.sequence` of `None`
    means that the next task must read the remote log. `ahead`: the remote log has records past the micro-batch, from an
    earlier attempt. `newest` is the highest timestamp (ms) by source partition.
    """

    remote: TopicPartition
    source: Optional[TopicPartition]
    part: PartitionReport
    producer: Optional[Producer] = None
    ahead: bool = False
    newest: Tuple[Tuple[str, int, int], ...] = ()


class Written(NamedTuple):
    """The records of a remote log that are not in the ledger: the highest upstream offset of each source partition, the
    ranges of `LaneTask.source`, the end of the log, and the number of the micro-batch's records."""

    highest: Mapping[TopicPartition, int]
    runs: Sequence[Run]
    end: int
    records: int


def read_back(log: Iterator[Entry], task: LaneTask, provenance: Provenance, sources: Ranges) -> Written:
    """Read the origins on a remote log from the lane's position on. Pure.

    Raises `RefusedError` at a record that this flow did not write, unless other writers are allowed.
    """
    highest: Dict[TopicPartition, int] = {}
    runs, count = Runs(), 0
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
                begin, until = sources[origin.source]
                count += begin <= origin.offset < until
                if task.source is not None:
                    runs.append(origin.offset, record.offset, 1)
            elif not task.shared:
                raise RefusedError(_foreign(task.remote, record.offset, origin is not None), code="MIR-313")
        if header is not None:
            end = max(end, header.next_offset)
    return Written(highest, list(runs), end, count)


def _foreign(remote: TopicPartition, offset: int, has_origin: bool) -> str:
    lacks = f"an {ORIGIN_HEADER} of something else" if has_origin else f"no header {ORIGIN_HEADER}"
    return (
        f"the record at offset {offset} of {name_of(remote)} has {lacks}, so it is no copy of this flow's, and whether "
        "rows were copied already is unknown: give the flow an empty remote topic, or set "
        "shared.remote.topics: true where others write to this one"
    )


class RowPartition(RemotePartition):
    """A remote partition in one task; it is its own lane. `RowSource` feeds it, `Lanes` drives it. `ranges` are the
    micro-batch's."""

    def __init__(self, task: LaneTask, ranges: Ranges, skips: bool) -> None:
        source, lane = task.source or task.remote, (task.remote, task.source)
        at = task.downstream_offset
        super().__init__(source, task.remote, lane, task.transactional_id, at, task.sequence, task.shared)
        self.task = task
        self._ranges = ranges
        self._skips = skips
        self._end = -1 if task.source is None else ranges[task.source][1]
        self._acknowledged = -1 if task.source is None else ranges[task.source][0]
        self._next_sequence = self.sequence
        self._highest: Mapping[TopicPartition, int] = {}
        self._newest: Dict[TopicPartition, int] = {}
        # The source partition of the rows in each batch in flight, the oldest first.
        self._sources: Deque[TopicPartition] = deque()
        self._taken: Dict[TopicPartition, int] = {}
        self._known, self._ahead = True, False
        self._batch_bytes = task.max_message_bytes - HEADER_SIZE

    def continues(self, end: int) -> bool:
        """See `RemotePartition`. Raises `Disconnected` if its log does not end at the acknowledged offset: the next
        attempt reads the log."""
        if self._handed_over and end != self.downstream and self.stopped is None and not self.task.shared:
            # Records of a fenced process or of another writer.
            raise Disconnected(f"{name_of(self.remote)} ends at {end}, not at {self.downstream} as was acknowledged")
        return self._handed_over

    def start(self, producer: Producer) -> None:
        super().start(producer)
        self._next_sequence = self.sequence

    def recover(self, client: LogClient, provenance: Optional[Provenance]) -> None:
        """Read the remote log after its fence. Without `provenance` no record has an origin, and nothing is read.
        Raises `Disconnected`, `ClusterError`."""
        if self.records:
            # The lane was fenced again after its appends, and the log has more than the marker: the next task reads it.
            if self.task.shared:
                self.downstream += 1
            else:
                self._known = False
            return
        task, end = self.task, required_ends(client, [self.remote])[self.remote]
        try:
            entries = LogEntries(client, self.remote, task.downstream_offset, READ_UNCOMMITTED)
            if provenance is None:
                entries.begin()
                self.downstream = end
                return
            found = read_back(up_to(entries, end, name_of(self.remote)), task, provenance, self._ranges)
        except LostTail as error:
            self.lose_tail(str(error))
            return
        except RefusedError as error:
            self.refuse(error.message, code=error.code)
            return
        # A remaining record proves nothing about another source partition.
        proven = task.source is not None and found.highest
        if entries.expired and not proven and not task.shared:
            self.refuse(
                f"{name_of(self.remote)}: retention has removed offsets {task.downstream_offset} to "
                f"{entries.start - 1}, which an interrupted attempt may have written, before they were read",
                code="MIR-315",
            )
            return
        self._take_found(found, max(found.end, end))

    def _take_found(self, found: Written, end: int) -> None:
        self._highest = found.highest
        self._ahead = any(at >= self._ranges[source][1] for source, at in found.highest.items())
        self.downstream = end
        for run in found.runs:
            skipped = max(0, self._ranges[self.source][0] - run.upstream_offset)
            count = min(run.upstream_end, self._end) - run.upstream_offset
            if count > skipped:
                self.syncs.append(run.upstream_offset + skipped, run.downstream_offset + skipped, count - skipped)
                self._acknowledged = max(self._acknowledged, run.upstream_offset + count)
                self.recovered += count - skipped
            if run.upstream_end > self._end:
                # The next record belongs to a later micro-batch, which must read the log from here on.
                self.downstream = run.downstream_offset + max(0, count)
                break
        if self.task.source is None:
            self.recovered = found.records

    def take(self, source: TopicPartition, rows: RowColumns, failures: Sequence[Tuple[int, str]]) -> None:
        """Encode and queue the rows that are not on the remote log yet. The rows of a source partition come in its
        order. A failure stops a lane of one source partition after the rows before it, unless failures are skipped."""
        if self.ends:
            return
        bad = rows.out_of_order(self._taken.get(source, -1))
        if bad is not None:
            self.refuse(
                f"{name_of(source)} at offset {bad}: the flow gives more than one record of it for "
                f"{name_of(self.remote)}, or out of order; let `transform` keep the order, and make one of each",
                code="MIR-318",
            )
            return
        if len(rows):
            self._taken[source] = rows.last
        begin, end = self._ranges[source]
        rows = rows.within(max(begin, self._highest.get(source, -1) + 1), end)
        failed = [each for each in failures if begin <= each[0] < end]
        if failed and not self._skips:
            offset, reason = failed[0]
            self._append(source, rows.within(begin, offset))
            self.drain_then_stop(reason, offset, fails=True)
            return
        self.incidents += [Incident(OFFSETS_SKIPPED, *source, at, at + 1, reason) for at, reason in failed]
        self._append(source, rows)

    def _append(self, source: TopicPartition, rows: RowColumns) -> None:
        """Queue the rows in batches, up to the first row that is too large."""
        if not len(rows):
            return
        alone = len(rows.within(0, self.task.isolate_until)) if rows.first < self.task.isolate_until else 0
        batches = [rows.part(number, number + 1) for number in range(alone)]
        for piece in rows.part(alone, len(rows)).cut(BATCH_BYTES):
            batches += piece.cut(self._batch_bytes)
        for batch in batches:
            outgoing = self._encoded(batch)
            if outgoing.size > self.task.max_message_bytes:  # a row of its own
                self.source = source
                error = RecordTooLarge(batch.first, outgoing.size, self.task.max_message_bytes)
                self.drain_then_stop(str(error), batch.first, batch.first + 1)
                return
            self._next_sequence = next_sequence(self._next_sequence, outgoing.record_count)
            self._sources.append(source)
            self.put(outgoing)

    def _encoded(self, rows: RowColumns) -> Outgoing:
        """One batch, with the same bytes as `build_batches` would make."""
        producer, count, newest, payload = self.producer, len(rows), rows.newest, rows.payload()
        assert producer is not None
        ids, oldest = (producer.producer_id, producer.epoch, self._next_sequence), rows.timestamps[0].as_py()
        pieces = new_batch(NO_CODEC, count, oldest, newest, *ids, payload)
        return Outgoing(pieces, count, rows.runs(), rows.last + 1, newest)

    def _accepted(self, outgoing: Outgoing, base_offset: int) -> None:
        source = self._sources.popleft()
        self._newest[source] = max(outgoing.last_timestamp, self._newest.get(source, -1))
        if self.task.source is not None:
            for upstream, count in outgoing.runs:
                self.syncs.append(upstream, base_offset, count)
                base_offset += count
            self._acknowledged = outgoing.next_upstream

    def _stands(self) -> int:
        return max(0, self._acknowledged)

    def stop(self, reason: str, from_offset: int, until_offset: int = -1, **how: Any) -> None:
        """See `RemotePartition`. Upstream offsets are of the source partition of the oldest batch in flight."""
        if self.task.source is None and self._sources:
            self.source = self._sources[0]
        super().stop(reason, from_offset, until_offset, **how)

    def doubt(self) -> None:
        """The result of its fence is unknown: the next task must check."""
        self._known = False

    def lane_report(self, broken: bool, producer: Optional[Producer]) -> LaneReport:
        """Its report. `broken`: the fate of the records in flight is unknown. `producer`: the lane's latest."""
        whole = not broken and self.stopped is None
        part = self.report(whole and self._known and not self._ahead)
        return LaneReport(
            remote=self.remote,
            source=self.task.source,
            part=replace(part, position=self._end if whole else self._acknowledged),
            producer=producer,
            ahead=self._ahead,
            newest=tuple((*source, at) for source, at in self._newest.items()),
        )
