"""A flow that changes records in, its mirror for one driver's life out: by whether records keep their partitions."""

from __future__ import annotations

from typing import Optional

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.facts import Cluster
from mirror_lib.replicate.journal import Journal
from mirror_lib.rows.kept import KeptMirror
from mirror_lib.rows.mirror import Given, RowMirror
from mirror_lib.rows.one_way import pairs_of, refuse_other_way
from mirror_lib.rows.placed import PlacedMirror
from mirror_lib.state.row_passes import RowPassTable


def row_mirror(given: Given) -> RowMirror:
    """The mirror of a flow that has looked at both clusters. Raises `RefusedError` where there can be none, or it would
    copy again what was copied."""
    flow = given.flow
    reason = why_not_placed(flow)
    if reason is not None:
        raise RefusedError(f"{flow.name}: {reason}")
    refuse_the_other_way(given.config, flow, given.journal, given.source, given.target, given.spark)
    if not flow.places_anew:
        return KeptMirror(given)
    passes = RowPassTable(given.spark, given.config.state)
    return PlacedMirror(given, passes, passes.latest(flow.name))


def refuse_the_other_way(
    config: MirrorConfig, flow: ReplicationFlow, journal: Journal, source: Cluster, target: Cluster, spark: SparkSession
) -> None:
    """Raise `RefusedError` where a topic of the flow was copied with its partitions kept and would now be placed anew,
    or the other way round. Before anything is made ready: a remote topic that keys are spread over must not grow."""
    last = RowPassTable(spark, config.state).latest(flow.name)
    kept = journal.positions() if flow.places_anew else {}
    if kept or (last is not None and not flow.places_anew):
        refuse_other_way(flow, pairs_of(flow, config.flows, source.topics(), target.topics()), kept, last)


def why_not_placed(flow: ReplicationFlow) -> Optional[str]:
    """What a flow that places records anew cannot do, one sentence; `None` where there is nothing."""
    if not flow.places_anew:
        return None
    asked = {"on.data.loss: continue": flow.on_data_loss == "continue"}
    found = next((name for name, is_asked in asked.items() if is_asked), None)
    return None if found is None else f"a flow that places records anew cannot have {found}"
