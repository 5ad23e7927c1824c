"""Chooses the mirror of a row flow: records keep their partitions or not."""

from __future__ import annotations

from typing import Optional

from pyspark.sql import SparkSession

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.ledger.records import TopicPair
from mirror_lib.replication.copy_ranges import refuse_other_mode
from mirror_lib.replication.flow import FlowContext
from mirror_lib.rows.kept import KeptMirror
from mirror_lib.rows.mirror import RowMirror
from mirror_lib.rows.repartitioned import RepartitioningMirror
from mirror_lib.rows.transform import placement_fault
from mirror_lib.topics.plan import select_topics


def row_mirror(context: FlowContext) -> RowMirror:
    """The mirror of a flow, after a check of both clusters. Raises `RefusedError` if it is impossible, or would copy
    records twice."""
    flow = context.flow
    refused = change_refusal(context.spark, flow)
    if refused is not None:
        raise refused
    refuse_other_partitioning(context)
    return RepartitioningMirror(context) if flow.repartitions else KeptMirror(context)


def refuse_other_partitioning(context: FlowContext) -> None:
    """Raise `RefusedError` if a topic of the flow was copied in the other partitioning mode. Call it before topics are
    created or grown: a remote topic with repartitioned records must not grow."""
    config, flow, journal = context.config, context.flow, context.journal
    ranges = journal.range_positions()
    kept = journal.positions() if flow.repartitions else {}
    if kept or (ranges.pairs and not flow.repartitions):
        source, target = context.source.topics(), context.target.topics()
        selected, _ = select_topics(flow, source, config.flows)
        pairs = [
            TopicPair(name, source[name].topic_id, remote, target[remote].topic_id)
            for name, remote in selected.items()
            if remote in target
        ]
        refuse_other_mode(flow, pairs, kept, ranges.pairs)


def change_refusal(spark: SparkSession, flow: ReplicationFlow) -> Optional[RefusedError]:
    """Why a flow cannot run with its change of records; `None` if it can. Raises ConfigError for an invalid change."""
    if flow.repartitions and flow.on_data_loss == "continue":
        what = "a flow that repartitions records cannot have on.data.loss: continue"
        return RefusedError(f"{flow.name}: {what}", code="MIR-319")
    fault = placement_fault(spark, flow)
    hint = "compute partitions from fields of the record, such as the key"
    return None if fault is None else RefusedError(f"{flow.name}: {fault}", hint, code="MIR-318")
