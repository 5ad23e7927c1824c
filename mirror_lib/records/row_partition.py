"""One remote partition on its way through a task: stretches of rows in, record batches queued for it out.

Order: what an interrupted attempt left on the remote log is compared first; nothing is appended while it lasts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, FrozenSet, Iterator, List, Optional, Sequence, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.log.batch import HEADER_SIZE, Producer, Record, new_batch, next_sequence, read_header
from mirror_lib.log.connection import Disconnected, LogClient, name_of
from mirror_lib.log.fetch import READ_UNCOMMITTED
from mirror_lib.log.offsets import log_ends
from mirror_lib.log.reencode import RecordTooLarge, build_batches, cut
from mirror_lib.log.tail import LostTail, log_entries
from mirror_lib.log.visible import Entry
from mirror_lib.records.remainder import ANEW, Remainder, Unsettled
from mirror_lib.records.row_columns import RowColumns
from mirror_lib.records.rows import Partition, Stretch
from mirror_lib.replicate.encode import Outgoing
from mirror_lib.replicate.lanes import PartitionReport, PartitionTask
from mirror_lib.replicate.log_records import Records
from mirror_lib.replicate.partition import PartitionCopy
from mirror_lib.replicate.recovery import own_entries, up_to
from mirror_lib.state.records import OFFSETS_SKIPPED, Incident

# Plain bytes of a record batch: a few requests in flight fill the pipe, and other partitions get in between.
BATCH_BYTES = 512 * 1024
NO_CODEC = 0


class RowPartition:
    """`copy` holds what is queued, in flight and acknowledged. The flow `skips` rows that failed, or stops at them.

    `mixed`: rows of several source partitions, one after the other; their offsets are then counted from 0.
    `more_behind` tells whether the source has more than the task's range. `before`: what the last pass left.
    """

    def __init__(
        self,
        task: PartitionTask,
        producer: Producer,
        repeatable: bool,
        skips: bool = False,
        mixed: bool = False,
        more_behind: Callable[[], bool] = lambda: False,
        before: Unsettled = ANEW,
    ) -> None:
        self.copy = PartitionCopy(task)
        self._task = task
        self._producer = producer
        self._repeatable = repeatable
        self._skips = skips
        self._mixed = mixed
        self._more_behind = more_behind
        self._before = before
        self._rank = 0
        self._sequence = self.copy.sequence
        self._room = task.max_message_bytes - HEADER_SIZE
        self._remainder: Optional[Remainder] = None
        self._last: Tuple[Partition, int] = (("", -1), -1)
        self._ended = self._fails = False
        self._end = task.end
        self._position = task.upstream_offset

    @property
    def recovered(self) -> int:
        """Records that an interrupted attempt had written."""
        return 0 if self._remainder is None else self._remainder.found

    @property
    def unsettled(self) -> Optional[Unsettled]:
        """See `Remainder`; None where nothing is left. Of what was reported."""
        if self._remainder is None or not self._remainder.left:
            return None
        left = self._remainder.unsettled
        # The pass may have ended behind the last record that was compared, which the next one is not told.
        return left._replace(holed=left.holed or (not self._mixed and self._position > self.copy.acknowledged))

    def look(self, client: LogClient, own: Optional[FrozenSet[int]]) -> None:
        """Ask how long the remote log is, and what lies behind its position. `own` tells the producer ids that count,
        where others write to it too. Raises `Disconnected`."""
        task, copy = self._task, self.copy
        end = log_ends(client, [task.remote]).get(task.remote, -1)
        if end < copy.downstream:
            self._look_for_lost_tail(client)
        elif task.sequence is None:
            entries = log_entries(client, task.remote, copy.downstream, READ_UNCOMMITTED)
            whole = up_to(entries, end, name_of(task.remote))
            written = Records(own_entries(self._of_others(whole), own), copy.downstream)
            self._remainder = Remainder(copy, entries, written, self._repeatable, self._mixed, self._before)
        elif end > copy.downstream and not task.shared:
            # A zombie's, or somebody else's: the next pass fences, and compares it.
            raise Disconnected(f"{client.alias}: {name_of(task.remote)} holds more than was acknowledged")
        copy.start(self._producer)

    def _of_others(self, log: Iterator[Entry]) -> Iterator[Entry]:
        """The same; nothing was to be appended under this epoch before the whole log was read. Raises `Disconnected`
        where it was: by another attempt of a stage that Spark began anew, which its tasks are not told. What it
        appended has the sequences that come next here, so that a broker would take those for the same batches."""
        own = (self._producer.producer_id, self._producer.epoch)
        for raw, header, is_data in log:
            if is_data and header is not None and (header.producer_id, header.producer_epoch) == own:
                raise Disconnected(f"{name_of(self._task.remote)} holds what another attempt of this task appended")
            yield raw, header, is_data

    def _look_for_lost_tail(self, client: LogClient) -> None:
        try:
            next(log_entries(client, self._task.remote, self.copy.downstream, READ_UNCOMMITTED), None)
        except LostTail as error:
            self.copy.lose_tail(str(error))
            return
        raise Disconnected(f"{client.alias}: {name_of(self._task.remote)} does not tell the end of its log")

    def take(self, stretch: Stretch) -> None:
        """Compare, encode and queue. What cannot be sent stops the partition; the rows behind it are passed over."""
        if self._ended or self.copy.stopped is not None:
            return
        try:
            self._check_order(stretch)
            if self._mixed:
                stretch = self._ranked(stretch)
            if stretch.failures and not self._skips:
                self._stop_at(stretch.rows, *stretch.failures[0])
                return
            self.copy.incidents += [self._skipped(*each) for each in stretch.failures]
            self._append(stretch.rows)
        except RefusedError as error:
            self.copy.refuse(str(error))

    def end(self, offset: Optional[int] = None) -> None:
        """There are no more rows in this pass, or none from `offset` on is to be taken in it. Raises `Disconnected`."""
        if self._ended or self.copy.stopped is not None:
            return
        self._ended = True
        self._end = self._task.end if offset is None else offset
        try:
            if offset is not None and offset <= self._last[1]:
                raise self._out_of_order(self._last[0], offset)
            if self._remainder is not None and self._remainder.left:
                rest = self._remainder.end(self._fails or self._end < self._task.end or self._more_behind())
                self._queue(self._started(rest))
        except RefusedError as error:
            self.copy.refuse(str(error))

    def report(self, broken: bool) -> PartitionReport:
        """Where it stands. `broken`: not all rows were seen, and nobody knows what became of what was in flight."""
        if self._remainder is not None:
            # What was equal so far may have been so by chance, which only the rest of the log tells.
            self._remainder.take_back(all=broken or self.copy.refused)
        part, copy = self.copy.report(), self.copy
        left = self._remainder is not None and self._remainder.left
        position = self._end if self._ended and not broken and copy.stopped is None else copy.acknowledged
        self._position = position
        sequence = None if broken or left else part.sequence
        left = left and self._repeatable
        return replace(part, position=position, sequence=sequence, left=left, fails=self._fails)

    def _started(self, rest: List[Record]) -> List[Record]:
        if self._remainder is not None and not self._remainder.left:
            self.copy.start(self._producer)  # from behind what was there
        return rest

    def _stop_at(self, rows: RowColumns, offset: int, reason: str) -> None:
        self._append(rows.before(offset))
        self._fails = True
        self.end()
        self.copy.reject(offset, reason)

    def _ranked(self, stretch: Stretch) -> Stretch:
        first = self._rank
        self._rank += len(stretch.rows)
        return stretch._replace(rows=stretch.rows.numbered(first))

    def _check_order(self, stretch: Stretch) -> None:
        source, last = self._last
        begins = last if source == stretch.source else -1
        bad, ends = stretch.rows.out_of_order(begins), stretch.rows.last if len(stretch.rows) else begins
        self._last = (stretch.source, ends)
        if bad is None and stretch.source < source:
            bad = ends
        if bad is not None:
            raise self._out_of_order(stretch.source, bad)
        self._check_range(stretch)

    def _out_of_order(self, source: Partition, offset: int) -> RefusedError:
        return RefusedError(
            f"{name_of(source)} at offset {offset}: the flow gives more than one record of it for "
            f"{name_of(self._task.remote)}, or out of order",
            "let `transform` keep the order, and give each record of a source record another remote topic",
        )

    def _check_range(self, stretch: Stretch) -> None:
        start, end, rows = self._task.upstream_offset, self._task.end, stretch.rows
        strange = [offset for offset in ((rows.first, rows.last) if rows else ()) if not start <= offset < end]
        if strange and not self._mixed:
            raise RefusedError(
                f"{name_of(stretch.source)} at offset {strange[0]}: the flow gives a record of it, and was given "
                f"offsets {start} to {end - 1}",
                "`transform` must leave topic, partition and offset as they are",
            )

    def _skipped(self, offset: int, reason: str) -> Incident:
        return Incident(OFFSETS_SKIPPED, *self._task.source, offset, offset + 1, reason)

    def _append(self, rows: RowColumns) -> None:
        if self._remainder is not None and self._remainder.left:
            self._queue(self._started(self._remainder.compare(rows.records())))
        elif rows and (rows.first < self._task.isolate_until or rows.widest > self._room):
            self._queue(rows.records())
        else:
            for piece in rows.cut(BATCH_BYTES):
                for part in piece.cut(self._room):
                    self._put(part)

    def _put(self, rows: RowColumns) -> None:
        """Queue one batch. It has the bytes that `build_batches` would give it."""
        producer, count, newest = self._producer, len(rows), rows.newest
        oldest, payload = rows.timestamps[0].as_py(), rows.payload()
        pieces = new_batch(
            NO_CODEC, count, oldest, newest, producer.producer_id, producer.epoch, self._sequence, payload
        )
        self._sequence = next_sequence(self._sequence, count)
        self.copy.put(Outgoing(pieces, count, rows.runs(), rows.last + 1, newest, True))

    def _queue(self, records: Sequence[Record]) -> None:
        """The same row by row, where one may be too large, or has to go alone."""
        alone = sum(record.offset < self._task.isolate_until for record in records)
        pieces = [[record] for record in records[:alone]] + cut(records[alone:], BATCH_BYTES)
        try:
            for piece in pieces:
                self._build(piece)
        except RecordTooLarge as error:
            self._ended = True
            self.copy.reject(error.upstream_offset, str(error))

    def _build(self, records: Sequence[Record]) -> None:
        producer, limit = self._producer, self._task.max_message_bytes
        for built in build_batches(
            records, NO_CODEC, producer.producer_id, producer.epoch, self._sequence, limit
        ):
            self._sequence = next_sequence(self._sequence, built.record_count)
            (start, count), newest = built.runs[-1], read_header(built.data).max_timestamp
            self.copy.put(Outgoing((built.data,), built.record_count, built.runs, start + count, newest, True))

