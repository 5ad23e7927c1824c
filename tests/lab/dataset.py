"""Fills a cluster with every kind of record that is hard to copy. In: a broker, the flow's aliases. Out: what was made.

One function a case. Sizes are small enough for a demonstration and large enough for a rate to show.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Iterable, List, Optional, Sequence, Tuple

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.net import KafkaConnectionManager, NetworkSelector
from kafka.protocol.producer import ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder

from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import LabError
from tests.lab.readers import read_topic

NOON = 1_700_000_000_000
FOREVER = str(2**63 - 1)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EXCLUDED = ("audit.*",)
NOT_LEADER = 6

Header = Tuple[str, Optional[bytes]]
Row = Tuple[int, Optional[bytes], Optional[bytes], List[Header]]
"""Timestamp in milliseconds, key, value, headers."""


@dataclass(frozen=True)
class MadeTopic:
    """A topic of the data set. `copied` is what a flow should do."""

    name: str
    partitions: int
    copied: bool = True


def producer_of(broker: KafkaBroker, **settings: object) -> Producer:
    large = {"queue_buffering_max_messages": 500_000, "queue_buffering_max_kbytes": 262_144}
    return broker.producer(**{"linger_ms": 20, **large, **settings})


def write(producer: Producer, topic: str, values: Iterable[bytes], partitions: int, keyed: bool = True) -> None:
    """Round the partitions in turn."""
    for count, value in enumerate(values, start=1):
        key = b"key-%d" % (count % 1000) if keyed else None
        produce(producer, topic, value, key, count % partitions, timestamp=NOON + count)
    flushed(producer)


def produce(producer: Producer, *record: Any, **fields: Any) -> None:
    """As soon as the producer has room."""
    while True:
        try:
            return producer.produce(*record, **fields)
        except BufferError:
            producer.poll(0.05)


def flushed(producer: Producer) -> None:
    if producer.flush(60):
        raise LabError("the source cluster did not take the data set within 60 s: is the disk full?")


def write_batch(broker: KafkaBroker, topic: str, partition: int, rows: Sequence[Row]) -> None:
    """Write one record batch as it is given: no client's `send` takes all that the log may hold."""
    builder = MemoryRecordsBuilder(2, 0, 1 << 20)
    for timestamp, key, value, headers in rows:
        builder.append(timestamp, key, value, headers)
    builder.close()
    part = ProduceRequest.TopicProduceData.PartitionProduceData(index=partition, records=bytes(builder.buffer()))
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    request = ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data], min_version=3, max_version=9
    )
    selector = NetworkSelector()
    connections = KafkaConnectionManager(selector, bootstrap_servers=broker.bootstrap)
    connections.bootstrap()
    found = broker.admin().list_topics(topic, timeout=30).topics[topic]
    leader = found.partitions[partition].leader
    code, deadline = NOT_LEADER, time.monotonic() + 30
    while code == NOT_LEADER and time.monotonic() < deadline:  # a moment after the topic was created
        answer = connections.send(request, node_id=leader)
        selector.poll(timeout_ms=30_000, future=answer)
        code = answer.value.responses[0].partition_responses[0].error_code
    connections.close()
    if code:
        raise LabError(f"{broker.name} refused a batch for {topic}-{partition} with error {code}")


