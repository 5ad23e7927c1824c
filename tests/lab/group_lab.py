"""Ordinary consumers on a flow's clusters, and the translation of their groups: what was read and decided out.

The consumers are librdkafka's and share no code with what translates. Notes next to offsets go through kafka-python:
librdkafka commits them with a NUL behind, and hands them out without the one that its own binding reads up to
(librdkafka, issue 4649). Tests of take-overs share a flow over named topics, and a client that writes to them.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as Place
from kafka.errors import KafkaError as ClientError
from pyspark.sql import SparkSession

from mirror_lib.config.loader import load
from mirror_lib.facts import TopicPartition
from mirror_lib.groups.decisions import Decision
from mirror_lib.groups.mm2_format import Checkpoint, decode_checkpoint
from mirror_lib.groups.translation import TO_DOWNSTREAM
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.takeover.flow import FlowTakeover
from mirror_lib.takeover.origin import parse_origin
from mirror_lib.takeover.verdicts import PartitionTakeover
from tests.lab.brokers import KafkaBroker
from tests.lab.flow_lab import NOON, FlowLab
from tests.lab.meanwhile import meanwhile
from tests.lab.readers import Log, LogRecord, consumer_of, read_if_there, read_topic, record_of

if TYPE_CHECKING:
    from mirror_lib.errors import MirrorError
    from mirror_lib.groups.flow import CycleReport


PATIENCE_SECONDS = 60.0
CLASSIC, KIP_848 = "classic", "consumer"
CHECKPOINTS = "source.checkpoints.internal"
EVERY_SECOND: Dict[str, Any] = {
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": 1,
    "emit.checkpoints.interval.seconds": 1,
    "refresh.groups.interval.seconds": 1,
}

# What a consumer read, by topic and partition and in order.
Read = Dict[Tuple[str, int], List[LogRecord]]
Offsets = Dict[Tuple[str, int], Tuple[int, str]]


def read_on(
    broker: KafkaBroker, group: str, topics: Sequence[str], count: Optional[int] = None, **settings: Any
) -> Read:
    """Be the group's only member, read `count` records (to the end without it), commit, leave.

    Where the group has no offset it begins at the log's start.
    """
    consumer = consumer_of(broker, group, **settings)
    try:
        consumer.subscribe(list(topics))
        found = _read(consumer, count)
        # Named, because librdkafka leaves out what lies before the last commit.
        at = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
        if at:
            consumer.commit(offsets=at, asynchronous=False)
        return found
    finally:
        consumer.close()


def _read(consumer: Consumer, count: Optional[int]) -> Read:
    found: Read = {}
    ended: Dict[Tuple[str, int], bool] = {}
    left, deadline = count, time.monotonic() + PATIENCE_SECONDS
    while left is None or left > 0:
        for message in consumer.consume(min(500, left or 500), timeout=0.05):
            error, where = message.error(), (str(message.topic()), int(message.partition() or 0))
            if error is None:
                found.setdefault(where, []).append(record_of(message))
                left = None if left is None else left - 1
                ended.pop(where, None)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended[where] = True
            else:
                raise AssertionError(error)
        assigned = {(each.topic, each.partition) for each in consumer.assignment()}
        if assigned and assigned <= ended.keys():
            break
        assert time.monotonic() < deadline, f"read {sum(map(len, found.values()))} records, then nothing"
    return found


@contextmanager
def member(broker: KafkaBroker, group: str, topic: str, **settings: Any) -> Iterator[Consumer]:
    """A live member of the group that has partitions of `topic`; it commits nothing by itself."""
    consumer = consumer_of(broker, group, fetch_wait_max_ms=500, **settings)
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline, f"{group} got no partitions"
        yield consumer
    finally:
        consumer.close()


def commit(broker: KafkaBroker, group: str, topic: str, offset: int, partition: int = 0, note: str = "") -> None:
    """Commit without being a member: what an assigning consumer does, and what an operator's reset does."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    consumer.commit({Place(topic, partition): OffsetAndMetadata(offset, note, -1)})
    consumer.close()


def committed(broker: KafkaBroker, group: str, partitions: Mapping[str, int]) -> Offsets:
    """Offset and metadata by topic and partition, for topics and their partition counts; none is left out."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    try:
        asked = [Place(topic, number) for topic, count in partitions.items() for number in range(count)]
        found = {at: consumer.committed(at, metadata=True, timeout_ms=30_000) for at in asked}
    finally:
        consumer.close()
    return {tuple(at): (each.offset, each.metadata or "") for at, each in found.items() if each is not None}


def offsets(broker: KafkaBroker, group: str, topic: str, partitions: int = 1) -> Dict[int, int]:
    """The committed offsets by partition; none is left out."""
    return {number: at for (_, number), (at, _) in committed(broker, group, {topic: partitions}).items()}


class Move(NamedTuple):
    """A row of the audit table; `topic` is without the lab's name."""

    group: str
    topic: str
    partition: int
    previous_offset: Optional[int]
    new_offset: Optional[int]
    verdict: str
    action: str


