"""Shuts every earlier holder of a lane out of its remote partitions, and gives the lane a producer of its own.

The order matters: until the abort marker with the new epoch is in a partition's log, an older holder's write is
still accepted there; once it is, that write is refused with INVALID_PRODUCER_EPOCH (KIP-98, KIP-360).
"""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence

from kafka.errors import for_code
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.kafka.connection import LogClient, error_name
from mirror_lib.kafka.record_batch import Producer

CONCURRENT_TRANSACTIONS = 51
CLUSTER_AUTHORIZATION_FAILED = 31
NOT_COORDINATOR = 16
# Of a partition: only that another one failed, which has the reason.
OPERATION_NOT_ATTEMPTED = 55
TRY_AGAIN = (CONCURRENT_TRANSACTIONS, NOT_COORDINATOR)
FENCED = (47, 90)  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
# A coordinator gives out another producer id when an epoch has reached 32766, and markers under that id fence nobody
# who has the old one. So nobody may append with the last epochs: who gets one asks on until the id is a new one.
LAST_EPOCH = 32_766 - 8
# Long enough for the three calls of a fence; a fence cut short blocks read_committed readers for at most this long.
TRANSACTION_TIMEOUT_MS = 60_000


def fence(
    client: LogClient,
    transactional_id: str,
    partitions: Mapping[str, Sequence[int]],
    deadline: float,
    held: Optional[Producer] = None,
) -> Producer:
    """Fence `partitions` (remote topic to partition numbers) and return the lane's new producer.

    `held` is the producer of a caller that has the lane already: it may fence more of it, but not take it back from
    whoever took it over since. None takes the lane over, whoever has it. Costs one offset (the abort marker) in each
    partition. Raises `FencedError` when somebody else has the lane or fences it at this moment, `ClusterError` when
    the coordinator does not answer until `deadline` (monotonic seconds).
    """
    producer = init_producer(client, transactional_id, deadline, held)
    if not partitions:
        return producer
    _add_partitions(client, transactional_id, producer, partitions, deadline)
    _abort(client, transactional_id, producer, deadline)
    # Answers CONCURRENT_TRANSACTIONS until the markers are in the logs: only then is the fence up. It names the epoch
    # of those markers, so that of two that fence at once the later one is told: a new epoch without markers of its
    # own would let both write.
    return lasting(client, transactional_id, init_producer(client, transactional_id, deadline, producer), deadline)


def lasting(client: LogClient, transactional_id: str, producer: Producer, deadline: float) -> Producer:
    """`producer`, whose markers are in the logs; where its epochs are used up, the one of the next producer id."""
    while producer.epoch >= LAST_EPOCH:
        producer = init_producer(client, transactional_id, deadline, producer)
    return producer


def init_producer(
    client: LogClient, transactional_id: str, deadline: float, held: Optional[Producer] = None
) -> Producer:
    """A new epoch of the transactional id's producer; aborts what an earlier holder left open.

    With `held` only if nobody else asked for one since, else `FencedError` (KIP-360; brokers before 2.5 ignore it).
    """
    answer = _ask(client, transactional_id, init_request(transactional_id, held), deadline)
    refuse(answer.error_code, transactional_id)
    return Producer(answer.producer_id, answer.producer_epoch)


def init_request(transactional_id: str, held: Optional[Producer]) -> Any:
    """Asks for a new epoch; with `held` only for the holder of that one (KIP-360)."""
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        producer_id=-1 if held is None else held.producer_id,
        producer_epoch=-1 if held is None else held.epoch,
        max_version=4,
    )


def idempotent_producer(client: LogClient, deadline: float) -> Producer:
    """A producer id without a transactional id: retries are recognised, zombies are not (`at-least-once`)."""
    request = InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
        max_version=4,
    )
    answer = client.retry(request, lambda: None, lambda reply: int(reply.error_code), deadline)
    if answer.error_code == CLUSTER_AUTHORIZATION_FAILED:
        raise ClusterError(
            f"{client.alias}: no producer id: {error_name(answer.error_code)}",
            "the principal needs Write on the topic, and on brokers before 2.8 IdempotentWrite on the cluster",
        )
    refuse(answer.error_code, "idempotent producer")
    return Producer(answer.producer_id, answer.producer_epoch)


def _add_partitions(
    client: LogClient,
    transactional_id: str,
    producer: Producer,
    partitions: Mapping[str, Sequence[int]],
    deadline: float,
) -> None:
    request = add_partitions_request(transactional_id, producer, partitions)
    refuse_partitions(_ask(client, transactional_id, request, deadline, worst_partition_error), transactional_id)


def add_partitions_request(transactional_id: str, producer: Producer, partitions: Mapping[str, Sequence[int]]) -> Any:
    """Names the partitions that the markers go to: remote topic to partition numbers."""
    topic_type = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[topic_type(name=name, partitions=sorted(numbers)) for name, numbers in partitions.items()],
        max_version=3,
    )


def refuse_partitions(answer: Any, transactional_id: str) -> None:
    """Raises what `fence` raises if the answer to `add_partitions_request` holds an error."""
    for topic in answer.results_by_topic_v3_and_below:
        for result in topic.results_by_partition:
            if result.partition_error_code != OPERATION_NOT_ATTEMPTED:
                refuse(result.partition_error_code, f"{transactional_id}, {topic.name}-{result.partition_index}")


def worst_partition_error(answer: Any) -> int:
    """The error code that explains the answer to `add_partitions_request`, 0 if there is none."""
    codes: List[int] = [
        result.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for result in topic.results_by_partition
        if result.partition_error_code
    ]
    return next((code for code in codes if code != OPERATION_NOT_ATTEMPTED), 0)


def _abort(client: LogClient, transactional_id: str, producer: Producer, deadline: float) -> None:
    answer = _ask(client, transactional_id, abort_request(transactional_id, producer), deadline)
    refuse(answer.error_code, transactional_id)


def abort_request(transactional_id: str, producer: Producer) -> Any:
    """Has the coordinator write an abort marker to each of the partitions, soon after it answered."""
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=False,
        max_version=4,
    )


def _ask(
    client: LogClient,
    transactional_id: str,
    request: Any,
    deadline: float,
    error_code: Any = lambda answer: answer.error_code,
) -> Any:
    return client.retry(
        request,
        lambda: client.coordinator(transactional_id, deadline),
        error_code,
        deadline,
        extra=TRY_AGAIN,
    )


def refuse(code: int, what: str) -> None:
    """Raises `FencedError` or `ClusterError` for any error code but 0; `what` names the lane."""
    if code in FENCED:
        raise FencedError(f"lane {what} was taken over by another driver", "let one driver run each flow")
    if code:
        error_type = for_code(code)
        raise ClusterError(
            f"cannot fence lane {what}: {error_type.__name__}",
            "the target principal needs Write on this transactional id and on the remote topics",
        )
