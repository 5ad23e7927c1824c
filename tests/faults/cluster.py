"""Clusters of three brokers, each broker behind a proxy of its own: clients of the product reach them through it.

The tests' own readers and producers take the brokers' other listeners, so that a judge is never disturbed by what he
judges. All three are controllers too, as in a small production cluster, and any two of them keep it alive.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

from confluent_kafka import KafkaException
from kafka import KafkaAdminClient

from tests.faults.proxy import HEALTHY, FaultProxy, Trouble
from tests.lab import brokers as lab
from tests.lab.brokers import KafkaBroker, running
from tests.lab.far_proxy import two_listeners
from tests.lab.one_flow import until
from tests.lab.ports import free_ports

NODES = 3
# What a broker that is alone can promise is less: all internal topics lie on all three.
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    # Kafka's own, longer than the lab's: six brokers share two cores with what is judged, and one that waits for a core
    # must not be taken for dead.
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "replica.lag.time.max.ms": "10000",
    "leader.imbalance.check.interval.seconds": "10",
}


@dataclass
class Cluster(lab.Cluster):
    """Three brokers and their proxies. `far` is where the product starts to look, `bootstrap` where tests do."""

    name: str
    brokers: Sequence[KafkaBroker]
    proxies: Sequence[FaultProxy]

    @property
    def bootstrap(self) -> str:
        """All three without their proxies."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def far(self) -> str:
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)

    def leaders(self, topic: str) -> Dict[int, int]:
        found = self.admin().list_topics(topic, timeout=10).topics[topic].partitions
        return {number: each.leader for number, each in found.items()}

    def controller(self) -> KafkaBroker:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap.split(","), client_id="faults")
        try:
            (topic,) = admin.describe_metadata_quorum()["topics"]
            leader: int = topic["partitions"][0]["leader_id"]
            return self.brokers[leader - 1]
        finally:
            admin.close()

    def whole(self, *topics: str) -> bool:
        """Whether all three are in sync for each partition of the topics."""
        found = self.admin().list_topics(timeout=10).topics
        return all(len(each.isrs) == NODES for topic in topics for each in found[topic].partitions.values())

    def trouble(self, wanted: Trouble) -> None:
        for proxy in self.proxies:
            proxy.trouble = wanted

    def happened(self) -> Counter[str]:
        return sum((proxy.counts() for proxy in self.proxies), Counter())

    def heal(self) -> None:
        self.trouble(HEALTHY)
        for broker in self.brokers:
            if broker.process is not None and broker.process.poll() is None:
                broker.resume()
            else:
                broker.restart()
        for broker in self.brokers:
            broker.wait_ready()


@contextmanager
def three_brokers(names: Sequence[str], directory: Path, seed: int) -> Iterator[List[Cluster]]:
    """A cluster a name, started side by side; gone when the block is left."""
    # One draw for all of them: two draws may give the same port.
    ports = free_ports(4 * NODES * len(names))
    made = [_planned(name, directory / name, ports[4 * NODES * at :][: 4 * NODES]) for at, name in enumerate(names)]
    with running(*(broker for brokers, _ in made for broker in brokers)):
        found: List[Cluster] = []
        for number, (name, (brokers, pairs)) in enumerate(zip(names, made)):
            lines = [FaultProxy(port, far, seed + NODES * number + at) for at, (port, far) in enumerate(pairs)]
            found.append(Cluster(name, brokers, lines))
        try:
            yield found
        finally:
            for cluster in found:
                for proxy in cluster.proxies:
                    proxy.close()


def _planned(name: str, directory: Path, ports: Sequence[int]) -> Tuple[List[KafkaBroker], List[Tuple[int, int]]]:
    """The three, not started yet, and of each the port of its proxy with the port that lies behind it."""
    near, behind, proxy, controllers = (ports[at::4] for at in range(4))
    voters = ",".join(f"{at + 1}@127.0.0.1:{port}" for at, port in enumerate(controllers))
    brokers: List[KafkaBroker] = []
    for at in range(NODES):
        settings = {
            **SETTINGS,
            **two_listeners(near[at], behind[at], proxy[at], controllers[at]),
            "node.id": str(at + 1),
            "controller.quorum.voters": voters,
        }
        broker = KafkaBroker(f"{name}-{at + 1}", directory / str(at + 1), near[at], controllers[at], settings)
        brokers.append(broker if at == 0 else replace(broker, cluster_id=brokers[0].cluster_id))
    return brokers, list(zip(proxy, behind))


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Return when `condition` holds; AssertionError that names `what` if it does not in time."""

    def holds() -> bool:
        try:
            return condition()
        except KafkaException:
            return False  # the broker that was asked is away

    until(holds, seconds, what)
