"""`mirror report`: one HTML page with the state and the history of every flow, without Spark."""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from pathlib import Path
from typing import Sequence

from mirror_lib import __version__
from mirror_lib.commands.output import copied_flows, print_result
from mirror_lib.commands.status import exit_code
from mirror_lib.config.document import Entry
from mirror_lib.config.loader import read_document, with_values
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import ConfigError
from mirror_lib.exporter import write_whole
from mirror_lib.report.page import FlowReport, MirrorReport, page
from mirror_lib.report.settings import cluster_facts, given_settings, shown_state
from mirror_lib.status.read import flow_states
from mirror_lib.text import size


def report_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    flows = copied_flows(arguments, config)
    files = tuple((path, sha256_of(path)) for path in arguments.config)
    entries = entries_of(arguments.config)
    reports = tuple(
        FlowReport(
            state,
            (cluster_facts(flow.source, "consumer"), cluster_facts(flow.target, "producer")),
            given_settings(flow, entries),
        )
        for flow, state in zip(flows, flow_states(config, flows))
    )
    state = shown_state(config.state, entries)
    found = MirrorReport(config.name, time.time(), __version__, state, config.trigger, reports, files)
    content = page(found).encode()
    write_page(arguments.output, content)
    digest = hashlib.sha256(content).hexdigest()
    states = {each.status.flow: each.status.state for each in found.flows}
    lines = [f"page: {arguments.output}", f"size: {size(len(content))}", f"sha256: {digest}"]
    lines = [*(f"{flow}: {state}" for flow, state in states.items()), *lines]
    print_result(arguments, {"page": arguments.output, "sha256": digest, "bytes": len(content), "flows": states}, lines)
    return exit_code([each.status for each in found.flows])


def entries_of(paths: Sequence[str]) -> Sequence[Entry]:
    """The keys of the files, with the values of references such as `${env:NAME}`, which are hidden."""
    return with_values(read_document(paths), os.environ)[0].entries


def sha256_of(path: str) -> str:
    """The hash of the file's bytes, as `sha256sum` prints it. Raises `ConfigError`."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", path) from None


def write_page(output: str, content: bytes) -> None:
    """Raises `ConfigError`."""
    path = Path(output)
    if path.exists() and not path.is_file():
        raise ConfigError(f"{output} is not a file. No page was written", "name a file with -o")
    mask = os.umask(0o077)
    os.umask(mask)
    try:
        write_whole(path, content, 0o666 & ~mask)
    except OSError as error:
        sentence = f"the page {output} cannot be written: {error.strerror}. Nothing else was changed"
        raise ConfigError(sentence, "name a file in a folder that this user can write, with -o") from None
