"""A consumer group that works on one cluster, stops halfway, and resumes on the other, with ordinary consumers."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Dict, List, Mapping, Optional, Sequence, Set

from confluent_kafka import Consumer, KafkaError

from mirror_lib.facts import TopicPartition
from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import LabError
from tests.lab.readers import LogRecord, consumer_of, read_topic, record_of

PATIENCE_SECONDS = 60.0
Work = Dict[TopicPartition, List[LogRecord]]


def work(broker: KafkaBroker, group: str, topics: Sequence[str], most: Optional[int] = None) -> Work:
    """Subscribe as `group`, read until the logs' ends or `most` records, commit, leave; what was read, by partition."""
    consumer = consumer_of(broker, group)
    try:
        consumer.subscribe(list(topics))
        read = _read(consumer, topics, most)
        if any(read.values()):
            consumer.commit(asynchronous=False)
        return read
    finally:
        consumer.close()


def _read(consumer: Consumer, topics: Sequence[str], most: Optional[int]) -> Work:
    known = consumer.list_topics(timeout=30).topics
    unfinished: Set[TopicPartition] = {(topic, number) for topic in topics for number in known[topic].partitions}
    read: Work = defaultdict(list)
    count, patient_until = 0, time.monotonic() + PATIENCE_SECONDS
    while unfinished and (most is None or count < most):
        if time.monotonic() > patient_until:
            raise LabError(f"the group did not come to the end of {sorted(unfinished)}")
        for message in consumer.consume(200 if most is None else min(200, most - count), timeout=0.2):
            patient_until = time.monotonic() + PATIENCE_SECONDS
            error, where = message.error(), (str(message.topic()), message.partition() or 0)
            if error is None:
                read[where].append(record_of(message))
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(where)
            else:
                raise LabError(f"{where[0]}-{where[1]}: {error}")
    return read


def faults(target: KafkaBroker, remote_topics: Mapping[str, str], before: Work, after: Work) -> List[str]:
    """What is wrong with the two halves of the work, a sentence each: together they must be the remote topics."""
    found = []
    for topic, remote_topic in remote_topics.items():
        for number, log in read_topic(target, remote_topic, "read_committed").items():
            both = [*before.get((topic, number), []), *after.get((remote_topic, number), [])]
            if both != list(log.values()):
                found.append(f"{remote_topic}-{number}: the group read {len(both)} records of {len(log)}, or others")
    return found
