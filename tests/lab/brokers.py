"""Real single-node KRaft clusters on free loopback ports, each one Java process that cannot outlive its starter."""

from __future__ import annotations

import ctypes
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from concurrent.futures import TimeoutError
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, TypeVar

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.lab.checkout import CACHE, ROOT, LabError
from tests.lab.jvm import kafka_archive, quick_options

# Below the range Linux gives to outgoing connections: a client that keeps knocking at a stopped broker's port from that
# range can end up connected to itself, and the port is then taken when the broker wants it back.
FIRST, LAST = 20000, 32000


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_ports(count: int) -> Tuple[int, ...]:
    found: list[int] = []
    for port in random.sample(range(FIRST, LAST), 500):
        if is_free(port):
            found.append(port)
        if len(found) == count:
            return tuple(found)
    raise LabError(f"no {count} free ports on 127.0.0.1 between {FIRST} and {LAST}: stop what listens there")


KAFKA_VERSION = os.environ.get("KAFKA_VERSION", "4.3.1")
JARS = CACHE / f"kafka-{KAFKA_VERSION}"
READY_SECONDS = 180.0

# One broker, so every internal topic has one replica; few partitions and short waits, so that tests are quick.
DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    # Quotas are measured over two seconds instead of ten.
    "quota.window.num": "3",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After kill -9 the controller refuses the broker until its old session has run out.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "log.initial.task.delay.ms": "500",
    # Test records carry times of their own, often long past: retention would take them while a test reads.
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "delete.topic.enable": "true",
}

LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}} %m%n
"""

# What formatting a folder writes next to its ids, once a broker of this process has been formatted by Kafka's own tool.
_bootstrap: Dict[str, bytes] = {}


def _random_id() -> str:
    drawn = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return _random_id() if drawn.startswith("-") else drawn  # kafka-storage would take it for an option


LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Runs in the child before exec: the kernel kills it when the thread that started it ends, whatever ends that."""
    if LIBC is not None:
        LIBC.prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG


def end_with_parent() -> None:
    """The same with SIGTERM, for what ends cleanly by itself."""
    if LIBC is not None:
        LIBC.prctl(1, signal.SIGTERM)


def child(command: Sequence[str], **more: Any) -> subprocess.Popen[Any]:
    """A process in the checkout that ends with its starter; in a session of its own, so that Ctrl-C goes to the starter
    alone. `more` is Popen's."""
    own: Dict[str, Any] = {"cwd": ROOT, "stdin": subprocess.DEVNULL, "start_new_session": True}
    return subprocess.Popen(command, **{**own, "preexec_fn": die_with_parent, **more})


def background(command: Sequence[str], log: Path, **more: Any) -> subprocess.Popen[bytes]:
    """A `child` whose output is appended to `log`."""
    with log.open("ab") as out:
        return child(command, stdout=out, stderr=out, **more)


def end(process: Optional[subprocess.Popen[Any]], how: signal.Signals, seconds: float = 20) -> None:
    """Send it the signal, and kill it where it takes longer."""
    if process is None or process.poll() is not None:
        return
    os.kill(process.pid, how)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Cluster:
    """What a client does with the brokers at `bootstrap`."""

    name: str

    @property
    def bootstrap(self) -> str:
        raise NotImplementedError

    def admin(self) -> AdminClient:
        """A client that must be named: it is collected before it answers otherwise."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def producer(self, **options: Any) -> Producer:
        """`options` are librdkafka's, `_` for `.`: `batch_num_messages=1` makes a batch of each record."""
        own = {key.replace("_", "."): value for key, value in options.items()}
        return Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, **own})

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic (`max_message_bytes="9"` sets `max.message.bytes`); its name, when it can be written."""
        return self.create_placed(name, partitions, (), configs)

    def create_placed(self, name: str, partitions: int, replicas: Sequence[int], configs: Mapping[str, str]) -> str:
        """The same, on the nodes `replicas` where they are named."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        where: Dict[str, Any] = {"replica_assignment": [list(replicas)] * partitions} if replicas else {}
        admin = self.admin()
        admin.create_topics([NewTopic(name, partitions, config=settings, **where)])[name].result(60)
        self._wait_for_leaders(admin, name, partitions)
        return name

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        admin.delete_topics([name])[name].result(30)
        while name in admin.list_topics(timeout=10).topics:
            time.sleep(0.05)

    @property
    def topics(self) -> Set[str]:
        """Names of all topics but Kafka's own."""
        names = self.admin().list_topics(timeout=10).topics
        return {name for name in names if not name.startswith("__")}

    def write(self, topic: str, *values: bytes, partition: int = 0, **options: Any) -> None:
        """Append records; `options` are a producer's."""
        producer = self.producer(**options)
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(60) == 0

    def grow(self, topic: str, partitions: int) -> None:
        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        self._wait_for_leaders(admin, topic, partitions)

    def expire(self, topic: str, until: Mapping[int, int]) -> None:
        """Remove what lies before these offsets of partitions, as retention does; -1 is the end."""
        admin = self.admin()
        for done in admin.delete_records([TopicPartition(topic, *each) for each in until.items()]).values():
            done.result(30)

    @staticmethod
    def _wait_for_leaders(admin: AdminClient, topic: str, partitions: int) -> None:
        led = 0
        while led < partitions:
            found = admin.list_topics(topic, timeout=10).topics[topic].partitions
            led = sum(each.leader >= 0 for each in found.values())