def bulk(broker: KafkaBroker, name: str, size: int, count: int) -> MadeTopic:
    """Plain records in number, for the rate."""
    topic = broker.create_topic(name, 4)
    body = bytes(range(33, 127)) * (size // 94 + 1)
    values = (body[n % 90 : n % 90 + size] for n in range(count))
    write(producer_of(broker, batch_size=262_144), topic, values, 4)
    return MadeTopic(topic, 4)


def compressed(broker: KafkaBroker, codec: str, count: int = 4000) -> MadeTopic:
    topic = broker.create_topic(f"json.{codec}", 2)
    values = (json.dumps({"id": n, "name": f"n\u00famero {n}", "tags": ["a", "b"] * 5}).encode() for n in range(count))
    write(producer_of(broker, compression_type=codec), topic, values, 2)
    return MadeTopic(topic, 2)


def odd_records(broker: KafkaBroker, rounds: int = 300) -> MadeTopic:
    """Null and empty keys and values; header values null and empty, names repeated, empty and not ASCII; odd times."""
    topic = broker.create_topic("odd.records", 2, message_timestamp_after_max_ms=FOREVER)
    keys_and_values = [(None, None), (b"", b""), (None, b""), (b"", None), (b"k", b"v"), (b"\x00\xff", b"\xfe" * 300)]
    headers: List[List[Header]] = [
        [],
        [("h", None)],
        [("h", b""), ("h", b"2"), ("h", None), ("h", b"1")],
        [("", b"no name"), ("n\u00e4me \u4e2d\u6587", b"\x00\xff")],
    ]
    # Before 1970, no timestamp at all, 1970, and far ahead.
    times = [NOON, -86_400_000, -1, 0, 4_102_444_800_000]
    rows = [(times[n % 5], key, value, headers[n % 4]) for n in range(rounds) for key, value in keys_and_values]
    for first in range(0, len(rows), 50):
        write_batch(broker, topic, first // 50 % 2, rows[first : first + 50])
    return MadeTopic(topic, 2)


def append_time(broker: KafkaBroker, count: int = 3000) -> MadeTopic:
    topic = broker.create_topic("append.time", 2, message_timestamp_type="LogAppendTime")
    values = (b"value %d" % n for n in range(count))
    write(producer_of(broker, compression_type="lz4"), topic, values, 2)
    return MadeTopic(topic, 2)


def old_formats(broker: KafkaBroker) -> List[MadeTopic]:
    """Logs in message formats 0 and 1, as clusters have that came from Kafka 0.9 and 0.10; only brokers before 3.0."""
    made = []
    for number, release in enumerate(("0.9.0", "0.10.2")):
        topic = broker.create_topic(f"format.v{number}", 2, message_format_version=release)
        # LZ4 in messages of format 0 is refused: its frames had a wrong checksum.
        for codec in ("none", "gzip", "lz4")[: 2 + number]:
            write(producer_of(broker, compression_type=codec), topic, (b"%d" % n for n in range(1000)), 2)
        made.append(MadeTopic(topic, 2))
    return made


def transactions(broker: KafkaBroker, rounds: int = 20, each: int = 100) -> Tuple[MadeTopic, Producer]:
    """Committed and aborted transactions in turn, and one left open at the end of partition 0: its producer."""
    topic = broker.create_topic("transactions", 2)
    producer = producer_of(broker, transactional_id="lab-writer", transaction_timeout_ms=600_000)
    producer.init_transactions(30)
    for n in range(rounds):
        producer.begin_transaction()
        for i in range(each):
            producer.produce(topic, b"round %d, record %d" % (n, i), b"%d" % n, i % 2, timestamp=NOON + i)
        if n % 3 == 1:
            flushed(producer)  # or nothing of it would be in the log
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    producer.begin_transaction()
    write(producer, topic, [b"still open"] * 10, 1)
    return MadeTopic(topic, 2), producer


COMPACT_QUICKLY = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}


def to_be_compacted(broker: KafkaBroker, keys: int = 300, rounds: int = 10) -> str:
    """A topic whose cleaner will leave gaps inside its batches: old values of a key go, tombstones stay."""
    configs = {name.replace(".", "_"): value for name, value in COMPACT_QUICKLY.items()}
    topic = broker.create_topic("compacted", 1, cleanup_policy="compact", **configs)
    producer = producer_of(broker, compression_type="zstd")
    for n in range(rounds):
        now = int(time.time() * 1000)  # segments roll by the records' time
        for key in range(keys):
            if key % rounds >= n:  # keys stop changing one after another, so every batch keeps some records
                value = None if n == key % rounds == 3 else b"round %d of key %d" % (n, key)
                producer.produce(topic, value, b"key-%d" % key, 0, timestamp=now)
        flushed(producer)
        time.sleep(0.15)
    return topic


def compacted(broker: KafkaBroker, topic: str) -> MadeTopic:
    """`to_be_compacted`, once the cleaner is through with it."""
    wait_compacted(broker, topic)
    # A remote topic takes these configs over: its own cleaner would then run while the copy is being verified.
    set_configs(broker, topic, {name: None for name in COMPACT_QUICKLY})
    return MadeTopic(topic, 1)


def wait_compacted(broker: KafkaBroker, topic: str) -> None:
    """Return once the cleaner has removed some records and is at rest."""
    deadline, before = time.monotonic() + 60, -1
    while time.monotonic() < deadline:
        offsets = list(read_topic(broker, topic, "read_committed")[0])
        if len(offsets) <= offsets[-1] and len(offsets) == before:
            return
        before = len(offsets)
        time.sleep(1.2)
    raise LabError(f"the cleaner of {broker.name} did not compact {topic} within 60 s (log: {broker.log})")


def set_configs(broker: KafkaBroker, topic: str, configs: dict[str, Optional[str]]) -> None:
    """Set topic configs; None takes one back to its default."""
    kinds = {True: AlterConfigOpType.DELETE, False: AlterConfigOpType.SET}
    entries = [ConfigEntry(name, value, incremental_operation=kinds[value is None]) for name, value in configs.items()]
    admin = broker.admin()
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def tiny_batches(broker: KafkaBroker, count: int = 6000) -> MadeTopic:
    topic = broker.create_topic("tiny.batches", 2)
    producer = producer_of(broker, batch_num_messages=1, linger_ms=0)
    write(producer, topic, (b"tiny %d" % n for n in range(count)), 2)
    return MadeTopic(topic, 2)


def large_batches(broker: KafkaBroker, target: KafkaBroker, remote_topic: str, count: int = 4000) -> MadeTopic:
    """Batches of a megabyte, for a remote topic that exists and takes a fifth of that."""
    topic = broker.create_topic("large.batches", 1, max_message_bytes="4000000")
    target.create_topic(remote_topic, 1, max_message_bytes="200000")
    settings = {"batch_size": 900_000, "message_max_bytes": 1_000_000, "linger_ms": 300}
    body = bytes(range(256)) * 4
    write(producer_of(broker, **settings), topic, (b"%d" % n + body for n in range(count)), 1)
    return MadeTopic(topic, 1)


def trimmed(broker: KafkaBroker) -> MadeTopic:
    """A log that begins inside a batch, because records before that were deleted."""
    topic = broker.create_topic("trimmed", 1)
    write(producer_of(broker, linger_ms=500), topic, (b"value %d" % n for n in range(2000)), 1)
    broker.expire(topic, {0: 777})
    return MadeTopic(topic, 1)


def not_copied(broker: KafkaBroker, target_alias: str) -> List[MadeTopic]:
    """Topics that a flow leaves alone: excluded, internal, or come from the target in the first place."""
    names = ("audit.trail", "mm2-offsets.elsewhere.internal", f"{target_alias}.orders")
    for name in names:
        write(producer_of(broker), broker.create_topic(name), [b"not for copying"], 1)
    return [MadeTopic(name, 1, copied=False) for name in names]


def fill(
    source: KafkaBroker, target: KafkaBroker, aliases: Tuple[str, str], scale: float = 1.0
) -> Tuple[Sequence[MadeTopic], Producer]:
    """Every case above, and the producer whose transaction is open. `scale` multiplies the bulk."""
    later = to_be_compacted(source)
    made = [
        *(bulk(source, "bulk.100b", 100, int(200_000 * scale)), bulk(source, "bulk.1kb", 1024, int(40_000 * scale))),
        *(compressed(source, codec) for codec in CODECS),
        *(odd_records(source), append_time(source), tiny_batches(source), trimmed(source)),
        *(large_batches(source, target, f"{aliases[0]}.large.batches"), *not_copied(source, aliases[1])),
    ]
    with_open, producer = transactions(source)
    return [*made, with_open, compacted(source, later)], producer
