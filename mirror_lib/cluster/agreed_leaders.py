"""What each broker says of who leads partitions in; the leaders that all of it together comes to out. Pure.

A broker that was cut off from the others takes itself for the leader that it was, until it hears of the new one.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Sequence, Tuple

from mirror_lib.facts import TopicPartition

NOBODY = -1


def agreed_leaders(told: Iterable[Sequence[Any]]) -> Dict[TopicPartition, int]:
    """Node ids of leaders from Kafka's MetadataResponseTopic, a list of each broker: the one of the greatest epoch.

    Left out where nobody leads, where brokers speak of different topics of one name, and where they disagree without
    telling an epoch, as brokers before 2.1 do.
    """
    words: Dict[TopicPartition, List[Tuple[int, int, Any]]] = {}
    for topics in told:
        for topic in topics:
            for partition in topic.partitions:
                word = (partition.leader_epoch, partition.leader_id, topic.topic_id)
                words.setdefault((topic.name, partition.partition_index), []).append(word)
    found: Dict[TopicPartition, int] = {}
    for name, of_it in words.items():
        newest = max(epoch for epoch, _, _ in of_it)
        leaders = {leader for epoch, leader, _ in of_it if epoch == newest}
        if len(leaders) == 1 and NOBODY not in leaders and len({topic_id for _, _, topic_id in of_it}) == 1:
            found[name] = leaders.pop()
    return found
