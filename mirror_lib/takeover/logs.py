"""Both logs of one partition, read from any offset on: two clients in, records and walks out.

MirrorMaker reads its source as `read_uncommitted` unless told otherwise, so both ways are tried. The remote log is read
as `read_committed`: what an aborted transaction of its exactly-once mode wrote is no copy.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import LogClient
from mirror_lib.kafka.fetcher import READ_COMMITTED, READ_UNCOMMITTED
from mirror_lib.kafka.log_reader import log_entries
from mirror_lib.kafka.record_batch import Record
from mirror_lib.ledger.records import Position
from mirror_lib.replication.log_records import Records
from mirror_lib.takeover.walk import Proven, Restarts, Unproven, is_copy, walk


class KafkaPartitionLogs:
    """`PartitionLogs` of `source` and `remote`. A leader that moves, or a broker that is away, raises `Disconnected`.

    `first_of` tells the remote log's first offset of a timestamp (ms) or later, -1 for none.
    """

    def __init__(
        self,
        source: LogClient,
        target: LogClient,
        at_source: TopicPartition,
        at_target: TopicPartition,
        first_of: Callable[[int], int],
    ):
        self._source, self._target = source, target
        self._at_source, self._at_target = at_source, at_target
        self._first_of = first_of

    def walk(self, anchor: Position, restarts: Restarts) -> Proven:
        """Compare from the anchor to the end of the remote log. Raises `Unproven` where neither way of reading fits."""
        failures: List[Unproven] = []
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            try:
                return self._walk(anchor, restarts, isolation)
            except Unproven as error:
                failures.append(error)
        raise max(failures, key=lambda each: each.downstream_offset)

    def _walk(self, anchor: Position, restarts: Restarts, isolation: int) -> Proven:
        remote = log_entries(self._target, self._at_target, anchor.downstream_offset, READ_COMMITTED)

        def open_source(offset: int) -> Records:
            return Records(log_entries(self._source, self._at_source, offset, isolation), offset)

        return walk(open_source, Records(remote, anchor.downstream_offset), anchor, restarts)

    def source_records(self, start: int, until: int) -> Sequence[Record]:
        """The source's records from upstream offset `start` until before `until`, aborted ones included."""
        records = Records(log_entries(self._source, self._at_source, start, READ_UNCOMMITTED), start)
        found: List[Record] = []
        record = records.record()
        while record is not None and record.offset < until:
            found.append(record)
            record = records.record()
        return found

    def source_record(self, start: int) -> Optional[Record]:
        """The first record of the source at or after an upstream offset, be it aborted."""
        return _first(self._source, self._at_source, start, READ_UNCOMMITTED)

    def remote_record(self, start: int) -> Optional[Record]:
        """The first record of the remote log at or after a downstream offset."""
        return _first(self._target, self._at_target, start, READ_COMMITTED)

    def earlier_copy(self, upstream_offset: int, before: int) -> Optional[int]:
        """Where the source's first record at or after `upstream_offset` lies on the remote log, before an offset."""
        original = self.source_record(upstream_offset)
        if original is None:
            return None
        remote = Records(log_entries(self._target, self._at_target, 0, READ_COMMITTED), 0)
        copy = remote.record()
        if copy is not None and not remote.log_append_time and original.timestamp >= 0:
            # A copy has its original's time, so what is before the first of that time is none.
            start = self._first_of(original.timestamp)
            if not 0 <= start < before:
                return None
            remote = Records(log_entries(self._target, self._at_target, start, READ_COMMITTED), start)
            copy = remote.record()
        while copy is not None and copy.offset < before:
            if is_copy(original, copy, remote.log_append_time):
                return copy.offset
            copy = remote.record()
        return None


def _first(client: LogClient, partition: TopicPartition, start: int, isolation: int) -> Optional[Record]:
    return Records(log_entries(client, partition, start, isolation), start).record()
