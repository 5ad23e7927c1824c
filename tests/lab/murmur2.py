"""A key in, the partition that Kafka's Java producer would send it to out. Pure.

The hash is MurmurHash2 as in `org.apache.kafka.common.utils.Utils.murmur2`, the rule `BuiltInPartitioner`'s for keys.
"""

from __future__ import annotations

from typing import Optional

_SEED, _M, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash as an unsigned integer of 32 bits."""
    mixed = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        block = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        block = (block ^ block >> 24) * _M & _MASK
        mixed = mixed * _M & _MASK ^ block
    if len(data) > whole:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    mixed = (mixed ^ mixed >> 13) * _M & _MASK
    return mixed ^ mixed >> 15


def partition_of_key(key: Optional[bytes], partition: int, count: int) -> int:
    """The partition, of `count`, of a record that came from `partition`.

    Kafka spreads records without a key by chance, which no one could repeat after a crash: they keep together by the
    partition they came from.
    """
    return partition % count if key is None else (murmur2(key) & 0x7FFFFFFF) % count
