"""One flow over one topic, for tests that break it: fill the source, run the mirror, judge the copy."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Dict, List, Optional, Sequence, Tuple

from mirror_lib.config.model import ClusterConfig
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.brokers import KafkaBroker
from tests.lab.flow_lab import NOON, run_config, small_config
from tests.lab.meanwhile import meanwhile
from tests.lab.processes import state_of
from tests.lab.readers import Log, differences, lies, origin_of, read_if_there, read_topic, without_origins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_lib.replication.totals import FlowOutcome

# Settings by which a flow changes records.
CHANGES = {"engine", "where", "select", "transform", "rename", "partitioner", "dead.letter.topic"}
# Small record batches, so that a lane has many moments to be killed at; large enough to be copied as they are.
RECORDS_PER_BATCH = 40

# A crash point: the third produce request is built and not sent yet, the worst moment to die or to fall asleep.
ABOUT_TO_WRITE = ("mirror_lib.kafka.producer:_produce_request", "after", 3)


@dataclass
class OneFlow:
    """`source->target` over `topic`, whose name is also the mirror's, so that no two tests share transactional ids."""

    source: KafkaBroker
    target: KafkaBroker
    topic: str
    directory: Path
    partitions: int = 3
    settings: Dict[str, Any] = field(default_factory=dict)
    trigger: str = "availableNow"
    first_timestamp: int = NOON
    written: int = 0
    state_address: str = ""

    def __post_init__(self) -> None:
        # The records are old by their timestamps, and must outlive a broker's look for what has expired.
        self.source.create_topic(self.topic, self.partitions, retention_ms="-1")

    def create_remote_topic(self) -> None:
        """As the mirror would, for tests that run lanes alone."""
        self.target.create_topic(self.remote_topic, self.partitions, retention_ms="-1")

    @property
    def remote_topic(self) -> str:
        return f"source.{self.topic}"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def config(self) -> Path:
        """The configuration file, rewritten from `settings` and `trigger`."""
        servers = {"source": self.source.bootstrap, "target": self.target.bootstrap}
        settings = {"topics": f"[{self.topic}]", **self.settings}
        return small_config(
            self.directory, self.topic, servers, settings, state=self.state_address or self.state, trigger=self.trigger
        )

    def fill(self, records: int = 600, only: Sequence[int] = ()) -> None:
        """Append `records` to every partition, or those in `only`, which then do not count as written: no two alike."""
        producer = self.source.producer(batch_num_messages=RECORDS_PER_BATCH, linger_ms=50, enable_idempotence=True)
        for number in range(self.written, self.written + records):
            for partition in only or range(self.partitions):
                producer.produce(
                    self.topic,
                    key=None if number % 3 == 0 else b"key %d" % (number % 7),
                    value=None if number % 11 == 5 else b"%d:%d " % (partition, number) + b"x" * (number % 200),
                    headers=[("n", str(number)), ("n", None)] if number % 5 == 0 else None,
                    partition=partition,
                    timestamp=self.first_timestamp + number,
                )
            producer.poll(0)
        assert producer.flush(60) == 0
        self.written += 0 if only else records

    def source_topic_id(self) -> str:
        with KafkaCluster(ClusterConfig("source", {"bootstrap.servers": self.source.bootstrap})) as cluster:
            return cluster.topics()[self.topic].topic_id

    def create_source_anew(self, records: int) -> None:
        self.source.delete_topic(self.topic)
        self.source.create_topic(self.topic, self.partitions, retention_ms="-1")
        self.fill(records)

    def run(self, spark: SparkSession, stop: Optional[threading.Event] = None) -> FlowOutcome:
        (outcome,) = run_config(self.config, spark, stop=stop)
        return outcome

    def copy(self, spark: SparkSession, exact: bool = False) -> None:
        """A run that must succeed, after which the copy and the ledger are exact where that is asked."""
        error = self.run(spark).error
        assert error is None, error
        if exact:
            self.assert_exact(spark)

    def running(self, spark: SparkSession) -> ContextManager[List[FlowOutcome]]:
        """The flow runs while the block does; its outcome is there afterwards."""
        return meanwhile(lambda stop: [self.run(spark, stop)])

    def code(self, spark: SparkSession) -> str:
        error = self.run(spark).error
        return "" if error is None else str(error.code)

    @property
    def everything(self) -> int:
        return self.written * self.partitions

    def all_copied(self) -> bool:
        return self.copies() == self.everything

    def has_remote_topic(self) -> bool:
        return self.remote_topic in self.target.topics

    def copies(self) -> int:
        """Records on the remote log by now, whatever they are; 0 while there is none."""
        return sum(len(log) for log in read_if_there(self.target, self.remote_topic).values())

    def differences(self) -> List[str]:
        return differences(self.original(), self.remote())

    def differences_after(self, offsets: Dict[int, int]) -> List[str]:
        """The same from these upstream offsets on, for logs that have lost their first records."""
        source = read_topic(self.source, self.topic, "read_committed")
        kept = {n: {at: each for at, each in log.items() if at >= offsets[n]} for n, log in source.items()}
        return differences(kept, self.remote())

    def remote(self) -> Dict[int, Log]:
        """The remote log; of a flow that changes records without the header that says where a record came from."""
        logs = read_topic(self.target, self.remote_topic)
        gives_origins = CHANGES & self.settings.keys() and self.settings.get("provenance") != "off"
        return without_origins(logs) if gives_origins else logs

    def false_origins(self) -> List[str]:
        """Origins on the remote log that are not the ones of the source's records, once each and in order."""
        topic_id, source = self.source_topic_id()[:6], self.original()
        wanted = {
            f"{self.topic}:source/{self.topic}/{number}/{offset}/{topic_id}"
            for number, log in source.items()
            for offset in log
        }
        said = [origin_of(each) for log in read_topic(self.target, self.remote_topic).values() for each in log.values()]
        twice = [f"{each} twice" for each, count in Counter(said).items() if count > 1]
        return twice + [f"{each} is none" for each in said if each not in wanted]

    def original(self) -> Dict[int, Log]:
        """What was committed on the source, which must be all that was written: else the broker lost it, not we."""
        source = read_topic(self.source, self.topic, "read_committed")
        assert {number: len(log) for number, log in source.items()} == dict.fromkeys(source, self.written)
        return source

    def ledger(self, spark: SparkSession) -> List[Tuple[int, int, int, int]]:
        """Every offset sync: (partition, upstream, downstream, record count)."""
        rows = spark.read.format("delta").load(f"{self.state_address or self.state}/offset_syncs").collect()
        return [(r["partition"], r["upstream_offset"], r["downstream_offset"], r["record_count"]) for r in rows]

    def assert_exact(self, spark: SparkSession) -> None:
        """The source's committed records once each, in order, unchanged; and a ledger that is right about all."""
        source, remote = self.original(), self.remote()
        assert differences(source, remote) == []
        rows = self.ledger(spark)
        assert lies(rows, source, remote) == []
        reported = {(row[0], row[1] + i) for row in rows for i in range(row[3])}
        assert reported == {(number, offset) for number, log in source.items() for offset in log}


# Makes a flow over a new topic of the stem that it gets, with further fields by name: see the fixture `new_flow`.
NewFlow = Callable[..., OneFlow]


def until(condition: Callable[[], bool], seconds: float = 60.0, what: str = "") -> None:
    """Return when `condition` holds; fail if it does not in time, for the want of `what`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain{what and f' for {what}'}"
        time.sleep(0.05)


def stopped_process(token: Path, seconds: float = 60.0) -> int:
    """The process that stands still at a crash point with `token` and `how="stop"`, once it does."""
    until(lambda: token.exists() and bool(token.read_text()), seconds)
    pid = int(token.read_text().split()[0])
    until(lambda: state_of(pid) == "T", seconds)
    return pid
