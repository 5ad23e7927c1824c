"""The proxy that makes a broker far away: late or slowly, but nothing else is changed."""

from __future__ import annotations

import os
import socket
import threading
import time

from tests.lab.far_proxy import far
from tests.lab.ports import free_ports


def echo(listener: socket.socket) -> None:
    for _ in range(2):  # the first is the proxy's own look whether it listens
        connection, _ = listener.accept()
        with connection:
            data = connection.recv(65536)
            while data:
                connection.sendall(data)
                data = connection.recv(65536)


def received(client: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        parts.append(client.recv(size))
        size -= len(parts[-1])
        assert parts[-1]
    return b"".join(parts)


def test_everything_comes_through_whole_and_late_and_an_end_is_passed_on() -> None:
    near, port = free_ports(2)
    sent = os.urandom(5_000_000)
    with socket.create_server(("127.0.0.1", near)) as listener, far(port, near, 100):
        threading.Thread(target=echo, args=(listener,), daemon=True).start()
        with socket.create_connection(("127.0.0.1", port)) as client:
            began = time.monotonic()
            threading.Thread(target=client.sendall, args=(sent,), daemon=True).start()
            assert received(client, len(sent)) == sent
            assert time.monotonic() - began >= 0.2
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""


def test_everything_comes_through_a_narrow_line() -> None:
    near, port = free_ports(2)
    sent = os.urandom(500_000)
    with socket.create_server(("127.0.0.1", near)) as listener, far(port, near, 0, 2_000_000):
        threading.Thread(target=echo, args=(listener,), daemon=True).start()
        with socket.create_connection(("127.0.0.1", port)) as client:
            threading.Thread(target=client.sendall, args=(sent,), daemon=True).start()
            assert received(client, len(sent)) == sent