@dataclass
class KafkaBroker(Cluster):
    """One broker that is its own cluster. `directory` holds its data, settings and log; it survives `kill`.

    `java_options` are by default the ones of a short life.
    """

    name: str
    directory: Path
    port: int
    controller_port: int
    properties: Mapping[str, str] = field(default_factory=dict)
    java_options: Sequence[str] = field(default_factory=lambda: quick_options(kafka_archive(JARS)))
    cluster_id: str = field(default_factory=lambda: _random_id())
    processes: List[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def process(self) -> Optional[subprocess.Popen[bytes]]:
        return self.processes[-1] if self.processes else None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.processes[-1].pid

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    def start(self, wait: bool = True) -> KafkaBroker:
        """Start, or start again on the same data and port. The broker ends with the thread that calls this."""
        self._write_files()
        console = self.directory / "console.log"
        self.processes = [background(["sh", "-c", command], console) for command in self._commands()]
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self) -> KafkaBroker:
        """Return when metadata and the transaction coordinator answer, and the cluster is really this one."""
        deadline = time.monotonic() + READY_SECONDS
        while not self.answers():
            if any(process.poll() is not None for process in self.processes):
                raise LabError(f"broker {self.name} ended while starting: {self._reason()} (log: {self.log})")
            if time.monotonic() > deadline:
                raise LabError(f"broker {self.name} did not answer within {READY_SECONDS:.0f} s (log: {self.log})")
            time.sleep(0.1)
        checkpoint = self.directory / "data" / "bootstrap.checkpoint"
        if not _bootstrap and checkpoint.exists():
            _bootstrap[checkpoint.name] = checkpoint.read_bytes()
        return self

    def answers(self) -> bool:
        """A listening port is not a broker: ask for the cluster id and for a transactional producer's id."""
        if not is_listening(self.port):
            return False
        client: Dict[str, Any] = {"bootstrap.servers": self.bootstrap, "log_level": 0}
        try:
            admin = AdminClient(client)  # named, or it is collected before it answers
            found = admin.describe_cluster(request_timeout=5).result(5).cluster_id
            if found != self.cluster_id:
                raise LabError(f"port {self.port} answers as cluster {found}, which is not broker {self.name}")
            Producer({**client, "transactional.id": "lab-ready", "retry.backoff.ms": 50}).init_transactions(5)
        except (KafkaException, TimeoutError):
            return False
        return True

    def stop(self) -> None:
        """Clean shutdown; killed when it takes longer than 20 s."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        for process in reversed(self.processes):
            process.send_signal(how)
        for process in self.processes:
            end(process, how)

    def pause(self) -> None:
        """`kill -STOP`: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> KafkaBroker:
        return self.start()

    def _write_files(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {
            **DEFAULTS,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.directory / "data"),
            **self.properties,
        }
        (self.directory / "server.properties").write_text(lines_of(settings))
        (self.directory / "log4j2.properties").write_text(LOGGING.format(log=self.log))

    def _commands(self) -> List[str]:
        """A shell line for each process: format the folder if it is new, then become the broker under the same id."""
        java = [
            java_command(),
            *self.java_options,
            "-cp",
            str(JARS / "*"),
            f"-Dlog4j2.configurationFile={self.directory}/log4j2.properties",
        ]
        settings = str(self.directory / "server.properties")
        form = [*java, "kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", self.cluster_id, "-c", settings]
        run = [*java[:1], "-Xms128m", "-Xmx768m", *java[1:], "kafka.Kafka", settings]
        first = "" if self._formatted() else f"{shlex.join(form)} && "
        return [f"{first}exec {shlex.join(run)}"]

    def _formatted(self) -> bool:
        """Whether the folder is formatted. A new one is formatted here, once another broker has shown how."""
        data = self.directory / "data"
        if (data / "meta.properties").exists():
            return True
        if not _bootstrap:
            return False
        write_ids(data, self.properties.get("node.id", DEFAULTS["node.id"]), self.cluster_id)
        for name, content in _bootstrap.items():
            (data / name).write_bytes(content)
        return True

    def _reason(self) -> str:
        text = "".join(p.read_text(errors="replace") for p in (self.directory / "console.log", self.log) if p.exists())
        lines = [line for line in text.splitlines() if "Exception" in line or "ERROR" in line or "Error" in line]
        return lines[-1] if lines else "it gave no reason"


