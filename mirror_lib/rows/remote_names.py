"""Where a flow's records may go: remote topics by source topic, and how many partitions each of them has. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Dict, Mapping, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.topics.plan import CopiedTopic


@dataclass(frozen=True)
class RemoteNames:
    """`topics`: remote topics by source topic; `partitions`: partition counts by remote topic, the dead letter topic's
    among them."""

    topics: Mapping[str, Tuple[str, ...]]
    partitions: Mapping[str, int]

    @property
    def one_each(self) -> bool:
        """Whether no topic has more than one remote topic."""
        return all(len(names) <= 1 for names in self.topics.values())

    def as_json(self) -> str:
        """`{source topic: [{"topic": …, "partitions": …}, …]}`, for Spark to look up in."""
        return json.dumps({topic: [self._entry(name) for name in names] for topic, names in self.topics.items()})

    def _entry(self, name: str) -> Mapping[str, object]:
        return {"topic": name, "partitions": self.partitions[name]}


def names_of(flow: ReplicationFlow, copied: Sequence[CopiedTopic]) -> RemoteNames:
    """What is known of the flow's copied topics; its dead letter topic counts as one partition, whatever it has."""
    dead = None if flow.change is None else flow.change.dead_letter_topic
    counts = {topic.remote_topic: topic.remote_partitions for topic in copied}
    topics: Dict[str, Tuple[str, ...]] = {}
    for topic in copied:
        topics[topic.source.name] = (*topics.get(topic.source.name, ()), topic.remote_topic)
    return RemoteNames(topics, counts if dead is None else {**counts, dead: 1})
