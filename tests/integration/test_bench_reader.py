"""The reader by which the benchmark knows that a copy is one: any difference that a user could see, it sees."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List

import pytest
from confluent_kafka import Producer

from tests.bench.digests import Reader, differences
from tests.bench.engines import compiled
from tests.lab.brokers import KafkaBroker

RECORDS: List[Dict[str, Any]] = [
    {"value": b"one", "key": b"k", "timestamp": 1000, "headers": [("a", b"1"), ("b", None)]},
    {"value": b"two", "key": None, "timestamp": 1000},
    {"value": None, "key": b"k", "timestamp": 2000},
]


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    compiled()
    with Reader() as started:
        yield started


def written(broker: KafkaBroker, topic: str, records: List[Dict[str, Any]]) -> str:
    broker.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for record in records:
        producer.produce(topic, partition=1, **record)
    producer.flush()
    return topic


@pytest.mark.long
def test_only_an_exact_copy_has_the_same_digest(
    reader: Reader, source_cluster: KafkaBroker, target_cluster: KafkaBroker, topic_name: Callable[[str], str]
) -> None:
    first, second, third = RECORDS
    others = {
        "lost": [first, second],
        "doubled": [*RECORDS, third],
        "order": [second, first, third],
        "value": [first, {**second, "value": b"Two"}, third],
        "tombstone": [first, second, {**third, "value": b""}],
        "key": [{**first, "key": b""}, second, third],
        "header": [{**first, "headers": [("a", b"1"), ("b", b"")]}, second, third],
        "header.order": [{**first, "headers": [("b", None), ("a", b"1")]}, second, third],
        "timestamp": [first, {**second, "timestamp": 1001}, third],
    }
    source = reader.digests(source_cluster, written(source_cluster, topic_name("source"), RECORDS), "read_committed")
    copy = reader.digests(target_cluster, written(target_cluster, topic_name("copy"), RECORDS), "read_uncommitted")
    assert differences(source, copy) == []
    for what, records in others.items():
        other = written(target_cluster, topic_name(what), records)
        assert differences(source, reader.digests(target_cluster, other, "read_uncommitted")), what


@pytest.mark.long
def test_a_change_of_the_records_is_expected_and_no_other(
    reader: Reader, source_cluster: KafkaBroker, target_cluster: KafkaBroker, topic_name: Callable[[str], str]
) -> None:
    def records(customer: bytes, *kinds: bytes) -> List[Dict[str, Any]]:
        value = b'{"kind": "order %b", "customer": "%b"}'
        return [{"value": value % (kind, customer), "timestamp": 1} for kind in kinds]

    source = written(source_cluster, topic_name("source"), records(b"c1", b"placed", b"seen"))
    copies = {
        "all": records(b"c1", b"placed", b"seen"),
        "placed": records(b"c1", b"placed"),
        "masked": records(b"***", b"placed", b"seen"),
    }
    there = {rule: written(target_cluster, topic_name(rule), own) for rule, own in copies.items()}
    for rule in copies:
        expected = reader.digests(source_cluster, source, "read_committed", rule)
        equal = [
            name
            for name, topic in there.items()
            if not differences(expected, reader.digests(target_cluster, topic, "read_uncommitted"))
        ]
        assert equal == [rule]
