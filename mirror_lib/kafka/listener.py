"""Finds out which security protocol a broker's listener expects, to explain why the broker closes the connection.

A broker closes the connection if a client starts TLS on a plain listener or skips a login, and also while it stops.
To tell these apart, this module requests the API versions and a login with an unknown mechanism. Both need neither
permissions nor secrets.
"""

from __future__ import annotations

import socket
import ssl
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import List, Optional, Tuple

from kafka.cluster import collect_hosts

ANSWER_SECONDS = 2.0
TLS = ("SSL", "SASL_SSL")
WITH_LOGIN = {"PLAINTEXT": "SASL_PLAINTEXT", "SSL": "SASL_SSL"}
UNSUPPORTED_SASL_MECHANISM = 33
MOST_MECHANISMS = 64
_CORRELATION_ID = 0x6D697272
# Each has size, API key, version, correlation id, and no client id. SaslHandshake's only field is a mechanism.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
_SASL_HANDSHAKE = struct.pack(">ihhihh", 13, 17, 1, _CORRELATION_ID, -1, 1) + b"?"


def answers_in_clear(host: str, port: int) -> bool:
    """Whether a Kafka broker answers here without TLS."""
    with suppress(OSError), socket.create_connection((host, port), ANSWER_SECONDS) as connection:
        return _asked(connection, _API_VERSIONS) is not None
    return False


def accepts_connections(bootstrap_servers: str) -> bool:
    """Whether one of these `host:port` accepts a connection within two seconds."""
    places = [(host, port) for host, port, _ in collect_hosts(bootstrap_servers)]
    with ThreadPoolExecutor(len(places), thread_name_prefix="listener") as pool:
        return any(pool.map(accepts, places))


def accepts(place: Tuple[str, int]) -> bool:
    """Whether this host and port accept a connection within two seconds."""
    with suppress(OSError), socket.create_connection(place, ANSWER_SECONDS):
        return True
    return False


def mismatch(protocol: str, host: str, port: int) -> Optional[str]:
    """Why this `security.protocol` does not work with the listener, and what to set; `None` if it matches."""
    place = f"{host}:{port}"
    if protocol in TLS and answers_in_clear(host, port):
        return without_tls(host, port)
    if protocol not in TLS and _shakes_hands(host, port):
        return (
            f"{place} speaks TLS: set security.protocol to SSL or SASL_SSL, or take the port of a listener without TLS"
        )
    mechanisms = _login_asked_for(protocol, host, port) if protocol in WITH_LOGIN else None
    if mechanisms:
        return f"{place} asks for a login: set security.protocol to {WITH_LOGIN[protocol]} and sasl.mechanism to " + (
            " or ".join(mechanisms)
        )
    return None


def without_tls(host: str, port: int) -> str:
    """The message for a listener without TLS, with what to set."""
    return (
        f"{host}:{port} speaks without TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or take the port of a"
        " listener with TLS"
    )


def _shakes_hands(host: str, port: int) -> bool:
    """Whether the listener completes a TLS handshake; it refuses a missing client certificate only afterwards."""
    with suppress(OSError), socket.create_connection((host, port), ANSWER_SECONDS) as connection, _wrapped(
        connection, host
    ):
        return True
    return False


def _login_asked_for(protocol: str, host: str, port: int) -> Optional[List[str]]:
    """The mechanisms of a listener that takes logins."""
    with suppress(OSError, struct.error), socket.create_connection((host, port), ANSWER_SECONDS) as connection:
        if protocol not in TLS:
            return _mechanisms(connection)
        with _wrapped(connection, host) as wrapped:
            return _mechanisms(wrapped)
    return None


def _mechanisms(connection: socket.socket) -> Optional[List[str]]:
    answer = _asked(connection, _SASL_HANDSHAKE)
    if answer is None or len(answer) < 6 or struct.unpack_from(">h", answer)[0] != UNSUPPORTED_SASL_MECHANISM:
        return None
    (count,), at, found = struct.unpack_from(">i", answer, 2), 6, []
    # Limited, because count and sizes come from an unknown peer.
    for _ in range(min(count, MOST_MECHANISMS)):
        (size,) = struct.unpack_from(">h", answer, at)
        if size <= 0 or at + 2 + size > len(answer):
            break
        found.append(answer[at + 2 : at + 2 + size].decode(errors="replace"))
        at += 2 + size
    return found


def _asked(connection: socket.socket, request: bytes) -> Optional[bytes]:
    """The bytes after the response's correlation id; `None` if the peer is not a Kafka broker."""
    connection.sendall(request)
    head = _received(connection, 8)
    if len(head) < 8 or head[4:] != request[8:12]:
        return None
    return _received(connection, min(struct.unpack(">i", head[:4])[0] - 4, 65536))


def _received(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            break
        found += more
    return found


def _wrapped(connection: socket.socket, host: str) -> ssl.SSLSocket:
    """A TLS connection without a check of the peer's certificate: only the requests above are sent over it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connection, server_hostname=host)
