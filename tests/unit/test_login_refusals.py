"""Which failures to connect are a refusal, told at once, and which may be a broker that is starting."""

from __future__ import annotations

import ssl

import pytest
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError

from mirror_lib.log.brokers import refusal


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
