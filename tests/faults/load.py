"""Who writes while a case runs, who reads the copy at the same time, and who consumes as a group on the source."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Callable, Dict, List, Mapping, Set

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.faults.checker import Id, Sample, id_of
from tests.faults.cluster import Cluster
from tests.lab.readers import consumer_of, record_of

PER_SECOND = 600
# Brokers and proxies share the machine with what is judged: few and large writes.
TICK_SECONDS = 0.25
# Now and then a transaction is aborted; its records must be seen by no reader of what is committed.
ABORTED = 4
READ_AT_A_TIME = 200
SAMPLE_SECONDS = 0.5


class Background:
    """Work in threads of their own. `check` raises what one of them died of: a dead load or reader judges nothing."""

    def __init__(self, *works: Callable[[], None]) -> None:
        self._works = works
        self._stopping = threading.Event()
        self._running: List[Future[None]] = []

    def begin(self) -> None:
        """Start the threads, also again after `stop`."""
        self._stopping.clear()
        pool = ThreadPoolExecutor(len(self._works))
        self._running = [pool.submit(work) for work in self._works]

    def check(self) -> None:
        for work in self._running:
            if work.done():
                work.result()

    def give_up(self) -> None:
        self._stopping.set()
        wait(self._running, 30)

    def stop(self) -> None:
        self._stopping.set()
        for work in self._running:
            work.result(180)


class Load(Background):
    """Writes about `per_second` records to all partitions in turn until it is stopped.

    `acked` are those that the source acknowledged; of a transactional load, the ones of committed transactions.
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
        super().__init__(self._run)

    def next_numbers(self) -> Dict[int, int]:
        return dict(self._numbers)

    def _run(self) -> None:
        settings: Dict[str, Any] = {"acks": self._acks, "enable_idempotence": self._acks == "all"}
        if self._transactional:
            settings.update({"transactional_id": f"load of {self.topic}", "transaction_timeout_ms": 30000})
        producer = self._source.producer(linger_ms=20, batch_num_messages=200, **settings)
        if self._transactional:
            producer.init_transactions(60)
        turn = 0
        while not self._stopping.wait(TICK_SECONDS):
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
        # A transaction that is ended before its records are sent: librdkafka's issue 4849, and its producer is dead.
        assert producer.flush(60) == 0
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
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                    raise
                producer.list_topics(self.topic, 10)  # the partition is new


class Follower(Background):
    """Reads the remote topic while it is written, as `read_committed`. `seen` are the records that it met."""

    def __init__(self, target: Cluster, topic: str) -> None:
        self.seen: Set[Id] = set()
        # The highest number of each source partition.
        self.furthest: Dict[int, int] = {}
        self._target, self._topic = target, topic
        super().__init__(self._run)

    def _run(self) -> None:
        slow = {"topic_metadata_refresh_interval_ms": 2000, "fetch_wait_max_ms": 500, "enable_partition_eof": False}
        consumer = consumer_of(self._target, "follower", **slow)
        assigned: Set[int] = set()
        looked = 0.0
        while not self._stopping.is_set():
            if time.monotonic() - looked > 2:
                looked = time.monotonic()
                assigned = self._assign(consumer, assigned)
            for message in consumer.consume(2000, 0.2) if assigned else ():
                if message.error() is None:
                    which = id_of(record_of(message))
                    if which is not None:
                        self.seen.add(which)
                        self.furthest[which[0]] = max(which[1], self.furthest.get(which[0], -1))
            if not assigned:
                self._stopping.wait(0.3)
        consumer.close()

    def _assign(self, consumer: Consumer, assigned: Set[int]) -> Set[int]:
        try:
            found = set(consumer.list_topics(self._topic, 5).topics[self._topic].partitions)
        except (KafkaException, KeyError):
            return assigned
        new = sorted(found - assigned)
        if new:
            consumer.incremental_assign([TopicPartition(self._topic, each, 0) for each in new])
        return assigned | found

    def past(self, numbers: Mapping[int, int]) -> int:
        """How many records from these numbers on were seen, by the highest of each partition."""
        return sum(max(0, self.furthest.get(partition, -1) + 1 - number) for partition, number in numbers.items())


class Group(Background):
    """A group that consumes on the source, slower than it is written, and what its offsets on the target were while it
    did: `samples`."""

    def __init__(self, source: Cluster, target: Cluster, topic: str, remote_topic: str, name: str) -> None:
        self.name = name
        self.samples: List[Sample] = []
        self._source, self._target = source, target
        self._topic, self._remote_topic = topic, remote_topic
        super().__init__(self._consume, self._watch)

    def _consume(self) -> None:
        consumer = consumer_of(self._source, self.name, fetch_wait_max_ms=500, enable_partition_eof=False)
        consumer.subscribe([self._topic])
        while not self._stopping.wait(0.2):
            read = [each for each in consumer.consume(READ_AT_A_TIME, 0.2) if each.error() is None]
            if read:
                with contextlib.suppress(KafkaException):  # a coordinator is away, or the group is rebalanced
                    consumer.commit(asynchronous=False)
        consumer.close()

    def _watch(self) -> None:
        here, there = consumer_of(self._source, self.name), consumer_of(self._target, self.name)
        stopping = False
        while not stopping:
            stopping = self._stopping.wait(SAMPLE_SECONDS)  # the last sample is taken after that
            with contextlib.suppress(KafkaException, KeyError):  # a broker is away; the next sample counts
                self._sample(here, there)
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
