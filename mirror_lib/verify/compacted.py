"""A cluster and topics in; those of them that are compacted out."""

from __future__ import annotations

from typing import FrozenSet, Sequence

from mirror_lib.facts import Cluster


def compacted(cluster: Cluster, topics: Sequence[str]) -> FrozenSet[str]:
    """By the topics' present `cleanup.policy`. Raises `ClusterError`."""
    configs = cluster.topic_configs(topics, ["cleanup.policy"])
    policies = {topic: entries.get("cleanup.policy") for topic, entries in configs.items()}
    return frozenset(topic for topic, entry in policies.items() if entry and "compact" in (entry.value or ""))
