"""A proxy in front of one broker that knows Kafka's frames and breaks the line as real lines break.

It cuts connections at random bytes, delays, holds everything back (a black hole), loses answers, and withholds requests
to deliver them after their client has given up. `happened` counts what it really did: a case in which nothing happened
shows nothing. Frames, https://kafka.apache.org/protocol#protocol_common: a length, then an API key or a correlation id.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections import Counter
from dataclasses import dataclass
from typing import Counter as CounterOf
from typing import Dict, Sequence

BUFFER = 1 << 20
NAMES = {0: "Produce", 22: "InitProducerId", 24: "AddPartitionsToTxn", 26: "EndTxn"}
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
    apis: Sequence[int] = tuple(NAMES)


HEALTHY = Trouble()


class FaultProxy:
    """Listens at `port` for the broker at `broker_port`. `trouble` may be set at any time, from any thread.

    What it draws comes from `seed`; which frame meets which draw depends on the machine.
    """

    def __init__(self, port: int, broker_port: int, seed: int) -> None:
        self.port, self._broker_port = port, broker_port
        self.trouble = HEALTHY
        self.happened: CounterOf[str] = Counter()
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name=f"proxy {port}").start()
        listening = asyncio.start_server(self._accepted, "127.0.0.1", port, backlog=128, limit=BUFFER)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)

    def close(self) -> None:
        """Stop listening and end every connection."""

        def end() -> None:
            self._server.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_later(0.1, self._loop.stop)

        self._loop.call_soon_threadsafe(end)

    def counts(self) -> CounterOf[str]:
        return Counter(self.happened)

    def drawn(self, chance: float) -> bool:
        """Whether a chance comes up; every draw of this proxy comes from its seed."""
        return chance > 0 and self._random.random() < chance

    async def passed_hole(self, which: str) -> Trouble:
        """The trouble of the line, when it lets something through in that direction, a field of `Trouble`."""
        if getattr(self.trouble, which):
            self.happened["held back in a black hole"] += 1
            while getattr(self.trouble, which):
                await asyncio.sleep(0.02)
        return self.trouble

    async def deliver(self, frame: bytes, taker: StreamWriter, trouble: Trouble, what: str) -> None:
        if trouble.delay_seconds:
            self.happened["delayed"] += 1
            await asyncio.sleep(trouble.delay_seconds)
        cut = self.drawn(trouble.cut)
        taker.write(frame[: self._random.randrange(len(frame))] if cut else frame)
        await taker.drain()
        if cut:
            self.happened[f"cut inside of a {what}"] += 1
            raise ConnectionResetError

    async def _accepted(self, client: StreamReader, to_client: StreamWriter) -> None:
        try:
            broker, to_broker = await asyncio.open_connection("127.0.0.1", self._broker_port, limit=BUFFER)
        except OSError:
            _reset(to_client)
            return
        line = _Line(self, to_client, to_broker)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(line.requests(client), line.answers(broker))
        line.reset()


class _Line:
    """One connection: requests in one task, answers in another. The first to end resets both sides."""

    def __init__(self, proxy: FaultProxy, client: StreamWriter, broker: StreamWriter) -> None:
        self._proxy, self._client, self._broker = proxy, client, broker
        self._apis: Dict[int, int] = {}
        self._held = -1
        self._answered = asyncio.Event()

    def reset(self) -> None:
        """End both sides with a RST, what is under way is lost."""
        _reset(self._client)
        _reset(self._broker)

    async def requests(self, client: StreamReader) -> None:
        with contextlib.suppress(OSError, IncompleteReadError):
            while True:
                frame = await _read_frame(client)
                api, _, correlation = struct.unpack_from(">hhi", frame, 4)
                self._apis[correlation] = api
                trouble = await self._proxy.passed_hole("hole_to_broker")
                if api in trouble.apis and self._proxy.drawn(trouble.hold_request):
                    await self._hold(frame, api, correlation, trouble.hold_seconds)
                    break
                await self._proxy.deliver(frame, self._broker, trouble, "request")
        self.reset()

    async def _hold(self, frame: bytes, api: int, correlation: int, seconds: float) -> None:
        """The client sees its line break; the broker gets the request later, as if it had been under way so long. It is
        counted when the broker has answered it: the broker itself may have closed the line."""
        self._held = correlation
        _reset(self._client)
        await asyncio.sleep(seconds)
        self._broker.write(frame)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._answered.wait(), 10)
            self._proxy.happened[f"{NAMES.get(api, api)} request delivered {seconds:.0f} s late"] += 1

    async def answers(self, broker: StreamReader) -> None:
        with contextlib.suppress(OSError, IncompleteReadError):
            while True:
                frame = await _read_frame(broker)
                (correlation,) = struct.unpack_from(">i", frame, 4)
                if self._held >= 0:
                    if correlation == self._held:
                        self._answered.set()
                    continue
                api = self._apis.pop(correlation, -1)
                trouble = await self._proxy.passed_hole("hole_to_client")
                if api in trouble.apis and self._proxy.drawn(trouble.lose_answer):
                    self._proxy.happened[f"{NAMES.get(api, api)} answer lost"] += 1
                    break
                await self._proxy.deliver(frame, self._client, trouble, "answer")
        if self._held < 0:
            self.reset()


def _reset(side: StreamWriter) -> None:
    with contextlib.suppress(OSError):
        side.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    side.transport.abort()


async def _read_frame(giver: StreamReader) -> bytes:
    """The next frame with its length."""
    head = await giver.readexactly(4)
    return head + await giver.readexactly(struct.unpack(">i", head)[0])
