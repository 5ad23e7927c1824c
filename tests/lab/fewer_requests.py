"""A bootstrap server that hides requests: it answers ApiVersions for its broker without some of them.

Only the first connections go through it, as the broker's metadata names the broker itself; kafka-python takes the
versions of a cluster from its bootstrap server.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Collection, Dict, Iterator, Optional

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

_HEAD = struct.Struct(">hhi")  # API key, version, correlation id


@contextlib.contextmanager
def without_requests(broker_port: int, hidden: Collection[int]) -> Iterator[str]:
    """`host:port` of such a server, until the block ends; `hidden` are API keys."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, broker_port, hidden), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)  # closing alone does not end an accept


def _serve(listener: socket.socket, broker_port: int, hidden: Collection[int]) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            broker = socket.create_connection(("127.0.0.1", broker_port))
            asked: Dict[int, int] = {}  # the version of each ApiVersions request by its correlation id
            for way in ((client, broker, asked, None), (broker, client, asked, hidden)):
                threading.Thread(target=_pass, args=way, daemon=True).start()


def _pass(
    here: socket.socket, there: socket.socket, asked: Dict[int, int], hidden: Optional[Collection[int]]
) -> None:
    with here, there, contextlib.suppress(OSError, struct.error):
        while True:
            frame = _read(here, *struct.unpack(">i", _read(here, 4)))
            if hidden is None:
                key, version, number = _HEAD.unpack_from(frame)
                if key == ApiVersionsRequest.API_KEY:
                    asked[number] = version
            elif struct.unpack_from(">i", frame)[0] in asked:
                frame = _cut(frame, asked.pop(struct.unpack_from(">i", frame)[0]), hidden)
            there.sendall(struct.pack(">i", len(frame)) + frame)


def _cut(frame: bytes, version: int, hidden: Collection[int]) -> bytes:
    read = ApiVersionsResponse.decode(frame[4:], version=version)
    kept = [
        ApiVersionsResponse.ApiVersion(each.api_key, each.min_version, each.max_version)
        for each in read.api_keys
        if each.api_key not in hidden
    ]
    answer = ApiVersionsResponse(error_code=read.error_code, api_keys=kept, throttle_time_ms=0)
    return frame[:4] + bytes(answer.encode(version=version))


def _read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            raise OSError("the peer has closed the connection")
        found += more
    return found
