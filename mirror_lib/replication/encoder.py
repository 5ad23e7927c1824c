"""Turns fetched record batches of one partition into batches for the remote log.

The fast path re-heads a batch and keeps its records. The slow path rebuilds batches that the broker would refuse or
that would have a wrong result, and joins tiny ones.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from mirror_lib.errors import BatchError
from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.log_reader import entries
from mirror_lib.kafka.record_batch import BatchHeader, Producer, Record, next_sequence, rehead
from mirror_lib.kafka.reencoder import Outgoing, build_batches, last_offset, read_batches, read_records
from mirror_lib.replication.messages import PartitionTask

# A batch of fewer records costs more as a separate produce request than joined with its neighbours. This does not
# hold for a batch of this many bytes: unpacking and packing them again would cost more.
JOIN_BELOW_RECORDS = 16
# The same for a backlog. Each small batch waits for an answer, and these waits dominate the time.
JOIN_BELOW_RECORDS_OF_BACKLOG = 256
BACKLOG_BATCHES = 64
JOIN_BELOW_BYTES = 64 * 1024
JOIN_BELOW_COMPRESSED_BYTES = 4 * 1024
JOINED_BYTES = 256 * 1024
NO_LEGACY_CODEC = 0

_Waiting = Tuple[memoryview, Optional[BatchHeader], int]  # an entry, and the position before it


class Encoder:
    """Turns fetched data into outgoing batches. `position` is the next upstream offset."""

    def __init__(self, task: PartitionTask, producer: Producer, position: int, sequence: int) -> None:
        self._task = task
        self._producer = producer
        self.position = position
        self._sequence = sequence
        self._waiting: List[_Waiting] = []
        self._waiting_bytes = 0
        self._waiting_codec = NO_LEGACY_CODEC

    def encode(self, found: Fetched) -> Iterator[Outgoing]:
        """Yield outgoing batches for all whole batches in the answer. Raises `BatchError` for corrupt data.

        Batches before the damaged one are yielded first. `position` is then the damaged batch's offset.
        """
        try:
            yield from self._encode(found)
        except BatchError:
            yield from self._flush()
            raise
        yield from self._flush()

    def _encode(self, found: Fetched) -> Iterator[Outgoing]:
        for raw, header, is_data in entries(found):
            next_offset = last_offset(raw) + 1 if header is None else header.next_offset
            if next_offset <= self.position:
                continue
            if is_data and header is not None and self._fast(raw, header, len(found.data)):
                yield from self._flush()
                yield self._rehead(raw, header)
            elif is_data:
                codec = NO_LEGACY_CODEC if header is None else header.codec
                if codec != self._waiting_codec or self._waiting_bytes >= JOINED_BYTES:
                    yield from self._flush()
                self._waiting.append((raw, header, self.position))
                self._waiting_bytes += len(raw)
                self._waiting_codec = codec
            self.position = next_offset

    def _fast(self, raw: memoryview, header: BatchHeader, answer_bytes: int) -> bool:
        task = self._task
        return (
            not _to_be_joined(raw, header, answer_bytes)
            and header.can_rehead
            and header.base_offset >= self.position
            and len(raw) <= task.max_message_bytes
            and header.base_offset >= task.isolate_until
        )

    def _rehead(self, raw: memoryview, header: BatchHeader) -> Outgoing:
        pieces = rehead(raw, self._producer.producer_id, self._producer.epoch, self._sequence)
        self._sequence = next_sequence(self._sequence, header.record_count)
        runs = ((header.base_offset, header.record_count),)
        return Outgoing(pieces, header.record_count, runs, header.next_offset, header.max_timestamp)

    def _flush(self) -> Iterator[Outgoing]:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        try:
            records = self._read(waiting) if waiting else []
        except BatchError:
            if len(waiting) > 1:
                for each in waiting:
                    self._waiting = [each]
                    yield from self._flush()
                return
            self.position = waiting[0][2]
            raise
        alone = records and records[0].offset < self._task.isolate_until
        for group in ([record] for record in records) if alone else [records]:
            yield from self._build(group)

    def _read(self, waiting: List[_Waiting]) -> List[Record]:
        batches = [(raw, header) for raw, header, _ in waiting if header is not None]
        if len(batches) == len(waiting):
            records = read_batches(batches)
        else:
            records = [record for raw, _, _ in waiting for record in read_records(raw)]
        start = waiting[0][2]
        if records and start <= records[0].offset:
            return records
        return [record for record in records if start <= record.offset]

    def _build(self, records: List[Record]) -> Iterator[Outgoing]:
        producer, limit = self._producer, self._task.max_message_bytes
        for outgoing in build_batches(
            records, self._waiting_codec, producer.producer_id, producer.epoch, self._sequence, limit
        ):
            self._sequence = next_sequence(self._sequence, outgoing.record_count)
            yield outgoing


def _to_be_joined(raw: memoryview, header: BatchHeader, answer_bytes: int) -> bool:
    """Whether a batch is so small that its neighbours should share its produce request. Its answer had
    `answer_bytes`."""
    backlog = answer_bytes >= BACKLOG_BATCHES * len(raw)
    few = JOIN_BELOW_RECORDS_OF_BACKLOG if backlog else JOIN_BELOW_RECORDS
    small = JOIN_BELOW_COMPRESSED_BYTES if header.codec else JOIN_BELOW_BYTES
    return header.record_count < few and len(raw) < small