def lines_of(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def write_ids(data: Path, node: str, cluster_id: str) -> None:
    data.mkdir(parents=True, exist_ok=True)
    ids = {"version": "1", "node.id": node, "cluster.id": cluster_id, "directory.id": _random_id()}
    (data / "meta.properties").write_text(lines_of(ids))


def java_command() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not found or not Path(found).exists():
        raise LabError("java was not found: install a Java 17 or newer, or set JAVA_HOME")
    return found


def planned(
    names: Sequence[str], directory: Path, properties: Mapping[str, str] = MappingProxyType({}), **fields: Any
) -> List[KafkaBroker]:
    """A cluster a name, not started yet, with its data in `directory/NAME`. `fields` are a `KafkaBroker`'s."""
    ports = iter(free_ports(2 * len(names)))
    return [KafkaBroker(name, directory / name, next(ports), next(ports), properties, **fields) for name in names]


def listeners(controller: int, *each: Tuple[str, str, str]) -> Dict[str, str]:
    """Properties of a broker with these listeners, each a name, a protocol and an address. Brokers use the first."""
    places = ",".join(f"{name}://{address}" for name, _, address in each)
    protocols = ",".join(f"{name}:{protocol}" for name, protocol, _ in each)
    return {
        "listeners": f"{places},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": places,
        "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": each[0][0],
    }


Broker = TypeVar("Broker", bound=KafkaBroker)


def start_together(brokers: Sequence[Broker]) -> List[Broker]:
    """Start them side by side and return them when all answer; if one does not, none is left."""
    if not any(JARS.glob("kafka_*.jar")):
        raise LabError(f"no Kafka in {JARS}: run `make setup`")
    try:
        for broker in brokers:
            broker.start(wait=False)
        for broker in brokers:
            broker.wait_ready()
        return list(brokers)
    except BaseException:
        for broker in brokers:
            broker.kill()
        raise


@contextmanager
def running(*brokers: Broker) -> Iterator[List[Broker]]:
    """`start_together`, killed on the way out."""
    started = start_together(brokers)
    try:
        yield started
    finally:
        for broker in started:
            broker.kill()


def clusters(
    names: Sequence[str], directory: Path, properties: Mapping[str, str] = MappingProxyType({}), **fields: Any
) -> ContextManager[List[KafkaBroker]]:
    """`planned`, running while the block does."""
    return running(*planned(names, directory, properties, **fields))


@contextmanager
def second_broker(
    first: KafkaBroker, folder: Path, other: Mapping[str, str] = MappingProxyType({})
) -> Iterator[KafkaBroker]:
    """Node 2 of the cluster of `first`, which stays its only controller, with `other` properties; killed on the way
    out."""
    port, unused = free_ports(2)
    properties = {
        **first.properties,
        "process.roles": "broker",
        "node.id": "2",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{first.controller_port}",
        **other,
    }
    write_ids(folder / "data", "2", first.cluster_id)
    broker = type(first)("second", folder, port, unused, properties, cluster_id=first.cluster_id)
    with running(broker):
        yield broker
