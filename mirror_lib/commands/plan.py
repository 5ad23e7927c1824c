"""`mirror plan`: what would be copied and created, and why the rest is not."""

from __future__ import annotations

import argparse

from mirror_lib.commands.output import chosen_flows, print_json, print_lines
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import EXIT_OK


def plan_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror plan`: read both clusters and print; nothing is changed."""
    from mirror_lib.cluster import KafkaCluster
    from mirror_lib.plan import plan_json, plan_lines
    from mirror_lib.remote_topics import plan_flow

    for flow in chosen_flows(arguments, config):
        with KafkaCluster(flow.source) as source, KafkaCluster(flow.target) as target:
            plan = plan_flow(flow, source, target, config.flows)
        if arguments.json:
            print_json({"flow": flow.name, **plan_json(plan)})
        else:
            print_lines([flow.name, plan_lines(plan)])
    return EXIT_OK
