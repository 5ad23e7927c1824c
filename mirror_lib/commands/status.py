"""`mirror status`: the state of every flow, without Spark."""

from __future__ import annotations

import argparse
import sys
import time
from typing import List

from mirror_lib.commands.output import columns, copied_flows, print_result
from mirror_lib.config.model import MirrorConfig
from mirror_lib.status.facts import DEGRADED, UNKNOWN, FlowStatus
from mirror_lib.status.read import flow_states
from mirror_lib.status.render import status_lines

EXIT_HEALTHY, EXIT_DEGRADED, EXIT_UNKNOWN = 0, 1, 2
# Clears the screen and moves the cursor to its top (ECMA-48).
CLEAR = "\033[2J\033[H"


def status_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    flows = copied_flows(arguments, config)
    found: List[FlowStatus] = []
    try:
        while True:
            found = flow_states(config, flows)
            if arguments.watch is not None and sys.stdout.isatty() and not arguments.json:
                print(CLEAR, end="")
            for number, status in enumerate(found):
                lines = status_lines(status, arguments.all, arguments.partitions, columns())
                print_result(arguments, status, [*([""] if number else []), *lines])
            if arguments.watch is None:
                return exit_code(found)
            time.sleep(max(1.0, arguments.watch))
    except KeyboardInterrupt:
        if not found:
            raise
        return exit_code(found)


def exit_code(found: List[FlowStatus]) -> int:
    states = {each.state for each in found}
    if UNKNOWN in states:
        return EXIT_UNKNOWN
    return EXIT_DEGRADED if DEGRADED in states else EXIT_HEALTHY
