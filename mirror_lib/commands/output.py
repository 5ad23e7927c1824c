"""What the commands share: the flows that were asked for, JSON documents, one a line, and errors, one a line."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import threading
from typing import Any, Callable, Dict, Iterable, List, Optional, Protocol, TypeVar

from mirror_lib.config.model import ClusterConfig, MirrorConfig, ReplicationFlow
from mirror_lib.errors import ConfigError


class OfFlow(Protocol):
    """A report about one flow."""

    @property
    def flow(self) -> str:
        """The flow's name."""


Report = TypeVar("Report", bound=OfFlow)


def chosen_flows(arguments: argparse.Namespace, config: MirrorConfig) -> List[ReplicationFlow]:
    """The flow of `--flow`, or all; of these, those into `--clusters`. ConfigError where there is none."""
    names = ", ".join(flow.name for flow in config.flows) or "none that is enabled"
    flows = [flow for flow in config.flows if arguments.flow in (None, flow.name)]
    near = getattr(arguments, "clusters", None)
    if near is not None and flows:
        flows = [flow for flow in flows if flow.target.alias in near]
        if not flows:
            raise ConfigError(f"no flow goes into {', '.join(near)}; the file has {names}")
    if not flows:
        raise ConfigError(f"there is no flow {arguments.flow or ''} to run; the file has {names}".replace("  ", " "))
    return flows


def named_cluster(config: MirrorConfig, alias: str) -> ClusterConfig:
    """The cluster of that alias. ConfigError where no flow of the file has it."""
    for flow in config.flows:
        for cluster in (flow.source, flow.target):
            if cluster.alias == alias:
                return cluster
    names = sorted({cluster.alias for flow in config.flows for cluster in (flow.source, flow.target)})
    raise ConfigError(f"there is no cluster {alias} in the file; it has {', '.join(names)}")


def watcher(
    as_json: bool,
    line: Callable[[Report], str],
    document: Callable[[Report], Dict[str, Any]],
    is_news: Callable[[Report, Optional[Report]], bool] = lambda report, told: True,
) -> Callable[[Report], None]:
    """Something that shows reports of several threads: lines on standard error, or documents on standard output.

    Lines only of those that are news beside the flow's last one shown.
    """
    lock = threading.Lock()
    shown: Dict[str, Report] = {}

    def watch(report: Report) -> None:
        with lock:
            if as_json:
                print_json(document(report))
            elif is_news(report, shown.get(report.flow)):
                shown[report.flow] = report
                print_progress(line(report))

    return watch


def undo_line(arguments: argparse.Namespace, run_id: str) -> str:
    """What undoes a run that moved groups, as a command to be copied."""
    return f"to undo it: {_undo(arguments, run_id)}"


def print_undo(arguments: argparse.Namespace, run_id: str) -> None:
    """The same on standard error before the run moves anything: it may be killed on the way."""
    print_progress(f"groups are moved now; should that be interrupted, to undo it: {_undo(arguments, run_id)}")


def _undo(arguments: argparse.Namespace, run_id: str) -> str:
    files = " ".join(shlex.quote(file) for file in arguments.config)
    return f"mirror groups rollback {files} --run {run_id} --execute"


def print_json(document: Dict[str, Any]) -> None:
    """One document on a line of its own."""
    print(json.dumps(document, ensure_ascii=False), flush=True)


def print_lines(lines: Iterable[str]) -> None:
    """Lines on standard output."""
    print("\n".join(lines), flush=True)


def print_progress(line: str) -> None:
    """One line on standard error."""
    print(line, file=sys.stderr, flush=True)


def print_error(error: object) -> None:
    """One line on standard error."""
    print(f"error: {error}", file=sys.stderr)
