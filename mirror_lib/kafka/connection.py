"""Sends raw requests to one cluster's brokers, and finds partition leaders and transaction coordinators.

Single-threaded: a lane's source client and target client share one `Network`.
"""

from __future__ import annotations

import base64
import ctypes
import logging
import sys
import time
import uuid
from functools import lru_cache
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar

from kafka.errors import KafkaError, for_code
from kafka.future import Future as KafkaFuture
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from mirror_lib.errors import ClusterError, LoginError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.security import LoginRefused, ready_options
from mirror_lib.kafka.wire import BrokerConnections, BrokerLoop

log = logging.getLogger(__name__)

# The client refuses larger frames. A fetch response may exceed its limit by one whole record batch.
MAX_FRAME_BYTES = 256 * 1024 * 1024
REQUEST_TIMEOUT_MS = 30_000
# Above it the client fails requests at once. Requests for all lanes may be in flight together; the producer has its own
# limit.
MAX_IN_FLIGHT = 100
TRANSACTION_KEY = 1
HEARING_SECONDS = 0.1

Future = Any
Item = TypeVar("Item")

# Options of <malloc.h>. Blocks of up to `_FROM_HEAP_BYTES` (the most that glibc accepts) come from the heap. The heap
# shrinks when `_KEPT_BYTES` at its end are free, so a process keeps at most that much unused.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_FROM_HEAP_BYTES = 32 * 1024 * 1024
_KEPT_BYTES = 64 * 1024 * 1024


