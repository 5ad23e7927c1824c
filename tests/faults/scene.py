"""One case at work: load on the source, a replicator, readers, and faults that fall where records flow.

Who writes while a case runs, who reads the copy at the same time, and who consumes as a group on the source.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import AbstractSet, Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from mirror_lib.errors import EXIT_REFUSED
from tests.faults.checker import Id, Sample, Verdict, id_of, ids_on, judge, passed_unread
from tests.faults.cluster import Cluster
from tests.faults.engines import Engine
from tests.lab.readers import consumer_of, read_topic, record_of

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


PARTITIONS = 6
# So many records must have reached a reader of the target since the last fault before the next one falls.
BETWEEN_FAULTS = 300
START_SECONDS = 240.0
WHOLE_SECONDS = 240.0
STILL_SECONDS = 20.0
# The load continues for so long after the last fault, so that a copy that stopped for good is found.
AFTERWARDS_SECONDS = 5.0


# Settings of flows that change records, and which records they copy, by record and source offset.
FLOWS: Dict[str, Dict[str, Any]] = {
    "": {},
    "where": {"where": "partition % 2 = 0 or offset % 3 <> 0"},
    "keyed": {"partitioner": 4},
    "no fence": {"delivery": "at-least-once"},
    "no origins": {"where": "true", "provenance": "off"},
}
WANTED: Dict[str, Callable[[Id, int], bool]] = {"where": lambda each, offset: each[0] % 2 == 0 or offset % 3 != 0}
Act = Callable[["Scene"], None]


@dataclass(frozen=True)
class Strike:
    """One fault: what was done when so many records were acknowledged on the source, and seen on the target."""

    what: str
    written: int
    copied: int


@dataclass(frozen=True)
class Outcome:
    """What a case found. `whole_seconds`: from the end of the last fault until a reader of the target had all that was
    acknowledged by then; `None` if that did not come in four minutes. `passed_unread` is `None` without a group."""

    case: str
    engine: str
    seed: int
    strikes: List[Strike]
    happened: Mapping[str, int]
    committed: Verdict
    uncommitted: Verdict
    whole_seconds: Optional[float]
    passed_unread: Optional[int]
    starts: int
    exit_code: Optional[int]
    seconds: float
    refusal: str
    ended_by_itself: bool
    gone: int
    fenced_itself: int

    @property
    def exact(self) -> bool:
        """Both readers have everything once, and no group would miss anything."""
        return self.committed.exact and self.uncommitted.exact and not self.passed_unread

    def __str__(self) -> str:
        happened = ", ".join(f"{what} {count} times" for what, count in sorted(self.happened.items()))
        parts = [
            f"{self.case}, {self.engine}, seed {self.seed}: read_committed {self.committed}",
            f"read_uncommitted {self.uncommitted}",
            *([f"{self.passed_unread} records passed unread"] if self.passed_unread is not None else []),
            f"whole after {self.whole_seconds} s, {len(self.strikes)} faults, {self.starts} starts, {self.seconds} s",
            *([happened] if happened else []),
        ]
        return "; ".join(parts)


@dataclass(frozen=True)
class Case:
    """A fault by name.

    `title` is its row in the table. `mm2`: MirrorMaker 2 can meet it too. `quick`: `make test-long` runs it. `cleaned`:
    the source deletes records meanwhile, so only those that are there in the end must be on the target. `flow` is one
    of FLOWS.
    """

    name: str
    title: str
    act: Act
    mm2: bool = True
    quick: bool = False
    transactional: bool = False
    group: bool = False
    cleaned: bool = False
    flow: str = ""
    topic: Mapping[str, str] = field(default_factory=dict)
    spark_options: Sequence[str] = ()
    small_disk: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    # The nodes that the source topic lies on: by default all three.
    replicas: Sequence[int] = ()
    # The remote topic, where it is there before the first record, on these nodes.
    remote: Mapping[str, str] = field(default_factory=dict)
    remote_replicas: Sequence[int] = ()
    acks: str = "all"
    # What is written each second. Over hours the judge holds every record in memory.
    per_second: int = PER_SECOND
    # A late InitProducerId of this mirror's own, or a process that was frozen amid its fences, may end a run with exit
    # code 3; the next start must resume.
    fences_itself: bool = False


@dataclass
class Scene:
    """What a case acts on."""

    case: Case
    source: Cluster
    target: Cluster
    engine: Engine
    load: Load
    seed: int
    group: Optional[Group] = None
    # What the replicator said and did, where that is right and no exact copy.
    refusal: str = ""
    strikes: List[Strike] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.wanted = WANTED.get(self.case.flow)
        self.follower = Follower(self.target, self.engine.remote_topic)
        self.ended_by_itself = False
        self.fenced_itself = 0
        self._healed: Optional[Tuple[float, AbstractSet[Id]]] = None
        self._before = self._happened()

    def flowing(self) -> None:
        """Return when records arrive on the target that were written after this call."""
        now, deadline = self.load.next_numbers(), time.monotonic() + START_SECONDS
        while self.follower.past(now) < BETWEEN_FAULTS or not now:
            now = now or self.load.next_numbers()
            self.check()
            if not self.engine.running and not self.started_again():
                raise AssertionError(f"{self.engine.name} has ended by itself:\n{self.tail_of_log()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no records reach the target:\n{self.tail_of_log()}")
            time.sleep(0.1)

    def started_again(self) -> bool:
        """Start again a run that a fence of its own ended, as a scheduler does, where the case may bring that about."""
        ended = self.case.fences_itself and self.engine.processes[-1].poll() == EXIT_REFUSED
        if ended:
            self.fenced_itself += 1
            self.engine.start()
        return ended

    def still(self) -> None:
        """Return when a reader of the target has got nothing new for two seconds; or after a while, as an earlier
        worker of MirrorMaker's that was thawed may copy on."""
        seen, since, deadline = len(self.follower.seen), time.monotonic(), time.monotonic() + STILL_SECONDS
        while time.monotonic() < min(since + 2, deadline):
            if len(self.follower.seen) != seen:
                seen, since = len(self.follower.seen), time.monotonic()
            time.sleep(0.1)

    def check(self) -> None:
        """AssertionError where one of those that write and read has failed."""
        for each in self._people():
            each.check()

    def _people(self) -> Sequence[Background]:
        return [self.load, self.follower, *([] if self.group is None else [self.group])]

    def strike(self, what: str) -> None:
        """Wait until records flow, and note that the fault which follows falls now."""
        self.flowing()
        self.strikes.append(Strike(what, len(self.load.acked), len(self.follower.seen)))

    def sleep(self, least: float, most: float) -> None:
        time.sleep(self.random.uniform(least, most))

    def heal(self) -> None:
        """Both clusters are whole again, and a replicator copies that has not refused to."""
        for cluster in (self.source, self.target):
            cluster.heal()
        if not self.engine.running and not self.refusal and not self.started_again():
            self.ended_by_itself = True
            self.engine.start()

    def healed(self) -> None:
        """The last fault has ended: what is acknowledged by now is waited for."""
        self._healed = time.monotonic(), self.owed()

    def tail_of_log(self) -> str:
        return "" if not self.engine.log.exists() else self.engine.log.read_text(errors="replace")[-1500:]

    def play(self) -> Outcome:
        began = time.monotonic()
        for each in self._people():
            each.begin()
        self.engine.start()
        try:
            try:
                self.case.act(self)
                if self._healed is None:
                    self.healed()
            finally:  # the clusters are the next case's too
                self.heal()
            assert self._healed is not None
            healed_at, owed = self._healed
            whole = time.monotonic() - healed_at if self._all_seen(owed, healed_at + WHOLE_SECONDS) else None
            time.sleep(AFTERWARDS_SECONDS)
            self.check()
            self.load.stop()
            self._all_seen(self.owed(), time.monotonic() + WHOLE_SECONDS)
            if self.group is not None:
                self.group.stop()
            code = self.engine.stop()
        finally:
            self.engine.end()
            for each in self._people():
                each.give_up()
        return self._judged(whole, code, time.monotonic() - began)

    def _all_seen(self, owed: AbstractSet[Id], deadline: float) -> bool:
        """Whether a reader of the target gets them in time. Less is owed where the source deletes records meanwhile."""
        while not owed <= self.follower.seen:
            if self.refusal or time.monotonic() > deadline:
                return False
            owed = owed & self.owed() if self.case.cleaned else owed
            time.sleep(0.1)
        return True

    def on_target(self) -> AbstractSet[Id]:
        """What the target holds at this moment, whatever a reader of it has seen before."""
        return ids_on(read_topic(self.target, self.engine.remote_topic))

    def owed(self) -> AbstractSet[Id]:
        """What is acknowledged by now and must be on the target in the end."""
        acked = frozenset(self.load.acked)
        wanted = self.wanted
        if wanted is None and not self.case.cleaned:
            return acked
        return acked & {
            each
            for log in read_topic(self.source, self.load.topic, "read_committed").values()
            for offset, record in log.items()
            if (each := id_of(record)) is not None and (wanted is None or wanted(each, offset))
        }

    def _judged(self, whole: Optional[float], code: Optional[int], seconds: float) -> Outcome:
        source = read_topic(self.source, self.load.topic, "read_committed")
        gone = self.load.acked - ids_on(source)
        assert self.case.cleaned or not gone, f"the source lost {len(gone)} records that it had acknowledged"
        found: Dict[str, Verdict] = {}
        for isolation in ("read_committed", "read_uncommitted"):
            remote = read_topic(self.target, self.engine.remote_topic, isolation)
            found[isolation] = judge(source, remote, self.case.flow != "keyed", self.wanted, gone)
        return Outcome(
            case=self.case.name,
            engine=self.engine.name,
            seed=self.seed,
            strikes=self.strikes,
            happened=dict(self._happened() - self._before),
            committed=found["read_committed"],
            uncommitted=found["read_uncommitted"],
            whole_seconds=None if whole is None else round(whole, 1),
            passed_unread=None if self.group is None else passed_unread(source, remote, self.group.samples),
            starts=len(self.engine.processes),
            exit_code=code,
            seconds=round(seconds, 1),
            refusal=self.refusal,
            ended_by_itself=self.ended_by_itself,
            gone=len(gone),
            fenced_itself=self.fenced_itself,
        )

    def _happened(self) -> Counter[str]:
        sides = (self.source, self.target)
        return Counter({f"{side.name}: {what}": n for side in sides for what, n in side.happened().items()})
