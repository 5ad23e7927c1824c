"""Fences the previous producers of lanes, and fences again before the broker forgets the lanes' epochs.

A broker accepts a previous producer's writes until the abort marker with the new epoch is in the partition's log.
Afterwards it refuses them with INVALID_PRODUCER_EPOCH (KIP-98, KIP-360). A broker expires a producer by the
timestamp of its last batch, and a marker has the current time. All lanes are fenced in parallel, in the round trips of
one.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from kafka.errors import for_code
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.kafka.connection import TRANSACTION_KEY, Disconnected, LogClient, error_name, is_retriable
from mirror_lib.kafka.record_batch import Producer

OK, CONCURRENT_TRANSACTIONS = 0, 51
# Error code of a partition that was not attempted because another partition failed; that one has the reason.
OPERATION_NOT_ATTEMPTED = 55
FENCED = (47, 90)  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
INVALID_TRANSACTION_TIMEOUT = 50
# When an epoch reaches 32766, the coordinator assigns a new producer id. Markers under the new id do not fence a
# process with the old id. So no process may append with the last epochs: it requests epochs until the id is new.
LAST_EPOCH = 32_766 - 8
# Long enough for the three calls of a fence; a fence cut short blocks read_committed readers for at most this long.
TRANSACTION_TIMEOUT_MS = 60_000
RIGHTS = "Write on this transactional id and on the remote topics"


@dataclass(frozen=True)
class Lane:
    """A lane and the `partitions` to mark (remote topic to partition numbers). `held` is the caller's current producer
    of it, `None` if it has none."""

    transactional_id: str
    partitions: Mapping[str, Sequence[int]]
    held: Optional[Producer] = None


class AnswerLost(Disconnected):
    """The coordinator refuses a lane after one of the lane's requests got no response.

    The coordinator may have assigned an epoch and failed before its response. It is then unknown whether this lane or
    another process, which fenced the lane, owns that epoch."""


def fence(client: LogClient, lanes: Sequence[Lane], deadline: float) -> Dict[str, Producer]:
    """Fence the partitions of `lanes` and return each lane's new producer, by transactional id.

    With the producer that a caller holds it can fence more partitions, but the coordinator refuses it if another
    process has fenced the lane since; without one the lane is fenced regardless of its owner (brokers before 2.5 ignore
    what is held). Each partition gets one abort marker, which takes one offset. Raises `FencedError` when another
    process owns a lane or fences it at this moment, `AnswerLost` when that is possible, `ClusterError` when the
    coordinator refuses or does not answer by `deadline` (monotonic seconds). Some lanes may be fenced then.
    """
    with _asking(client, lanes, deadline) as ask:
        begun = ask.producers({each.transactional_id: each.held for each in lanes})
        marked = [replace(each, held=begun[each.transactional_id]) for each in lanes if each.partitions]
        return _lasting(ask, {**begun, **_marked(ask, marked)})


def refresh(client: LogClient, lanes: Sequence[Lane], deadline: float) -> Dict[str, Producer]:
    """Put one abort marker in each partition of lanes that are held, and return each lane's next producer.

    The abort uses the lane's current epoch, so a refresh takes one epoch instead of two. The epoch must be new
    afterwards: after the marker, a broker that had expired the old one accepts only sequence 0, another broker only the
    next sequence. Raises what `fence` raises. Some of the markers may be written then.
    """
    with _asking(client, lanes, deadline) as ask:
        return _lasting(ask, _marked(ask, lanes))


@contextmanager
def _asking(client: LogClient, lanes: Sequence[Lane], deadline: float) -> Iterator[_SideBySide]:
    ask = _SideBySide(client, deadline)
    # They may have moved since the last fence, and a request to another broker would count as unanswered.
    client.forget_coordinators((each.transactional_id for each in lanes), TRANSACTION_KEY)
    try:
        yield ask
    except FencedError as error:
        if not ask.unanswered:
            raise
        lost = ", ".join(sorted(ask.unanswered))
        raise AnswerLost(f"{client.alias}: refused, after no answer came for {lost}") from error


def find_coordinators(client: LogClient, transactional_ids: Sequence[str], deadline: float) -> Dict[str, int]:
    """Node ids of the coordinators of all these lanes. On a new cluster the request creates `__transaction_state`.

    Raises `ClusterError` if one has no coordinator by `deadline` (monotonic seconds), or is not granted.
    """
    attempt = partial(_coordinators, client, transactional_ids)
    return client.ask("find the coordinators of lanes", RIGHTS, attempt, deadline)


def _coordinators(client: LogClient, transactional_ids: Sequence[str]) -> Dict[str, int]:
    nodes, failures = client.coordinators(transactional_ids, TRANSACTION_KEY)
    for name, failure in failures.items():
        if not isinstance(failure, Disconnected) and not failure.retriable:
            refuse(failure.errno, name)
    for failure in failures.values():
        raise failure
    return nodes


def _marked(ask: _SideBySide, lanes: Sequence[Lane]) -> Dict[str, Producer]:
    """Mark the partitions of lanes that are held; the next producers."""
    held = {each.transactional_id: each.held for each in lanes if each.held is not None}
    marked = {each.transactional_id: each.partitions for each in lanes}
    requests = {name: _add_partitions_request(name, held[name], partitions) for name, partitions in marked.items()}
    for name, answer in ask(requests, lambda answer: next((code for code, _ in _failed(answer)), OK)).items():
        for code, partition in _failed(answer):
            refuse(code, f"{name}, {partition}")
    _abort(ask, held)
    # The coordinator returns CONCURRENT_TRANSACTIONS until the markers are in the logs; only then is a lane fenced. The
    # request contains the epoch of those markers. So if two processes fence at once, the later one gets an error: a new
    # epoch without markers of its own would let both write.
    return ask.producers(held)


def _abort(ask: _SideBySide, producers: Mapping[str, Producer]) -> None:
    requests = {
        name: EndTxnRequest(
            transactional_id=name,
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            committed=False,
            max_version=4,
        )
        for name, each in producers.items()
    }
    # The coordinator writes a marker to each partition soon after its response.
    for name, answer in ask(requests).items():
        refuse(answer.error_code, name)


def _lasting(ask: _SideBySide, producers: Dict[str, Producer]) -> Dict[str, Producer]:
    """`producers`, whose markers are in the logs; or the next producer ids' where the epochs are used up."""
    while True:
        last = {name: each for name, each in producers.items() if each.epoch >= LAST_EPOCH}
        if not last:
            return producers
        producers = {**producers, **ask.producers(last)}


