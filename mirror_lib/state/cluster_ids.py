"""Cluster ids of a flow and its last run in, a refusal where another cluster stands behind an alias out. Pure."""

from __future__ import annotations

from typing import Optional, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.state.records import MirrorRun


def same_clusters(flow: str, clusters: Tuple[str, str], last: Optional[MirrorRun]) -> None:
    """Raise `RefusedError` where the ids of source and target are not those of the `last` run."""
    before = clusters if last is None else (last.source_cluster_id, last.target_cluster_id)
    for side, now, then in zip(("source", "target"), clusters, before):
        if now != then:
            raise RefusedError(
                f"{flow}: the {side} cluster has id {now}, and the ledger was written for {then}",
                "check bootstrap.servers; for another cluster give another `state:` or another alias",
            )
