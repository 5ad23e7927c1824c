"""A flow over any number of topics on two running clusters: written to, run in this process, and judged.

Its topics and its mirror have names of their own, so many tests can share the clusters. And `mirror mm1` likewise.
"""

from __future__ import annotations

import argparse
import json
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from confluent_kafka import TopicPartition

from mirror_lib.commands.mm1 import add, mm1_config
from mirror_lib.config.loader import load
from mirror_lib.config.model import MirrorConfig
from mirror_lib.ledger.records import INCIDENT_KINDS
from tests.lab.brokers import KafkaBroker, lines_of
from tests.lab.meanwhile import meanwhile
from tests.lab.readers import Log, consumer_of, differences, read_if_there, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_lib.metrics import FlowMetrics
    from mirror_lib.replication.totals import FlowOutcome


# Many labs share two clusters: the heartbeats of one would be copied by the flows of the others.
QUIET = {"emit.heartbeats.enabled": "false", "heartbeats.replication.enabled": "false"}
# What a test's flow has unless its own settings differ: short cycles, for one broker on each side.
SMALL = {"tasks.max": 2, "replication.factor": 1, "batch.max.seconds": 5, "tail.seconds": 2, **QUIET}
ONE_WAY = ("source->target",)
Servers = Mapping[str, Union[str, Mapping[str, str]]]
"""By alias the addresses of a cluster, or all properties of its clients."""
NOON = 1_700_000_000_000
IncidentRow = Tuple[str, str, int, int, int]
"""Kind, topic without the lab's prefix, partition, first offset, offset after the last."""


def write_config(
    path: Path, name: str, servers: Servers, flows: Sequence[str], settings: Mapping[str, Any], **ends: object
) -> Path:
    """A file of flows that have the same settings, replaced in one step: another process may be reading it.

    A setting that is a string is YAML.
    """
    lines = [f"name: {name}", *(f"{key}: {value}" for key, value in ends.items()), "clusters:"]
    for alias, each in servers.items():
        properties = f'{{bootstrap.servers: "{each}"}}' if isinstance(each, str) else json.dumps(each)
        lines.append(f"  {alias}: {properties}")
    lines.append("flows:")
    values = [f"    {key}: {each if isinstance(each, str) else json.dumps(each)}" for key, each in settings.items()]
    for flow in flows:
        lines += [f"  {flow}:", *values]
    new = path.with_name(f"{path.name}.{threading.get_ident()}.new")
    new.write_text("\n".join(lines) + "\n")
    return new.replace(path)


def small_config(folder: Path, name: str, servers: Servers, settings: Mapping[str, Any], **more: Any) -> Path:
    """`mirror.yaml` of one test, with the settings of `SMALL` where it has none of its own."""
    flows = more.pop("flows", ONE_WAY)
    return write_config(folder / "mirror.yaml", name, servers, flows, {**SMALL, **settings}, **more)


def run_config(
    file: Union[Path, MirrorConfig],
    spark: SparkSession,
    seen: Callable[[FlowMetrics], None] = lambda _: None,
    stop: Optional[threading.Event] = None,
) -> List[FlowOutcome]:
    """All flows of a file in this process, streaming queries and all, until they are done or `stop` is set."""
    from mirror_lib.copy_job import run_flows

    config = file if isinstance(file, MirrorConfig) else load(str(file))
    return run_flows(config, config.flows, spark, seen, stop or threading.Event())


