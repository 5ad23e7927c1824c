"""Compares record batches of both logs byte for byte, and finds the copied records that are equal by that.

Two batches with the same record fields in the header and the same payload have the same records, so nothing is decoded.
This module reads the logs as the copying code does, several times as fast as Spark's Kafka source. It reports only
equality. Spark's own consumer compares the rest: rebuilt batches, compacted logs, and differences.
"""

from __future__ import annotations

import logging
import time
from array import array
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import pyarrow as pa
from pyspark.sql import SparkSession

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import MirrorError
from mirror_lib.kafka.admin_client import log_client
from mirror_lib.kafka.connection import Disconnected, LogClient
from mirror_lib.kafka.fetcher import ISOLATION
from mirror_lib.kafka.log_reader import LogEntries
from mirror_lib.kafka.record_batch import DELETE_HORIZON, TRANSACTIONAL, BatchHeader, checked_payload
from mirror_lib.ledger.intervals import Numbers, PartitionMap, Run, woven
from mirror_lib.log_lines import format_worker_entries
from mirror_lib.spark.jobs import Shipped, shipped
from mirror_lib.verify.ranges import CopiedRange

log = logging.getLogger(__name__)

# Records of a piece; a task has about as many, from one piece or from several.
LEAST_PIECE, LARGEST_PIECE = 250_000, 2_000_000
# Pieces of a large copy, so that many executors share it and progress is visible.
PIECES = 256
PIECES_TO_A_TASK = 64
CONNECT_SECONDS = 30.0
# If a leader moves, a task retries: attempts of the whole task, and the pause between them.
ATTEMPTS, AGAIN_SECONDS = 20, 1.0
# Attributes that depend on the writer, or on the cleaner (KIP-534), not on the records.
_OF_THE_WRITER = TRANSACTIONAL | DELETE_HORIZON


@dataclass(frozen=True)
class Piece:
    """Consecutive copied records of one partition. A batch belongs to the piece in which it starts.

    `runs`: the complete runs of these records, flat; `rank`: the number of copied records before these runs. `source`
    and `remote`: the offsets `[from, until)` of the piece in both logs. `tail_until`: the end of the read of the remote
    log.
    """

    slot: int
    topic: str
    remote_topic: str
    partition: int
    runs: Numbers
    rank: int
    source: Tuple[int, int]
    remote: Tuple[int, int]
    tail_until: int


class Equal(NamedTuple):
    """The equal part of a piece: the copied records `[first, until)`, counted over the partition, are the same on both
    sides, with no other records between them. `tail`: the remote log's records after the ledger's end."""

    first: int
    until: int
    tail: int


@dataclass(frozen=True)
class Settled:
    """The result for a partition: `open` has the copied records `[first, until)` that still need a comparison."""

    open: Tuple[Tuple[int, int], ...]
    tail: int


def comparable(copied: CopiedRange) -> bool:
    """Whether the logs of a range can be compared by batches: no compaction, no other writers, no contradiction."""
    return bool(copied.runs.records) and not (copied.compacted or copied.shared or copied.contradiction)


