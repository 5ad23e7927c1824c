"""A log's entries in, its data a batch or a record at a time out; and whether two logs' records are the same. Pure."""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from mirror_lib.kafka.record_batch import BatchHeader, Record
from mirror_lib.kafka.reencoder import read_records
from mirror_lib.kafka.varint import decode_varint

# (raw, header, is_data) as `log.visible.entries` yields them.
Entry = Tuple[memoryview, Optional[BatchHeader], bool]


class Records:
    """One log's data, read a batch or a record at a time, whichever the comparison needs.

    `not_data` counts the offsets of control and aborted batches passed since it was last set to 0, `log_append_time`
    says whether the timestamps of the last batch read are the broker's.
    """

    def __init__(self, entries: Iterator[Entry], position: int) -> None:
        self._entries = entries
        self._position = position
        self._batch: Optional[Entry] = None
        self._records: List[Record] = []
        self.not_data = 0
        self.log_append_time = False

    def batch(self) -> Optional[Entry]:
        """The next whole data batch, not taken yet; None if part of it was taken or lies before the position."""
        if self._records:
            return None
        if self._batch is None:
            self._batch = self._next_data()
        header = self._batch[1] if self._batch is not None else None
        return self._batch if header is not None and header.base_offset >= self._position else None

    def drop_batch(self) -> None:
        """Take the batch that `batch` showed."""
        self._batch = None

    def record(self) -> Optional[Record]:
        """Take the next record; None at the end."""
        while not self._records:
            batch = self._batch if self._batch is not None else self._next_data()
            self._batch = None
            if batch is None:
                return None
            self._records = [r for r in reversed(read_records(batch[0])) if r.offset >= self._position]
        return self._records.pop()

    def put_back(self, records: List[Record]) -> None:
        """Return records that were taken, first one first."""
        self._records.extend(reversed(records))

    def _next_data(self) -> Optional[Entry]:
        for entry in self._entries:
            if entry[2]:
                if entry[1] is not None:
                    self.log_append_time = entry[1].log_append_time
                return entry
            if entry[1] is not None:
                self.not_data += entry[1].last_offset_delta + 1
        return None


def equal(original: Record, copy: Record, log_append_time: bool) -> bool:
    """Whether `copy` may be the source's record; under the remote topic's `log_append_time` whatever its timestamp."""
    return original.body == copy.body and (log_append_time or original.timestamp == copy.timestamp)


def key_of(body: bytes) -> Tuple[Optional[bytes], bool]:
    """The key in a record's `body`, and whether the record is a tombstone."""
    size, at = decode_varint(body, 0)
    value_size, _ = decode_varint(body, at + max(size, 0))
    return (body[at : at + size] if size >= 0 else None), value_size < 0
