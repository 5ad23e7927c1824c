"""A TCP proxy that makes a broker far away: each byte is passed on so many milliseconds later, in both directions.

`python -m tests.lab.far_proxy PORT BROKER_PORT MILLISECONDS` runs until it is killed.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from typing import Deque, Dict, Iterator, Tuple

from tests.lab.brokers import child, is_listening, listeners
from tests.lab.checkout import LabError

CHUNK = 1024 * 1024
# What may be under way in one direction; at 25 ms that is 5 GB a second.
UNDER_WAY = 128 * 1024 * 1024
START_SECONDS = 10.0


class Wire:
    """One direction of one connection: what is read from `giver` is written to `taker`, `delay` seconds later."""

    def __init__(self, giver: socket.socket, taker: socket.socket, delay: float) -> None:
        self._giver, self._taker, self._delay = giver, taker, delay
        self._chunks: Deque[Tuple[float, bytes]] = deque()
        self._held = 0
        self._changed = threading.Condition()
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        data = b"first"
        while data:
            try:
                data = self._giver.recv(CHUNK)
            except OSError:
                data = b""
            with self._changed:
                self._changed.wait_for(lambda: self._held < UNDER_WAY)
                self._chunks.append((time.monotonic() + self._delay, data))
                self._held += len(data)
                self._changed.notify_all()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._chunks))
                due, data = self._chunks.popleft()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if not data:
                    raise ConnectionResetError  # the giver has hung up
                self._taker.sendall(data)
            except OSError:
                self._hang_up()
                return
            with self._changed:
                self._held -= len(data)
                self._changed.notify_all()

    def _hang_up(self) -> None:
        with self._changed:
            self._held = -sys.maxsize  # the reader must not wait for room any more
            self._changed.notify_all()
        for end in (self._giver, self._taker):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def serve(port: int, broker_port: int, delay: float) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            client, _ = listener.accept()
            broker = socket.create_connection(("127.0.0.1", broker_port))
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Wire(client, broker, delay)
            Wire(broker, client, delay)


def two_listeners(near: int, behind: int, port: int, controller: int) -> Dict[str, str]:
    """Properties of a broker that listens at `near`, and at `behind` for those who come through the proxy at `port`."""
    inner = ("PLAINTEXT", "PLAINTEXT", f"127.0.0.1:{near}")
    seen = listeners(controller, inner, ("FAR", "PLAINTEXT", f"127.0.0.1:{port}"))
    return {**seen, "listeners": listeners(controller, inner, ("FAR", "PLAINTEXT", f"127.0.0.1:{behind}"))["listeners"]}


@contextmanager
def far(port: int, broker_port: int, milliseconds: float) -> Iterator[None]:
    """The proxy as a process of its own, while the block runs; `milliseconds` each way."""
    options = [str(each) for each in (port, broker_port, milliseconds)]
    process = child([sys.executable, "-m", "tests.lab.far_proxy", *options])
    try:
        deadline = time.monotonic() + START_SECONDS
        while not is_listening(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"the proxy on port {port} does not listen")
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000)
