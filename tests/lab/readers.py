"""An independent look at both sides of a copy, with librdkafka: whole logs in, sentences about differences out.

It shares no code with what copied. It reads the remote log as `read_uncommitted`, the strictest reader there is.
"""

from __future__ import annotations

import time
from itertools import zip_longest
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from tests.lab.brokers import Cluster
from tests.lab.checkout import LabError

PATIENCE_SECONDS = 60.0
# At a log's end a fetch would wait half a second for more, and only then is the end reported.
FETCH_WAIT_MS = 10
SHOWN = 5
NO_TIME = -1


class LogRecord(NamedTuple):
    """What a user of the record sees. `timestamp` is milliseconds, -1 where the record has none."""

    key: Optional[bytes]
    value: Optional[bytes]
    headers: Tuple[Tuple[str, Optional[bytes]], ...]
    timestamp: int


# One partition's records by offset, in log order.
Log = Dict[int, LogRecord]


def consumer_of(broker: Cluster, group: str, **settings: Any) -> Consumer:
    """Reads committed records from the first on, and commits nothing by itself. `settings` are librdkafka's, `_` for
    `.`."""
    defaults = {
        **{"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": f"client of {group}"},
        **{"enable.auto.commit": False, "enable.partition.eof": True, "isolation.level": "read_committed"},
        **{"auto.offset.reset": "earliest", "fetch.wait.max.ms": FETCH_WAIT_MS, "log_level": 0},
    }
    return Consumer({**defaults, **{key.replace("_", "."): value for key, value in settings.items()}})


def read_topic(
    broker: Cluster, topic: str, isolation: str = "read_uncommitted", login: Optional[Mapping[str, str]] = None
) -> Dict[int, Log]:
    """Every record of every partition of `topic`, from the first to the end that the log had when it was read.

    `login` are librdkafka's settings for a broker that asks for a name.
    """
    own = {"isolation.level": isolation, "auto.offset.reset": "error"}
    consumer = consumer_of(broker, "lab-reader", **own, **(login or {}))
    try:
        partitions = sorted(consumer.list_topics(topic, 30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        return _drain(consumer, partitions, f"{topic} on {broker.name}")
    finally:
        consumer.close()


def read_if_there(broker: Cluster, topic: str, isolation: str = "read_uncommitted") -> Dict[int, Log]:
    """`read_topic`, or nothing while the broker has no such topic."""
    try:
        return read_topic(broker, topic, isolation)
    except KeyError:
        return {}


def _drain(consumer: Consumer, partitions: Sequence[int], name: str) -> Dict[int, Log]:
    logs: Dict[int, Log] = {number: {} for number in partitions}
    unfinished, patient_until = set(partitions), time.monotonic() + PATIENCE_SECONDS
    while unfinished:
        # Waits its timeout out unless all thousand are there, so that is short and patience is counted here.
        messages = consumer.consume(1000, timeout=0.03)
        if messages:
            patient_until = time.monotonic() + PATIENCE_SECONDS
        elif time.monotonic() > patient_until:
            raise LabError(f"{name}: partitions {sorted(unfinished)} were not read to their ends")
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            elif error is not None:
                raise LabError(f"{name}: {error}")
            else:
                logs[_known(message.partition())][_known(message.offset())] = record_of(message)
    return logs


def _known(number: Optional[int]) -> int:
    assert number is not None
    return number


def record_of(message: Message) -> LogRecord:
    """What was read. A record of message format 0 has no time: librdkafka says 0, Java's client -1."""
    headers: Any = message.headers() or ()
    kind, timestamp = message.timestamp()
    return LogRecord(
        message.key(), message.value(), tuple(headers), NO_TIME if kind == TIMESTAMP_NOT_AVAILABLE else timestamp
    )


def origin_of(record: LogRecord) -> Optional[str]:
    """What the record's last header says of where it came from, where that is `mirror.origin`."""
    name, value = record.headers[-1] if record.headers else ("", None)
    return (value or b"").decode() if name == "mirror.origin" else None


def without_origins(logs: Mapping[int, Log]) -> Dict[int, Log]:
    """Copies of a flow that changes records, without the header that it adds to each."""
    for number, log in logs.items():
        for offset, record in log.items():
            assert origin_of(record) is not None, f"partition {number} at offset {offset}: no mirror.origin"
    return {
        number: {offset: record._replace(headers=record.headers[:-1]) for offset, record in log.items()}
        for number, log in logs.items()
    }


def differences(source: Mapping[int, Log], remote: Mapping[int, Log]) -> List[str]:
    """How the remote log differs from the source's, a sentence each, at most five; empty if it is an exact copy."""
    found: List[str] = []
    for number in sorted(set(source) | set(remote)):
        ours, copies = source.get(number, {}), remote.get(number, {})
        if list(ours.values()) != list(copies.values()):
            found.append(_first_difference(number, list(ours.items()), list(copies.items())))
    return found[:SHOWN]


def _first_difference(
    number: int, ours: Sequence[Tuple[int, LogRecord]], copies: Sequence[Tuple[int, LogRecord]]
) -> str:
    head = f"partition {number}: {len(ours)} records on the source, {len(copies)} on the target"
    for (upstream, original), (downstream, copy) in zip_longest(ours, copies, fillvalue=(-1, None)):
        if original != copy:
            earlier = [offset for offset, record in copies if record == copy and offset < downstream]
            doubled = f", which is a duplicate of the one at {earlier[0]}" if earlier else ""
            return f"{head}; upstream {upstream} is {original}, yet downstream {downstream} is {copy}{doubled}"
    return head


def lies(rows: Iterable[Tuple[int, int, int, int]], source: Mapping[int, Log], remote: Mapping[int, Log]) -> List[str]:
    """Which offset syncs `(partition, upstream, downstream, record count)` are not true, a sentence each.

    A count of 0 is a position: what lies before it upstream must be exactly what lies before it downstream.
    """
    found: List[str] = []
    for number, upstream, downstream, count in rows:
        ours, copies = source[number], remote[number]
        if count:
            there = [ours.get(upstream + i) for i in range(count)]
            here = [copies.get(downstream + i) for i in range(count)]
            true = None not in there and there == here
        else:
            before = sum(offset < upstream for offset in ours)
            true = before == sum(offset < downstream for offset in copies)
        if not true:
            found.append(f"partition {number}: {count} records of upstream {upstream} do not lie at {downstream}")
    return found[:SHOWN]
