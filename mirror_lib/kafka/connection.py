"""Sends requests to one cluster's brokers, and finds partition leaders and coordinators.

`LogClient.ask` is the lowest of three levels of retries: it repeats a request. `LaneCopier` persists over a broken
connection, `supervisor` restarts a flow. A lane is single-threaded: its source client and target client share one
`Network`.
"""

from __future__ import annotations

import base64
import ctypes
import logging
import math
import sys
import threading
import time
import uuid
from contextlib import suppress
from functools import lru_cache
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)

from kafka.errors import (
    AuthorizationError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    UnknownBrokerIdError,
    for_code,
)
from kafka.future import Future as KafkaFuture
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from mirror_lib.errors import ClusterError, LoginError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.kerberos import KerberosError
from mirror_lib.kafka.security import LoginRefused, ready_options, refusal
from mirror_lib.kafka.wire import BrokerConnections, BrokerLoop

log = logging.getLogger(__name__)

# The client refuses larger frames. A fetch response may exceed its limit by one whole record batch.
MAX_FRAME_BYTES = 256 * 1024 * 1024
REQUEST_TIMEOUT_MS = 30_000
# Above it the client fails requests at once; the producer has its own limit. An exchange has so many of them in flight
# to one broker.
MAX_IN_FLIGHT, AT_ONCE = 200, 100
GROUP_KEY, TRANSACTION_KEY = 0, 1
# From this version on one request finds many coordinators (KIP-699).
MANY_COORDINATORS, COORDINATORS_PER_REQUEST = 4, 1000
# The first and the longest pause before a request is repeated, and by what the next pause is longer.
FIRST_PAUSE, LONGEST_PAUSE, PAUSE_GROWTH = 0.02, 2.0, 1.3
NO_LEADER = -1
LOGIN_HINT = "check the cluster's sasl.* and ssl.* properties"

Future = Any
Answer = TypeVar("Answer")
Item = TypeVar("Item")
Key = TypeVar("Key")

# Options of <malloc.h>. Blocks of up to `_FROM_HEAP_BYTES` (the most that glibc accepts) come from the heap. The heap
# shrinks when `_KEPT_BYTES` at its end are free, so a process keeps at most that much unused.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_FROM_HEAP_BYTES = 32 * 1024 * 1024
_KEPT_BYTES = 64 * 1024 * 1024


@lru_cache(maxsize=None)
def _keep_freed_memory() -> None:
    """Make glibc's allocator, if it is in use, keep up to 64 MB of freed memory.

    A fetch response takes several blocks of megabytes. By default glibc returns each freed block to the system, and the
    page faults of the next response cost more than parsing it.
    """
    libc: Any = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    if hasattr(libc, "gnu_get_libc_version") and libc.mallopt(_MMAP_THRESHOLD, _FROM_HEAP_BYTES):
        libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


class Disconnected(KafkaError):  # type: ignore[misc]  # kafka-python has no types
    """A request got no response: whether the broker acted on it is unknown."""

    retriable = True

    def __str__(self) -> str:
        return str(self.args[0])


class Network(BrokerLoop):
    """The event loop that the clients of one lane share, or that of one admin connection. After `start` it runs in a
    thread of its own, and requests go by `LogClient.exchange` only."""

    def __init__(self) -> None:
        _keep_freed_memory()
        super().__init__(slow_task_threshold_secs=0)


class _Topic(NamedTuple):
    """A topic in the last Metadata response about it: its leaders by partition number, and when it came."""

    topic_id: Optional[uuid.UUID]
    leaders: Mapping[int, int]
    at: float


_UNKNOWN = _Topic(None, {}, -math.inf)


