"""`mirror plan`: what a run would change, as a diff, and why the rest stays or is left out; or which rule decides about
one topic or group."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from typing import TYPE_CHECKING, FrozenSet, Mapping, Optional, Sequence, Tuple

from mirror_lib.commands.output import chosen_flows, columns, print_error, print_result
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import RefusedError, worst
from mirror_lib.facts import AclBinding
from mirror_lib.ledger.table_reader import local_refusal
from mirror_lib.plan.deciding import decided_group, decided_topic
from mirror_lib.plan.read import flow_preview
from mirror_lib.plan.render import preview_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    flows, codes = chosen_flows(arguments, config), []
    unwritable = local_refusal(config.state, os.environ)
    known = _spark_knows(config, flows) if unwritable is None else {}
    for flow in flows:
        made, refused = known.get(flow.name, NOTHING)
        found = flow_preview(config, flow, made)
        found = replace(found, refusal=found.refusal or refused or unwritable)
        if arguments.topic is not None:
            decided = decided_topic(found, arguments.topic, config.flows)
            print_result(arguments, decided, [decided.line()])
        elif arguments.group is not None:
            decided = decided_group(found, arguments.group)
            print_result(arguments, decided, [decided.line()])
        else:
            print_result(arguments, found, preview_lines(found, arguments.all, columns()))
        if found.refusal is not None:
            print_error(found.refusal)
        codes.append(found.exit_code)
    return worst(codes)


# Of a flow: the ACLs that it created and may delete, and why it cannot run with its change of records.
Known = Tuple[FrozenSet[AclBinding], Optional[RefusedError]]
NOTHING: Known = (frozenset(), None)


def _spark_knows(config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> Mapping[str, Known]:
    """What only the state shows of each flow, or Spark itself, which is started for the flows that need it.

    Raises ConfigError where a change cannot be made, StateError where the state cannot be read.
    """
    asking = [flow for flow in flows if _deletes(flow) or flow.change is not None]
    if not asking:
        return {}
    from mirror_lib.spark.session import running_session

    with running_session("mirror plan") as spark:
        return {flow.name: _known(config, flow, spark) for flow in asking}


def _known(config: MirrorConfig, flow: ReplicationFlow, spark: SparkSession) -> Known:
    from mirror_lib.ledger.event_tables import TopicAclTable
    from mirror_lib.rows.flow import change_refusal
    from mirror_lib.rows.transform import check_change

    made = TopicAclTable(spark, config.state).made(flow.name) if _deletes(flow) else frozenset()
    if flow.change is None:
        return made, None
    check_change(spark, flow)
    return made, change_refusal(spark, flow)


def _deletes(flow: ReplicationFlow) -> bool:
    return flow.sync_topic_acls_delete and flow.sync_topic_acls_interval is not None
