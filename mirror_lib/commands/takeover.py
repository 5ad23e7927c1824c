"""`mirror takeover`: resume where a stopped MirrorMaker ended; without `--execute` only show where that is."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Optional

from pyspark.sql import SparkSession

from mirror_lib.commands.output import chosen_flows, columns, error_json, print_error, print_json, print_result
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import EXIT_OK, EXIT_REFUSED, ConfigError, MirrorError, worst
from mirror_lib.kafka.admin import clusters_of
from mirror_lib.ledger.runs import RunTable
from mirror_lib.run_lock import STOP_RUN, alone
from mirror_lib.spark.session import running_session
from mirror_lib.takeover.flow import FlowTakeover
from mirror_lib.takeover.origin import parse_origin
from mirror_lib.takeover.verdicts import REFUSED, takeover_lines
from mirror_lib.text import counted


def takeover_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """3 if a partition was refused. Where a whole flow is refused, the others are processed."""
    if arguments.compare < 1:
        raise ConfigError("--compare must be 1 or more")
    flows = chosen_flows(arguments, config)
    with running_session("mirror takeover") as spark:
        return worst([_flow(arguments, config, flow, spark) for flow in flows])


def _flow(arguments: argparse.Namespace, config: MirrorConfig, flow: ReplicationFlow, spark: SparkSession) -> int:
    try:
        origin = parse_origin(arguments.origin, arguments.connector, arguments.worker_group)
        with ExitStack() as held:
            if arguments.execute:
                held.enter_context(alone(config.state, flow.name, STOP_RUN))
                RunTable(spark, config.state).refuse_while_copied(flow.name, STOP_RUN)
            source, target = held.enter_context(clusters_of(flow))
            takeover = FlowTakeover(config, flow, spark, source, target, origin, arguments.compare)
            decided = takeover.examine()
            taken = takeover.execute(decided) if arguments.execute else 0
    except ConfigError:
        raise
    except MirrorError as error:
        print_error(error)
        if arguments.json:
            print_json({"flow": flow.name, "run_id": None, "partitions": [], **error_json([error])})
        return error.exit_code
    code = EXIT_REFUSED if any(each.verdict.action == REFUSED for each in decided) else EXIT_OK
    of_run = {"flow": flow.name, "run_id": takeover.run_id if taken else None, "partitions": decided}
    found = {**of_run, **error_json([]), "exit_code": code}
    end = closing(taken if arguments.execute else None)
    print_result(arguments, found, [flow.name, *takeover_lines(decided, columns()), end])
    return code


def closing(taken: Optional[int]) -> str:
    if taken is None:
        return "nothing was changed: --execute writes the ledger"
    if not taken:
        return "nothing was written to the ledger"
    return f"the ledger has the start of {counted(taken, 'partition')}: mirror run CONFIG resumes there"
