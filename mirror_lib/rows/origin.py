"""The header `mirror.origin`, which names the source of a copied record. Pure.

Its value is text: `CLUSTER/TOPIC/PARTITION/OFFSET/ID`, as in `A/orders/3/1234/Qx7f2k`. CLUSTER is the alias of the
source, after `NAME:` if the mirror's file has a `name`. ID is the beginning of the topic's id, empty if brokers have
none: a re-created topic has another one. No Kafka name contains a `/`. A copy of a copy has one header for each hop,
the newest last.
"""

from __future__ import annotations

import re
from typing import Iterator, Mapping, NamedTuple, Optional, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.record_batch import decode_bytes, decode_varint

ORIGIN_HEADER = "mirror.origin"
DEFAULT_NAME = "mirror"
ID_LENGTH = 6
_NAME = ORIGIN_HEADER.encode()
_NUMBER = re.compile(r"[0-9]{1,19}")


class Origin(NamedTuple):
    """The source record of a copy. `cluster` and `topic` are names as in the header."""

    cluster: str
    topic: str
    partition: int
    offset: int
    topic_id: str

    @property
    def source(self) -> TopicPartition:
        return self.topic, self.partition


class Provenance(NamedTuple):
    """The common part of a flow's origins: its source cluster, and the ids of the topics there, if they have any."""

    cluster: str
    topic_ids: Mapping[str, str]


def origin_cluster(name: str, alias: str) -> str:
    """The name of the source cluster `alias` in the origins that the mirror `name` writes. Every transactional id has
    both names too: two mirrors that share both would fence each other."""
    return alias if name == DEFAULT_NAME else f"{name}:{alias}"


def same_topic(one: str, other: str) -> bool:
    """Whether two ids may be of one topic. Each may be complete, as from a broker, or shortened, as in an origin."""
    return not (one and other) or one[:ID_LENGTH] == other[:ID_LENGTH]


def origin_sql(cluster: str) -> str:
    """Spark SQL for the header of a row with the columns of its source and `topic_id`, as a struct of `key` and
    `value`."""
    parts = ", ".join(f"cast(source_{name} as string)" for name in ("topic", "partition", "offset"))
    value = f"concat_ws('/', '{cluster}', {parts}, substring(topic_id, 1, {ID_LENGTH}))"
    return f"struct('{ORIGIN_HEADER}' as key, cast({value} as binary) as value)"


def origin_of(body: bytes) -> Optional[Origin]:
    """The newest origin in a record's `body` (key, value and headers of format v2, with their lengths); `None` if it
    has none that can be parsed."""
    last: Optional[bytes] = None
    for name, value in headers_of(body):
        if name == _NAME:
            last = value
    parts = [] if last is None else last.decode("utf-8", "replace").split("/")
    if len(parts) != 5 or not all(_NUMBER.fullmatch(each) for each in parts[2:4]):
        return None
    return Origin(parts[0], parts[1], int(parts[2]), int(parts[3]), parts[4])


def headers_of(body: bytes) -> Iterator[Tuple[bytes, Optional[bytes]]]:
    """The headers of a record's body: names and values."""
    _, at = decode_bytes(body, 0)
    _, at = decode_bytes(body, at)
    count, at = decode_varint(body, at)
    for _ in range(count):
        name, at = decode_bytes(body, at)
        value, at = decode_bytes(body, at)
        yield name or b"", value
