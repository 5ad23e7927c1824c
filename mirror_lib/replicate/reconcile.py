"""What an interrupted attempt managed to write: the end of the remote log in, offset syncs and positions out.

The remote log is believed only where its records equal the source's, in order. Records that compaction has removed
since then are allowed for by their offsets, which compaction keeps; anything else is refused. Pure.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.log.batch import HEADER_SIZE, BatchHeader, Record
from mirror_lib.log.reencode import read_records

# (raw, header, is_data) as `log.visible.entries` yields them.
Entry = Tuple[memoryview, Optional[BatchHeader], bool]

# Attributes that make records mean something else: codec (0-2) and timestamp type (3).
_MEANING = 0x0F


class Match(NamedTuple):
    """`record_count` records from `upstream_offset` on equal those from `downstream_offset` on."""

    upstream_offset: int
    downstream_offset: int
    record_count: int


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


def reconcile(source: Records, remote: Records, name: str, first_downstream: int) -> Iterator[Match]:
    """Match every record of the remote range, which starts at `first_downstream`, with its source record.

    Raises `RefusedError` naming `name` and the downstream offset where the remote log holds something else.
    """
    expected = first_downstream
    while True:
        pair = _same_batch(source, remote, expected)
        if pair is not None:
            yield pair
        else:
            copy = remote.record()
            if copy is None:
                break
            original = _original(source, remote, copy, copy.offset - expected - remote.not_data, name)
            pair = Match(original.offset, copy.offset, 1)
            yield pair
        remote.not_data = 0
        expected = pair.downstream_offset + pair.record_count
    # The last records of the last batch may be gone from the remote log (old tombstones). Which ones they were cannot
    # be known, as the source may have lost them too: those it still has are copied again, or new ones could be passed.


def _original(source: Records, remote: Records, copy: Record, missing: int, name: str) -> Record:
    """The source record that `copy` was made from, taken together with the `missing` ones before it.

    Those were copied too, and then compacted away on the remote log. The source may have lost some of them as well, so
    any record within reach may be the one; where more than one is equal, compaction took what would tell them apart.
    """
    reach: List[Record] = []
    while len(reach) <= missing:
        record = source.record()
        if record is None:
            break
        reach.append(record)
    alike = [i for i, record in enumerate(reach) if equal(record, copy, remote.log_append_time)]
    if len(alike) == 1:
        source.put_back(reach[alike[0] + 1 :])
        return reach[alike[0]]
    if alike:
        raise RefusedError(
            f"{name}: the record at offset {copy.offset} of the remote log equals several of the source, and "
            "compaction has removed what would tell them apart",
            "give the flow an empty remote topic",
        )
    raise RefusedError(
        f"{name}: the record at offset {copy.offset} of the remote log is not the source's next one",
        "somebody else wrote to the remote topic, or one of the logs was altered; compare them, then give the flow an "
        "empty remote topic",
    )


def equal(original: Record, copy: Record, log_append_time: bool) -> bool:
    """Whether `copy` may be the source's record; under the remote topic's `log_append_time` whatever its timestamp."""
    return original.body == copy.body and (log_append_time or original.timestamp == copy.timestamp)


def _same_batch(source: Records, remote: Records, expected: int) -> Optional[Match]:
    """Both next batches, taken, if one is the other re-headed: no record needs to be decoded."""
    ours = remote.batch()
    theirs = None if ours is None else source.batch()  # not asked for where there is nothing to compare
    if theirs is None or ours is None or theirs[1] is None or ours[1] is None:
        return None
    header, copied = theirs[1], ours[1]
    if not (header.can_rehead and copied.contiguous) or copied.base_offset - remote.not_data != expected:
        return None
    if (header.attributes ^ copied.attributes) & _MEANING or header[6:9] != copied[6:9]:
        return None
    if theirs[0][HEADER_SIZE:] != ours[0][HEADER_SIZE:]:
        return None
    source.drop_batch()
    remote.drop_batch()
    return Match(header.base_offset, copied.base_offset, header.record_count)
