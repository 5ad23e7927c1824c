"""Compares what MirrorMaker wrote to a remote log with its source, record for record, and returns proven ranges.

MirrorMaker writes at least once: after a crash it resumes at an old position, and its records are stored twice. It
reads its source as `read_uncommitted` unless configured otherwise, so both are tried; the remote log is read as
`read_committed`, because what an aborted transaction wrote is no copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Callable, Collection, Iterator, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.kafka.codecs import decompress
from mirror_lib.kafka.fetcher import READ_COMMITTED, READ_UNCOMMITTED
from mirror_lib.kafka.log_reader import Entry
from mirror_lib.kafka.record_batch import Record, checked_payload, decode_bytes
from mirror_lib.kafka.reencoder import read_records
from mirror_lib.ledger.intervals import Run, Runs
from mirror_lib.ledger.records import Position
from mirror_lib.replication.reconcile import Records

# No timestamp: a producer that is given none sets the present time.
NO_TIMESTAMP = -1
# If more source records than these are alike, the search does not try each of them.
MOST_ALIKE = 200
# The source records of a longer gap, which compaction left in the remote log, are not kept in memory.
LONGEST_GAP = 100_000

OpenSource = Callable[[int], Records]
# The upstream offsets that offset syncs report of a downstream offset. A writer reports the first record of each of its
# processes, so a restart without an offset sync is not looked for.
Reported = Mapping[int, Collection[int]]


class Unproven(RefusedError):
    """The record at `downstream_offset` of the remote log cannot be shown to be the source's."""

    code = "MIR-342"

    def __init__(self, downstream_offset: int, reason: str) -> None:
        super().__init__(f"the record at offset {downstream_offset} of the remote log {reason}")
        self.downstream_offset = downstream_offset


class Ambiguous(Unproven):
    """The same, as more than one record of the source may be its original."""


@dataclass(frozen=True)
class Proven:
    """A remote log from an anchor to its end. `runs` rise on both sides and hold each source record once.

    Everything before `upstream_end` lies on the remote log. `doubled` records lie there once more than in `runs`.
    """

    runs: Tuple[Run, ...]
    upstream_end: int
    doubled: int


def walk(
    open_source: OpenSource, remote: Records, anchor: Position, reported: Reported, of_one_record: bool = True
) -> Proven:
    """Match every record of `remote` with its source record.

    `remote` starts at the anchor, whose two offsets are taken to be `of_one_record`; else the next records of both
    match. `open_source` gives the source's records from an upstream offset on. Raises `Unproven` at the first record
    that is neither the source's next one nor a reported one, `Ambiguous` if it may be both, and `Unproven` if there is
    nothing to compare.
    """
    processes = [Runs()]
    source, expected = open_source(anchor.upstream_offset), anchor.downstream_offset
    while True:
        copy = remote.record()
        if copy is None:
            break
        missing = copy.offset - expected - remote.not_data
        original = _taken(source, copy, missing, remote.log_append_time)
        offsets = reported.get(copy.offset, ())
        other = None
        if original is None or original.offset not in offsets:
            other = _restarted(open_source, offsets, copy, remote.log_append_time)
        if original is not None and other is not None:
            both = f"may be the source's at offset {original.offset} or {other[1].offset}"
            raise Ambiguous(copy.offset, f"{both}, which are alike: the writer began again")
        if original is None:
            if other is None:
                upstream_offset = processes[-1].upstream_end if processes[-1] else anchor.upstream_offset
                raise Unproven(copy.offset, _why_not(open_source(upstream_offset).record(), copy))
            source, original = other
            _refuse_hole(open_source, processes, original, copy, missing)
            processes.append(Runs())
        if of_one_record and not any(processes) and original.offset != anchor.upstream_offset:
            raise Unproven(copy.offset, f"is not the one at offset {anchor.upstream_offset} of the source")
        processes[-1].append(original.offset, copy.offset, 1)
        remote.not_data = 0
        expected = copy.offset + 1
    if not any(processes):
        raise Unproven(anchor.downstream_offset, "is not there any more")
    return _in_order(processes)


def is_copy(original: Record, copy: Record, log_append_time: bool) -> bool:
    """Whether a producer that was given `original` would have written `copy`."""
    same_time = log_append_time or original.timestamp in (copy.timestamp, NO_TIMESTAMP)
    return original.body == copy.body and same_time


def _taken(source: Records, copy: Record, missing: int, log_append_time: bool) -> Optional[Record]:
    """The source record of `copy`, with up to `missing` records before it that compaction removed from the remote log.

    `None` if there is none, or if more than one may be it: then compaction removed the records that would tell them
    apart.
    """
    record = source.record()
    if record is None or missing < 0:
        return None
    if not missing:
        return record if is_copy(record, copy, log_append_time) else None
    if missing > LONGEST_GAP:
        raise Unproven(copy.offset, f"follows a gap of {missing} offsets, and at most {LONGEST_GAP} are compared")
    reach = [record]
    while len(reach) <= missing:
        record = source.record()
        if record is None:
            break
        reach.append(record)
    equal = [i for i, each in enumerate(reach) if is_copy(each, copy, log_append_time)]
    if len(equal) != 1:
        return None
    source.put_back(reach[equal[0] + 1 :])
    return reach[equal[0]]


def _restarted(
    open_source: OpenSource, offsets: Collection[int], copy: Record, log_append_time: bool
) -> Optional[Tuple[Records, Record]]:
    for offset in sorted(offsets):
        source = open_source(offset)
        record = source.record()
        if record is not None and record.offset == offset and is_copy(record, copy, log_append_time):
            return source, record
    return None


