"""Cluster ids of a flow and its last run in, a refusal where another cluster stands behind an alias out. Pure."""

from __future__ import annotations

from typing import Optional, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.state.records import MirrorRun

_SIDES = ("source", "target")


def same_clusters(flow: str, clusters: Tuple[str, str], last: Optional[MirrorRun]) -> None:
    """Raise `RefusedError` where the ids of source and target are not those of the `last` run."""
    for side, now in zip(_SIDES, clusters):
        same_cluster(flow, side, now, last)


def same_cluster(flow: str, side: str, now: str, last: Optional[MirrorRun]) -> None:
    """The same of one side, `source` or `target`."""
    before = now if last is None else dict(zip(_SIDES, (last.source_cluster_id, last.target_cluster_id)))[side]
    if now != before:
        raise RefusedError(
            f"{flow}: the {side} cluster has id {now}, and the ledger was written for {before}",
            "check bootstrap.servers; for another cluster give another `state:` or another alias",
        )
