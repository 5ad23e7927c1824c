"""Checks which brokers of a cluster this machine reaches: by a login as tasks make it, and a TCP connection to each."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Iterable, List, Sequence, Tuple

from mirror_lib.config.model import ClusterConfig
from mirror_lib.kafka.admin_client import log_client

LOGIN_SECONDS = 15.0
CONNECT_SECONDS = 5.0
AT_ONCE = 32

Address = Tuple[str, int]


@dataclass(frozen=True)
class Access:
    """A cluster as the tasks use it: `role` is `consumer` or `producer`. Every task must reach the advertised addresses
    `brokers`."""

    cluster: ClusterConfig
    role: str
    brokers: Sequence[Address] = ()


def log_in(access: Access) -> List[Address]:
    """Connect as a task does, and return the brokers' advertised addresses. Raises `ClusterError`, `ConfigError`."""
    with log_client(access.cluster, access.role, time.monotonic() + LOGIN_SECONDS) as client:
        return client.advertised()


def unreachable(addresses: Iterable[Address]) -> List[Tuple[Address, str]]:
    """The addresses that accept no TCP connection, each with the reason."""
    wanted = sorted(set(addresses))
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return [(each, why) for each, why in zip(wanted, threads.map(_refusal, wanted)) if why]


def _refusal(address: Address) -> str:
    try:
        socket.create_connection(address, CONNECT_SECONDS).close()
        return ""
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
