"""Sends admin requests to one cluster, with one retry loop. Every lasting error becomes a `ClusterError`."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, TypeVar

from kafka.errors import AuthorizationError, KafkaError, NodeNotReadyError, NotControllerError
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from mirror_lib.config.client_options import kafka_python_options
from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError, LoginError
from mirror_lib.kafka.connection import LOGIN_HINT, LogClient, Network, metadata_request
from mirror_lib.kafka.security import refusal

log = logging.getLogger(__name__)
# At DEBUG these loggers print the client's configuration and the bytes it sends, passwords included. They also log each
# connection attempt as an error, although `mirror` logs the result of all attempts.
for _name in ("kafka.net.connection", "kafka.protocol.parser"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

Answer = TypeVar("Answer")

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

    The constructor and every method raise ClusterError if no broker answers, and LoginError if a broker refuses the
    login.
    """

    def __init__(self, config: ClusterConfig, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.alias = config.alias
        self._answer_seconds = answer_seconds
        self._stop = threading.Event()
        self._client = _client(config, "admin")
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

    def repeat_until(self, stop: threading.Event) -> None:
        """Repeat no request that failed after `stop` is set."""
        self._stop = stop

    def close(self) -> None:
        """Drop the connections. Closing twice is harmless."""
        _close(self._client)

    def _live_cluster(self) -> Any:
        """The cluster's id and its live brokers: a MetadataResponse without topics.

        DescribeCluster returns the same, but kafka-python 3.0.12 cannot parse the responses of Kafka 2.8 to 3.6.
        """

        question = partial(self._answered, metadata_request(()))
        return self._ask("describe the cluster", "Describe on the cluster", question)

    def missing_for_fence(self) -> Tuple[str, ...]:
        """Kafka's names of the requests that a fence needs and the brokers do not accept, or not in a late enough
        version; all are there since Kafka 2.5 (KIP-360)."""
        lacking = (each for each, least in FENCE_REQUESTS if self._client.versions(each)[1] < least)
        return tuple(each.__name__[: -len("Request")] for each in lacking)

    def _answered(self, request: Any, node: Optional[int] = None) -> Any:
        """The response of a broker, of any if None. Raises KafkaError."""
        return self._all_answered([(node, request)])[0]

    def _all_answered(self, requests: Sequence[Tuple[Optional[int], Any]]) -> List[Any]:
        """The responses in the order of `requests`. Raises KafkaError if one is missing."""
        answers = self._client.exchange(requests)
        for answer in answers:
            if isinstance(answer, KafkaError):
                raise answer
        return answers

    def _by_controller(self, request: Any, results: str) -> Sequence[Any]:
        """What the controller's response has in the field `results`. In KRaft mode any broker forwards the request to
        the controller. Raises KafkaError."""
        controller = self._answered(metadata_request(())).controller_id
        if controller < 0:
            raise NodeNotReadyError("no controller is elected")
        found: Sequence[Any] = getattr(self._answered(request, controller), results)
        if any(each.error_code == NotControllerError.errno for each in found):
            raise NotControllerError("the controller has moved")
        return found

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
            except KafkaError as error:
                refused = self._client.refused()
                if refused is not None:
                    raise LoginError(f"{self.alias}: cannot {asked}: {refused}", LOGIN_HINT) from error
                lasting = not error.retriable and refusal(error) is None
                if lasting or self._stop.is_set() or time.monotonic() + pause > deadline:
                    hint = None if lasting else "check that the brokers are up and can be reached"
                    raise ClusterError(f"{self.alias}: cannot {asked}: {error}", hint) from error
            self._stop.wait(pause)
            pause = min(2 * pause, 2.0)


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
