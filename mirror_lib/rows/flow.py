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
from mirror_lib.rows.one_way import pairs_of, refuse_other_way, refuse_passes
from mirror_lib.rows.placed import PlacedMirror
from mirror_lib.state.tables import names_flow


def row_mirror(given: Given) -> RowMirror:
    """The mirror of a flow that has looked at both clusters. Raises `RefusedError` where there can be none, or it would
    copy again what was copied."""
    flow = given.flow
    reason = why_not_placed(flow)
    if reason is not None:
        raise RefusedError(f"{flow.name}: {reason}")
    refuse_the_other_way(given.config, flow, given.journal, given.source, given.target, given.spark)
    return PlacedMirror(given) if flow.places_anew else KeptMirror(given)


def refuse_the_other_way(
    config: MirrorConfig, flow: ReplicationFlow, journal: Journal, source: Cluster, target: Cluster, spark: SparkSession
) -> None:
    """Raise `RefusedError` where a topic of the flow was copied with its partitions kept and would now be placed anew,
    or the other way round, or where an earlier release kept its progress elsewhere. Before anything is made ready: a
    remote topic that keys are spread over must not grow."""
    ranges = journal.range_positions()
    refuse_passes(flow, names_flow(spark, config.state, "row_passes", flow.name), ranges)
    kept = journal.positions() if flow.places_anew else {}
    if kept or (ranges.pairs and not flow.places_anew):
        refuse_other_way(flow, pairs_of(flow, config.flows, source.topics(), target.topics()), kept, ranges)


def why_not_placed(flow: ReplicationFlow) -> Optional[str]:
    """What a flow that places records anew cannot do, one sentence; `None` where there is nothing."""
    if not flow.places_anew:
        return None
    asked = {"on.data.loss: continue": flow.on_data_loss == "continue"}
    found = next((name for name, is_asked in asked.items() if is_asked), None)
    return None if found is None else f"a flow that places records anew cannot have {found}"
