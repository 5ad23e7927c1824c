"""Which failures to connect are a refusal, reported at once, and which may be a broker that is starting."""

from __future__ import annotations

import ssl

import pytest
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError

from mirror_lib.kafka.security import LoginRefused, refusal
from mirror_lib.kafka.wire import ScramMechanism


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
def test_a_refusal_has_the_brokers_message(error: Exception, sentence: str) -> None:
    assert refusal(error) == sentence


def scram(server_first: str) -> ScramMechanism:
    """A login up to what the server says first; `N` stands for the client's nonce."""
    mechanism = ScramMechanism(
        sasl_plain_username="mirror", sasl_plain_password="canary", sasl_mechanism="SCRAM-SHA-256"
    )
    nonce = mechanism.auth_bytes().decode().rpartition("r=")[2]
    mechanism.receive(server_first.replace("N", nonce).encode())
    return mechanism


@pytest.mark.parametrize("iterations", [0, 1, 4095])
def test_server_that_asks_for_few_iterations_of_scram_gets_no_proof(iterations: int) -> None:
    with pytest.raises(LoginRefused) as caught:
        scram(f"r=N1,s=c2FsdA==,i={iterations}")
    reported = refusal(caught.value) or ""
    assert f"asks for {iterations} iterations" in reported and "canary" not in reported


def test_server_that_asks_for_enough_iterations_is_answered() -> None:
    assert b",p=" in scram("r=N1,s=c2FsdA==,i=4096").auth_bytes()
