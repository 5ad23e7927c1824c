"""Lanes and the partitions that they appended old records to in, a young marker in each of these and new epochs out.

A broker forgets a producer, and so the lane's epoch, by the timestamps of its last batch; a marker has the present
time. All lanes are asked side by side: many take as many round trips as one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set

from kafka.errors import for_code
from kafka.protocol.metadata import FindCoordinatorRequest

from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.kafka.connection import REQUEST_TIMEOUT_MS, TRANSACTION_KEY, Disconnected, LogClient
from mirror_lib.kafka.fencing import (
    CONCURRENT_TRANSACTIONS,
    TRY_AGAIN,
    abort_request,
    add_partitions_request,
    init_request,
    lasting,
    refuse,
    refuse_partitions,
    worst_partition_error,
)
from mirror_lib.kafka.record_batch import Producer

RETRY_SECONDS = 0.02


@dataclass(frozen=True)
class HeldLane:
    """A lane and its present producer; `partitions` (remote topic to partition numbers) are those to mark."""

    transactional_id: str
    producer: Producer
    partitions: Mapping[str, Sequence[int]]


class AnswerLost(Disconnected):
    """A lane is refused after a request of its own got no answer. A coordinator that has given out an epoch and died
    knows only that one: whether it was this lane's, or somebody else's who took the lane over, nobody can tell."""


def refresh(client: LogClient, lanes: Sequence[HeldLane], deadline: float) -> Dict[str, Producer]:
    """Put one abort marker in each partition and return each lane's next producer, by transactional id.

    A fence that begins with the epoch that the lane has, so it uses up one epoch and not two. The epoch must be a new
    one afterwards: a broker that had forgotten the old one takes no sequence but 0 behind the marker, one that had not
    only the next. Raises `FencedError` when somebody else took a lane over, `AnswerLost` when that may be so,
    `ClusterError` when the coordinator refuses or does not answer until `deadline` (monotonic seconds); some of the
    markers may then be written.
    """
    ask = _SideBySide(client, deadline)
    try:
        renewed = _renewed(ask, lanes)
    except FencedError as error:
        if not ask.unanswered:
            raise
        lost = ", ".join(sorted(ask.unanswered))
        raise AnswerLost(f"{client.alias}: refused, after no answer came for {lost}") from error
    return {name: lasting(client, name, producer, deadline) for name, producer in renewed.items()}


def _renewed(ask: _SideBySide, lanes: Sequence[HeldLane]) -> Dict[str, Producer]:
    producers = {each.transactional_id: each.producer for each in lanes}
    added = ask(
        {
            each.transactional_id: add_partitions_request(each.transactional_id, each.producer, each.partitions)
            for each in lanes
        },
        worst_partition_error,
    )
    for name, answer in added.items():
        refuse_partitions(answer, name)
    aborted = ask({name: abort_request(name, producer) for name, producer in producers.items()})
    for name, answer in aborted.items():
        refuse(answer.error_code, name)
    # Answers CONCURRENT_TRANSACTIONS until the markers are in the logs.
    renewed = ask({name: init_request(name, producer) for name, producer in producers.items()})
    for name, answer in renewed.items():
        refuse(answer.error_code, name)
    return {name: Producer(answer.producer_id, answer.producer_epoch) for name, answer in renewed.items()}


class _SideBySide:
    """One call for each of many transactional ids, sent at once, again for those that shall be tried again.

    `unanswered` are those of which a request got no answer: the coordinator may have done what it says.
    """

    def __init__(self, client: LogClient, deadline: float) -> None:
        self.unanswered: Set[str] = set()
        self._client = client
        self._deadline = deadline
        self._coordinators: Dict[str, int] = {}

    def __call__(
        self, requests: Mapping[str, Any], error_code: Callable[[Any], int] = lambda answer: answer.error_code
    ) -> Dict[str, Any]:
        """Answers by transactional id; they may hold errors that are not worth retrying."""
        answers: Dict[str, Any] = {}
        waiting = list(requests)
        while waiting:
            self._find_coordinators(waiting)
            found = self._round({name: requests[name] for name in waiting}, error_code)
            answers.update(found)
            waiting = [name for name in waiting if name not in found]
            if waiting:
                self._wait_a_little()
        return answers

    def _round(self, requests: Mapping[str, Any], error_code: Callable[[Any], int]) -> Dict[str, Any]:
        sent = {name: self._client.send(self._coordinators[name], request) for name, request in requests.items()}
        answers: Dict[str, Any] = {}
        for name, answer in zip(sent, self._answers(list(sent.values()))):
            code = None if answer is None else error_code(answer)
            if answer is None:
                self.unanswered.add(name)
            if code is None or _may_succeed_later(code):
                if code != CONCURRENT_TRANSACTIONS:
                    del self._coordinators[name]  # it may have moved
            else:
                answers[name] = answer
        return answers

    def _find_coordinators(self, names: Sequence[str]) -> None:
        unknown = [name for name in names if name not in self._coordinators]
        while unknown:
            asked = [FindCoordinatorRequest(key=name, key_type=TRANSACTION_KEY, max_version=3) for name in unknown]
            answers = self._answers([self._client.send(None, request) for request in asked])
            for name, answer in zip(unknown, answers):
                if answer is not None and not _may_succeed_later(answer.error_code):
                    refuse(answer.error_code, name)
                    self._coordinators[name] = answer.node_id
            unknown = [name for name in unknown if name not in self._coordinators]
            if unknown:
                self._wait_a_little()

    def _answers(self, futures: Sequence[Any]) -> List[Optional[Any]]:
        """What each request brought, None where nothing came."""
        for future in futures:
            self._client.wait(future, REQUEST_TIMEOUT_MS)
        return [future.value if future.succeeded() else None for future in futures]

    def _wait_a_little(self) -> None:
        if time.monotonic() >= self._deadline:
            name = self._client.alias
            raise ClusterError(f"{name}: the coordinator of a lane kept failing", "is the cluster healthy?")
        time.sleep(RETRY_SECONDS)


def _may_succeed_later(code: int) -> bool:
    return code in TRY_AGAIN or bool(for_code(code).retriable)