@dataclass
class GroupLab(FlowLab):
    """A `FlowLab` whose groups are translated too. `run_id` is that of the last translation."""

    run_id: str = ""

    def topic(self, stem: str) -> str:
        return f"{self.name}.{stem}"

    @contextmanager
    def translation(self, direction: str = TO_DOWNSTREAM) -> Iterator[Any]:
        """One process of the translation of the first flow."""
        from mirror_lib.groups.flow import FlowTranslation
        from mirror_lib.kafka.admin import KafkaCluster

        config = load(str(self.config))
        flow = config.flows[0]
        with KafkaCluster(flow.source) as source, KafkaCluster(flow.target) as target:
            made = FlowTranslation(config, flow, self.spark, source, target, direction)
            self.run_id = made.run_id
            try:
                yield made
            finally:
                made.close()

    def translate(self, direction: str = TO_DOWNSTREAM, **rules: Any) -> Dict[Tuple[str, str, int], str]:
        """Look, decide and move as one process does: verdicts by group, topic (without the lab's name), partition."""
        with self.translation(direction) as translation:
            return self.passed(translation, **rules)

    def passed(self, translation: Any, **rules: Any) -> Dict[Tuple[str, str, int], str]:
        """One pass of a translation that continues."""
        own_rows = rules.pop("own_rows", False)
        found = translation.survey(rules.pop("group", None), rules.pop("topic", None))
        simple = rules.pop("simple_groups", translation.flow.groups_simple)
        translation.flow = replace(translation.flow, groups_simple=simple)
        decisions = translation.decide(found, **rules)
        translation.execute(decisions, own_rows)
        return {self.key(each): each.translation.verdict for each in decisions}

    def key(self, decision: Decision) -> Tuple[str, str, int]:
        return decision.group, decision.here[0].replace(f"{self.name}.", ""), decision.here[1]

    def moves(self) -> List[Move]:
        """The audit table, in the order in which it was written."""
        folder = Path(self.directory / "state" / "group_offsets")
        # A driver that was killed while it made the table left a folder without a commit.
        if not list(folder.glob("_delta_log/*.json")):
            return []
        rows = self.spark.read.format("delta").load(str(folder)).orderBy("at", "append_number", "move_number").collect()
        return [
            Move(r["group"], r["topic"].replace(f"{self.name}.", ""), *(r[name] for name in Move._fields[2:]))
            for r in rows
        ]

    def at_target(self, group: str, stem: str, partitions: int = 1) -> Dict[int, Tuple[int, str]]:
        """Where the group stands on the remote topic, by partition: offset and metadata."""
        found = committed(self.target, group, {self.remote(stem): partitions})
        return {number: at for (_, number), at in found.items()}

    def rest_of(self, group: str, stem: str) -> Dict[int, List[LogRecord]]:
        """What an ordinary consumer of the group still reads of the remote topic."""
        return of_topic(read_on(self.target, group, [self.remote(stem)]), self.remote(stem))


