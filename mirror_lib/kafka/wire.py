"""Everything that touches private parts of kafka-python: event loop, transports, frames, connections, logins.

setup.py pins the release, and `tests/unit/test_kafka_python.py` lists each private name that is used here. The library
copies a fetch answer five times before parsing it, and receives it in 4 KB pieces; it fails requests to a broker that
throttles the client (KIP-13, KIP-219); it retries a wrong password; and its Kerberos login is the process's own.
"""

from __future__ import annotations

import re
import selectors
import socket
import ssl
import struct
import time
from functools import partial
from itertools import islice
from typing import Any, Deque, Dict, List, Optional, Tuple

from kafka.errors import (
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaProtocolError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
)
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.scram import SaslMechanismScram
from kafka.net.selector import KernelEvent, NetworkSelector, TaskState
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.api_header import ResponseHeader
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.parser import KafkaProtocol

from mirror_lib.config.security import KerberosLogin
from mirror_lib.kafka.fetch_answer import COMPACT, FetchAnswer, read_answer
from mirror_lib.kafka.kerberos import SecurityContext
from mirror_lib.kafka.listener import answers_in_clear, without_tls
from mirror_lib.kafka.security import BROKEN, LoginRefused, refusal

# At most so many pieces are sent by one call; Linux takes 1024.
PIECES = 256
# Of an answer that is under way so much is waited for at once, or its end: waking up is dear.
AT_ONCE_BYTES = 1024 * 1024
_NOTHING_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

# Small answers come several at a time; of a large one this much is copied, the beginning.
BEGINNING_BYTES = 64 * 1024
# New memory has to be cleared, so some is kept for the next answer, as much as the largest one took.
ARENA_STEP_BYTES = 1024 * 1024
# An answer may claim any size, also one of a peer that is no broker: it may have so many times the bytes received
# before it.
GROWTH = 4
_SIZE = struct.Struct(">i")
_LEAST_BYTES = 4  # the correlation id

Answers = List[Tuple[int, Any]]
# After the time that a new connection has: an error noticed earlier says more.
LATE_SECONDS = 0.5


class BrokerLoop(NetworkSelector):  # type: ignore[misc]  # kafka-python has no types
    """The library's event loop, in which a reader may stay registered; it registers again for each read."""

    def stay(self) -> None:
        """The task that runs waits for what it is registered for."""
        self._current.state = TaskState.WAIT_IO


class _IntoFrames:
    """Receives where the protocol has room. By 4 KB, as the library does, a fetch answer costs a thousand calls."""

    # TLS holds bytes that the socket does not show: it is asked until it has none.
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
                    return self.abort(error=error)  # type: ignore[no-any-return]  # it returns nothing
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
                # What came right before the end says why, so who waits for it comes first; the end is met again.
                return None if heard else end
            heard, self.last_read = True, time.monotonic()
            try:
                self._protocol.data_received(room[:nbytes])
            # What is no answer at all may fail as text, or as a key, too.
            except (KafkaProtocolError, struct.error, ValueError, LookupError) as error:
                return KafkaConnectionError(error)  # type: ignore[no-any-return]  # kafka-python has no types
            if nbytes < len(room) and not self._ask_again:
                return self._wait_for_more()  # type: ignore[no-any-return]  # nothing
        return None

    def last_answer_at(self: Any) -> float:
        """Receive what has come; when something came last, in `time.monotonic()` seconds."""
        error = self._receive()
        if error is not None:
            self.abort(error=error)
        return self.last_read  # type: ignore[no-any-return]  # kafka-python has no types

    def _wait_for_more(self) -> None:
        """The socket has no more at the moment."""


class BulkTransport(_IntoFrames, KafkaTCPTransport):  # type: ignore[misc]  # kafka-python has no types
    """Without TLS."""

    _low_water = 1

    def _wait_for_more(self) -> None:
        if self._closed:
            return
        parser = self._protocol.parser
        # What is missing is on its way, and the system wakes us for less where its buffer has no room for so much. An
        # answer that has not begun may be small.
        low_water = min(len(parser.room()), AT_ONCE_BYTES) if parser.is_busy() else 1
        if low_water != self._low_water:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)
            self._low_water = low_water

    def write(self, data: Any) -> None:
        """Send these pieces when the socket takes them."""
        self.writelines(data)

    def _sock_send(self) -> Tuple[int, Optional[Exception]]:
        total = 0
        if self._sock is None:
            return total, KafkaConnectionError("Connection closed during send")
        while self._write_buffer:
            try:
                sent = self._sock.sendmsg(list(islice(self._write_buffer, PIECES)))
            except _NOTHING_YET:
                break
            except OSError as error:
                return total, KafkaConnectionError(error)
            total += sent
            self._drop(sent)
        return total, None

    def _drop(self, nbytes: int) -> None:
        waiting = self._write_buffer
        while waiting and nbytes >= len(waiting[0]):
            nbytes -= len(waiting.popleft())
        if nbytes:
            waiting[0] = memoryview(waiting[0])[nbytes:]


