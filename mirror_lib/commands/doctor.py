"""`mirror doctor`: everything that can be checked before a run."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from itertools import chain
from typing import Iterable, Iterator, List

from mirror_lib.commands.output import copied_flows, print_lines, print_result
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.doctor.checks import BLOCKING, Check, check_lines, failed, summary_line
from mirror_lib.doctor.cluster_checks import clusters_and_flows, on_spark, packages
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, MirrorError


def doctor_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """A line for each check, as it is made. 1 where one is blocking."""
    flows = copied_flows(arguments, config)
    made: List[Check] = []
    checks: Iterable[Check] = chain(packages(), clusters_and_flows(config, flows))
    if not arguments.no_spark:
        checks = chain(checks, _on_spark(config, flows))
    for check in checks:
        made.append(check)
        print_result(arguments, asdict(check), check_lines(check))
    if not arguments.json:
        print_lines([summary_line(made)])
    return EXIT_FAILED if any(each.level == BLOCKING for each in made) else EXIT_OK


def _on_spark(config: MirrorConfig, flows: List[ReplicationFlow]) -> Iterator[Check]:
    from mirror_lib.spark.session import running_session

    try:
        with running_session("mirror doctor") as spark:
            yield from on_spark(spark, config, flows)
    except MirrorError as error:
        yield failed("spark", "start", error)