@dataclass
class JobLab(GroupLab):
    """A `GroupLab` whose flow is translated by the job. Its groups are those whose names start with its own."""

    reports: List[CycleReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = {**EVERY_SECOND, "groups": f'["{self.name}.*"]', **self.settings}

    def job(self, trigger: str, stop: threading.Event) -> List[MirrorError]:
        from mirror_lib.groups.job import run_translations

        config = replace(load(str(self.config)), trigger=trigger)
        return list(run_translations(config, config.flows, self.spark, self.reports.append, stop).values())

    def pass_once(self) -> CycleReport:
        errors = self.job("availableNow", threading.Event())
        assert errors == [], errors
        return self.reports[-1]

    @contextmanager
    def translating(self) -> Iterator[List[MirrorError]]:
        """The job continues while the block does; its errors are there afterwards."""
        with meanwhile(partial(self.job, "1 second")) as errors:
            yield errors

    def offset(self, group: str, stem: str = "orders", partition: int = 0) -> Optional[int]:
        """The group's offset on the remote topic; `None` while it has none, or no coordinator answers."""
        try:
            return self.at_target(group, stem, partition + 1).get(partition, (None, ""))[0]
        except ClientError:
            return None

    def done(self, group: str, stem: str = "orders", partition: int = 0) -> Optional[int]:
        """How many records of the remote topic the group has behind it."""
        offset = self.offset(group, stem, partition)
        return None if offset is None else sum(each < offset for each in self.read_remote(stem)[partition])

    def checkpoints(self) -> List[Checkpoint]:
        records = read_if_there(self.target, CHECKPOINTS).get(0, {}).values()
        found = [decode_checkpoint(each.key or b"", each.value or b"") for each in records]
        return [each for each in found if each.group.startswith(self.name)]


def of_topic(found: Read, topic: str) -> Dict[int, List[LogRecord]]:
    return {partition: records for (name, partition), records in found.items() if name == topic}


def union_faults(
    whole: Dict[int, Log], first: Dict[int, List[LogRecord]], then: Dict[int, List[LogRecord]]
) -> List[str]:
    """How `first`, read on one cluster, and `then`, read on the other, miss being `whole` once each and in order."""
    faults: List[str] = []
    for number, log in whole.items():
        records, read = list(log.values()), [*first.get(number, []), *then.get(number, [])]
        if read != records:
            before, after = len(first.get(number, [])), len(then.get(number, []))
            faults.append(f"partition {number}: {before} and then {after} records read, of {len(records)}")
    return faults


def faults_of_move(target: KafkaBroker, remote_topics: Dict[str, str], before: Read, after: Read) -> List[str]:
    """How a group's reading of topics and then of their remote topics misses being the remote logs."""
    return [
        f"{remote}: {fault}"
        for topic, remote in remote_topics.items()
        for fault in union_faults(
            read_topic(target, remote, "read_committed"), of_topic(before, topic), of_topic(after, remote)
        )
    ]


ALL = 1_000_000
NAME = "taken"
PRODUCERS: Dict[str, Producer] = {}


def made(pair: Sequence[KafkaBroker], spark: SparkSession, directory: Path, *stems: str) -> GroupLab:
    """A flow over `stems` with a state folder of its own."""
    directory.mkdir(exist_ok=True)
    lab = GroupLab(pair[0], pair[1], spark, directory, NAME)
    lab.settings["topics"] = [f"{NAME}.{stem}" for stem in stems]
    lab.settings["consumer.isolation.level"] = "read_uncommitted"  # as MirrorMaker reads by default
    lab.settings["groups"] = f'["{NAME}.*"]'
    return lab


@contextmanager
def busy(broker: KafkaBroker, topics: Sequence[str]) -> Iterator[None]:
    """A client writes to two partitions of each topic all the time, about a thousand records a second."""

    def write(stop: threading.Event) -> List[None]:
        producer = broker.producer(linger_ms=5)
        number = 0
        while not stop.wait(0.02):
            for topic in topics:
                for _ in range(10):
                    number += 1
                    key, value = b"key %d" % (number % 7), b"value %d" % number
                    producer.produce(topic, value, key, number % 2, timestamp=NOON + number, headers=[("n", key)])
            producer.poll(0)
        producer.flush(30)
        return []

    with meanwhile(write):
        yield


class Takeover:
    """One look at a flow's take-over, and what was decided by topic (without the lab's name) and partition."""

    def __init__(
        self, lab: GroupLab, compare: int = ALL, origin: str = "mm2", execute: bool = False, **named: str
    ) -> None:
        config = load(str(lab.config))
        flow = config.flows[0]
        with KafkaCluster(flow.source) as source, KafkaCluster(flow.target) as target:
            takeover = FlowTakeover(config, flow, lab.spark, source, target, parse_origin(origin, **named), compare)
            self.decided = takeover.examine()
            self.written = takeover.execute(self.decided) if execute else 0
        self.by_partition: Dict[TopicPartition, PartitionTakeover] = {
            (each.key.source_topic.replace(f"{NAME}.", ""), each.key.partition): each for each in self.decided
        }

    def actions(self) -> Dict[str, str]:
        return {f"{stem}-{number}": each.verdict.action for (stem, number), each in self.by_partition.items()}


def records(log: Mapping[int, LogRecord]) -> List[LogRecord]:
    return list(log.values())


def write_one(broker: KafkaBroker, topic: str, number: int, value: bytes) -> None:
    producer = PRODUCERS.setdefault(broker.bootstrap, broker.producer())
    producer.produce(topic, value, b"key %d" % number, 0, timestamp=NOON + number)
    producer.flush(30)
