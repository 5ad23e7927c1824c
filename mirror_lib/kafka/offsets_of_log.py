"""Where logs begin and end, asked of their leaders: partitions in, offsets out."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping

from kafka.protocol.consumer import ListOffsetsRequest

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, LogClient, error_name, name_of

EARLIEST = -2
LATEST = -1
# The first offset that the leader keeps itself (KIP-405).
EARLIEST_LOCAL = -4
KNOWS_TIERED_STORAGE = 8
READ_UNCOMMITTED = 0


def log_ends(
    client: LogClient, partitions: Iterable[TopicPartition], isolation: int = READ_UNCOMMITTED
) -> Mapping[TopicPartition, int]:
    """The end of each partition's log, in one request a broker; left out where its leader does not tell it.

    It is the high watermark: just after an election that may lie before what was acknowledged. Or the last stable
    offset, by `isolation`. Raises `Disconnected`.
    """
    by_node: Dict[int, List[TopicPartition]] = {}
    for partition in partitions:
        node = client.leader(partition)
        if node is not None:
            by_node.setdefault(node, []).append(partition)
    # All at once: brokers may be far, and there may be many.
    asked = [client.send(node, list_offsets_request(of_node, LATEST, isolation)) for node, of_node in by_node.items()]
    return {
        (topic.name, part.partition_index): part.offset
        for answer in map(client.answer, asked)
        for topic in answer.topics
        for part in topic.partitions
        if not part.error_code
    }


def local_start(client: LogClient, partition: TopicPartition) -> int:
    """The first offset that the partition's leader keeps itself: what lies before is in tiered storage.

    -1 where all is with the leader, for all that it can tell. Raises `Disconnected`.
    """
    request = list_offsets_request([partition], EARLIEST_LOCAL, READ_UNCOMMITTED, KNOWS_TIERED_STORAGE)
    answer = client.call(client.leader(partition), request)
    if answer.version < KNOWS_TIERED_STORAGE:
        return -1
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise Disconnected(f"{client.alias}: {name_of(partition)}: {error_name(found.error_code)}")
    return int(found.offset)


def list_offsets_request(
    partitions: Iterable[TopicPartition], timestamp: int, isolation: int, max_version: int = 5
) -> ListOffsetsRequest:
    """Asks one leader for offsets by time; `EARLIEST` and `LATEST` are times too.

    Version 5 says where a new leader does not know its end yet (KIP-207).
    """
    kind = ListOffsetsRequest.ListOffsetsTopic
    by_topic: Dict[str, List[Any]] = {}
    for topic, number in partitions:
        part = kind.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=timestamp)
        by_topic.setdefault(topic, []).append(part)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[kind(name=topic, partitions=parts) for topic, parts in by_topic.items()],
        min_version=2 if isolation else 0,
        max_version=max_version,
    )
