"""`mirror plan`: what a run would change, as a diff, and why the rest stays or is left out."""

from __future__ import annotations

import argparse

from mirror_lib.commands.output import chosen_flows, print_json, print_lines
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import EXIT_OK


def plan_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror plan`: read both clusters and print; nothing is changed."""
    from mirror_lib.cluster import KafkaCluster
    from mirror_lib.preview.document import preview_json
    from mirror_lib.preview.lines import preview_lines
    from mirror_lib.preview.look import preview

    for flow in chosen_flows(arguments, config):
        with KafkaCluster(flow.source) as source, KafkaCluster(flow.target) as target:
            found = preview(flow, source, target, config.flows)
        if arguments.json:
            print_json(preview_json(found))
        else:
            print_lines(preview_lines(found, arguments.all))
    return EXIT_OK
