"""The part of the preflight that runs on an executor: its packages, and the brokers that it reaches.

Imports the standard library alone, so that a package that is missing is a finding and no failure.
"""

from __future__ import annotations

import importlib
import pickle
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, List, Sequence, Tuple

if TYPE_CHECKING:
    from mirror_lib.kafka.reach import Access

# What a task imports. `pyarrow` and `pandas` are what Spark needs for `mapInArrow`.
PACKAGES = ("kafka", "google_crc32c", "cramjam", "pyarrow", "pandas", "mirror_lib.replication.copier")


@dataclass(frozen=True)
class Finding:
    """What one task found: its host and Python, packages that it cannot import, clusters that it cannot use."""

    host: str
    python: str
    missing: Tuple[str, ...] = ()
    refusals: Tuple[str, ...] = ()


def examine(packed: bytes) -> Finding:
    """Import what tasks import, then log in to each cluster and connect to each of its brokers.

    `packed` is a pickled sequence of `Access`, which cannot be unpacked where packages are missing.
    """
    host, missing = socket.gethostname(), [said for said in map(_import_failure, PACKAGES) if said]
    accesses: Sequence[Access] = () if missing else pickle.loads(packed)
    refusals = [said for access in accesses for said in _refusals(access)]
    return Finding(host, sys.executable, tuple(missing), tuple(refusals))


def _import_failure(package: str) -> str:
    try:
        importlib.import_module(package)
        return ""
    except ImportError as error:
        return package if getattr(error, "name", None) == package else f"{package} ({error})"


def _refusals(access: Access) -> List[str]:
    from mirror_lib.errors import MirrorError
    from mirror_lib.kafka.reach import log_in, unreachable

    try:
        log_in(access)
    except MirrorError as error:
        return [f"cannot use the cluster {access.cluster.alias}: {error}"]
    of = f"of {access.cluster.alias}"
    return [f"cannot reach the broker {host}:{port} {of}: {why}" for (host, port), why in unreachable(access.brokers)]
