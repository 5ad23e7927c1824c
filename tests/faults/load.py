"""Who writes while a case runs, who reads the copy at the same time, and who consumes as a group on the source."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, Set

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.faults.checker import Id, Sample, id_of
from tests.faults.cluster import Cluster
from tests.lab.readers import record_of

PER_SECOND = 1500
# Brokers and proxies share the machine with what is judged: few and large writes.
TICK_SECONDS = 0.25
# Now and then a transaction is aborted; its records must be seen by no reader of what is committed.
ABORTED = 4
READ_AT_A_TIME = 200
SAMPLE_SECONDS = 0.5


class Load:
    """Writes about `per_second` records to all partitions in turn until it is stopped.

    `acked` are those that the source acknowledged; of a transactional load, those of committed transactions.
    """

    def __init__(
        self,
        source: Cluster,
        topic: str,
        partitions: int,
        per_second: int = PER_SECOND,
        transactional: bool = False,
        acks: str = "all",
    ) -> None:
        self._acks = acks
        self.acked: Set[Id] = set()
        self.topic, self.partitions, self.per_second = topic, partitions, per_second
        self._transactional = transactional
        self._numbers: Dict[int, int] = {}
        self._source = source
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="load")

    def start(self) -> Load:
        """Run in a background thread."""
        self._thread.start()
        return self

    def more(self) -> Load:
        """A load that continues with the next numbers, not started yet. Its `acked` includes what this one wrote."""
        other = Load(self._source, self.topic, self.partitions, self.per_second, self._transactional, self._acks)
        other._numbers, other.acked = self._numbers, self.acked
        return other

    def stop(self) -> None:
        """Return when the source has answered for each record that was written."""
        self._stop.set()
        self._thread.join(180)
        assert not self._thread.is_alive(), "the source does not answer the load's producer any more"

    def _run(self) -> None:
        settings: Dict[str, Any] = {
            "bootstrap.servers": self._source.near,
            "acks": self._acks,
            "enable.idempotence": self._acks == "all",
            "linger.ms": 20,
            "batch.num.messages": 200,
            "log_level": 0,
        }
        if self._transactional:
            settings.update({"transactional.id": f"load of {self.topic}", "transaction.timeout.ms": 30000})
        producer = Producer(settings)
        if self._transactional:
            producer.init_transactions(60)
        turn = 0
        while not self._stop.wait(TICK_SECONDS):
            turn += 1
            if self._transactional:
                self._transaction(producer, turn % ABORTED == 0)
            else:
                self._write(producer, self.acked)
        assert producer.flush(120) == 0

    def _transaction(self, producer: Producer, abort: bool) -> None:
        sent: Set[Id] = set()
        producer.begin_transaction()
        self._write(producer, sent)
        if abort:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
            self.acked |= sent

    def _write(self, producer: Producer, acked: Set[Id]) -> None:
        for _ in range(max(1, int(self.per_second * TICK_SECONDS / self.partitions))):
            for partition in range(self.partitions):
                number = self._numbers.get(partition, 0)
                self._numbers[partition] = number + 1
                self._send(producer, partition, number, acked)
        producer.poll(0)

    def _send(self, producer: Producer, partition: int, number: int, acked: Set[Id]) -> None:
        def delivered(error: object, _: object) -> None:
            if error is None:
                acked.add((partition, number))

        while True:
            try:
                producer.produce(
                    self.topic,
                    key=b"key %d" % (number % 50),
                    value=b"%d:%d:" % (partition, number) + b"x" * (number % 120),
                    headers=[("n", str(number))] if number % 5 == 0 else None,
                    partition=partition,
                    on_delivery=delivered,
                )
                return
            except BufferError:
                producer.poll(0.5)


class Follower:
    """Reads the remote topic while it is written, as `read_committed`. `seen` are the records that it met."""

    def __init__(self, target: Cluster, topic: str) -> None:
        self.seen: Set[Id] = set()
        self.offsets: Dict[int, int] = {}
        self._target, self._topic = target, topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="follower")

    def start(self) -> Follower:
        """Run in a background thread."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Return when its client is closed."""
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._target.near,
                "group.id": "follower",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 2000,
                "log_level": 0,
            }
        )
        assigned: Set[int] = set()
        looked = 0.0
        while not self._stop.is_set():
            if time.monotonic() - looked > 2:
                looked = time.monotonic()
                assigned = self._assign(consumer, assigned)
            for message in consumer.consume(2000, 0.2) if assigned else ():
                if message.error() is None:
                    which = id_of(record_of(message))
                    if which is not None:
                        self.seen.add(which)
            if not assigned:
                self._stop.wait(0.3)
        consumer.close()

    def _assign(self, consumer: Consumer, assigned: Set[int]) -> Set[int]:
        """Take in partitions that the topic has got since."""
        try:
            found = set(consumer.list_topics(self._topic, 5).topics[self._topic].partitions)
        except (KafkaException, KeyError):
            return assigned
        new = sorted(found - assigned)
        if new:
            consumer.incremental_assign([TopicPartition(self._topic, each, 0) for each in new])
        return assigned | found


class Group:
    """A group that consumes on the source, slower than it is written, and what its offsets on the target were while it
    did: `samples`."""

    def __init__(self, source: Cluster, target: Cluster, topic: str, remote_topic: str, name: str) -> None:
        self.name = name
        self.samples: List[Sample] = []
        self._source, self._target = source, target
        self._topic, self._remote_topic = topic, remote_topic
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._consume, self._watch)]

    def start(self) -> Group:
        """Run in background threads."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """The member leaves; the last sample is taken after the last commit."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._source.near,
                "group.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        consumer.subscribe([self._topic])
        while not self._stop.wait(0.2):
            read = [each for each in consumer.consume(READ_AT_A_TIME, 0.2) if each.error() is None]
            if read:
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID:
                        continue
                    raise
        consumer.close()

    def _watch(self) -> None:
        quiet = {"group.id": self.name, "enable.auto.commit": False, "log_level": 0}
        here = Consumer({**quiet, "bootstrap.servers": self._source.near})
        there = Consumer({**quiet, "bootstrap.servers": self._target.near})
        while not self._stop.wait(SAMPLE_SECONDS):
            try:
                self._sample(here, there)
            except (KafkaException, KeyError):
                continue  # a broker is away, which is the case's matter; the next look counts
        here.close()
        there.close()

    def _sample(self, here: Consumer, there: Consumer) -> None:
        partitions = list(there.list_topics(self._remote_topic, 5).topics[self._remote_topic].partitions)
        remote = there.committed([TopicPartition(self._remote_topic, each) for each in partitions], 5)
        # The source is asked afterwards, so that the group had not passed this when the target was asked.
        ours = here.committed([TopicPartition(self._topic, each) for each in partitions], 5)
        for theirs, own in zip(remote, ours):
            if theirs.offset >= 0:
                self.samples.append(Sample(theirs.partition, theirs.offset, max(own.offset, 0)))
