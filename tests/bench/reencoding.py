"""`python -m tests.bench.reencoding [CASE...]`: records a second that one process re-encodes, without any broker.

CPU time, best of several rounds; every copy is read back by kafka-python and compared. Read the ratios.
"""

from __future__ import annotations

import struct
import sys
import time
from functools import partial
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from kafka.record.legacy_records import LegacyRecordBatchBuilder

from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.replication.encoder import Encoder, Outgoing
from mirror_lib.text import aligned, grouped
from tests.lab.checkout import LabError
from tests.unit.logs import LOG_APPEND_TIME, NOON, LogBatch, Rec, batch_of, read_back, task_of, whole

RECORDS = 12_000
ROUNDS = 10
ANSWER_BYTES = 1 << 20
WORDS = (b"alpha", b"order", b"customer", b"shipped", b"paid", b"2026", b"EUR", b"note")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Source(NamedTuple):
    """A log as the broker holds it, and the records that a copy of it must have."""

    entries: List[bytes]
    records: List[Rec]
    max_message_bytes: int = 1 << 20


def record(number: int) -> Rec:
    """About 100 bytes; half of them repeat from record to record."""
    words = b" ".join(WORDS[(number * n) % len(WORDS)] for n in range(1, 15))
    return Rec(b"%08d %s" % (number, words), b"k%d" % (number % 1000), NOON + number // 4)


def log_of(made: Sequence[LogBatch], max_message_bytes: int = 1 << 20) -> Source:
    records = [
        rec._replace(timestamp=batch.latest) if batch.attributes & LOG_APPEND_TIME else rec
        for batch in made
        for _, rec in batch.records
    ]
    return Source([batch.raw() for batch in made], records, max_message_bytes)


def in_batches(size: int, codec: str, attributes: int = 0, max_message_bytes: int = 1 << 20) -> Source:
    return log_of(batches(size, codec, attributes), max_message_bytes)


def compacted(codec: str) -> Source:
    """Every third record is gone."""
    return log_of([batch.without(range(1, RECORDS, 3)) for batch in batches(1000, codec)])


def batches(size: int, codec: str, attributes: int = 0) -> List[LogBatch]:
    starts = range(0, RECORDS, size)
    return [batch_of(n, list(map(record, range(n, n + size))), CODECS.index(codec), attributes) for n in starts]


def magic_1(codec: str, size: int) -> Source:
    entries = []
    for start in range(0, RECORDS, size):
        builder = LegacyRecordBatchBuilder(1, CODECS.index(codec), 1 << 22)
        for number in range(start, start + size):
            rec = record(number)
            builder.append(number - start, rec.timestamp, rec.key, rec.value)
        entries.append(struct.pack(">q", start + size - 1) + bytes(builder.build())[8:])
    return Source(entries, list(map(record, range(RECORDS))))


CASES: Dict[str, Callable[[], Source]] = {
    **{f"single.{codec}": partial(in_batches, 1, codec) for codec in CODECS},
    "five.zstd": partial(in_batches, 5, "zstd"),
    "compacted.none": partial(compacted, "none"),
    "compacted.zstd": partial(compacted, "zstd"),
    "append.time": partial(in_batches, 1000, "none", LOG_APPEND_TIME),
    "split": partial(in_batches, 3000, "none", max_message_bytes=100_000),
    "magic1.single": partial(magic_1, "none", 1),
    "magic1.gzip": partial(magic_1, "gzip", 200),
}


def answers(source: Source) -> List[Fetched]:
    """The log in fetch answers of about a megabyte."""
    blobs: List[bytearray] = [bytearray()]
    for entry in source.entries:
        if len(blobs[-1]) > ANSWER_BYTES:
            blobs.append(bytearray())
        blobs[-1] += entry
    return [Fetched(0, 1 << 40, 0, (), bytes(blob)) for blob in blobs]


def copy(source: Source, found: Sequence[Fetched]) -> Tuple[List[Outgoing], float]:
    """What would be appended, and the CPU seconds that it took."""
    encoder = Encoder(task_of(max_message_bytes=source.max_message_bytes), Producer(1, 0), 0, 0)
    began = time.process_time()
    made = [outgoing for answer in found for outgoing in encoder.encode(answer)]
    return made, time.process_time() - began


def measure(name: str) -> Sequence[str]:
    source = CASES[name]()
    found = answers(source)
    made, _ = copy(source, found)
    if [rec for each in made for rec in read_back(whole(each.pieces))] != source.records:
        raise LabError(f"{name}: the copy is not equal")
    rate = len(source.records) / min(copy(source, found)[1] for _ in range(ROUNDS))
    return (name, grouped(len(source.records)), grouped(len(source.entries)), grouped(len(made)), grouped(round(rate)))


def run(names: Sequence[str]) -> int:
    """Measure the named cases, or all; print one table."""
    rows: List[Sequence[str]] = [("CASE", "RECORDS", "BATCHES", "APPENDED", "RECORDS/S")]
    rows += [measure(name) for name in names or CASES]
    print("\n".join(aligned(rows, right=range(1, 5))))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:]))
    except LabError as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(1)
