"""Clusters of three brokers, each broker behind a proxy of its own: clients of the product reach them through it.

A proxy knows Kafka's frames and breaks the line as real lines break: it cuts connections at random bytes, delays, holds
everything back (a black hole), loses answers, and withholds requests to deliver them after their client has given up.
`happened` counts what it really did: a case in which nothing happened shows nothing. Frames,
https://kafka.apache.org/protocol#protocol_common: a length, then an API key or a correlation id.

The tests' own readers and producers take the brokers' other listeners, so that a judge is never disturbed by what he
judges. All three are controllers too, as in a small production cluster, and any two of them keep it alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Sequence, Tuple
from typing import Counter as CounterOf

from confluent_kafka import KafkaException
from kafka import KafkaAdminClient

from tests.lab import brokers as lab
from tests.lab.brokers import KafkaBroker, free_ports, running
from tests.lab.far_proxy import two_listeners
from tests.lab.one_flow import until

BUFFER = 1 << 20
NAMES = {0: "Produce", 22: "InitProducerId", 24: "AddPartitionsToTxn", 26: "EndTxn"}
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that sends RST: what is in the buffers is lost, as with a crashed peer."""


@dataclass
class Trouble:
    """What the line does from now on. Chances are per frame. Requests of NAMES are withheld, and their answers lost."""

    cut: float = 0.0
    lose_answer: float = 0.0
    hold_request: float = 0.0
    hold_seconds: float = 10.0
    delay_seconds: float = 0.0
    hole_to_broker: bool = False
    hole_to_client: bool = False


HEALTHY = Trouble()


class FaultProxy:
    """Listens at `port` for the broker at `broker_port`. `trouble` may be set at any time, from any thread.

    What it draws comes from `seed`; which frame meets which draw depends on the machine.
    """

    def __init__(self, port: int, broker_port: int, seed: int) -> None:
        self.port, self._broker_port = port, broker_port
        self.trouble = HEALTHY
        self.happened: CounterOf[str] = Counter()
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name=f"proxy {port}").start()
        listening = asyncio.start_server(self._accepted, "127.0.0.1", port, backlog=128, limit=BUFFER)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)

    def close(self) -> None:
        """Stop listening and end every connection."""

        def end() -> None:
            self._server.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_later(0.1, self._loop.stop)

        self._loop.call_soon_threadsafe(end)

    def counts(self) -> CounterOf[str]:
        return Counter(self.happened)

    def drawn(self, chance: float) -> bool:
        """Whether a chance comes up; every draw of this proxy comes from its seed."""
        return chance > 0 and self._random.random() < chance

    async def passed_hole(self, which: str) -> Trouble:
        """The trouble of the line, when it lets something through in that direction, a field of `Trouble`."""
        if getattr(self.trouble, which):
            self.happened["held back in a black hole"] += 1
            while getattr(self.trouble, which):
                await asyncio.sleep(0.02)
        return self.trouble

    async def deliver(self, frame: bytes, taker: StreamWriter, trouble: Trouble, what: str) -> None:
        if trouble.delay_seconds:
            self.happened["delayed"] += 1
            await asyncio.sleep(trouble.delay_seconds)
        cut = self.drawn(trouble.cut)
        taker.write(frame[: self._random.randrange(len(frame))] if cut else frame)
        await taker.drain()
        if cut:
            self.happened[f"cut inside of a {what}"] += 1
            raise ConnectionResetError

    async def _accepted(self, client: StreamReader, to_client: StreamWriter) -> None:
        try:
            broker, to_broker = await asyncio.open_connection("127.0.0.1", self._broker_port, limit=BUFFER)
        except OSError:
            _reset(to_client)
            return
        line = _Line(self, to_client, to_broker)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(line.requests(client), line.answers(broker))
        line.reset()


class _Line:
    """One connection: requests in one task, answers in another. The first to end resets both sides."""

    def __init__(self, proxy: FaultProxy, client: StreamWriter, broker: StreamWriter) -> None:
        self._proxy, self._client, self._broker = proxy, client, broker
        self._apis: Dict[int, int] = {}
        self._held = -1
        self._answered = asyncio.Event()

    def reset(self) -> None:
        """End both sides with a RST, what is under way is lost."""
        _reset(self._client)
        _reset(self._broker)

    async def requests(self, client: StreamReader) -> None:
        with contextlib.suppress(OSError, IncompleteReadError):
            while True:
                frame = await _read_frame(client)
                api, _, correlation = struct.unpack_from(">hhi", frame, 4)
                self._apis[correlation] = api
                trouble = await self._proxy.passed_hole("hole_to_broker")
                if api in NAMES and self._proxy.drawn(trouble.hold_request):
                    await self._hold(frame, api, correlation, trouble.hold_seconds)
                    break
                await self._proxy.deliver(frame, self._broker, trouble, "request")
        self.reset()

    async def _hold(self, frame: bytes, api: int, correlation: int, seconds: float) -> None:
        """The client sees its line break; the broker gets the request later, as if it had been under way so long. It is
        counted when the broker has answered it: the broker itself may have closed the line."""
        self._held = correlation
        _reset(self._client)
        await asyncio.sleep(seconds)
        self._broker.write(frame)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._answered.wait(), 10)
            self._proxy.happened[f"{NAMES[api]} request delivered {seconds:.0f} s late"] += 1

    async def answers(self, broker: StreamReader) -> None:
        with contextlib.suppress(OSError, IncompleteReadError):
            while True:
                frame = await _read_frame(broker)
                (correlation,) = struct.unpack_from(">i", frame, 4)
                if self._held >= 0:
                    if correlation == self._held:
                        self._answered.set()
                    continue
                api = self._apis.pop(correlation, -1)
                trouble = await self._proxy.passed_hole("hole_to_client")
                if api in NAMES and self._proxy.drawn(trouble.lose_answer):
                    self._proxy.happened[f"{NAMES[api]} answer lost"] += 1
                    break
                await self._proxy.deliver(frame, self._client, trouble, "answer")
        if self._held < 0:
            self.reset()


def _reset(side: StreamWriter) -> None:
    with contextlib.suppress(OSError):
        side.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    side.transport.abort()


async def _read_frame(giver: StreamReader) -> bytes:
    """The next frame with its length."""
    head = await giver.readexactly(4)
    return head + await giver.readexactly(struct.unpack(">i", head)[0])


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
