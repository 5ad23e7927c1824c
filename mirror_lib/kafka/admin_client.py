"""Connects kafka-python's admin client to one cluster, with raw requests and one retry loop.

Retriable errors are retried here, up to one deadline. Every other error becomes a `ClusterError`.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import AuthorizationError, KafkaError, KafkaTimeoutError, NodeNotReadyError, UnknownBrokerIdError
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from mirror_lib.config.client_options import kafka_python_options
from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError, LoginError
from mirror_lib.kafka.connection import LogClient, Network
from mirror_lib.kafka.security import LoginRefused, ready_options, refusal
from mirror_lib.kafka.wire import admin_connections, forget_controller, manager_of, stop

log = logging.getLogger(__name__)
# At DEBUG these loggers print the client's configuration and the bytes it sends, passwords included. They also log each
# connection attempt as an error, although `mirror` logs the result of all attempts.
for _name in ("kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

Answer = TypeVar("Answer")

ANSWER_SECONDS = 60.0
# Reconnects soon to a restarted broker; kafka-python's default backoff is up to half a minute.
LONGEST_BACKOFF_MS = 1000
# Metadata of 10,000 partitions exceeds the 1 MB that kafka-python's connections allow by default.
LARGEST_ANSWER_BYTES = 512 * 1024 * 1024
# A wait for a cluster that lasts longer than this is reported with its reason.
NOTICE_SECONDS = 4.0
LOGIN_HINT = "check the cluster's sasl.* and ssl.* properties"
# What a fence sends, with the first version that will do. From version 3 of InitProducerId on, a producer sends its
# current epoch (KIP-360), and a fenced driver gets an error.
FENCE_REQUESTS = (
    (FindCoordinatorRequest, 1),
    (InitProducerIdRequest, 3),
    (AddPartitionsToTxnRequest, 0),
    (EndTxnRequest, 0),
)


class ClusterConnection:
    """An admin connection to one cluster. Connects on construction; `close` drops the connections.

    The constructor and every method raise ClusterError if no broker answers, and LoginError if a broker refuses the
    login.
    """

    def __init__(self, config: ClusterConfig, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.alias = config.alias
        self._answer_seconds = answer_seconds
        self._stop = threading.Event()
        options = {
            "client_id": f"mirror-{config.alias}-admin",
            "reconnect_backoff_max_ms": LONGEST_BACKOFF_MS,
            **ready_options(kafka_python_options(config.client_properties("admin"))),
            "receive_message_max_bytes": LARGEST_ANSWER_BYTES,
            "bootstrap_timeout_ms": int(1000 * min(answer_seconds, 30)),
        }
        self._client = _connected(config, options)

    def repeat_until(self, stop: threading.Event) -> None:
        """Repeat no request that failed after `stop` is set."""
        self._stop = stop

    def close(self) -> None:
        """Drop the connections. Closing twice is harmless."""
        self._client.close()

    def _live_cluster(self) -> Any:
        """The cluster's id and its live brokers: a MetadataResponse without topics.

        DescribeCluster returns the same, but kafka-python 3.0.12 cannot parse the responses of Kafka 2.8 to 3.6.
        """

        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        return self._ask("describe the cluster", "Describe on the cluster", lambda: self._answered(request))

    def missing_for_fence(self) -> Tuple[str, ...]:
        """Kafka's names of the requests that a fence needs and the brokers do not accept, or not in a late enough
        version; all are there since Kafka 2.5 (KIP-360)."""
        accepted = manager_of(self._client).broker_version_data.api_versions
        lacking = (each for each, least in FENCE_REQUESTS if accepted.get(each.API_KEY, (0, -1))[1] < least)
        return tuple(each.__name__[: -len("Request")] for each in lacking)

    def _knows(self, request: Any, version: int) -> bool:
        """Whether the brokers accept this request in this version."""
        low, high = manager_of(self._client).broker_version_data.api_versions.get(request.API_KEY, (0, -1))
        return bool(low <= version <= high)

    def _exchange(self, requests: Sequence[Tuple[Optional[int], Any]]) -> List[Any]:
        """Send to all brokers in parallel, and to each broker one request after another; `None` is any broker.

        Returns the raw responses in the order of `requests`, a KafkaError in place of a missing one. The admin
        client's own methods raise the first error of any group, so they are not used.
        """
        manager = manager_of(self._client)
        answers: Dict[int, Any] = {}

        async def send(node: Optional[int], request: Any) -> Any:
            try:
                if node is not None and manager.cluster.broker_metadata(node) is None:
                    await manager.cluster.refresh_metadata()
                return await manager.send(request, node_id=node)
            except UnknownBrokerIdError as error:
                return NodeNotReadyError(*error.args)
            except KafkaError as error:
                reason = refusal(error)
                return error if reason is None or manager.refused() else NodeNotReadyError(reason)

        async def in_turn(node: Optional[int]) -> None:
            for number, (to, request) in enumerate(requests):
                if to == node:
                    answers[number] = await send(node, request)

        async def at_once() -> None:
            for conversation in [manager.call_soon(in_turn, node) for node in {to for to, _ in requests}]:
                await conversation

        manager.run(at_once)
        return [answers[number] for number in range(len(requests))]

    def _answered(self, request: Any) -> Any:
        """Send to any broker, and return the response. Raises KafkaError."""
        (answer,) = self._exchange([(None, request)])
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def _ask(self, asked: str, right: str, question: Callable[[], Answer]) -> Answer:
        """Call `question` until it succeeds, fails with an error that is not retriable, or the time is up."""
        deadline, pause = time.monotonic() + self._answer_seconds, 0.05
        while True:
            try:
                return question()
            except AuthorizationError as error:
                raise ClusterError(
                    f"{self.alias}: not allowed to {asked}",
                    hint=f"grant {right}",
                    code="MIR-203",
                ) from error
            # kafka-python raises RuntimeError if the controller moved twice, and OSError if a connection broke.
            except (KafkaError, RuntimeError, OSError) as error:
                refused = manager_of(self._client).refused()
                if refused is not None:
                    raise LoginError(f"{self.alias}: cannot {asked}: {refused}", LOGIN_HINT) from error
                forget_controller(self._client)
                lasting = isinstance(error, KafkaError) and not error.retriable and refusal(error) is None
                if lasting or self._stop.is_set() or time.monotonic() + pause > deadline:
                    hint = None if lasting else "check that the brokers are up and can be reached"
                    raise ClusterError(f"{self.alias}: cannot {asked}: {error}", hint) from error
            self._stop.wait(pause)
            pause = min(2 * pause, 2.0)


def _connected(config: ClusterConfig, options: Mapping[str, Any]) -> KafkaAdminClient:
    made: List[Any] = []

    def connections(**settings: Any) -> Any:
        made.append(admin_connections(**settings))
        return made[0]

    place = f"the cluster {config.alias} at {config.bootstrap_servers}"
    patience = options["bootstrap_timeout_ms"] / 1000

    notice = threading.Timer(NOTICE_SECONDS, log.warning, ("no answer yet from %s; trying for %.0f s", place, patience))
    notice.daemon = True
    notice.start()
    try:
        return KafkaAdminClient(**options, kafka_client=connections)
    except KafkaError as error:
        for client in made:
            stop(client)
        if isinstance(error, LoginRefused):
            raise LoginError(f"cannot log in to {place}: {error.args[0]}", LOGIN_HINT) from error
        last = manager_of(made[0]).last_failure if made else ""
        reason = f"no answer in {patience:.0f} s" if isinstance(error, KafkaTimeoutError) else type(error).__name__
        reason += f"; the last attempt: {last}" if last else ""
        raise ClusterError(
            f"cannot reach {place}: {reason}",
            "check bootstrap.servers, security.protocol and the credentials, and that a broker is up",
        ) from error
    finally:
        notice.cancel()


@contextmanager
def log_client(config: ClusterConfig, role: str, deadline: float) -> Iterator[LogClient]:
    """A connected client that reads (`consumer`) or writes (`producer`) logs; the context closes it at its end.

    `deadline` is in `time.monotonic()` seconds. Raises ClusterError if no broker answers by then.
    """
    network = Network()
    options = {"client_id": f"mirror-{config.alias}-{role}", **kafka_python_options(config.client_properties(role))}
    client = LogClient(network, config.alias, options)
    try:
        client.connect(deadline)
        yield client
    finally:
        client.close()
        network.close()
