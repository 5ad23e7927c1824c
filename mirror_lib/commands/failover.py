"""`mirror failover`: what the target holds of a flow whose source is gone."""

from __future__ import annotations

import argparse
import time

from mirror_lib.commands.arguments import Commands, add_command
from mirror_lib.commands.output import columns, copied_flows, print_json, print_lines
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import EXIT_OK


def add(commands: Commands) -> None:
    add_command(
        commands, "failover", failover_command, "show what the target has when the source is lost, and change nothing"
    )


def failover_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    from mirror_lib.cutover.failover import failover, failover_json, failover_lines

    flows = copied_flows(arguments, config)
    for number, flow in enumerate(flows):
        found = failover(config, flow, time.time())
        if arguments.json:
            print_json(failover_json(found))
        else:
            print_lines([*([""] if number else []), *failover_lines(found, columns())])
    return EXIT_OK