@lru_cache(maxsize=None)
def keep_freed_memory() -> bool:
    """Make glibc's allocator keep up to 64 MB of freed memory; False with another allocator, which stays unchanged.

    A fetch response takes several blocks of megabytes. By default glibc returns each freed block to the system, and the
    page faults of the next response cost more than parsing it.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    return bool(libc.mallopt(_MMAP_THRESHOLD, _FROM_HEAP_BYTES) and libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))


class Disconnected(Exception):
    """A request got no response: whether the broker acted on it is unknown."""


class Network:
    """The event loop that the clients of one lane share."""

    def __init__(self) -> None:
        keep_freed_memory()
        self.selector = BrokerLoop(slow_task_threshold_secs=0)

    def poll(self, timeout_ms: float) -> None:
        """Send and receive once; returns as soon as something arrives."""
        self.selector.poll(timeout_ms=timeout_ms)

    def wait(self, future: Future, timeout_ms: float) -> None:
        """Send and receive until `future` is done or the time is up."""
        self.selector.poll(timeout_ms=timeout_ms, future=future)

    def close(self) -> None:
        """Close the loop. Close its clients first."""
        self.selector.close()


class LogClient:
    """Connections to the brokers of one cluster. `options` come from `config.client_options`.

    Raises `ConfigError` if a key store in them cannot be opened.
    """

    def __init__(self, network: Network, alias: str, options: Mapping[str, Any]) -> None:
        self.alias = alias
        self.network = network
        self._manager = BrokerConnections(
            network.selector,
            **{
                "reconnect_backoff_max_ms": 1000,
                "request_timeout_ms": REQUEST_TIMEOUT_MS,
                **ready_options(options),
                "receive_message_max_bytes": MAX_FRAME_BYTES,
                "max_in_flight_requests_per_connection": MAX_IN_FLIGHT,
            },
        )
        self._leaders: Dict[TopicPartition, int] = {}
        self._topic_ids: Dict[str, uuid.UUID] = {}

    def connect(self, deadline: float) -> None:
        """Read the cluster's brokers. `deadline` is in `time.monotonic()` seconds. Raises `ClusterError`."""
        try:
            self._manager.bootstrap(timeout_ms=max(1.0, (deadline - time.monotonic()) * 1000))
        except LoginRefused as error:
            raise LoginError(f"{self.alias}: {error.args[0]}", "check its sasl.* and ssl.* properties") from error
        except KafkaError as error:
            last = f"; the last attempt: {self._manager.last_failure}" if self._manager.last_failure else ""
            raise ClusterError(
                f"{self.alias}: no broker answers{last}",
                "check bootstrap.servers, credentials and the network",
            ) from error

    def advertised(self) -> List[Tuple[str, int]]:
        """The brokers' advertised addresses in the last metadata response."""
        return [(broker.host, broker.port) for broker in self._manager.cluster.brokers()]

    def send(self, node: Optional[int], request: Any) -> Future:
        """Send to `node` (any broker if None) without waiting.

        The future fails if the node is not connected or the connection breaks.
        """
        try:
            return self._manager.send(request, node_id=node)
        except KafkaError as error:
            return _failed(error)

    def call(self, node: Optional[int], request: Any, timeout_ms: float = REQUEST_TIMEOUT_MS) -> Any:
        """Send to `node` (any broker if None) and wait for the answer. Raises `Disconnected`."""
        return self.answer(self.send(node, request), timeout_ms)

    def answers(self, timeout_ms: float) -> bool:
        """Whether any broker answers a small request within that time."""
        try:
            self.call(None, _metadata_request(()), timeout_ms)
        except Disconnected as error:
            log.debug("%s", error)
            return False
        return True

    def answer(self, future: Future, timeout_ms: float = REQUEST_TIMEOUT_MS) -> Any:
        """Wait for the response to a sent request. Raises `Disconnected`."""
        self.wait(future, timeout_ms)
        if not future.succeeded():
            raise Disconnected(f"{self.alias}: {future.exception or 'no answer'}") from future.exception
        return future.value

    def wait(self, future: Future, timeout_ms: float) -> None:
        """Send and receive until `future` is done or the time is up.

        The time pauses while brokers throttle this client, and does not expire while a large response is arriving."""
        throttle, now = self._manager.throttle, time.monotonic()
        until = now + throttle.left(now) + timeout_ms / 1000 - throttle.asked_for()
        while not future.is_done:
            left = until + throttle.asked_for() - time.monotonic()
            if left <= 0 and not self.hears():
                return
            self.network.wait(future, max(left, HEARING_SECONDS) * 1000)

    def hears(self, node: Optional[int] = None) -> bool:
        """Whether a large response of `node` is arriving; of any broker if None."""
        return bool(self._manager.hears(node))

    def throttled_seconds(self) -> float:
        """Seconds that brokers have throttled this client by quotas since the previous call."""
        return float(self._manager.throttle.taken(time.monotonic()))

    def is_throttled(self) -> bool:
        """Whether a broker throttles this client now."""
        return bool(self._manager.throttle.left(time.monotonic()))

    def leader(self, partition: TopicPartition) -> Optional[int]:
        """Node id of the partition's leader, as of the last `refresh_leaders`."""
        return self._leaders.get(partition)

    def is_another(self, topic: str, topic_id: str) -> bool:
        """Whether `topic` had another id at the last `refresh_leaders`; False if either id is unknown."""
        return bool(topic_id and topic in self._topic_ids) and topic_id != printed_id(self._topic_ids[topic])

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, uuid.UUID]:
        """The ids of `topics` at the last `refresh_leaders`; empty if one of them is unknown."""
        known = {topic: self._topic_ids[topic] for topic in topics if topic in self._topic_ids}
        return known if len(known) == len(topics) else {}

    def refresh_leaders(self, topics: Iterable[str], deadline: float) -> None:
        """Read the leaders of all partitions of `topics`; waits for elections until `deadline`.

        A topic that does not exist has no leader afterwards. Raises `ClusterError` when no broker answers.
        """
        self._await_leaders(topics, deadline, None)

    def refresh_leaders_of(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """The same for the topics of `partitions`, but waits for elections of these partitions only."""
        self._await_leaders((topic for topic, _ in partitions), deadline, partitions)

    def _await_leaders(
        self, topics: Iterable[str], deadline: float, partitions: Optional[Collection[TopicPartition]]
    ) -> None:
        wanted = sorted(set(topics))
        while not self._learn_leaders(wanted, partitions) and time.monotonic() < deadline:
            time.sleep(0.1)

    def ask_ids(self, topics: Iterable[str]) -> Future:
        """Request the ids of topics, without waiting."""
        return self.send(None, _metadata_request(topics))

    def read_topic_ids(self, asked: Future) -> Dict[str, str]:
        """The response to `ask_ids`: the printed ids of the topics that exist. Raises `Disconnected`."""
        answer = self.answer(asked)
        return {topic.name: printed_id(topic.topic_id) for topic in answer.topics if printed_id(topic.topic_id)}

    def _learn_leaders(self, topics: List[str], wanted: Optional[Collection[TopicPartition]]) -> bool:
        try:
            answer = self.call(None, _metadata_request(topics))
        except Disconnected as error:
            log.info("%s", error)
            self._manager.cluster.request_update()
            return False
        complete = True
        for topic in answer.topics:
            self._topic_ids.pop(topic.name, None)
            if printed_id(topic.topic_id):
                self._topic_ids[topic.name] = topic.topic_id
            if topic.error_code:  # perhaps deleted; the name may soon belong to another topic, so forget its leaders
                self._leaders = {each: node for each, node in self._leaders.items() if each[0] != topic.name}
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                if partition.leader_id >= 0:
                    self._leaders[key] = partition.leader_id
                else:
                    self._leaders.pop(key, None)
                    complete = complete and wanted is not None and key not in wanted
        known = {broker.node_id for broker in self._manager.cluster.brokers()}
        if not set(self._leaders.values()) <= known:
            self._manager.cluster.request_update()
            complete = False
        return complete

    def coordinator(self, transactional_id: str, deadline: float) -> int:
        """Node id of the transaction coordinator. On a new cluster this request creates `__transaction_state`.

        Raises `ClusterError` if no coordinator is available by the deadline, or the principal is not authorized.
        """
        request = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION_KEY, max_version=3)
        answer = self.retry(request, lambda: None, lambda answer: int(answer.error_code), deadline)
        if answer.error_code:
            raise ClusterError(
                f"{self.alias}: no coordinator for {transactional_id}: {error_name(answer.error_code)}",
                "the target principal needs Write on this transactional id",
            )
        return int(answer.node_id)

    def retry(
        self,
        request: Any,
        node: Callable[[], Optional[int]],
        error_code: Callable[[Any], int],
        deadline: float,
        extra: Tuple[int, ...] = (),
    ) -> Any:
        """Repeat a request until the response's error is neither retriable nor in `extra`; each try calls `node`.

        The response may contain an error that is not retriable. Raises `ClusterError` at the deadline.
        """
        last: object = "no answer"
        while time.monotonic() < deadline:
            try:
                answer = self.call(node(), request)
            except Disconnected as error:
                last = error
            else:
                code = error_code(answer)
                error_type = for_code(code)
                if code == 0 or not (error_type.retriable or code in extra):
                    return answer
                last = error_type.__name__
            time.sleep(0.02)
        raise ClusterError(f"{self.alias}: {type(request).__name__} kept failing: {last}", "check the brokers' logs")

    def close(self) -> None:
        """Close every connection."""
        self._manager.close()


def _metadata_request(topics: Iterable[str]) -> Any:
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        max_version=12,
    )


def _failed(error: Exception) -> Future:
    return KafkaFuture().failure(error)


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
    """Partition numbers by topic."""
    topics: Dict[str, List[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


def chunks(items: Sequence[Item], size: int) -> List[Sequence[Item]]:
    """`items` in parts of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]
