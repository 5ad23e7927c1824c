"""`mirror plan`: what a run would change, as a diff, and why the rest stays or is left out; or which rule decides about
one topic or group."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from typing import Mapping, Optional, Sequence

from mirror_lib.commands.output import chosen_flows, columns, print_error, print_result
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import RefusedError, worst
from mirror_lib.ledger.table_reader import local_refusal
from mirror_lib.plan.deciding import decided_group, decided_topic
from mirror_lib.plan.read import flow_preview
from mirror_lib.plan.render import preview_lines


def plan_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    flows, codes = chosen_flows(arguments, config), []
    unwritable = local_refusal(config.state, os.environ)
    refused = _refused_changes(flows) if unwritable is None else {}
    for flow in flows:
        found = flow_preview(config, flow)
        found = replace(found, refusal=found.refusal or refused.get(flow.name) or unwritable)
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


def _refused_changes(flows: Sequence[ReplicationFlow]) -> Mapping[str, Optional[RefusedError]]:
    """By flow that changes records, why Spark cannot run its change. Raises ConfigError where one cannot be made."""
    changing = [flow for flow in flows if flow.change is not None]
    if not changing:
        return {}
    from mirror_lib.rows.flow import change_refusal
    from mirror_lib.rows.transform import check_change
    from mirror_lib.spark.session import running_session

    found = {}
    with running_session("mirror plan") as spark:
        for flow in changing:
            check_change(spark, flow)
            found[flow.name] = change_refusal(spark, flow)
    return found
