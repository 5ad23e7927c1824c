"""`mirror translate`: the second job, which keeps the groups of the target where they are on the source."""

from __future__ import annotations

import argparse
from dataclasses import replace

from mirror_lib.commands.arguments import Commands, add_command
from mirror_lib.commands.output import chosen_flows, error_json, print_end, print_json, watcher
from mirror_lib.commands.run import stop_on_signals
from mirror_lib.config.model import MirrorConfig
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.errors import exit_code_of


def add(commands: Commands) -> None:
    text = "continuously translate consumer-group offsets to the target"
    translate = add_command(commands, "translate", translate_command, text)
    translate.add_argument("--once", action="store_true", help="make one full cycle and stop, whatever `trigger` is")


def translate_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    from mirror_lib.groups.flow import cycle_json, cycle_line
    from mirror_lib.groups.job import run_translations
    from mirror_lib.spark.session import running_session

    flows = chosen_flows(arguments, config)
    if arguments.once:
        config = replace(config, trigger=AVAILABLE_NOW)
    with running_session(f"mirror translate {', '.join(flow.name for flow in flows)}") as spark:
        watch = watcher(arguments.json, cycle_line, cycle_json)
        stop = stop_on_signals()
        errors = run_translations(config, flows, spark, watch, stop)
    for flow, error in errors.items():
        print_end(error)
        if arguments.json:
            print_json({"flow": flow, **error_json([error])})
    return exit_code_of(errors.values(), stop.is_set() and config.trigger == AVAILABLE_NOW)