def _refuse_hole(
    open_source: OpenSource, processes: Sequence[Runs], original: Record, copy: Record, missing: int
) -> None:
    """Raise `Unproven` if the writer lost source records.

    That is so if the source has more records between all earlier processes and `original`, where another process
    starts, than are `missing` on the remote log before `copy`.
    """
    ends = [process.upstream_end for process in processes if process]
    if not ends or max(ends) >= original.offset:
        return
    between, source = 0, open_source(max(ends))
    record = source.record()
    while record is not None and record.offset < original.offset and between <= missing:
        between, record = between + 1, source.record()
    if between > max(missing, 0):
        raise Unproven(
            copy.offset,
            f"is the one at offset {original.offset} of the source, and what the source has from {max(ends)} on is not "
            "before it",
        )


def _why_not(original: Optional[Record], copy: Record) -> str:
    """A reason to refuse. Connect rewrites headers as text unless it is configured otherwise (KIP-145)."""
    reason = "is not the source's next one"
    if original is None or original.body == copy.body:
        return reason
    before_headers = original.body[: _headers_at(original.body)]
    if before_headers != copy.body[: _headers_at(copy.body)]:
        return reason
    return f"{reason}: its headers are others; Connect keeps headers only with header.converter=ByteArrayConverter"


def _headers_at(body: bytes) -> int:
    return decode_bytes(body, decode_bytes(body, 0)[1])[1]


def _in_order(processes: Sequence[Runs]) -> Proven:
    """One map that rises on both sides. Of records that are there twice it has the copy that the later records follow.
    """
    kept: List[Run] = []
    every = [list(process) for process in processes if process]
    for process in every:
        if not kept or process[-1].upstream_end >= kept[-1].upstream_end:
            start = process[0].upstream_offset
            cut = (run._replace(record_count=min(run.record_count, start - run.upstream_offset)) for run in kept)
            kept = [*(run for run in cut if run.record_count > 0), *process]
    stored, distinct = (sum(run.record_count for run in runs) for runs in (chain.from_iterable(every), kept))
    return Proven(tuple(kept), kept[-1].upstream_end, stored - distinct)


class PartitionLogs:
    """Both logs of one partition, opened at an offset: the source for an isolation level, the remote log as
    `read_committed`. Holds no more than a fetch answer in memory, however far it reads.

    `first_of` returns the remote log's first offset of a timestamp (ms) or later, -1 for none. Raises `Disconnected` if
    a leader moves or a broker is unavailable."""

    def __init__(
        self,
        source: Callable[[int, int], Iterator[Entry]],
        remote: Callable[[int], Iterator[Entry]],
        first_of: Callable[[int], int],
    ) -> None:
        self._source, self._remote = source, remote
        self._first_of = first_of

    def walk(self, anchor: Position, reported: Reported, of_one_record: bool = True) -> Proven:
        """Compare from the anchor, whose offsets are `of_one_record` or come before it, to the end of the remote log.
        Raises `Unproven` if neither isolation level fits."""
        failures: List[Unproven] = []
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):

            def open_source(offset: int, isolation: int = isolation) -> Records:
                return Records(self._source(offset, isolation), offset)

            remote = Records(self._remote(anchor.downstream_offset), anchor.downstream_offset)
            try:
                return walk(open_source, remote, anchor, reported, of_one_record)
            except Unproven as error:
                failures.append(error)
        raise max(failures, key=lambda each: (isinstance(each, Ambiguous), each.downstream_offset))

    def source_record(self, start: int) -> Optional[Record]:
        return Records(self._source(start, READ_UNCOMMITTED), start).record()

    def remote_record(self, start: int) -> Optional[Record]:
        return Records(self._remote(start), start).record()

    def originals(self, copy: Record, start: int, until: int) -> Sequence[int]:
        """The offsets in `[start, until)` of source records that equal `copy`; if there are none, of those with the
        same bytes: the target's brokers may have stamped their copy. At most `MOST_ALIKE + 1` of them."""
        equal: List[int] = []
        alike: List[int] = []
        for original, _ in _same_bytes(self._source(start, READ_UNCOMMITTED), copy.body, start, until):
            found = equal if is_copy(original, copy, False) else alike
            if len(found) <= MOST_ALIKE:
                found.append(original.offset)
        return equal or alike

    def earlier_copy(self, upstream_offset: int, before: int) -> Optional[int]:
        """Where the source's first record at or after `upstream_offset` lies on the remote log, before an offset."""
        original, remote = self.source_record(upstream_offset), Records(self._remote(0), 0)
        if original is None or remote.record() is None:
            return None
        start = 0
        if not remote.log_append_time and original.timestamp >= 0:
            # A copy has its original's time, so what is before the first of that time is none.
            start = self._first_of(original.timestamp)
            if not 0 <= start < before:
                return None
        found = _same_bytes(self._remote(start), original.body, start, before)
        return next((copy.offset for copy, stamped in found if is_copy(original, copy, stamped)), None)


def _same_bytes(entries: Iterator[Entry], body: bytes, start: int, until: int) -> Iterator[Tuple[Record, bool]]:
    """The records in `[start, until)` with this body, and whether their brokers stamped them. Other batches are not
    decoded, so ten million records take seconds."""
    for raw, header, is_data in entries:
        if header is not None:
            if header.base_offset >= until:
                return
            payload = checked_payload(raw, header) if is_data else b""
            # A batch that compaction emptied is a bare header.
            if not payload or body not in decompress(header.codec, payload):
                continue
        for record in read_records(raw):
            if record.offset >= until:
                return
            if record.offset >= start and record.body == body:
                yield record, header is not None and header.log_append_time
