"""Source record batches of one partition in, batches ready for the remote log out, by the fast path where it is open.

The fast path re-heads a batch and keeps its records as they are. The slow path rebuilds batches where the broker
would refuse them or the result would be wrong, and joins tiny ones.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Tuple, Union

from mirror_lib.log.batch import BatchHeader, Record, next_sequence, read_header, rehead
from mirror_lib.log.fetch import Fetched
from mirror_lib.log.producer import Producer
from mirror_lib.log.reencode import build_batches, read_records
from mirror_lib.log.visible import entries
from mirror_lib.replicate.lanes import PartitionTask

# A batch of fewer records costs more as a produce request of its own than joining it with its neighbours does.
JOIN_BELOW_RECORDS = 16
JOINED_BYTES = 256 * 1024
NO_LEGACY_CODEC = 0
NO_BOUND = 2**63 - 1

Run = Tuple[int, int]


class Outgoing(NamedTuple):
    """A batch for the remote log. `runs` are (upstream offset, record count); `next_upstream` is where it ends.

    `last_timestamp` is the newest in it, by which the target judges the age of its producer.
    """

    data: Union[bytes, bytearray]
    record_count: int
    runs: Tuple[Run, ...]
    next_upstream: int
    last_timestamp: int
    re_encoded: bool


class Encoder:
    """Turns fetched data into outgoing batches and remembers where it is. `position` is the next upstream offset."""

    def __init__(self, task: PartitionTask, producer: Producer, position: int, sequence: int) -> None:
        self._task = task
        self._producer = producer
        self.position = position
        self._sequence = sequence
        self._bound = NO_BOUND if task.bound is None else task.bound
        self._waiting: List[Record] = []
        self._waiting_bytes = 0
        self._waiting_codec = NO_LEGACY_CODEC

    def encode(self, found: Fetched) -> Iterator[Outgoing]:
        """Outgoing batches for all whole batches in the answer. Raises `BatchError` for corrupt data."""
        for raw, header, is_data in entries(found):
            if header is not None and header.next_offset <= self.position:
                continue
            if header is not None and header.base_offset >= self._bound:
                self.position = self._bound
                break
            if is_data and header is not None and self._fast(raw, header):
                yield from self._flush()
                yield self._rehead(raw, header)
            elif is_data:
                yield from self._wait(raw, header)
            if header is not None:
                self.position = min(header.next_offset, self._bound)
        yield from self._flush()

    def _fast(self, raw: memoryview, header: BatchHeader) -> bool:
        task = self._task
        return (
            header.can_rehead
            and header.base_offset >= self.position
            and header.next_offset <= self._bound
            and len(raw) <= task.max_message_bytes
            and header.record_count >= JOIN_BELOW_RECORDS
            and header.base_offset >= task.isolate_until
        )

    def _rehead(self, raw: memoryview, header: BatchHeader) -> Outgoing:
        data = rehead(raw, self._producer.producer_id, self._producer.epoch, self._sequence)
        self._sequence = next_sequence(self._sequence, header.record_count)
        runs = ((header.base_offset, header.record_count),)
        return Outgoing(data, header.record_count, runs, header.next_offset, header.max_timestamp, False)

    def _wait(self, raw: memoryview, header: BatchHeader | None) -> Iterator[Outgoing]:
        codec = header.codec if header is not None else NO_LEGACY_CODEC
        if codec != self._waiting_codec:
            yield from self._flush()
            self._waiting_codec = codec
        found = [record for record in read_records(raw) if record.offset >= self.position]
        records = [record for record in found if record.offset < self._bound]
        self._waiting.extend(records)
        self._waiting_bytes += len(raw)
        if header is None and found:
            self.position = min(found[-1].offset + 1, self._bound)
        if self._waiting_bytes >= JOINED_BYTES:
            yield from self._flush()

    def _flush(self) -> Iterator[Outgoing]:
        records, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not records:
            return
        groups = [[r] for r in records] if records[0].offset < self._task.isolate_until else [records]
        for group in groups:
            yield from self._build(group)

    def _build(self, records: List[Record]) -> Iterator[Outgoing]:
        producer, limit = self._producer, self._task.max_message_bytes
        for built in build_batches(
            records, self._waiting_codec, producer.producer_id, producer.epoch, self._sequence, limit
        ):
            self._sequence = next_sequence(self._sequence, built.record_count)
            (start, count), header = built.runs[-1], read_header(built.data)
            yield Outgoing(built.data, built.record_count, built.runs, start + count, header.max_timestamp, True)
