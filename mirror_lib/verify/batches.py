"""Compares record batches of both logs byte for byte, and finds the copied records that are equal by that.

Two batches with the same record fields in the header and the same payload have the same records, so nothing is decoded.
This module reads the logs as the copying code does, several times as fast as Spark's Kafka source. It reports only
equality. Spark's own consumer compares the rest: rebuilt batches, compacted logs, and differences.
"""

from __future__ import annotations

import logging
from array import array
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import pyarrow as pa
from pyspark.sql import SparkSession

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import MirrorError
from mirror_lib.kafka.connection import Disconnected, LogClient, name_of
from mirror_lib.kafka.fetcher import ISOLATION, READ_UNCOMMITTED
from mirror_lib.kafka.log_pairs import Pair, log_pairs
from mirror_lib.kafka.log_reader import LogEntries
from mirror_lib.kafka.record_batch import DELETE_HORIZON, TRANSACTIONAL, BatchHeader, checked_payload
from mirror_lib.ledger.intervals import Numbers, Run
from mirror_lib.log_lines import format_worker_entries
from mirror_lib.spark.jobs import Shipped, shipped
from mirror_lib.verify.ranges import CopiedRange, Ranks

log = logging.getLogger(__name__)

# Records of a piece; a task has about as many, from one piece or from several.
LEAST_PIECE, LARGEST_PIECE = 250_000, 2_000_000
# Pieces of a large copy, so that many executors share it and progress is visible.
PIECES = 256
PIECES_TO_A_TASK = 64
CONNECT_SECONDS = 30.0
# If a leader moves, a task retries, so often over all its pieces.
ATTEMPTS = 20
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
    pair: Pair
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
        with shipped(spark, tasks, (*clusters, ISOLATION[isolation_level])) as held:
            columns = "piece int, first bigint, until bigint, tail bigint"
            rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_comparer(held), columns).collect()
        found = {row["piece"]: Equal(row["first"], row["until"], row["tail"]) for row in rows}
    by_slot: Dict[int, List[Optional[Equal]]] = {}
    for number, piece in enumerate(pieces):
        by_slot.setdefault(piece.slot, []).append(found.get(number))
    return {slot: settled(each, ranges[slot].runs.records) for slot, each in by_slot.items()}


def pieces_of(slot: int, copied: CopiedRange, size: int) -> List[Piece]:
    ranks, known = Ranks(copied.runs), copied.known
    pair = ((known.topic, known.partition), (known.remote_topic, known.partition))
    records = copied.runs.records
    count = max(1, round(records / size))
    cuts = [records * n // count for n in range(count + 1)]
    # A piece ends right after its last record, so the next one also reads the offsets before its first record.
    places = [(copied.source.read_from, copied.remote.read_from), *map(ranks.after, cuts[1:-1])]
    places.append((copied.source.end, copied.remote.end))
    pieces = []
    for n in range(count):
        rank, runs = ranks.whole_runs(cuts[n], cuts[n + 1])
        source, remote = zip(places[n], places[n + 1])
        tail_until = copied.remote.read_until if n == count - 1 else remote[1]
        pieces.append(Piece(slot, pair, array("q", chain.from_iterable(runs)), rank, source, remote, tail_until))
    return pieces


def _tasks(pieces: Sequence[Piece], size: int) -> List[Sequence[Tuple[int, Piece]]]:
    """The numbered pieces by task, the largest ones in different tasks."""
    # A partition costs some round trips, even with few records.
    weights = [max(piece.source[1] - piece.source[0], size // PIECES_TO_A_TASK) for piece in pieces]
    count = min(-(-sum(weights) // size), len(pieces))
    numbered = sorted(enumerate(pieces), key=lambda each: -weights[each[0]])
    return [numbered[n::count] for n in range(count)]


def settled(found: Sequence[Optional[Equal]], records: int) -> Settled:
    """Combine the results of a partition's pieces, in order. A batch may end after the piece in which it starts."""
    left: List[Tuple[int, int]] = []
    position = 0
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
    return Settled(tuple(left), 0 if last is None else last.tail)


def _comparer(
    tasks: Shipped[Sequence[Sequence[Tuple[int, Piece]]]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        format_worker_entries()
        schema = pa.schema([("piece", pa.int32()), *((name, pa.int64()) for name in Equal._fields)])
        for batch in batches:
            for index in batch.column(0).to_pylist():
                found = compare_pieces(tasks.value[index], *tasks.secret)
                rows = [{"piece": number, **each._asdict()} for number, each in found.items()]
                yield pa.RecordBatch.from_pylist(rows, schema)

    return compare


def compare_pieces(
    pieces: Sequence[Tuple[int, Piece]], source: ClusterConfig, target: ClusterConfig, isolation: int
) -> Mapping[int, Equal]:
    """The equal parts of the numbered `pieces`, by number.

    If a cluster cannot be read, its pieces are excluded: Spark's consumer then reads them and reports the error."""
    found: Dict[int, Equal] = {}
    try:
        with log_pairs(source, target, [piece.pair for _, piece in pieces], ATTEMPTS, CONNECT_SECONDS) as logs:
            for number, piece in pieces:
                try:
                    equal = logs.read(piece.pair, partial(_read, piece, isolation))
                except MirrorError as error:
                    log.info("%s: its batches do not decide: %s", name_of(piece.pair[0]), error)
                    continue
                if equal is not None:
                    found[number] = equal
    except (MirrorError, Disconnected) as error:
        log.warning("batches are not compared: %s", error)
    return found


def _read(piece: Piece, isolation: int, here: LogClient, there: LogClient) -> Optional[Equal]:
    ours = LogEntries(here, piece.pair[0], piece.source[0], isolation)
    theirs = LogEntries(there, piece.pair[1], piece.remote[0], READ_UNCOMMITTED)
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