class BulkTlsTransport(_IntoFrames, KafkaSSLTransport):  # type: ignore[misc]  # kafka-python has no types
    """With TLS."""

    _ask_again = True

    def write(self, data: Any) -> None:
        """Send these pieces, as one, when the socket takes them: each one sent is a TLS record at least."""
        super().write(b"".join(data))


def made_bulky(transport: Any) -> Any:
    """A transport of the library as one of these."""
    own = {KafkaTCPTransport: BulkTransport, KafkaSSLTransport: BulkTlsTransport}
    transport.__class__ = own.get(type(transport), type(transport))
    return transport


class Frame:
    """One answer, read as the library reads: its head in pieces, the rest in one, which is looked at where it lies."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def read(self, nbytes: Optional[int] = None) -> Any:
        """The next bytes, or a view of all that are left."""
        start = self._at
        self._at = len(self._view) if nbytes is None else min(start + nbytes, len(self._view))
        return self._view[start:] if nbytes is None else bytes(self._view[start : self._at])

    def seek(self, at: int) -> None:
        """Continue from there."""
        self._at = at

    def tell(self) -> int:
        """Where it is."""
        return self._at


class FrameProtocol(KafkaProtocol):  # type: ignore[misc]  # kafka-python has no types
    """Matches requests and answers, as the library's; what is received belongs in `room`."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.bytes_to_send: List[Any] = []
        self._beginning = memoryview(bytearray(BEGINNING_BYTES))
        self._begun = 0
        self._arena = bytearray()
        # Where the answer under way is received, which may be the beginning of it, and how large it is.
        self._frame: Optional[memoryview] = None
        self._size = self._filled = 0
        self._largest = 0

    def room(self) -> memoryview:
        """Where the next bytes belong: the rest of an answer that is under way, or a place for what comes first."""
        return self._beginning[self._begun :] if self._frame is None else self._frame[self._filled :]

    def is_busy(self) -> bool:
        """Whether the rest of one answer, and nothing else, belongs in `room`."""
        return self._frame is not None

    def receive_bytes(self, data: memoryview) -> Answers:
        """Answers that are complete now; `data` is how much of `room` was filled. Raises `InvalidReceiveError`."""
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
        """Whole answers in the first `end` bytes; the rest begins the next one."""
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
        """Where an answer of `size`, or the first `most` bytes of it, is received: where the last one was, if that is
        large enough and no reader refers to it any more."""
        if len(self._arena) < size or not _is_free(self._arena):
            self._arena = bytearray(-(-min(size, most) // ARENA_STEP_BYTES) * ARENA_STEP_BYTES)
        return memoryview(self._arena)[:size]

    def send_bytes(self) -> Tuple[Any, ...]:
        """All that is to be sent, in pieces: a request may be several."""
        waiting, self.bytes_to_send = self.bytes_to_send, []
        return tuple(piece for each in waiting for piece in (each if isinstance(each, tuple) else (each,)))


def _is_free(arena: bytearray) -> bool:
    """Whether no view of it is left: it could not change its size otherwise."""
    try:
        arena.append(arena.pop())
    except BufferError:
        return False
    return True


class Throttle:
    """How long the brokers of one cluster have kept a client waiting. What overlaps is counted once."""

    def __init__(self) -> None:
        self._seconds = self._until = self._taken = 0.0

    def reported(self, now: float, seconds: float) -> None:
        """A broker asked at `now` (`time.monotonic()`) for silence of so many seconds."""
        until = max(self._until, now + seconds)
        self._seconds += until - max(now, self._until)
        self._until = until

    def asked_for(self) -> float:
        """Seconds of silence that brokers have asked for so far."""
        return self._seconds

    def taken(self, now: float) -> float:
        """Seconds of silence up to `now`, from when this was asked the last time on."""
        before, self._taken = self._taken, self._seconds - self.left(now)
        return self._taken - before

    def left(self, now: float) -> float:
        """Seconds until every broker may be spoken to."""
        return max(0.0, self._until - now)


class BrokerConnection(KafkaConnection):  # type: ignore[misc]  # kafka-python has no types
    """One that receives each answer where it stays, and waits where its broker asks for it, or while it is answering.

    A request's time is how long nothing comes: large answers over a narrow line would never arrive otherwise. While its
    broker throttles this client (KIP-219), it keeps requests, in order, and what is in flight gets as much more time:
    the broker reads nothing from the connection meanwhile. The library fails such requests, which a lane would take for
    a broken connection.
    """

    throttle: Throttle
    _silent_until = 0.0

    @property
    def _silent(self) -> bool:
        return self._silent_until > 0.0

    def send_request(self, request: Any, request_timeout_ms: Optional[float] = None) -> Any:
        """As the library's."""
        if not self._silent or self.closed:
            return super().send_request(request, request_timeout_ms)
        future = Future()
        self._request_buffer.append((request, future, self._timeout_at(self._silent_until, request_timeout_ms)))
        return future

    def send_buffered(self) -> None:
        """As the library's, but not before the broker listens again."""
        if not self._silent:
            super().send_buffered()

    def _maybe_throttle(self, response: Any) -> None:
        seconds = (getattr(response, "throttle_time_ms", 0) or 0) / 1000
        if seconds <= 0:
            return
        now = time.monotonic()
        self.throttle.reported(now, seconds)
        self._give_time(seconds)
        if now + seconds > self._silent_until:
            self._silent_until = now + seconds
            self.net.call_at(self._silent_until, self._listens_again)

    def _give_time(self, seconds: float) -> None:
        waiting: Deque[Any] = self.in_flight_requests
        for _ in range(len(waiting)):
            number, future, sent, until, timer = waiting.popleft()
            timer = self.net.reschedule(until + seconds, timer)
            waiting.append((number, future, sent, until + seconds, timer))

    def _listens_again(self) -> None:
        if time.monotonic() < self._silent_until:
            return  # it asked for more meanwhile, which has a call of its own
        self._silent_until = 0.0
        if not (self.initializing or self._reauth.is_reauthenticating):
            self.send_buffered()

    def hears(self) -> bool:
        """Whether a large answer is under way."""
        return bool(self.connected and self.parser.is_busy())

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
        again_at = self.transport.last_answer_at() + timeout_at - sent_at
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
        """End all connections for a reason that was found elsewhere. From any thread."""
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
            hung_up = isinstance(error.__context__, (*BROKEN, ConnectionError))
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


class FetchRequestOfViews(FetchRequest, init=False):  # type: ignore[misc, call-arg]  # kafka-python has no types
    """The library's request, whose answer is a `FetchAnswer`."""

    def with_header(self, correlation_id: int = 0, client_id: str = "") -> None:
        """As the library's."""
        super().with_header(correlation_id=correlation_id, client_id=client_id)
        self._header: Any = _Header(self._header, self.API_VERSION)


class _Header:
    """A request's header, which determines how the answer is read."""

    def __init__(self, header: Any, version: int) -> None:
        self._header = header
        self._version = version
        self.correlation_id = header.correlation_id

    def encode(self, flexible: bool = False) -> Any:
        return self._header.encode(flexible=flexible)

    def get_response_class(self) -> _Header:
        return self

    def parse_header(self, frame: Any) -> Any:
        return ResponseHeader.decode(frame, flexible=self._version >= COMPACT)

    def decode(self, frame: Any) -> FetchAnswer:
        return read_answer(frame.read(), self._version)


class KerberosMechanism(SaslMechanismGSSAPI):  # type: ignore[misc]  # kafka-python has no types
    """Tickets for the principal of a cluster's own keytab; the library takes the process's, one for all clusters.

    Raises `KerberosError` where there is no ticket.
    """

    def __init__(self, **options: Any) -> None:
        login: KerberosLogin = options["sasl_kerberos_name"]
        self._is_done = self._is_authenticated = False
        self.auth_id = f"{login.service}@{options['host']}"
        self._client_ctx = SecurityContext(self.auth_id, login)
        self._next_token = self._client_ctx.step(None)

    def auth_details(self) -> str:
        """As the library's."""
        return f"Authenticated to {self.auth_id} via SASL / GSSAPI"


# Java's clients and Kafka's brokers take no fewer (RFC 7677 recommends so many at least). A server in between that asks
# for one could find the password by trying.
LEAST_SCRAM_ITERATIONS = 4096
_ITERATIONS = re.compile(rb"(?:^|,)i=(\d{1,9})(?:,|$)")


class ScramMechanism(SaslMechanismScram):  # type: ignore[misc]  # kafka-python has no types
    """The library's, which answers a server whatever number of iterations that asks for, up to a million."""

    def receive(self, auth_bytes: bytes) -> bool:
        """As the library's. Raises `LoginRefused` before anything is said that depends on the password."""
        asked = _ITERATIONS.search(auth_bytes) if self._state == 0 else None
        count = LEAST_SCRAM_ITERATIONS if asked is None else int(asked.group(1))
        if count < LEAST_SCRAM_ITERATIONS:
            raise LoginRefused(
                f"the broker asks for {count} iterations of SCRAM, and fewer than {LEAST_SCRAM_ITERATIONS} would let "
                "it find out the password. Nothing was read or written; set the user's credentials again on the "
                "cluster, and find out who answers at this address"
            )
        return super().receive(auth_bytes)  # type: ignore[no-any-return]  # kafka-python has no types


def manager_of(client: Any) -> Any:
    """The `BrokerConnections` of an admin client, or of what `admin_connections` gave."""
    return client._manager


def stop(connections: Any) -> None:
    """End what `admin_connections` gave, where no client came of it: the library leaves a thread and connections."""
    connections.close()
    connections._net.stop()


register_sasl_mechanism("GSSAPI", KerberosMechanism, overwrite=True)
register_sasl_mechanism("SCRAM-SHA-256", ScramMechanism, overwrite=True)
register_sasl_mechanism("SCRAM-SHA-512", ScramMechanism, overwrite=True)
