"""Finds out whether a broker's listener speaks TLS, to explain why the broker closes the connection.

A broker closes the connection if a client starts TLS on a plain listener or does not start it on a TLS listener, and
also while it stops. To tell these apart, this module requests the API versions, or makes a TLS handshake. Both need
neither permissions nor secrets.
"""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import suppress
from typing import Optional

ANSWER_SECONDS = 2.0
_CORRELATION_ID = struct.pack(">i", 0x6D697272)
# Size, API key, version, correlation id, and no client id.
_API_VERSIONS = struct.pack(">ihh4sh", 10, 18, 0, _CORRELATION_ID, -1)


def mismatch(host: str, port: int, by_tls: bool) -> Optional[str]:
    """Why a client does not get an answer here with TLS, or without it, and what to set; `None` if the listener does
    not expect the other."""
    if by_tls and _answers_in_clear(host, port):
        return (
            f"{host}:{port} speaks without TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or take the port "
            "of a listener with TLS"
        )
    if not by_tls and _shakes_hands(host, port):
        return (
            f"{host}:{port} speaks TLS: set security.protocol to SSL or SASL_SSL, or take the port of a listener "
            "without TLS"
        )
    return None


def _answers_in_clear(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), ANSWER_SECONDS) as connection:
        connection.sendall(_API_VERSIONS)
        return connection.recv(8)[4:] == _CORRELATION_ID
    return False


def _shakes_hands(host: str, port: int) -> bool:
    """Whether the listener completes a TLS handshake; it refuses a missing client certificate only afterwards. The
    peer's certificate is not checked, because nothing is sent to it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with suppress(OSError), socket.create_connection((host, port), ANSWER_SECONDS) as connection:
        context.wrap_socket(connection, server_hostname=host).close()
        return True
    return False
