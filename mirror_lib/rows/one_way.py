"""Refuses a flow whose topic was copied with records in their partitions and would now place them anew, or the other
way round: it would be copied from its start again, beside its copies. Pure.
"""

from __future__ import annotations

from typing import Collection, Iterable, List, Mapping

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.facts import TopicDescription
from mirror_lib.state.records import PartitionKey, RangePositions, TopicPair
from mirror_lib.topics.plan import select_topics
from mirror_lib.topics.policy import remote_topics


def pairs_of(
    flow: ReplicationFlow,
    flows: Iterable[ReplicationFlow],
    source_topics: Mapping[str, TopicDescription],
    target_topics: Mapping[str, TopicDescription],
) -> List[TopicPair]:
    """What the flow copies where its remote topics are there. `flows` are all flows of the file."""
    selected, _ = select_topics(flow, source_topics, flows)
    return [
        TopicPair(name, source_topics[name].topic_id, remote, target_topics[remote].topic_id)
        for name in selected
        for remote in remote_topics(flow, name)
        if remote in target_topics
    ]


def refuse_other_way(
    flow: ReplicationFlow, pairs: Iterable[TopicPair], kept: Collection[PartitionKey], ranges: RangePositions
) -> None:
    """Raise RefusedError where a topic of `pairs` was begun in the other way. `kept` and `ranges` are what the ledger
    knows of copies in each way; where it has both of a topic, `ranges` count."""
    in_partitions = {(key.source_topic, key.source_topic_id, key.remote_topic_id) for key in kept}
    for each in pairs:
        placed = each in ranges.pairs
        was_kept = (each.topic, each.topic_id, each.remote_topic_id) in in_partitions
        if (was_kept and not placed) if flow.places_anew else placed:
            before, now = "in their partitions", "placed anew"
            raise RefusedError(
                f"{flow.name}: {each.topic} was copied to {each.remote_topic} with records "
                f"{before if flow.places_anew else now}, and would be copied there again with records "
                f"{now if flow.places_anew else before}",
                "set `partitioner` and `rename` back; or copy it anew, into another remote topic or where this one was "
                "deleted",
            )


def refuse_passes(flow: ReplicationFlow, has_passes: bool, ranges: RangePositions) -> None:
    """Raise RefusedError where a release of before copied the flow, whose progress is in the table `row_passes`."""
    if has_passes and not ranges.pairs:
        raise RefusedError(
            f"{flow.name}: its progress is in the table row_passes, which an earlier release wrote and this one does "
            "not read: nothing is copied",
            "give the mirror another `name` and `state`, and the flow an empty remote topic, to copy all again",
        )
