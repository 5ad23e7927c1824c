"""Replaces private parts of kafka-python: event loop, transports, frames, connections, logins.

setup.py pins the release, and `tests/unit/test_kafka_python.py` lists each private name in use. The library copies a
fetch response five times before parsing it, and receives it in 4 KB pieces. It fails requests to a broker that
throttles the client (KIP-13, KIP-219). It retries a wrong password. Its Kerberos login is one for the whole process.
"""

from __future__ import annotations

import logging
import re
import selectors
import socket
import ssl
import struct
import time
from contextlib import suppress
from functools import partial
from typing import Any, Deque, Dict, List, Optional, Tuple

from kafka.errors import (
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaProtocolError,
    KafkaTimeoutError,
    NodeNotReadyError,
    SaslAuthenticationFailedError,
)
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.scram import SaslMechanismScram
from kafka.net.selector import KernelEvent, NetworkSelector, TaskState
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.api_header import RequestHeader, ResponseHeader
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.data_container import DataContainer
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.schemas import StructField, load_json
from kafka.protocol.schemas.fields.codecs.types import Bytes, UnsignedVarInt32

from mirror_lib.config.security import KerberosLogin
from mirror_lib.kafka.kerberos import SecurityContext
from mirror_lib.kafka.security import BROKEN, LoginRefused, refusal

log = logging.getLogger(__name__)

# The loop wakes up when so much of a response has arrived, or its end: each wake-up is expensive.
AT_ONCE_BYTES = 1024 * 1024
_NOTHING_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

# Small responses arrive several at a time. Of a large one at most this much, its beginning, is copied.
BEGINNING_BYTES = 64 * 1024
# The system clears new memory, so the buffer of the largest response is kept for the next one.
ARENA_STEP_BYTES = 1024 * 1024
# A peer that is no broker may claim any response size. So a buffer has at most GROWTH times the bytes received before.
GROWTH = 4
_SIZE = struct.Struct(">i")
_LEAST_BYTES = 4  # the correlation id

Answers = List[Tuple[int, Any]]
# Added to a new connection's timeout: the library's own error, if it comes earlier, explains more.
LATE_SECONDS = 0.5
# How long a broker that refused the login is not used: repeated refusals may lock an account.
REFUSED_SECONDS = 60.0


class BrokerLoop(NetworkSelector):  # type: ignore[misc]  # kafka-python has no types
    """The library's event loop, but a reader stays registered; the library registers it again for each read."""

    def stay(self) -> None:
        """Suspend the current task until its registered event."""
        self._current.state = TaskState.WAIT_IO


class _IntoFrames:
    """Receives into the protocol's own buffers, and sends without waiting for a writable socket first. With the
    library's 4 KB pieces, a fetch response takes 1,000 calls."""

    # TLS buffers bytes that the socket's readiness does not show, so it must be read until it is empty.
    _ask_again = False

    async def _read_from_sock(self: Any) -> None:
        sock = self._sock
        self._net.register_event(sock, selectors.EVENT_READ, self._read_task)
        try:
            while self._read and not self._closed:
                await KernelEvent("stay")
                error = self._receive()
                if error is not None:
                    self.abort(error=error)
        finally:
            self._net.unregister_event(sock, selectors.EVENT_READ)

    async def _write_to_sock(self: Any) -> None:
        try:
            while self._write_buffer:
                _, error = self._sock_send()
                if error is not None:
                    self.abort(error=error)
                    return
                self.last_write = time.monotonic()
                if self._write_buffer:
                    await self._net.wait_write(self._sock)
        finally:
            self._writing = False
        if self._closed:
            self._close()

    def _receive(self: Any) -> Optional[Exception]:
        heard = False
        while self._read and not self._closed:
            room = self._protocol.parser.room()
            try:
                nbytes = self._sock.recv_into(room)
                end = None if nbytes else KafkaConnectionError("socket disconnected")
            except _NOTHING_YET:
                return self._wait_for_more()  # type: ignore[no-any-return]  # nothing
            except OSError as error:
                end = KafkaConnectionError(error)
            if end is not None:
                # The bytes before the end may contain the reason, so their handlers run first. The next read meets the
                # end again.
                return None if heard else end
            heard, self.last_read = True, time.monotonic()
            try:
                self._protocol.data_received(room[:nbytes])
            # Bytes that are no Kafka response may also fail as text or as a key.
            except (KafkaProtocolError, struct.error, ValueError, LookupError) as error:
                return KafkaConnectionError(error)  # type: ignore[no-any-return]  # kafka-python has no types
            if nbytes < len(room) and not self._ask_again:
                return self._wait_for_more()  # type: ignore[no-any-return]  # nothing
        return None

    def last_answer_at(self: Any) -> float:
        """Receive the available bytes. Returns when the last bytes arrived, in `time.monotonic()` seconds."""
        error = self._receive()
        if error is not None:
            self.abort(error=error)
        return self.last_read  # type: ignore[no-any-return]  # kafka-python has no types

    def _wait_for_more(self) -> None:
        """Called when the socket has no more bytes at the moment."""


