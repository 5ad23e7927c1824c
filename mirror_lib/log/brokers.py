"""kafka-python's connections to brokers, with what it lacks: a refusal that stays is told at once and in plain words,
large answers are read quickly, and a Kerberos login is the cluster's own and not the process's.
"""

from __future__ import annotations

import logging
import ssl
import time
from functools import partial
from typing import Any, Deque, Dict, Optional

from kafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism

from mirror_lib.log.frames import FrameProtocol
from mirror_lib.log.kerberos import KerberosError, KerberosMechanism
from mirror_lib.log.listener import answers_in_clear, without_tls
from mirror_lib.log.throttling import PatientConnection, Throttle
from mirror_lib.log.tokens import TokenRefused, TokenUnavailable
from mirror_lib.log.transports import BrokerLoop, made_bulky

log = logging.getLogger(__name__)

# The connection broke, which may be a broker that stops or starts.
_BROKEN = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


# Behind the time that a new connection has: whoever notices itself says more.
LATE_SECONDS = 0.5
_TOKEN_HINT = "the broker's log says why; check the token's audience, issuer, scope and the claim with the user's name"


class LoginRefused(KafkaError):  # type: ignore[misc]  # kafka-python has no types
    """A broker and this client do not get to talk, and trying again will not help. The text says why."""

    retriable = False


class BrokerConnection(PatientConnection):
    """One that receives each answer where it stays, and waits where its broker asks for it, or while it is answering: a
    request's time is how long nothing comes. Large answers over a narrow line would never arrive otherwise.
    """

    def hears(self) -> bool:
        """Whether a large answer is under way."""
        return bool(self.connected and self.parser.is_under_way())

    def connection_made(self, transport: Any) -> None:
        """As the library's."""
        super().connection_made(transport)
        self.parser: Any = FrameProtocol(
            client_id=self.config["client_id"],
            receive_message_max_bytes=self.config["receive_message_max_bytes"],
            ident=self.parser._ident,
        )

    def _request_timed_out(self, future: Any, sent_at: float, timeout_at: float) -> None:
        if self.closed or future.is_done:
            return
        again_at = self.transport.heard_last() + timeout_at - sent_at
        if self.closed or future.is_done or again_at <= time.monotonic():
            super()._request_timed_out(future, sent_at, timeout_at)
            return
        timer = self.net.call_at(again_at, lambda: self._request_timed_out(future, sent_at, timeout_at))
        waiting: Deque[Any] = self.in_flight_requests
        for _ in range(len(waiting)):
            number, each, *rest = waiting.popleft()
            waiting.append((number, each, sent_at, again_at, timer) if each is future else (number, each, *rest))


class BrokerConnections(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """The library keeps trying with a wrong password or certificate until its time is up. This one raises
    `LoginRefused` from the next use of the broker on; `last_failure` is what the latest attempt ended with, `throttle`
    how long brokers kept this client waiting."""

    def __init__(self, network: Any, **options: Any) -> None:
        self.last_failure = ""
        self.throttle = Throttle()
        self._mismatch = ""
        # The library's own record of refusals is emptied by the attempt that was refused.
        self._refusals: Dict[Any, str] = {}
        super().__init__(network, **options)

    def hears(self, node_id: Any = None) -> bool:
        """Whether a large answer of this broker, or of any, is under way."""
        found = self._conns.values() if node_id is None else [self._conns[node_id]] if node_id in self._conns else []
        return any(each.hears() for each in found)

    def refuse(self, reason: str) -> None:
        """No broker and this client get to talk, for a reason that was found out beside it. From any thread."""
        self._mismatch = reason

    def maybe_raise_auth_failure(self, node_id: Any) -> None:
        """Raises `LoginRefused` where this broker refused us for good."""
        reason = self._mismatch or self._refusals.get(node_id)
        if reason:
            raise LoginRefused(reason)

    def get_connection(self, node_id: Any, timeout_ms: Optional[float] = None, **options: Any) -> Any:
        """As the library's, which gives a first connection all the time that there is: a server that never answers
        would leave none for the others."""
        patience_ms = self.socket_connection_setup_timeout_ms(node_id)
        timeout_ms = patience_ms if timeout_ms is None else min(timeout_ms, patience_ms)
        is_new = node_id not in self._conns
        connection = super().get_connection(node_id, timeout_ms, **options)
        if is_new:
            # The library waits for an answer to TLS's first word without an end.
            self._net.call_later(timeout_ms / 1000 + LATE_SECONDS, lambda: _give_up(connection))
        if type(connection) is KafkaConnection:
            connection.__class__ = BrokerConnection
            connection.throttle = self.throttle
        if not connection.init_future.is_done:
            connection.init_future.add_errback(partial(self._failed, node_id))
        return connection

    async def _build_transport(self, node: Any, timeout_at: Optional[float] = None) -> Any:
        try:
            transport = await super()._build_transport(node, timeout_at=timeout_at)
        except KafkaConnectionError as error:
            hung_up = isinstance(error.__context__, (*_BROKEN, ConnectionError))
            if self.ssl_enabled and hung_up and answers_in_clear(node.host, node.port):
                raise LoginRefused(without_tls(node.host, node.port)) from error
            raise
        return made_bulky(transport)

    def _failed(self, node_id: Any, error: BaseException) -> None:
        provider = self.config.get("sasl_oauth_token_provider")
        reason = refusal(error, by_token=provider is not None)
        if provider is not None and isinstance(error, SaslAuthenticationFailedError):
            provider.forget()
        self.last_failure = reason or str(error)
        if reason is not None:
            self._refusals[node_id] = reason


def _give_up(connection: Any) -> None:
    # Once it has a transport the library minds its time, and a broker may ask for patience.
    if connection.transport is None and not connection.init_future.is_done:
        connection.close(KafkaTimeoutError("the server does not answer"))


def admin_connections(**options: Any) -> Any:
    """What `KafkaAdminClient` takes as `kafka_client`, with these connections."""
    network = BrokerLoop(**options)
    return KafkaNetClient(net=network, manager=BrokerConnections(network, **options))


def refusal(error: BaseException, by_token: bool = False) -> Optional[str]:
    """Why a broker and this client will never talk; `None` where the next attempt may go better."""
    if isinstance(error, (LoginRefused, TokenRefused)):
        return str(error.args[0])
    if isinstance(error, TokenUnavailable):
        return None
    inner = error.args[0] if error.args and isinstance(error.args[0], Exception) else error.__context__
    if isinstance(error, SaslAuthenticationFailedError):
        said = str(error.args[0]) if error.args else ""  # the error's name, and what the broker says
        said = said.partition(": ")[2] or said or "no reason given"
        if by_token:
            return f"the broker refused the token: {said}. Nothing was read or written; {_TOKEN_HINT}"
        return f"the broker refused the login: {said}"
    if isinstance(error, UnsupportedSaslMechanismError):
        return "the broker does not take this sasl.mechanism"
    if isinstance(error, IllegalSaslStateError):
        return "the broker's listener takes no login: set security.protocol to PLAINTEXT or SSL, or take another port"
    if isinstance(error, KerberosError):
        return f"Kerberos gave no ticket: {error}"
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not trusted: {inner.verify_message}"
    if not isinstance(inner, ssl.SSLError) or isinstance(inner, _BROKEN):
        return None
    reason = str(getattr(inner, "reason", None) or "")
    if "ALERT" in reason:
        return f"the broker refused our certificate, or that there is none ({reason})"
    return f"no TLS connection: {reason or 'no reason given'}"


register_sasl_mechanism("GSSAPI", KerberosMechanism, overwrite=True)