class LogClient:
    """Connections to the brokers of one cluster, for admin requests and for records. `options` come from
    `config.client_options`.

    Raises `ConfigError` if a key store in them cannot be opened.
    """

    def __init__(self, network: Network, alias: str, options: Mapping[str, Any]) -> None:
        self.alias = alias
        self.network = network
        servers = options["bootstrap_servers"]
        self.place = f"the cluster {alias} at {servers if isinstance(servers, str) else ','.join(servers)}"
        self._manager = BrokerConnections(
            network,
            **{
                # Reconnects soon to a restarted broker; the library's default is up to half a minute.
                "reconnect_backoff_max_ms": 1000,
                "request_timeout_ms": REQUEST_TIMEOUT_MS,
                **ready_options(options),
                "receive_message_max_bytes": MAX_FRAME_BYTES,
                "max_in_flight_requests_per_connection": MAX_IN_FLIGHT,
            },
        )
        # No request that failed is repeated once it is set.
        self.stop = threading.Event()
        self._topics: Dict[str, _Topic] = {}
        self._coordinators: Dict[Tuple[int, str], int] = {}

    def connect(self, deadline: float) -> None:
        """Read the cluster's brokers. `deadline` is in `time.monotonic()` seconds. Raises `ClusterError`."""
        patience = max(0.001, deadline - time.monotonic())
        try:
            self._manager.bootstrap(timeout_ms=1000 * patience)
        except LoginRefused as error:
            raise LoginError(f"cannot log in to {self.place}: {error.args[0]}", LOGIN_HINT) from error
        except KafkaError as error:
            last = self._manager.last_failure
            reason = f"no answer in {patience:.0f} s" if isinstance(error, KafkaTimeoutError) else type(error).__name__
            raise ClusterError(
                f"cannot reach {self.place}: {reason}" + (f"; the last attempt: {last}" if last else ""),
                "check bootstrap.servers, security.protocol and the credentials, and that a broker is up",
            ) from error

    def refused(self) -> Optional[str]:
        """Why no broker accepts this client's login; `None` while one may."""
        return self._manager.refused()

    def nodes(self) -> List[int]:
        return [broker.node_id for broker in self._manager.cluster.brokers()]

    def versions(self, request: Any) -> Tuple[int, int]:
        """The lowest and highest version of a kind of request that the brokers accept; (0, -1) for none."""
        low, high = self._manager.broker_version_data.api_versions.get(request.API_KEY, (0, -1))
        return int(low), int(high)

    def accepts(self, request: Any, version: int) -> bool:
        low, high = self.versions(request)
        return low <= version <= high

    def release(self) -> str:
        return ".".join(map(str, self._manager.broker_version_data.broker_version[:2]))

    def exchange(self, requests: Sequence[Tuple[Optional[int], Any]]) -> List[Any]:
        """Send to all brokers in parallel, and to each broker in the order of `requests`; `None` is any broker.

        Returns the responses in the order of `requests`, a `Disconnected` in place of a missing one. The time of a
        request pauses while the broker throttles this client, and does not expire while a response is arriving."""
        manager, answers = self._manager, {}

        async def converse(node: Optional[int]) -> None:
            if node is not None and manager.cluster.broker_metadata(node) is None:
                with suppress(KafkaError, KerberosError, OSError):
                    await manager.cluster.refresh_metadata()
            for share in chunks([number for number, (to, _) in enumerate(requests) if to == node], AT_ONCE):
                for number, sent in [(each, self.send(node, requests[each][1])) for each in share]:
                    try:
                        answers[number] = await sent
                    except (KafkaError, KerberosError, OSError) as error:
                        answers[number] = self._missing(error)

        async def at_once() -> None:
            for conversation in [manager.call_soon(converse, node) for node in {to for to, _ in requests}]:
                await conversation

        manager.run(at_once)
        return [answers[number] for number in range(len(requests))]

    def _missing(self, error: Exception) -> Disconnected:
        reason = refusal(error)
        if isinstance(error, UnknownBrokerIdError) or (reason is not None and not self.refused()):
            error = NodeNotReadyError(reason or error)  # another broker may accept the login
        missing = Disconnected(f"{self.alias}: {error}")
        missing.retriable, missing.__cause__ = getattr(error, "retriable", True), error
        return missing

    def ask(self, asked: str, right: str, attempt: Callable[[], Answer], deadline: float) -> Answer:
        """Call `attempt` until it succeeds, or fails with an error that is not retriable, at the latest until
        `deadline` (`time.monotonic()`). It raises KafkaErrors.

        Raises `ClusterError`: a sentence that begins with "cannot" and `asked`, or names the missing `right`. Raises
        `LoginError` if no broker accepts the login."""
        pause, here = FIRST_PAUSE, f"{self.alias}: "
        while True:
            try:
                return attempt()
            except AuthorizationError as error:
                raise ClusterError(f"{here}not allowed to {asked}", f"grant {right}", code="MIR-203") from error
            except KafkaError as error:
                refused = self.refused()
                if refused is not None:
                    raise LoginError(f"{here}cannot {asked}: {refused}", LOGIN_HINT) from error
                if not error.retriable or self.stop.is_set() or time.monotonic() + pause > deadline:
                    hint = "check that the brokers are up and can be reached" if error.retriable else None
                    said = str(error if error.args else getattr(error, "message", error))  # Kafka's name of the error
                    said = said[len(here) :] if said.startswith(here) else said
                    raise ClusterError(f"{here}cannot {asked}: {said}", hint) from error
            self.stop.wait(pause)
            pause = min(PAUSE_GROWTH * pause, LONGEST_PAUSE)

    def advertised(self) -> List[Tuple[str, int]]:
        """The brokers' advertised addresses in the last metadata response."""
        return [(broker.host, broker.port) for broker in self._manager.cluster.brokers()]

    def send(self, node: Optional[int], request: Any, timeout_ms: Optional[float] = None) -> Future:
        """Send to `node` (any broker if None) without waiting.

        The future fails if the node is not connected or the connection breaks.
        """
        try:
            return self._manager.send(request, node_id=node, request_timeout_ms=timeout_ms)
        except KafkaError as error:
            return KafkaFuture().failure(error)

    def call(self, node: Optional[int], request: Any) -> Any:
        """Send to `node` (any broker if None) and wait for the answer. Raises `Disconnected`."""
        return self.calls([(node, request)])[0]

    def calls(self, requests: Sequence[Tuple[Optional[int], Any]]) -> List[Any]:
        """`exchange`, but raises `Disconnected` if a response is missing."""
        answers = self.exchange(requests)
        for answer in answers:
            if isinstance(answer, Disconnected):
                raise answer
        return answers

    def answers(self, seconds: float) -> bool:
        """Whether a broker answers, within this time if it is connected."""

        async def answered() -> None:
            await self.send(None, metadata_request(()), 1000 * seconds)

        try:
            self._manager.run(answered)
        except (KafkaError, KerberosError, OSError) as error:
            log.debug("%s: %s", self.alias, error)
            return False
        return True

    def hears(self, node: int) -> bool:
        """Whether a large response of `node` is arriving."""
        return bool(self._manager.hears(node))

    def throttled_seconds(self) -> float:
        """Seconds that brokers have throttled this client by quotas since the previous call."""
        return float(self._manager.throttle.taken(time.monotonic()))

    def is_throttled(self) -> bool:
        return bool(self._manager.throttle.left(time.monotonic()))

    def leader(self, partition: TopicPartition) -> Optional[int]:
        """Node id of the partition's leader, as of the last Metadata response."""
        node = self._topics.get(partition[0], _UNKNOWN).leaders.get(partition[1], NO_LEADER)
        return None if node == NO_LEADER else node

    def is_led(self, partition: TopicPartition, seconds: float) -> bool:
        """Whether a Metadata response of the last `seconds` has a leader of the partition."""
        return self.leader(partition) is not None and time.monotonic() - self._topics[partition[0]].at < seconds

    def is_known(self, partition: TopicPartition) -> bool:
        """Whether the partition existed at the last Metadata response, with or without a leader."""
        return partition[1] in self._topics.get(partition[0], _UNKNOWN).leaders

    def forget_leaders(self, topics: Iterable[str]) -> None:
        """Make `is_led` ask for the leaders of these topics again."""
        for topic in topics:
            known = self._topics.get(topic, _UNKNOWN)
            self._topics[topic] = _Topic(known.topic_id, known.leaders, -math.inf)

    def is_another(self, topic: str, topic_id: str) -> bool:
        """Whether `topic` had another id at the last Metadata response; False if either id is unknown."""
        known = self._topics.get(topic, _UNKNOWN).topic_id
        return bool(topic_id and known) and topic_id != printed_id(known)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, uuid.UUID]:
        """The ids of `topics` at the last Metadata response; empty if one of them is unknown."""
        ids = {topic: self._topics.get(topic, _UNKNOWN).topic_id for topic in topics}
        known = {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}
        return known if len(known) == len(topics) else {}

    def metadata(self, topics: Optional[Iterable[str]], **fields: Any) -> Any:
        """The response about these topics, or all, which has the brokers too. Raises `Disconnected`."""
        answer = self.call(None, metadata_request(topics, **fields))
        self.learn(answer)
        return answer

    def learn(self, answer: Any) -> None:
        now = time.monotonic()
        for topic in answer.topics:
            # With an error the topic is perhaps deleted, and the name may soon belong to another one.
            partitions = [] if topic.error_code else topic.partitions
            leaders = {each.partition_index: each.leader_id for each in partitions}
            self._topics[topic.name] = _Topic(topic.topic_id if printed_id(topic.topic_id) else None, leaders, now)

    def refresh_leaders(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Read the leaders of the topics of `partitions`; waits for elections of these partitions until `deadline`.

        A topic that does not exist has no leader afterwards, and may have none if no broker answers.
        """
        while not self._learn_leaders(partitions) and time.monotonic() < deadline:
            time.sleep(0.1)

    def _learn_leaders(self, partitions: Collection[TopicPartition]) -> bool:
        topics = sorted({topic for topic, _ in partitions})
        try:
            self.metadata(topics)
        except Disconnected as error:
            log.info("%s", error)
            self._manager.cluster.request_update()
            return False
        leaders = {node for topic in topics for node in self._topics.get(topic, _UNKNOWN).leaders.values()}
        if not leaders - {NO_LEADER} <= set(self.nodes()):
            self._manager.cluster.request_update()
            return False
        return all(self.leader(each) is not None or not self.is_known(each) for each in partitions)

    def coordinators(self, names: Sequence[str], key_type: int) -> Tuple[Dict[str, int], Dict[str, KafkaError]]:
        """Node ids of the coordinators of groups, or of transactional ids, and the failed look-ups. Node ids are cached
        until `forget_coordinators`."""
        unknown = [name for name in names if (key_type, name) not in self._coordinators]
        many = self.accepts(FindCoordinatorRequest, MANY_COORDINATORS)
        failures: Dict[str, KafkaError] = {}
        shares = chunks(unknown, COORDINATORS_PER_REQUEST if many else 1)
        requests = [
            FindCoordinatorRequest(key_type=key_type, coordinator_keys=share, min_version=MANY_COORDINATORS)
            if many
            else FindCoordinatorRequest(key_type=key_type, key=share[0], max_version=MANY_COORDINATORS - 1)
            for share in shares
        ]
        for share, answer in zip(shares, self.exchange([(None, request) for request in requests])):
            if isinstance(answer, Disconnected):
                failures.update(dict.fromkeys(share, answer))
                continue
            # Before version MANY_COORDINATORS the response is for one name, without a list and without a key.
            for each in answer.coordinators or [answer]:
                name = each.key if answer.coordinators else share[0]
                if each.error_code:
                    failures[name] = for_code(each.error_code)()
                else:
                    self._coordinators[key_type, name] = each.node_id
        return {name: self._coordinators[key_type, name] for name in names if name not in failures}, failures

    def forget_coordinators(self, names: Iterable[str], key_type: int) -> None:
        """Look these up again: the coordinator may have moved."""
        for name in names:
            self._coordinators.pop((key_type, name), None)

    def close(self) -> None:
        self._manager.close()


def metadata_request(topics: Optional[Iterable[str]], **fields: Any) -> Any:
    """The request for these topics' ids and leaders, or all topics'; the response has the brokers too."""
    named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False, max_version=12, **fields)


def printed_id(topic_id: Any) -> str:
    """A topic's id in base64, as Kafka's tools print it; empty for none.

    Brokers before 2.8 have no topic ids: the client then returns an id of zeros."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=") if topic_id and topic_id.int else ""


