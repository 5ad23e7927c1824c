"""Which failures to connect are a refusal, told at once, and which may be a broker that is starting."""

from __future__ import annotations

import ssl

import pytest
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError

from mirror_lib.log.brokers import LastWordsTransport, refusal


@pytest.mark.parametrize(
    "error",
    [
        KafkaConnectionError("socket disconnected"),
        KafkaConnectionError(ConnectionResetError(104, "Connection reset by peer")),
        KafkaConnectionError(ssl.SSLEOFError(8, "EOF occurred in violation of protocol")),
        KafkaConnectionError(ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF)")),
    ],
    ids=repr,
)
def test_a_connection_that_breaks_is_tried_again(error: Exception) -> None:
    assert refusal(error) is None


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (SaslAuthenticationFailedError("SaslAuthenticationFailedError: Invalid username or password"),
         "the broker refused the login: Invalid username or password"),
        (UnsupportedSaslMechanismError(), "the broker does not take this sasl.mechanism"),
        (KafkaConnectionError(ssl.SSLError(1, "[SSL] unsupported protocol")), "no TLS connection: no reason given"),
    ],
)  # fmt: skip
def test_a_refusal_is_told_in_the_brokers_words(error: Exception, sentence: str) -> None:
    assert refusal(error) == sentence


class Said:
    """A TLS socket from which all of `parts` can be read at once; the last, empty one is its end."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = list(parts)

    def recv(self, _: int) -> bytes:
        return self._parts.pop(0) if len(self._parts) > 1 else self._parts[0]

    def getpeername(self) -> str:
        raise OSError("the other side has gone")


def test_what_a_broker_says_before_it_hangs_up_is_heard() -> None:
    transport = object.__new__(LastWordsTransport)
    transport._closed, transport._sock = True, Said(b"refused: ", b"wrong password", b"")
    assert transport._sock_recv() == (b"refused: wrong password", None)
    words, end = transport._sock_recv()
    assert words == b""
    assert isinstance(end, KafkaConnectionError)