class BulkTransport(_IntoFrames, KafkaTCPTransport):  # type: ignore[misc]  # kafka-python has no types
    """A transport without TLS."""

    _low_water = 1

    def _wait_for_more(self) -> None:
        if self._closed:
            return
        parser = self._protocol.parser
        # The missing bytes are on their way, and the system wakes the loop earlier if its buffer is smaller. A response
        # that has not started may be small.
        low_water = min(len(parser.room()), AT_ONCE_BYTES) if parser.is_busy() else 1
        if low_water != self._low_water:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)
            self._low_water = low_water


class BulkTlsTransport(_IntoFrames, KafkaSSLTransport):  # type: ignore[misc]  # kafka-python has no types
    """A transport with TLS."""

    _ask_again = True


class Frame:
    """One response with the library's read interface: small reads are copied, the rest is a view of the buffer."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def read(self, nbytes: Optional[int] = None) -> Any:
        start = self._at
        self._at = len(self._view) if nbytes is None else min(start + nbytes, len(self._view))
        return self._view[start:] if nbytes is None else bytes(self._view[start : self._at])

    def seek(self, at: int) -> None:
        self._at = at

    def tell(self) -> int:
        return self._at


class FrameProtocol(KafkaProtocol):  # type: ignore[misc]  # kafka-python has no types
    """Matches requests and responses, as the library's class does. The transport receives bytes into `room`."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._beginning = memoryview(bytearray(BEGINNING_BYTES))
        self._begun = 0
        self._arena = bytearray()
        # The buffer of the response that is arriving, or of its first part, and the response's size.
        self._frame: Optional[memoryview] = None
        self._size = self._filled = 0
        self._largest = 0

    def room(self) -> memoryview:
        """The buffer for the next bytes: the rest of the arriving response, or space for the start of the next."""
        return self._beginning[self._begun :] if self._frame is None else self._frame[self._filled :]

    def is_busy(self) -> bool:
        """Whether `room` is for the rest of one large response only."""
        return self._frame is not None

    def receive_bytes(self, data: memoryview) -> Answers:
        """Responses that are complete now; `data` is the filled part of `room`. Raises `InvalidReceiveError`."""
        if self._frame is None:
            return self._begin(self._begun + len(data))
        self._filled += len(data)
        if self._filled < len(self._frame):
            return []
        if self._filled < self._size:
            begun, self._frame = self._frame, self._place(self._size, GROWTH * self._filled)
            self._frame[: len(begun)] = begun
            return []
        frame, self._frame = self._frame, None
        self._largest = max(self._largest, self._size)
        return [self._process_response(Frame(frame))]

    def _begin(self, end: int) -> Answers:
        """Whole responses in the first `end` bytes; the remaining bytes start the next one."""
        answers: Answers = []
        left = self._beginning[:end]
        while len(left) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(left)
            if not _LEAST_BYTES <= size <= self._max_frame_size:
                raise InvalidReceiveError(f"an answer claims a size of {size} bytes")
            left = left[_SIZE.size :]
            if size > len(left):
                self._size, self._filled, self._begun = size, len(left), 0
                self._frame = self._place(size, max(ARENA_STEP_BYTES, GROWTH * self._largest))
                self._frame[: len(left)] = left
                return answers
            answers.append(self._process_response(Frame(memoryview(bytes(left[:size])))))
            left = left[size:]
        self._begun = len(left)
        self._beginning[: len(left)] = bytes(left)
        return answers

    def _place(self, size: int, most: int) -> memoryview:
        """The buffer for a response of `size` bytes, or for its first `most` bytes.

        The last response's buffer is used again if it is large enough and no view of it is left."""
        if len(self._arena) < size or not _is_free(self._arena):
            self._arena = bytearray(-(-min(size, most) // ARENA_STEP_BYTES) * ARENA_STEP_BYTES)
        return memoryview(self._arena)[:size]


def _is_free(arena: bytearray) -> bool:
    """Whether no view of `arena` is left: with a view it cannot change its size."""
    try:
        arena.append(arena.pop())
    except BufferError:
        return False
    return True


class Throttle:
    """Counts how long the brokers of one cluster throttle a client. Overlapping times count once."""

    def __init__(self) -> None:
        self._seconds = self._until = self._taken = 0.0

    def reported(self, now: float, seconds: float) -> None:
        """Record that a broker throttles the client for `seconds` from `now` (`time.monotonic()`) on."""
        until = max(self._until, now + seconds)
        self._seconds += until - max(now, self._until)
        self._until = until

    def taken(self, now: float) -> float:
        """Throttled seconds up to `now`, since the previous call."""
        before, self._taken = self._taken, self._seconds - self.left(now)
        return self._taken - before

    def left(self, now: float) -> float:
        """Seconds until no broker throttles the client."""
        return max(0.0, self._until - now)


class BrokerConnection(KafkaConnection):  # type: ignore[misc]  # kafka-python has no types
    """A broker connection that receives responses without a copy, and waits for a broker that throttles it.

    A request times out only after a time without any received bytes, so that large responses arrive over slow links.
    That time begins when the broker reads again: while it throttles this client (KIP-219), it reads nothing from the
    connection. The library fails requests meanwhile, which a lane would treat as a broken connection.
    """

    throttle: Throttle
    _muted_until = 0.0

    def _maybe_throttle(self, response: Any) -> None:
        seconds = (getattr(response, "throttle_time_ms", 0) or 0) / 1000
        if seconds > 0:
            now = time.monotonic()
            self.throttle.reported(now, seconds)
            self._muted_until = max(self._muted_until, now + seconds)

    def hears(self) -> bool:
        return bool(self.connected and self.parser.is_busy())

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.parser: Any = FrameProtocol(
            client_id=self.config["client_id"],
            receive_message_max_bytes=self.config["receive_message_max_bytes"],
            ident=self.parser._ident,
        )

    def _request_timed_out(self, future: Any, sent_at: float, timeout_at: float) -> None:
        if self.closed or future.is_done:
            return
        again_at = max(self.transport.last_answer_at(), self._muted_until) + timeout_at - sent_at
        if self.closed or future.is_done or again_at <= time.monotonic():
            super()._request_timed_out(future, sent_at, timeout_at)
            return
        timer = self.net.call_at(again_at, lambda: self._request_timed_out(future, sent_at, timeout_at))
        waiting: Deque[Any] = self.in_flight_requests
        for _ in range(len(waiting)):
            number, each, *rest = waiting.popleft()
            waiting.append((number, each, sent_at, again_at, timer) if each is future else (number, each, *rest))


class BrokerConnections(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """Broker connections that do not repeat a permanent login failure: the broker is not used for `REFUSED_SECONDS`.

    The library retries a wrong password or certificate until its timeout. Here a client that no broker accepts gets
    `LoginRefused`; while one may accept it, a use of the broker that refused raises `NodeNotReadyError`.
    `last_failure` is the error of the latest attempt, `throttle` counts the brokers' throttling."""

    def __init__(self, network: Any, **options: Any) -> None:
        self.last_failure = ""
        self.throttle = Throttle()
        # Kept here, because the refused attempt itself clears the library's own record.
        self._refusals: Dict[Any, Tuple[str, float]] = {}
        super().__init__(network, **options)

    def hears(self, node_id: Any) -> bool:
        return node_id in self._conns and bool(self._conns[node_id].hears())

    def refused(self) -> Optional[str]:
        """Why no broker accepts this client; `None` while one may. Before the first metadata these are the bootstrap
        servers, and one that failed in another way does not count."""
        brokers = [each.node_id for each in self.cluster.brokers()]
        servers = [each.node_id for each in self.cluster.bootstrap_brokers() if each.node_id not in self._backoff]
        reasons = [self._refusal(each) for each in brokers or [*servers, *self._refusals]]
        return reasons[0] if reasons and all(reasons) else None

    def _refusal(self, node_id: Any) -> Optional[str]:
        reason, until = self._refusals.get(node_id, (None, 0.0))
        return reason if time.monotonic() < until else None

    def maybe_raise_auth_failure(self, node_id: Any) -> None:
        """Raises `LoginRefused` if no broker accepts the client, `NodeNotReadyError` if only this one refused it."""
        reason = self._refusal(node_id)
        if reason:
            raise LoginRefused(reason) if self.refused() else NodeNotReadyError(reason)

    def connection_delay(self, node_id: Any) -> float:
        """As the library's; a broker of the cluster that refused the login is not chosen meanwhile."""
        _, until = self._refusals.get(node_id, (None, 0.0))
        refused = 0.0 if self.cluster.is_bootstrap(node_id) else until - time.monotonic()
        return float(max(refused, super().connection_delay(node_id)))

    def get_connection(self, node_id: Any, timeout_ms: Optional[float] = None, **options: Any) -> Any:
        """As the library's, but with a timeout for a first connection.

        The library lets it use all the remaining time: a server that never answers would leave none for the others."""
        patience_ms = self.socket_connection_setup_timeout_ms(node_id)
        timeout_ms = patience_ms if timeout_ms is None else min(timeout_ms, patience_ms)
        is_new = node_id not in self._conns
        connection = super().get_connection(node_id, timeout_ms, **options)
        if is_new:
            # The library waits without a timeout for the response to the TLS ClientHello.
            self._net.call_later(timeout_ms / 1000 + LATE_SECONDS, lambda: _give_up(connection))
        if type(connection) is KafkaConnection:
            connection.__class__ = BrokerConnection
            connection.throttle = self.throttle
        if not connection.init_future.is_done:
            connection.init_future.add_errback(partial(self._failed, connection))
        return connection

    async def _build_transport(self, node: Any, timeout_at: Optional[float] = None) -> Any:
        try:
            transport = await super()._build_transport(node, timeout_at=timeout_at)
        except KafkaConnectionError as error:
            hung_up = self.ssl_enabled and isinstance(error.__context__, (*BROKEN, ConnectionError))
            reason = mismatch(node.host, node.port, by_tls=True) if hung_up else None
            raise error if reason is None else LoginRefused(reason) from error
        own = {KafkaTCPTransport: BulkTransport, KafkaSSLTransport: BulkTlsTransport}
        transport.__class__ = own.get(type(transport), type(transport))
        return transport

    def _failed(self, connection: Any, error: BaseException) -> None:
        node_id, provider = connection.node_id, self.config.get("sasl_oauth_token_provider")
        node = self.cluster.broker_metadata(node_id)
        reason = refusal(error, by_token=provider is not None)
        if provider is not None and isinstance(error, SaslAuthenticationFailedError):
            provider.forget()
        unheard = connection.parser is not None and connection.broker_version_data is None
        if reason is None and unheard and node and not self.ssl_enabled and isinstance(error, KafkaConnectionError):
            reason = mismatch(node.host, node.port, by_tls=False)
        self.last_failure = reason or str(error)
        if reason is None:
            return
        self._refusals[node_id] = (reason, time.monotonic() + REFUSED_SECONDS)
        if self.refused() is None:
            place = node_id if node is None else f"{node.host}:{node.port}"
            log.warning("%s: %s; other brokers are used for %.0f s", place, reason, REFUSED_SECONDS)


def _give_up(connection: Any) -> None:
    # Once there is a transport the library applies its own timeout, which throttling may extend.
    if connection.transport is None and not connection.init_future.is_done:
        connection.close(KafkaTimeoutError("the server does not answer"))


# How long a listener has to answer `mismatch`.
LISTENER_SECONDS = 2.0
_CORRELATION_ID = struct.pack(">i", 0x6D697272)
# Size, API key, version, correlation id, and no client id.
_API_VERSIONS = struct.pack(">ihh4sh", 10, 18, 0, _CORRELATION_ID, -1)


def mismatch(host: str, port: int, by_tls: bool) -> Optional[str]:
    """Why a client does not get an answer here with TLS, or without it, and what to set; `None` if the listener does
    not expect the other.

    A broker closes a connection also while it stops. To tell this apart, the API versions are requested, or a TLS
    handshake is made. Both need neither permissions nor secrets.
    """
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
    with suppress(OSError), socket.create_connection((host, port), LISTENER_SECONDS) as connection:
        connection.sendall(_API_VERSIONS)
        return connection.recv(8)[4:] == _CORRELATION_ID
    return False


def _shakes_hands(host: str, port: int) -> bool:
    """Whether the listener completes a TLS handshake; it refuses a missing client certificate only afterwards. The
    peer's certificate is not checked, because nothing is sent to it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with suppress(OSError), socket.create_connection((host, port), LISTENER_SECONDS) as connection:
        context.wrap_socket(connection, server_hostname=host).close()
        return True
    return False


class Views(Bytes):  # type: ignore[misc]  # kafka-python has no types
    """Byte strings that are views of the response; the library copies each."""

    @classmethod
    def emit_decode_from(cls, ctx: Any, var_name: str, indent: str, compact: bool = False) -> None:
        size = ctx.next_var("ln")
        if compact:
            UnsignedVarInt32.emit_decode_from(ctx, size, indent)
            ctx.emit(indent, f"{size} -= 1")
        else:
            ctx.emit(indent, f'{size} = unpack_from(">i", data, pos)[0]')
            ctx.emit(indent, "pos += 4")
        ctx.emit(indent, f"{var_name} = None if {size} < 0 else data[pos : pos + {size}]")
        ctx.emit(indent, f"pos += max({size}, 0)")


def _of_views() -> Any:
    """The library's schema of a Fetch response, a copy for this module, with `Views` of the records."""
    schema = StructField(load_json(FetchResponse.name))
    schema.fields["responses"].fields["partitions"].fields["records"]._type = Views
    return schema


class FetchAnswer(DataContainer):  # type: ignore[misc]  # kafka-python has no types
    """A Fetch response as the library decodes it, but its records are views of the receive buffer."""

    _struct = _of_views()

    @classmethod
    def read(cls, view: memoryview, version: int) -> Any:
        """The body of a response of that version. Raises `struct.error`, a ValueError or a LookupError for another."""
        flexible = FetchResponse.flexible_version_q(version)
        decode = cls._struct.compiled_decode_from(version, compact=flexible, tagged=flexible, data_class=cls)
        try:
            answer, end = decode(view, 0)
        except AssertionError as error:  # the library's check of tags
            raise struct.error("a Fetch response has malformed tags") from error
        if end > len(view):
            raise struct.error(f"a Fetch response of {len(view)} bytes claims {end}")
        return answer


class _Header(RequestHeader, init=False):  # type: ignore[misc, call-arg]  # kafka-python has no types
    """The header of a Fetch request; the library parses the response with what it gives."""

    def get_response_class(self) -> _Header:
        return self

    def parse_header(self, frame: Any) -> Any:
        return ResponseHeader.decode(frame, flexible=FetchResponse.flexible_version_q(self.request_api_version))

    def decode(self, frame: Any) -> Any:
        return FetchAnswer.read(frame.read(), self.request_api_version)


class FetchRequestOfViews(FetchRequest, init=False):  # type: ignore[misc, call-arg]  # kafka-python has no types
    """The library's Fetch request, but its response is a `FetchAnswer`."""

    header_class = _Header


class KerberosMechanism(SaslMechanismGSSAPI):  # type: ignore[misc]  # kafka-python has no types
    """GSSAPI with a keytab or ticket cache for each cluster; the library has one login for all clusters of a process.

    Raises `KerberosError` if there is no ticket.
    """

    def __init__(self, **options: Any) -> None:
        login: KerberosLogin = options["sasl_kerberos_name"]
        self._is_done = self._is_authenticated = False
        self.auth_id = f"{login.service}@{options['host']}"
        self._client_ctx = SecurityContext(self.auth_id, login)
        self._next_token = self._client_ctx.step(None)

    def auth_details(self) -> str:
        return f"Authenticated to {self.auth_id} via SASL / GSSAPI"


# The minimum of Java's clients and Kafka's brokers (RFC 7677 recommends at least this many). With fewer iterations a
# man in the middle could find the password by brute force.
LEAST_SCRAM_ITERATIONS = 4096
_ITERATIONS = re.compile(rb"(?:^|,)i=(\d{1,9})(?:,|$)")


class ScramMechanism(SaslMechanismScram):  # type: ignore[misc]  # kafka-python has no types
    """SCRAM with a minimum of iterations; the library accepts any number up to a million."""

    def receive(self, auth_bytes: bytes) -> bool:
        """As the library's. Raises `LoginRefused` before it sends anything that depends on the password."""
        asked = _ITERATIONS.search(auth_bytes) if self._state == 0 else None
        count = LEAST_SCRAM_ITERATIONS if asked is None else int(asked.group(1))
        if count < LEAST_SCRAM_ITERATIONS:
            raise LoginRefused(
                f"the broker asks for {count} iterations of SCRAM, and fewer than {LEAST_SCRAM_ITERATIONS} would let "
                "it find out the password. Nothing was read or written; set the user's credentials again on the "
                "cluster, and find out who answers at this address"
            )
        return super().receive(auth_bytes)  # type: ignore[no-any-return]  # kafka-python has no types


register_sasl_mechanism("GSSAPI", KerberosMechanism, overwrite=True)
register_sasl_mechanism("SCRAM-SHA-256", ScramMechanism, overwrite=True)
register_sasl_mechanism("SCRAM-SHA-512", ScramMechanism, overwrite=True)
