"""A proxy in front of one broker that knows Kafka's frames and breaks the line as real lines break.

It cuts connections at random bytes, delays, holds everything back (a black hole), loses answers, and withholds requests
to deliver them after their client has given up. `happened` counts what it really did: a case in which nothing happened
shows nothing. Frames, https://kafka.apache.org/protocol#protocol_common: a length, then an API key or a correlation id.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple
from typing import Counter as CounterOf

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 0, 22, 24, 26
NAMES = {
    PRODUCE: "Produce",
    INIT_PRODUCER_ID: "InitProducerId",
    ADD_PARTITIONS: "AddPartitionsToTxn",
    END_TXN: "EndTxn",
}
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that sends RST: what is in the buffers is lost, as with a crashed peer."""


@dataclass
class Trouble:
    """What the line does from now on. Chances are per frame. `apis` are those whose requests are withheld and whose
    answers are lost."""

    cut: float = 0.0
    lose_answer: float = 0.0
    hold_request: float = 0.0
    hold_seconds: float = 10.0
    delay_seconds: float = 0.0
    hole_to_broker: bool = False
    hole_to_client: bool = False
    apis: Sequence[int] = (PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN)

    @property
    def holes(self) -> Tuple[bool, bool]:
        """Whether nothing passes to the broker, and to its client."""
        return self.hole_to_broker, self.hole_to_client


HEALTHY = Trouble()


class FaultProxy:
    """Listens at `port` for the broker at `broker_port`. `trouble` may be set at any time, from any thread.

    What it draws comes from `seed`; which frame meets which draw depends on the machine.
    """

    def __init__(self, port: int, broker_port: int, seed: int) -> None:
        self.port, self._broker_port = port, broker_port
        self._random = random.Random(seed)
        self._trouble = HEALTHY
        self._changed = threading.Condition()
        self._lines: Set[_Line] = set()
        self._closed = False
        self.happened: CounterOf[str] = Counter()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        threading.Thread(target=self._accept, daemon=True, name=f"proxy {port}").start()

    @property
    def trouble(self) -> Trouble:
        """What the line does now."""
        return self._trouble

    @trouble.setter
    def trouble(self, wanted: Trouble) -> None:
        with self._changed:
            self._trouble = wanted
            self._changed.notify_all()

    def close(self) -> None:
        """Stop listening and end every connection."""
        self._closed = True
        self.trouble = HEALTHY
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not end an accept
        self._listener.close()
        with self._changed:
            lines = list(self._lines)
        for line in lines:
            line.reset()

    def counts(self) -> Dict[str, int]:
        """What has happened by now."""
        with self._changed:
            return dict(self.happened)

    def note(self, what: str) -> None:
        """Count something that really happened."""
        with self._changed:
            self.happened[what] += 1

    def drawn(self, chance: float) -> bool:
        """Whether a chance comes up; every draw of this proxy comes from its seed."""
        if chance <= 0:
            return False
        with self._changed:
            return self._random.random() < chance

    def bytes_before_cut(self, length: int) -> int:
        """How many bytes of a frame pass before its line is cut."""
        with self._changed:
            return self._random.randrange(length)

    def pass_hole(self, to_broker: bool) -> None:
        """Return when the line lets something through in that direction."""
        with self._changed:
            if self._trouble.holes[0 if to_broker else 1]:
                self.happened["held back in a black hole"] += 1
                self._changed.wait_for(lambda: not self._trouble.holes[0 if to_broker else 1])

    def forget(self, line: _Line) -> None:
        """A connection has ended."""
        with self._changed:
            self._lines.discard(line)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._closed:
                client.close()
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self._broker_port), 5)
                broker.settimeout(None)
            except OSError:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                client.close()
                continue
            line = _Line(self, client, broker)
            with self._changed:
                self._lines.add(line)
            line.start()


class _Line:
    """One connection: requests in one thread, answers in another."""

    def __init__(self, proxy: FaultProxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy, self._client, self._broker = proxy, client, broker
        self._apis: Dict[int, int] = {}
        self._withheld, self._held = False, -1
        self._answered = threading.Event()
        for end in (client, broker):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for work in (self._requests, self._answers):
            threading.Thread(target=self._whole, args=(work,), daemon=True).start()

    def reset(self) -> None:
        """End both sides with a RST, what is under way is lost."""
        self._end(self._client)
        self._end(self._broker)

    @staticmethod
    def _end(side: socket.socket) -> None:
        with contextlib.suppress(OSError):
            side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            side.close()

    def _whole(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, struct.error):
            pass  # one side hung up, or this line was reset
        finally:
            if not self._withheld:
                self.reset()
                self._proxy.forget(self)

    def _requests(self) -> None:
        while True:
            frame = _read_frame(self._client)
            if frame is None:
                return
            api, _, correlation = struct.unpack_from(">hhi", frame, 4)
            self._apis[correlation] = api
            self._proxy.pass_hole(to_broker=True)
            trouble = self._proxy.trouble
            if api in trouble.apis and self._proxy.drawn(trouble.hold_request):
                self._hold(frame, api, correlation, trouble.hold_seconds)
                return
            self._pass(frame, self._broker, trouble, "request")

    def _hold(self, frame: bytes, api: int, correlation: int, seconds: float) -> None:
        """The client sees its line break; the broker gets the request later, as if it had been under way so long. It is
        counted when the broker has answered it."""
        self._held, self._withheld = correlation, True
        self._end(self._client)
        time.sleep(seconds)
        try:
            self._broker.sendall(frame)
            if self._answered.wait(10):
                self._proxy.note(f"{NAMES.get(api, api)} request delivered {seconds:.0f} s late")
        except OSError:
            pass  # the broker itself has closed the line: nothing was delivered, and nothing is counted
        finally:
            self._withheld = False

    def _answers(self) -> None:
        while True:
            frame = _read_frame(self._broker)
            if frame is None:
                return
            (correlation,) = struct.unpack_from(">i", frame, 4)
            if self._withheld:
                if correlation == self._held:
                    self._answered.set()
                continue
            api = self._apis.pop(correlation, -1)
            self._proxy.pass_hole(to_broker=False)
            trouble = self._proxy.trouble
            if api in trouble.apis and self._proxy.drawn(trouble.lose_answer):
                self._proxy.note(f"{NAMES.get(api, api)} answer lost")
                return
            self._pass(frame, self._client, trouble, "answer")

    def _pass(self, frame: bytes, taker: socket.socket, trouble: Trouble, what: str) -> None:
        if trouble.delay_seconds:
            self._proxy.note("delayed")
            time.sleep(trouble.delay_seconds)
        if self._proxy.drawn(trouble.cut):
            taker.sendall(frame[: self._proxy.bytes_before_cut(len(frame))])
            self._proxy.note(f"cut inside of a {what}")
            raise ConnectionResetError
        taker.sendall(frame)


def _read_frame(giver: socket.socket) -> Optional[bytes]:
    """The next frame with its length, or `None` at the end of the line."""
    head = _read(giver, 4)
    if head is None:
        return None
    body = _read(giver, struct.unpack(">i", head)[0])
    return None if body is None else head + body


def _read(giver: socket.socket, length: int) -> Optional[bytes]:
    parts: List[bytes] = []
    while length:
        part = giver.recv(min(length, 1 << 20))
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
