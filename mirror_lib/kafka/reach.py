"""Checks which brokers of a cluster this machine reaches: by a login as tasks make it, and a TCP connection to each."""

from __future__ import annotations

import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Iterable, List, Mapping, Sequence, Tuple

from kafka.cluster import collect_hosts

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError, LoginError
from mirror_lib.kafka.admin_client import log_client

log = logging.getLogger(__name__)

LOGIN_SECONDS = 15.0
CONNECT_SECONDS, SOON_SECONDS = 5.0, 2.0
AT_ONCE = 32

# How long a server has to refuse a login before a client that does not try other servers is given its address.
REFUSAL_SECONDS = 4.0

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


def accepting(cluster: ClusterConfig) -> Mapping[str, str]:
    """The properties of a consumer, without bootstrap servers that refuse its login while another accepts it.

    Java's client fails at the first server that refuses it; it draws one at random.
    """
    properties = cluster.client_properties("consumer")
    servers = [each.strip() for each in properties["bootstrap.servers"].split(",") if each.strip()]
    if len(servers) < 2 or properties.get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT":
        return properties
    alone = [ClusterConfig(cluster.alias, {**properties, "bootstrap.servers": each}) for each in servers]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        refused = list(threads.map(_refuses, alone))
    kept = [server for server, refuses in zip(servers, refused) if not refuses]
    return {**properties, "bootstrap.servers": ",".join(kept or servers)}


def _refuses(server: ClusterConfig) -> bool:
    try:
        with log_client(server, "consumer", time.monotonic() + REFUSAL_SECONDS):
            return False
    except LoginError as error:
        log.warning("%s; Spark is not given %s", error, server.bootstrap_servers)
        return True
    except ClusterError:
        return False  # Java's client tries the next server by itself


def accepts_connections(bootstrap_servers: str) -> bool:
    """Whether one of these `host:port` accepts a connection soon."""
    addresses = {(host, port) for host, port, _ in collect_hosts(bootstrap_servers)}
    return len(unreachable(addresses, SOON_SECONDS)) < len(addresses)


def unreachable(addresses: Iterable[Address], seconds: float = CONNECT_SECONDS) -> List[Tuple[Address, str]]:
    """The addresses that accept no TCP connection within `seconds`, each with the reason."""
    wanted = sorted(set(addresses))
    with ThreadPoolExecutor(AT_ONCE) as threads:
        reasons = threads.map(partial(_refusal, seconds), wanted)
        return [(each, why) for each, why in zip(wanted, reasons) if why]


def _refusal(seconds: float, address: Address) -> str:
    try:
        socket.create_connection(address, seconds).close()
        return ""
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
