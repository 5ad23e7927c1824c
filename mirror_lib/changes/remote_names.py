"""Where a flow's records may go: remote topics by source topic, and how many partitions each of them has. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Mapping, Tuple


@dataclass(frozen=True)
class RemoteNames:
    """`topics`: remote topics by source topic; `partitions`: partition counts by remote topic, the dead letter topic's
    among them. `source_alias` is the source cluster's name."""

    source_alias: str
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
