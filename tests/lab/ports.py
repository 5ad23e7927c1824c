"""Free loopback ports in, refusals in one sentence out."""

from __future__ import annotations

import random
import socket
from typing import Tuple

from tests.lab.checkout import LabError

# Below the range Linux gives to outgoing connections: a client that keeps knocking at a stopped broker's port from that
# range can end up connected to itself, and the port is then taken when the broker wants it back.
FIRST, LAST = 20000, 32000


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_ports(count: int) -> Tuple[int, ...]:
    found: list[int] = []
    for port in random.sample(range(FIRST, LAST), 500):
        if is_free(port):
            found.append(port)
        if len(found) == count:
            return tuple(found)
    raise LabError(f"no {count} free ports on 127.0.0.1 between {FIRST} and {LAST}: stop what listens there")
