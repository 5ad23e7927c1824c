"""kafka-python's transports, made for bulk: received into the answer itself, sent from the pieces of a request."""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
from itertools import islice
from typing import Any, Optional, Tuple

from kafka.errors import KafkaConnectionError, KafkaProtocolError
from kafka.net.selector import KernelEvent, NetworkSelector, TaskState
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

# At most so many pieces are sent by one call; Linux takes 1024.
PIECES = 256
# Of an answer that is under way so much is waited for at once, or its end: waking up is dear.
AT_ONCE_BYTES = 1024 * 1024
_NOTHING_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class BrokerLoop(NetworkSelector):  # type: ignore[misc]  # kafka-python has no types
    """The library's event loop, in which a reader may stay registered; it registers anew for each read."""

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
            except (KafkaProtocolError, struct.error) as error:
                return KafkaConnectionError(error)  # type: ignore[no-any-return]  # kafka-python has no types
            if nbytes < len(room) and not self._ask_again:
                return self._wait_for_more()  # type: ignore[no-any-return]  # nothing
        return None

    def heard_last(self: Any) -> float:
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
        low_water = min(len(parser.room()), AT_ONCE_BYTES) if parser.is_under_way() else 1
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
