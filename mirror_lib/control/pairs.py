"""A file and the flows that are run in, the pairs whose heartbeats are written besides out. Pure."""

from __future__ import annotations

from typing import List, Sequence

from mirror_lib.config.model import MirrorConfig, ReplicationFlow


def beating_pairs(config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> List[ReplicationFlow]:
    """The pairs whose heartbeats a run of `flows` writes: to clusters that these read, and to those that none reads."""
    read = {flow.source.alias for flow in flows}
    elsewhere = {flow.source.alias for flow in config.flows} - read
    return [pair for pair in config.heartbeat_pairs if pair.target.alias not in elsewhere]
