"""What a flow all of whose topics go one way would copy, and what the tables say was begun, in; a refusal out, where a
topic was begun in the other way: it would be copied from its start again, beside its copies. Pure.
"""

from __future__ import annotations

from typing import Collection, Iterable, List, Mapping, NamedTuple, Optional

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.facts import TopicDescription
from mirror_lib.state.records import PartitionKey
from mirror_lib.state.row_passes import REMOTE, SOURCE, RowPass
from mirror_lib.topics.plan import select_topics
from mirror_lib.topics.policy import remote_topics


class Pair(NamedTuple):
    """A topic and a remote topic of it, by names and ids."""

    topic: str
    topic_id: str
    remote_topic: str
    remote_topic_id: str


def pairs_of(
    flow: ReplicationFlow,
    flows: Iterable[ReplicationFlow],
    source_topics: Mapping[str, TopicDescription],
    target_topics: Mapping[str, TopicDescription],
) -> List[Pair]:
    """What the flow copies where its remote topics are there. `flows` are all flows of the file."""
    selected, _ = select_topics(flow, source_topics, flows)
    return [
        Pair(name, source_topics[name].topic_id, remote, target_topics[remote].topic_id)
        for name in selected
        for remote in remote_topics(flow, name)
        if remote in target_topics
    ]


def refuse_other_way(
    flow: ReplicationFlow, pairs: Iterable[Pair], kept: Collection[PartitionKey], last: Optional[RowPass]
) -> None:
    """Raise RefusedError where a topic of `pairs` was begun in the other way. `kept` is what the ledger knows, `last`
    the last pass that placed records anew, which counts where both know a topic."""
    in_ledger = {(key.source_topic, key.source_topic_id, key.remote_topic_id) for key in kept}
    in_passes = {(row.side, row.topic, row.topic_id) for row in (() if last is None else last.rows)}
    for each in pairs:
        placed = {(SOURCE, *each[:2]), (REMOTE, *each[2:])} <= in_passes
        was_kept = (each.topic, each.topic_id, each.remote_topic_id) in in_ledger
        if (was_kept and not placed) if flow.places_anew else placed:
            before, now = "in their partitions", "placed anew"
            raise RefusedError(
                f"{flow.name}: {each.topic} was copied to {each.remote_topic} with records "
                f"{before if flow.places_anew else now}, and would be copied there again with records "
                f"{now if flow.places_anew else before}",
                "set `partitioner` and `rename` back; or copy it anew, into another remote topic or where this one was "
                "deleted",
            )
