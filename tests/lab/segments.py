"""The segments of a stopped broker, on its disk: a partition in, its record batches cut off at the end."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import List

from tests.lab.brokers import KafkaBroker

# Base offset (8 bytes) and length of what follows (4), as Kafka's record batch begins.
_PREFIX = struct.Struct(">qi")


def forget_indexes(segment: Path) -> None:
    """Remove the broker's indexes of the file: it is rebuilt from the batches that are there."""
    for file in segment.parent.iterdir():
        if file.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            file.unlink()


def last_segment(broker: KafkaBroker, topic: str, partition: int) -> Path:
    """The file that the partition's newest records are in. The broker must not run."""
    return max((broker.directory / "data" / f"{topic}-{partition}").glob("*.log"))


def batch_starts(segment: Path) -> List[int]:
    data, starts, at = segment.read_bytes(), [], 0
    while at + _PREFIX.size <= len(data):
        starts.append(at)
        at += _PREFIX.size + _PREFIX.unpack_from(data, at)[1]
    assert at == len(data), f"{segment} does not end with a whole record batch"
    return starts


def cut_tail(segment: Path, batches: int, torn: bool = False) -> None:
    """Take the last `batches` record batches off the file; `torn` leaves half of the first of them."""
    starts = [*batch_starts(segment), segment.stat().st_size]
    first, after = starts[-batches - 1], starts[-batches]
    with segment.open("r+b") as file:
        file.truncate((first + after) // 2 if torn else first)
