"""The part of the preflight that runs on an executor: its packages, and the brokers that it reaches.

Imports the standard library alone, so that a package that is missing is named with the host.
"""

from __future__ import annotations

import importlib
import pickle
import socket
import sys
from typing import TYPE_CHECKING, List, Sequence

if TYPE_CHECKING:
    from mirror_lib.kafka.reach import Access

# What a task imports. `pyarrow` and `pandas` are what Spark needs for `mapInArrow`.
PACKAGES = ("kafka", "google_crc32c", "cramjam", "pyarrow", "pandas", "mirror_lib.replication.copier")


def examine(packed: bytes) -> List[str]:
    """Import what tasks import, then log in to each cluster and connect to each of its brokers; what cannot be used.

    `packed` is a pickled sequence of `Access`, which cannot be unpacked where packages are missing. Raises ImportError.
    """
    host = socket.gethostname()
    for package in PACKAGES:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ImportError(f"{sys.executable} on {host} cannot import {package}: {error}") from None
    accesses: Sequence[Access] = pickle.loads(packed)
    return [f"The executor on {host} {said}" for access in accesses for said in _refusals(access)]


def _refusals(access: Access) -> List[str]:
    from mirror_lib.errors import MirrorError
    from mirror_lib.kafka.reach import log_in, unreachable

    try:
        log_in(access)
    except MirrorError as error:
        return [f"cannot use the cluster {access.cluster.alias}: {error}"]
    of = f"of {access.cluster.alias}"
    return [f"cannot reach the broker {host}:{port} {of}: {why}" for (host, port), why in unreachable(access.brokers)]
