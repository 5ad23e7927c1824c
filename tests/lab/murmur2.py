"""The partition that Kafka's Java producer would send a key to, by the hash of kafka-python."""

from __future__ import annotations

from typing import Optional

from kafka.partitioner.default import murmur2


def partition_of_key(key: Optional[bytes], partition: int, count: int) -> int:
    """The partition, of `count`, of a record that came from `partition`.

    Kafka spreads records without a key by chance, which no one could repeat after a crash: they keep together by the
    partition they came from.
    """
    return partition % count if key is None else (murmur2(key) & 0x7FFFFFFF) % count
