"""Clusters of three brokers, each broker behind a proxy of its own: clients of the product reach them through it.

The tests' own readers and producers take the brokers' other listeners, so that a judge is never disturbed by what he
judges. All three are controllers too, as in a small production cluster, and any two of them keep it alive.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient

from tests.faults.proxy import HEALTHY, FaultProxy, Trouble
from tests.lab.brokers import KafkaBroker, start_together
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
class Cluster:
    """Three brokers and their proxies. `far` is where the product starts to look, `near` where tests do."""

    name: str
    brokers: Sequence[KafkaBroker]
    proxies: Sequence[FaultProxy]

    @property
    def near(self) -> str:
        """All three without their proxies."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def bootstrap(self) -> str:
        """For the lab's readers, who take a broker or a cluster."""
        return self.near

    @property
    def far(self) -> str:
        """All three through their proxies."""
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)

    def admin(self) -> AdminClient:
        """A client of the brokers themselves."""
        return AdminClient({"bootstrap.servers": self.near, "log_level": 0})

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str], replicas: Sequence[int] = ()
    ) -> str:
        """A topic on all three, or on the nodes `replicas`, whose partitions all have leaders."""
        where: Dict[str, Any] = {"replication_factor": NODES}
        if replicas:
            where = {"replica_assignment": [list(replicas)] * partitions}
        admin = self.admin()
        admin.create_topics([NewTopic(name, num_partitions=partitions, config=dict(configs), **where)])[name].result(30)
        wait_for(lambda: len([at for at in self.leaders(name).values() if at > 0]) == partitions, f"leaders of {name}")
        return name

    def leaders(self, topic: str) -> Dict[int, int]:
        """The node that leads each partition; -1 for none."""
        found = self.admin().list_topics(topic, timeout=10).topics[topic].partitions
        return {number: each.leader for number, each in found.items()}

    def controller(self) -> KafkaBroker:
        """The broker that is the active controller now."""
        admin = KafkaAdminClient(bootstrap_servers=self.near.split(","), client_id="faults")
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
        """On the lines to all three."""
        for proxy in self.proxies:
            proxy.trouble = wanted

    def happened(self) -> Dict[str, int]:
        """What the proxies really did, over all three."""
        counts: Dict[str, int] = {}
        for proxy in self.proxies:
            for what, count in proxy.counts().items():
                counts[what] = counts.get(what, 0) + count
        return counts

    def heal(self) -> None:
        """Every line is sound again, every broker runs and answers."""
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
    start_together([broker for brokers, _ in made for broker in brokers])
    found: List[Cluster] = []
    try:
        for number, (name, (brokers, pairs)) in enumerate(zip(names, made)):
            lines = [FaultProxy(port, far, seed + NODES * number + at) for at, (port, far) in enumerate(pairs)]
            found.append(Cluster(name, brokers, lines))
        yield found
    finally:
        for cluster in found:
            for proxy in cluster.proxies:
                proxy.close()
        for brokers, _ in made:
            for broker in brokers:
                broker.kill()


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