def _init_request(transactional_id: Optional[str], held: Optional[Producer] = None) -> Any:
    """The request for a new epoch; with `held`, the coordinator grants it to the current producer only (KIP-360)."""
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        producer_id=-1 if held is None else held.producer_id,
        producer_epoch=-1 if held is None else held.epoch,
        max_version=4,
    )


def _add_partitions_request(transactional_id: str, producer: Producer, partitions: Mapping[str, Sequence[int]]) -> Any:
    """The request that adds the partitions that get the markers: remote topic to partition numbers."""
    topic_type = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[topic_type(name=name, partitions=sorted(numbers)) for name, numbers in partitions.items()],
        max_version=3,
    )


def _failed(answer: Any) -> List[Tuple[int, str]]:
    """The error codes that caused the failure of an `_add_partitions_request`, with the partition of each."""
    return [
        (result.partition_error_code, f"{topic.name}-{result.partition_index}")
        for topic in answer.results_by_topic_v3_and_below
        for result in topic.results_by_partition
        if result.partition_error_code not in (OK, OPERATION_NOT_ATTEMPTED)
    ]


def idempotent_producer(client: LogClient, deadline: float) -> Producer:
    """A producer id without a transactional id (`at-least-once`): brokers drop retries, but do not fence zombies."""

    def attempt() -> Producer:
        answer = client.call(None, _init_request(None))
        if answer.error_code:
            raise for_code(answer.error_code)
        return Producer(answer.producer_id, answer.producer_epoch)

    right = "Write on the topic, and on brokers before 2.8 IdempotentWrite on the cluster"
    return client.ask("get a producer id", right, attempt, deadline)


def refuse(code: int, what: str) -> None:
    """Raises `FencedError` or `ClusterError` for any error code but 0; `what` names the lane."""
    if code in FENCED:
        raise FencedError(f"lane {what} was fenced by another driver", "let one driver run each flow")
    if code == INVALID_TRANSACTION_TIMEOUT:
        raise ClusterError(
            f"cannot fence lane {what}: transaction.max.timeout.ms of the target's brokers is below "
            f"{TRANSACTION_TIMEOUT_MS}. Nothing was written",
            f"set transaction.max.timeout.ms={TRANSACTION_TIMEOUT_MS} or more on the target's brokers, then restart; "
            "Kafka's default is 900000",
        )
    if code:
        raise ClusterError(
            f"cannot fence lane {what}: {error_name(code)}",
            f"the target principal needs {RIGHTS}",
        )


class _SideBySide:
    """Sends one request for each of many transactional ids in parallel, and repeats those that fail with a retriable
    error.

    `unanswered` has the lanes with a request without a response: the coordinator may have carried it out.
    """

    def __init__(self, client: LogClient, deadline: float) -> None:
        self.unanswered: Set[str] = set()
        self.client = client
        self._deadline = deadline

    def __call__(
        self, requests: Mapping[str, Any], error_code: Callable[[Any], int] = lambda answer: answer.error_code
    ) -> Dict[str, Any]:
        """Responses by transactional id; they may contain errors that are not retriable."""
        answers: Dict[str, Any] = {}

        def attempt() -> None:
            waiting = [name for name in requests if name not in answers]
            nodes, failed = _coordinators(self.client, waiting), None
            found = self.client.exchange([(nodes[name], requests[name]) for name in waiting])
            for name, answer in zip(waiting, found):
                code = None if isinstance(answer, Disconnected) else error_code(answer)
                if code is not None and not is_retriable(code):
                    answers[name] = answer
                    continue
                failed = answer if code is None else for_code(code)()
                if code is None:
                    self.unanswered.add(name)
                if code != CONCURRENT_TRANSACTIONS:
                    self.client.forget_coordinators([name], TRANSACTION_KEY)  # it may have moved
            if failed is not None:
                raise failed

        self.client.ask("fence the lanes", RIGHTS, attempt, self._deadline)
        return answers

    def producers(self, held: Mapping[str, Optional[Producer]]) -> Dict[str, Producer]:
        """New epochs of the producers of lanes; the coordinator aborts their open transactions."""
        found = self({name: _init_request(name, each) for name, each in held.items()})
        for name, answer in found.items():
            refuse(answer.error_code, name)
        return {name: Producer(answer.producer_id, answer.producer_epoch) for name, answer in found.items()}