@dataclass
class FlowLab:
    """`source->target` over every topic whose name starts with `name` and a dot. `settings` are the flow's keys.
    `other_names`: further aliases of the file; `flows[0]` names the remote topics."""

    source: KafkaBroker
    target: KafkaBroker
    spark: SparkSession
    directory: Path
    name: str
    settings: Dict[str, Any] = field(default_factory=dict)
    trigger: str = "availableNow"
    flows: Sequence[str] = ONE_WAY
    seen: List[FlowMetrics] = field(default_factory=list)
    other_names: Dict[str, KafkaBroker] = field(default_factory=dict)

    def create(self, stem: str, partitions: int = 1, **configs: str) -> str:
        """A topic of the flow on the source; `create("orders")` is called `NAME.orders`."""
        return self.source.create_topic(f"{self.name}.{stem}", partitions, **configs)

    def remote(self, stem: str) -> str:
        return f"{self.flows[0].partition('->')[0]}.{self.name}.{stem}"

    def write(self, stem: str, values: Sequence[Optional[bytes]], partition: int = 0, **options: Any) -> None:
        """Append a record for each value, a millisecond apart. `options` are librdkafka's, `_` for `.`."""
        self.write_to(self.source, f"{self.name}.{stem}", values, partition, **options)

    def write_to(
        self, broker: KafkaBroker, topic: str, values: Sequence[Optional[bytes]], partition: int = 0, **options: Any
    ) -> None:
        producer = broker.producer(linger_ms=options.pop("linger_ms", 20), **options)
        failed: List[str] = []
        for number, value in enumerate(values):
            producer.produce(
                topic,
                value,
                b"key %d" % number,
                partition,
                timestamp=NOON + number,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
            producer.poll(0)
        assert producer.flush(60) == 0 and not failed, failed

    @property
    def config(self) -> Path:
        """The configuration file, rewritten from `settings` and `trigger`."""
        named = {self.source.name: self.source, self.target.name: self.target, **self.other_names}
        servers = {name: each.bootstrap for name, each in named.items()}
        settings = {"topics": [f"{self.name}[.].*"], **self.settings}
        ends = {"flows": self.flows, "state": self.directory / "state", "trigger": self.trigger}
        return small_config(self.directory, self.name, servers, settings, **ends)

    def run_all(self, stop: Optional[threading.Event] = None) -> List[FlowOutcome]:
        return run_config(self.config, self.spark, self.seen.append, stop)

    def run(self, **settings: Any) -> FlowOutcome:
        """One run of one flow; `settings` are changed for this and later runs, `_` for `.`."""
        self.settings.update({key.replace("_", "."): value for key, value in settings.items()})
        (outcome,) = self.run_all()
        return outcome

    def copy(self, **settings: Any) -> FlowOutcome:
        outcome = self.run(**settings)
        assert outcome.error is None, outcome.error
        return outcome

    def running(self) -> ContextManager[List[FlowOutcome]]:
        """The flow runs while the block does; its outcomes are there afterwards."""
        return meanwhile(self.run_all)

    def read(self, stem: str, isolation: str = "read_committed") -> Dict[int, Log]:
        return read_topic(self.source, f"{self.name}.{stem}", isolation)

    def read_remote(self, stem: str) -> Dict[int, Log]:
        """The remote log for the strictest reader; empty while there is none."""
        return read_if_there(self.target, self.remote(stem))

    def remote_values(self, stem: str, partition: int = 0) -> List[Optional[bytes]]:
        return [record.value for record in self.read_remote(stem).get(partition, {}).values()]

    def differences(self, stem: str, isolation: str = "read_committed") -> List[str]:
        return differences(self.read(stem, isolation), self.read_remote(stem))

    def remote_ends(self) -> Dict[Tuple[str, int], int]:
        """The end offset of every remote partition of this lab, markers included."""
        consumer = consumer_of(self.target, "lab")
        topics = consumer.list_topics(timeout=30).topics
        ends = {
            (name, number): consumer.get_watermark_offsets(TopicPartition(name, number), timeout=30)[1]
            for name, topic in topics.items()
            if self.name in name
            for number in topic.partitions
        }
        consumer.close()
        return ends

    def incidents(self) -> List[IncidentRow]:
        """The incidents of the table of events, in the order they were written."""
        folder = self.directory / "state" / "events"
        if not folder.exists():
            return []
        events = self.spark.read.format("delta").load(str(folder))
        rows = events.where(events.kind.isin(*INCIDENT_KINDS)).orderBy("at", "topic", "partition").collect()
        cut = len(self.name) + 1
        return [(r["kind"], r["topic"][cut:], r["partition"], r["from_offset"], r["until_offset"]) for r in rows]

    def grow(self, stem: str, partitions: int) -> None:
        self.source.grow(f"{self.name}.{stem}", partitions)

    def expire(self, stem: str, until: int, partition: int = 0) -> None:
        """What retention does: the source's log starts at `until` from now on."""
        self.source.expire(f"{self.name}.{stem}", {partition: until})


def values(count: int, stem: str = "value") -> List[bytes]:
    return [b"%s %d" % (stem.encode(), number) for number in range(count)]


def config_of(*arguments: str) -> MirrorConfig:
    parser = argparse.ArgumentParser()
    add(parser.add_subparsers())
    return mm1_config(parser.parse_args(["mm1", *arguments]))


@dataclass
class Mm1Lab:
    """One group that mirrors one topic. `arguments` are the options other than the two files and the state."""

    source: KafkaBroker
    target: KafkaBroker
    spark: SparkSession
    directory: Path
    group: str
    topic: str

    def arguments(self, state: str, *more: str) -> List[str]:
        """With the client files rewritten. `state` names a folder of the lab."""
        consumer = {"bootstrap.servers": self.source.bootstrap, "group.id": self.group, "auto.offset.reset": "earliest"}
        producer = {"bootstrap.servers": self.target.bootstrap}
        for name, settings in (("consumer", consumer), ("producer", producer)):
            # Files of their own, since several processes may be started at once.
            (self.directory / f"{state}-{name}.properties").write_text(lines_of(settings))
        files = [f"--{name}.config={self.directory / state}-{name}.properties" for name in ("consumer", "producer")]
        return [*files, f"--whitelist={self.topic}", f"--state={self.directory / state}", *more]

    def run(self, state: str = "state") -> List[FlowOutcome]:
        return self.run_with(self.arguments(state))

    def run_with(self, arguments: Sequence[str]) -> List[FlowOutcome]:
        """In this process, with any arguments."""
        return run_config(replace(config_of(*arguments), trigger="availableNow"), self.spark)

    def copied(self, partition: int = 0) -> List[Optional[bytes]]:
        """Values on the target, for the strictest reader; none while there is no such topic."""
        return [record.value for record in read_if_there(self.target, self.topic).get(partition, {}).values()]
