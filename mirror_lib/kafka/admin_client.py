"""Sends admin requests to one cluster, and connects the clients that read or write its logs."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, Iterator, Optional, Sequence, Tuple

from kafka.errors import NodeNotReadyError, NotControllerError
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from mirror_lib.config.client_options import kafka_python_options
from mirror_lib.config.model import ClusterConfig
from mirror_lib.kafka.connection import Answer, LogClient, Network

log = logging.getLogger(__name__)
# At DEBUG these loggers print the client's configuration and the bytes it sends, passwords included. They also log each
# connection attempt as an error, although `mirror` logs the result of all attempts.
for _name in ("kafka.net.connection", "kafka.protocol.parser"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

ANSWER_SECONDS, BOOTSTRAP_SECONDS = 60.0, 30.0
# A wait for a cluster that lasts longer than this is reported with its reason.
NOTICE_SECONDS = 4.0
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

    No request that failed is repeated after `stop` is set. The constructor and every method raise ClusterError if no
    broker answers, and LoginError if a broker refuses the login.
    """

    def __init__(
        self, config: ClusterConfig, answer_seconds: float = ANSWER_SECONDS, stop: Optional[threading.Event] = None
    ) -> None:
        self.alias = config.alias
        self._answer_seconds = answer_seconds
        self._client = _client(config, "admin")
        self._client.stop = stop or self._client.stop
        # The loop swallows a KeyboardInterrupt that hits one of its tasks.
        self._client.network.start()
        patience = min(answer_seconds, BOOTSTRAP_SECONDS)
        reported = "no answer yet from %s; trying for %.0f s"
        notice = threading.Timer(NOTICE_SECONDS, log.warning, (reported, self._client.place, patience))
        notice.daemon = True
        notice.start()
        try:
            self._client.connect(time.monotonic() + patience)
        except BaseException:
            self.close()
            raise
        finally:
            notice.cancel()

    def close(self) -> None:
        """Drop the connections. Closing twice is harmless."""
        _close(self._client)

    def _live_cluster(self, *topics: str) -> Any:
        """The cluster's id and its live brokers: a MetadataResponse of these topics alone.

        DescribeCluster returns the same, but kafka-python 3.0.12 cannot parse the responses of Kafka 2.8 to 3.6.
        """
        question = partial(self._client.metadata, topics)
        return self._ask("describe the cluster", "Describe on the cluster", question)

    def missing_for_fence(self) -> Tuple[str, ...]:
        """Kafka's names of the requests that a fence needs and the brokers do not accept, or not in a late enough
        version; all are there since Kafka 2.5 (KIP-360)."""
        lacking = (each for each, least in FENCE_REQUESTS if self._client.versions(each)[1] < least)
        return tuple(each.__name__[: -len("Request")] for each in lacking)

    def _by_controller(self, request: Any, results: str) -> Sequence[Any]:
        """What the controller's response has in the field `results`. In KRaft mode any broker forwards the request to
        the controller. Raises KafkaError."""
        controller = self._client.metadata(()).controller_id
        if controller < 0:
            raise NodeNotReadyError("no controller is elected")
        found: Sequence[Any] = getattr(self._client.call(controller, request), results)
        if any(each.error_code == NotControllerError.errno for each in found):
            raise NotControllerError("the controller has moved")
        return found

    def _ask(self, asked: str, right: str, attempt: Callable[[], Answer]) -> Answer:
        """See `LogClient.ask`; within the patience of this connection."""
        return self._client.ask(asked, right, attempt, time.monotonic() + self._answer_seconds)


@contextmanager
def log_client(config: ClusterConfig, role: str, deadline: float) -> Iterator[LogClient]:
    """A connected client that reads (`consumer`) or writes (`producer`) logs; the context closes it at its end.

    `deadline` is in `time.monotonic()` seconds. Raises ClusterError if no broker answers by then.
    """
    client = _client(config, role)
    try:
        client.connect(deadline)
        yield client
    finally:
        _close(client)


def _client(config: ClusterConfig, role: str) -> LogClient:
    options = {"client_id": f"mirror-{config.alias}-{role}", **kafka_python_options(config.client_properties(role))}
    return LogClient(Network(), config.alias, options)


def _close(client: LogClient) -> None:
    client.close()
    client.network.close()