def settle(
    spark: SparkSession,
    clusters: Tuple[ClusterConfig, ClusterConfig],
    isolation_level: str,
    ranges: Mapping[int, CopiedRange],
) -> Mapping[int, Settled]:
    """Compare both logs of each range on the executors; keys as in `ranges`. `isolation_level` is the source's."""
    total = sum(each.runs.records for each in ranges.values())
    size = min(max(total // PIECES, LEAST_PIECE), LARGEST_PIECE)
    pieces = [piece for slot, copied in ranges.items() for piece in pieces_of(slot, copied, size)]
    tasks = _tasks(pieces, size)
    found: Dict[int, Optional[Equal]] = {}
    if tasks:
        with shipped(spark, tuple(tasks), (*clusters, ISOLATION[isolation_level])) as held:
            columns = "piece int, first bigint, until bigint, tail bigint"
            rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_comparer(held), columns).collect()
        found = {row["piece"]: Equal(row["first"], row["until"], row["tail"]) for row in rows}
    by_slot: Dict[int, List[Optional[Equal]]] = {}
    for number, piece in enumerate(pieces):
        by_slot.setdefault(piece.slot, []).append(found.get(number))
    return {slot: settled(each, ranges[slot].runs.records) for slot, each in by_slot.items()}


class _Columns(NamedTuple):
    """Runs by column, 8 bytes a number; `ends` counts the records up to the end of each."""

    upstream: Numbers
    downstream: Numbers
    counts: Numbers
    ends: Numbers

    @classmethod
    def of(cls, runs: PartitionMap) -> _Columns:
        columns = tuple(array("q", (run[n] for run in runs.complete_runs())) for n in range(3))
        return cls(columns[0], columns[1], columns[2], array("q", accumulate(columns[2])))


def pieces_of(slot: int, copied: CopiedRange, size: int) -> List[Piece]:
    runs = _Columns.of(copied.runs)
    ends = runs.ends
    count = max(1, round(ends[-1] / size))
    cuts = [ends[-1] * n // count for n in range(count + 1)]
    places = [(copied.source.read_from, copied.remote.read_from)]
    held: List[Tuple[int, int]] = []
    at = 0
    for first, until in zip(cuts, cuts[1:]):
        while ends[at] <= first:
            at += 1
        last = at
        while ends[last] < until:
            last += 1
        # A piece ends right after its last record, so the next one also reads the offsets before its first record.
        within = until - (ends[last] - runs.counts[last])
        places.append((runs.upstream[last] + within, runs.downstream[last] + within))
        held.append((at, last + 1))
    places[-1] = (copied.source.end, copied.remote.end)
    return [
        Piece(
            slot,
            copied.topic,
            copied.remote_topic,
            copied.partition,
            woven([column[begin:end] for column in (runs.upstream, runs.downstream, runs.counts)]),
            ends[begin] - runs.counts[begin],
            (here[0], there[0]),
            (here[1], there[1]),
            copied.remote.read_until if n == count - 1 else there[1],
        )
        for n, ((begin, end), here, there) in enumerate(zip(held, places, places[1:]))
    ]


def _tasks(pieces: Sequence[Piece], size: int) -> List[Tuple[Tuple[int, Piece], ...]]:
    """Small pieces share a task; a piece keeps its number."""
    tasks: List[Tuple[Tuple[int, Piece], ...]] = []
    held: List[Tuple[int, Piece]] = []
    records = 0
    for number, piece in enumerate(pieces):
        held.append((number, piece))
        # A partition costs some round trips, even with few records.
        records += max(piece.source[1] - piece.source[0], size // PIECES_TO_A_TASK)
        if records >= size:
            tasks.append(tuple(held))
            held, records = [], 0
    return [*tasks, tuple(held)] if held else tasks


def settled(found: Sequence[Optional[Equal]], records: int) -> Settled:
    """Combine the results of a partition's pieces, in order. A batch may end after the piece in which it starts."""
    left: List[Tuple[int, int]] = []
    position = tail = 0
    for each in found:
        if each is None or each.first == each.until:
            continue
        if each.first < position:
            return Settled(((0, records),), 0)  # two pieces have the same record: the ledger is wrong
        if each.first > position:
            left.append((position, each.first))
        position = each.until
    if position < records:
        left.append((position, records))
    last = found[-1]
    if last is not None:
        tail = last.tail
    return Settled(tuple(left), tail)


def _comparer(
    tasks: Shipped[Tuple[Tuple[Tuple[int, Piece], ...], ...]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        format_worker_entries()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield _rows(compare_pieces(tasks.value[index], *tasks.secret))

    return compare


def _rows(found: Mapping[int, Equal]) -> pa.RecordBatch:
    columns = [*zip(*((number, *each) for number, each in found.items()))] or [(), (), (), ()]
    names = ("piece", *Equal._fields)
    types = (pa.int32(), pa.int64(), pa.int64(), pa.int64())
    return pa.RecordBatch.from_arrays([pa.array(each, kind) for each, kind in zip(columns, types)], names=list(names))


def compare_pieces(
    pieces: Sequence[Tuple[int, Piece]], source: ClusterConfig, target: ClusterConfig, isolation: int
) -> Mapping[int, Equal]:
    """The equal parts of the numbered `pieces`, by number.

    If a cluster cannot be read, its pieces are excluded: Spark's consumer then reads them and reports the error."""
    found: Dict[int, Equal] = {}
    try:
        with ExitStack() as open_clients:
            deadline = time.monotonic() + CONNECT_SECONDS
            here = open_clients.enter_context(log_client(source, "consumer", deadline))
            there = open_clients.enter_context(log_client(target, "consumer", deadline))
            here.refresh_leaders([(piece.topic, piece.partition) for _, piece in pieces], deadline)
            there.refresh_leaders([(piece.remote_topic, piece.partition) for _, piece in pieces], deadline)
            left = ATTEMPTS
            for number, piece in pieces:
                equal, left = _read_at_last(here, there, piece, isolation, left)
                if equal is not None:
                    found[number] = equal
    except MirrorError as error:
        log.warning("batches are not compared: %s", error)
    return found


def _read_at_last(
    here: LogClient, there: LogClient, piece: Piece, isolation: int, attempts: int
) -> Tuple[Optional[Equal], int]:
    """Compare a piece with retries. Returns its equal part and the remaining `attempts`; at 0 nothing is read."""
    while attempts:
        try:
            return _read(here, there, piece, isolation), attempts
        except Disconnected as error:
            attempts -= 1
            log.warning("%s-%d: %s; %d attempts are left", piece.topic, piece.partition, error, attempts)
            time.sleep(AGAIN_SECONDS)
            deadline = time.monotonic() + AGAIN_SECONDS
            here.refresh_leaders([(piece.topic, piece.partition)], deadline)
            there.refresh_leaders([(piece.remote_topic, piece.partition)], deadline)
        except MirrorError as error:
            log.info("%s-%d: its batches do not decide: %s", piece.topic, piece.partition, error)
            break
    return None, attempts


def _read(here: LogClient, there: LogClient, piece: Piece, isolation: int) -> Optional[Equal]:
    ours = LogEntries(here, (piece.topic, piece.partition), piece.source[0], isolation)
    theirs = LogEntries(there, (piece.remote_topic, piece.partition), piece.remote[0], 0)
    found = compare_batches(piece, ours, theirs)
    # A newly elected leader may not report its log's end yet, and retention may have removed the start.
    whole = ours.end >= piece.source[1] and theirs.end >= piece.tail_until and not (ours.expired or theirs.expired)
    return found if whole else None


def compare_batches(piece: Piece, source: LogEntries, remote: LogEntries) -> Optional[Equal]:
    """The equal part of `piece`; None if two batches differ, or are not at the offsets of the runs.

    Raises `BatchError` if a batch is corrupt.
    """
    runs = _ranked(piece)
    rank, run = next(runs)
    begun = (run.downstream_offset, run.downstream_end)
    copies = _data(remote, piece.remote[0], piece.tail_until, begun)
    first = until = -1
    for original in _data(source, *piece.source, (run.upstream_offset, run.upstream_end)):
        header = original[1]
        if header is None:
            return None
        while header.base_offset >= run.upstream_end:
            following = next(runs, None)
            if following is None:
                return None
            rank, run = following
        place = header.base_offset - run.upstream_offset
        if place < 0 or header.next_offset > run.upstream_end or rank + place != until != -1:
            return None
        copy = next(copies, None)
        if copy is None or copy[1] is None or copy[1].base_offset != run.downstream_offset + place:
            return None
        if not _same(original[0], header, copy[0], copy[1]):
            return None
        first = rank + place if first < 0 else first
        until = rank + place + header.record_count
    tail = 0
    for _, header in copies:
        if header is None or header.base_offset < piece.remote[1]:
            return None
        tail += header.record_count
    return Equal(max(first, 0), max(until, 0), tail)


def _data(
    entries: LogEntries, first: int, until: int, run: Tuple[int, int]
) -> Iterator[Tuple[memoryview, Optional[BatchHeader]]]:
    """The data entries that start within these offsets.

    The header is None for entries that cannot be compared: messages of magic 0 and 1, and some batches that start
    before `first`. Those are not completely within the piece's first `run`, so the previous piece does not compare
    them."""
    for raw, header, is_data in entries:
        if header is None:
            yield raw, None
            return
        if header.base_offset >= until:
            return
        if not is_data or header.next_offset <= first:
            continue
        if header.base_offset >= first:
            yield raw, header
        elif header.base_offset < run[0] or header.next_offset > run[1]:
            yield raw, None
            return


def _ranked(piece: Piece) -> Iterator[Tuple[int, Run]]:
    rank = piece.rank
    for run in map(Run, piece.runs[0::3], piece.runs[1::3], piece.runs[2::3]):
        yield rank, run
        rank += run.record_count


def _same(original: memoryview, header: BatchHeader, copy: memoryview, copied: BatchHeader) -> bool:
    """Whether both have the same records, without gaps. Raises `BatchError` if a CRC does not match."""
    if (header.attributes ^ copied.attributes) & ~_OF_THE_WRITER:
        return False
    if not header.contiguous or header.record_count != copied.record_count or header[6:9] != copied[6:9]:
        return False
    return checked_payload(original, header) == checked_payload(copy, copied)
