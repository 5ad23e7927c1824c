"""What the commands share: choosing flows, and printing JSON documents and errors, each on one line."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import shutil
import sys
import threading
import time
from importlib.util import find_spec
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    TextIO,
    Tuple,
    TypeVar,
)

from mirror_lib.config.model import ClusterConfig, MirrorConfig, ReplicationFlow
from mirror_lib.errors import ConfigError, MirrorError, exit_code_of
from mirror_lib.log_lines import asks_for_json, json_line, wants_json, with_files
from mirror_lib.metrics import FlowMetrics
from mirror_lib.progress import FlowProgress, Outage, after, is_news, outage_line, status_line
from mirror_lib.text import as_json, one_entry, visible, wrapped

if TYPE_CHECKING:
    from mirror_lib.screen import Screen

STDERR = 2
# Several threads print whole lines.
_writing = threading.Lock()

Report = TypeVar("Report")


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


def copied_flows(arguments: argparse.Namespace, config: MirrorConfig) -> List[ReplicationFlow]:
    """Of the chosen flows those that copy records. ConfigError where there is none."""
    flows = chosen_flows(arguments, config)
    copied = [flow for flow in flows if flow.copied]
    if not copied:
        names = ", ".join(flow.name for flow in flows)
        way_out = "set copy.enabled: true, or name the source connector's file"
        raise ConfigError(f"{names}: no records are copied, so there is nothing to report", way_out)
    return copied


def named_cluster(config: MirrorConfig, alias: str) -> ClusterConfig:
    """As the first flow that names it has it: its client properties may differ from flow to flow."""
    sides = [cluster for flow in config.flows for cluster in (flow.source, flow.target)]
    found = {cluster.alias: cluster for cluster in reversed(sides)}
    if alias not in found:
        raise ConfigError(f"there is no cluster {alias} in the file; it has {', '.join(sorted(found))}")
    return found[alias]


def watcher(as_json: bool, line: Callable[[Report], str]) -> Callable[[Report], None]:
    """Shows reports: as documents on standard output, or as lines on standard error."""
    return print_json if as_json else lambda report: print_progress(line(report))


class ProgressWatcher:
    """Shows cycles and outages of several threads: with `as_json` as a document each, else on `screen`, else as the
    plain lines that are due."""

    def __init__(self, as_json: bool, screen: Optional[Screen] = None) -> None:
        self._as_json, self._screen = as_json, screen
        self._lock = threading.Lock()
        self._known: Dict[str, Optional[FlowProgress]] = {} if screen is None else screen.flows
        self._outages: Dict[Tuple[str, str], Outage] = {} if screen is None else screen.outages
        self._shown: Dict[str, FlowProgress] = {}

    def cycle(self, metrics: FlowMetrics) -> None:
        """A flow with an outage gets no plain line: it may have records to copy."""
        with self._lock:
            flow = metrics.flow
            progress = self._known[flow] = after(metrics, self._known.get(flow), time.monotonic())
            if self._as_json:
                print_json(metrics)
            elif self._screen is None and not self._away(flow) and is_news(progress, self._shown.get(flow)):
                self._shown[flow] = progress
                print_progress(status_line(progress))

    def outage(self, outage: Outage) -> None:
        with self._lock:
            key = (outage.flow, outage.side)
            if outage.seconds is None:
                self._outages[key] = outage
            else:
                del self._outages[key]
                self._shown.pop(outage.flow, None)  # the next cycle gets a line at once
            print_json(outage) if self._as_json else print_progress(outage_line(outage))

    def _away(self, flow: str) -> bool:
        return any(name == flow for name, _ in self._outages)


def wants_screen(arguments: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    """Whether the command is to show a live table: standard error is a terminal that can, and the user did not
    decline."""
    declined = arguments.plain or arguments.json or wants_json(environ)
    able = environ.get("TERM", "dumb") != "dumb" and sys.stderr.isatty()
    return not declined and able and find_spec("rich") is not None


def undo_line(arguments: argparse.Namespace, run_id: str, what: str = "to undo it") -> str:
    files = " ".join(shlex.quote(file) for file in arguments.config)
    return f"{what}: mirror groups rollback {files} --run {run_id} --execute"


def print_undo(arguments: argparse.Namespace, run_id: str) -> None:
    """Printed before the run moves anything: it may be killed on the way."""
    print_progress(f"groups are moved now; should that be interrupted, {undo_line(arguments, run_id)}")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON documents, one a line, to standard output")


def _write(text: str, stream: TextIO) -> None:
    with _writing:
        print(text, file=stream, flush=True)


def print_json(document: Any) -> None:
    _write(with_files(as_json(document)), sys.stdout)


def error_json(errors: Sequence[MirrorError], interrupted: bool = False) -> Dict[str, Any]:
    """How the flow ended: the first error, its code, the exit code."""
    first = errors[0] if errors else None
    return {
        "error": None if first is None else str(first),
        "code": None if first is None else first.code,
        "exit_code": exit_code_of(errors, interrupted),
    }


def columns() -> Optional[int]:
    """The width of the terminal that shows standard output; `None` where that is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_lines(lines: Iterable[str]) -> None:
    shown = (part for line in lines for part in wrapped(with_files(visible(line)), columns()))
    _write("\n".join(shown), sys.stdout)


def print_result(arguments: argparse.Namespace, document: Any, lines: Iterable[str]) -> None:
    """What a command found, in the form that was asked for: a dataclass or a dictionary as JSON, or lines."""
    if arguments.json:
        print_json(document)
    else:
        print_lines(lines)


def print_progress(line: str) -> None:
    """One line on standard error, with the time before it where that is no terminal but a log."""
    _print(f"{_time()}{one_entry(line)}", logging.INFO, line)


def print_end(error: MirrorError) -> None:
    """The error with which a flow ended, as a line of progress: the lines of other flows have the time as well."""
    _print(f"{_time()}error: {one_entry(error.line)}", logging.ERROR, error)


def print_error(error: object) -> None:
    said = error.line if isinstance(error, MirrorError) else str(error)
    _print(f"error: {one_entry(said)}", logging.ERROR, error)


def print_warning(warning: object) -> None:
    _print(f"warning: {one_entry(str(warning))}", logging.WARNING, warning)


def _time() -> str:
    return "" if sys.stderr.isatty() else time.strftime("%Y-%m-%d %H:%M:%S ")


def _print(text: str, level: int, what: object) -> None:
    """`text`, or with MIRROR_LOG_FORMAT=json an object that has `what` as its message."""
    # A wrong format is an error, which is printed as text.
    if asks_for_json(os.environ):
        code = what.code if isinstance(what, MirrorError) else None
        lines = [json_line(logging.getLevelName(level), with_files(str(what)), code)]
    else:
        lines = wrapped(with_files(text), error_columns())
    _write("\n".join(lines), sys.stderr)


def error_columns() -> Optional[int]:
    """The same of standard error."""
    try:
        return os.get_terminal_size(STDERR).columns or None
    except OSError:
        return None
