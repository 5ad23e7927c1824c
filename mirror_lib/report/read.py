"""Reads status, history and configuration of flows for `mirror report`. Changes nothing, and starts no Spark."""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import FrozenSet, Sequence

from mirror_lib import __version__
from mirror_lib.config.loader import read_document, with_values
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import ConfigError
from mirror_lib.report.page import FlowReport, MirrorReport
from mirror_lib.report.settings import changed_settings, cluster_facts, shown_state
from mirror_lib.status.read import flow_state

# As many flows are read at once.
FLOWS_AT_ONCE = 8


def mirror_report(
    config: MirrorConfig, flows: Sequence[ReplicationFlow], paths: Sequence[str], hidden: FrozenSet[str]
) -> MirrorReport:
    """`hidden`: places (`file:line`) of settings whose values may be secret. Raises `ConfigError` where a file, or
    tables of such a kind, cannot be read on this machine."""
    files = tuple((path, sha256_of(path)) for path in paths)
    with ThreadPoolExecutor(FLOWS_AT_ONCE, thread_name_prefix="report") as pool:
        found = tuple(pool.map(lambda flow: _flow(config, flow, hidden), flows))
    state = shown_state(config.state, hidden)
    return MirrorReport(config.name, time.time(), __version__, state, config.trigger, found, files)


def hidden_settings(paths: Sequence[str]) -> FrozenSet[str]:
    """The places (`file:line`) of values that come from a reference such as `${env:NAME}`, and the keys of those that
    are for the whole file."""
    entries = [each for each in with_values(read_document(paths), os.environ)[0].entries if each.hidden]
    return frozenset([*(each.place for each in entries), *(each.key for each in entries if not each.scope)])


def sha256_of(path: str) -> str:
    """The hash of the file's bytes, as `sha256sum` prints it. Raises `ConfigError`."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", path) from None


def _flow(config: MirrorConfig, flow: ReplicationFlow, hidden: FrozenSet[str]) -> FlowReport:
    clusters = (cluster_facts(flow.source, "consumer"), cluster_facts(flow.target, "producer"))
    return FlowReport(flow_state(config, flow), clusters, changed_settings(flow, hidden))
