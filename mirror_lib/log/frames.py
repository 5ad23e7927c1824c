"""Bytes of a connection in, a broker's answers out: each is received where it stays, and is not copied on its way.

The library copies a fetch answer five times before it is taken apart.
"""

from __future__ import annotations

import struct
from typing import Any, List, Optional, Tuple

from kafka.errors import InvalidReceiveError
from kafka.protocol.parser import KafkaProtocol

# Small answers come several at a time; of a large one this much is copied, the beginning.
BEGINNING_BYTES = 64 * 1024
# New memory has to be cleared, so some is kept for the next answer, as much as the largest one took.
ARENA_STEP_BYTES = 1024 * 1024
_SIZE = struct.Struct(">i")
_LEAST_BYTES = 4  # the correlation id

Answers = List[Tuple[int, Any]]


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
        """Go on from there."""
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
        self._frame: Optional[memoryview] = None
        self._filled = 0

    def room(self) -> memoryview:
        """Where the next bytes belong: the rest of an answer that is under way, or a place for what comes first."""
        return self._beginning[self._begun :] if self._frame is None else self._frame[self._filled :]

    def is_under_way(self) -> bool:
        """Whether the rest of one answer, and nothing else, belongs in `room`."""
        return self._frame is not None

    def receive_bytes(self, data: memoryview) -> Answers:
        """Answers that are complete now; `data` is how much of `room` was filled. Raises `InvalidReceiveError`."""
        if self._frame is None:
            return self._begin(self._begun + len(data))
        self._filled += len(data)
        if self._filled < len(self._frame):
            return []
        frame, self._frame = self._frame, None
        return [self._process_response(Frame(frame))]

    def _begin(self, end: int) -> Answers:
        """Whole answers in the first `end` bytes; what is left of them begins the next one."""
        answers: Answers = []
        left = self._beginning[:end]
        while len(left) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(left)
            if not _LEAST_BYTES <= size <= self._max_frame_size:
                raise InvalidReceiveError(f"an answer says that it has {size} bytes")
            left = left[_SIZE.size :]
            if size > len(left):
                self._frame, self._filled, self._begun = self._place(size), len(left), 0
                self._frame[: len(left)] = left
                return answers
            answers.append(self._process_response(Frame(memoryview(bytes(left[:size])))))
            left = left[size:]
        self._begun = len(left)
        self._beginning[: len(left)] = bytes(left)
        return answers

    def _place(self, size: int) -> memoryview:
        """Where an answer is received: where the last one was, if nobody looks at that any more."""
        if len(self._arena) < size or not _is_free(self._arena):
            self._arena = bytearray(-(-size // ARENA_STEP_BYTES) * ARENA_STEP_BYTES)
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