def error_name(code: int) -> str:
    """Kafka's name of a protocol error code, for example `NOT_LEADER_OR_FOLLOWER`."""
    return str(getattr(for_code(code), "message", None) or for_code(code).__name__)


def is_retriable(code: int) -> bool:
    """Whether Kafka defines the error as retriable: the same request may succeed later."""
    return bool(for_code(code).retriable)


def name_of(partition: TopicPartition) -> str:
    """`topic-0`, as Kafka prints a partition."""
    return f"{partition[0]}-{partition[1]}"


def by_topic(partitions: Iterable[TopicPartition]) -> Dict[str, List[int]]:
    topics: Dict[str, List[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


def chunks(items: Sequence[Item], size: int) -> List[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def shares(items: Iterable[Item], size: Callable[[Item], int], most: int) -> List[List[Item]]:
    """`items` in groups of at most `most` in all; a larger item is a group of its own."""
    found: List[List[Item]] = []
    room = 0
    for item in items:
        if not found or size(item) > room:
            found.append([])
            room = most
        found[-1].append(item)
        room -= size(item)
    return found


def grouped(items: Iterable[Item], key: Callable[[Item], Optional[Key]]) -> Dict[Key, List[Item]]:
    """`items` by their key, such as partitions by their leader; without those whose key is None."""
    found: Dict[Key, List[Item]] = {}
    for item in items:
        of_item = key(item)
        if of_item is not None:
            found.setdefault(of_item, []).append(item)
    return found
