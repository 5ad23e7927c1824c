"""Runs a program on a terminal of its own (a pty) and says what a person in front of it sees."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
from typing import Iterator, List, Sequence

from tests.lab.brokers import child, die_with_parent

COLUMNS, LINES = 80, 24
CTRL_C = b"\x03"
_PIECE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|(.)", re.DOTALL)


class Paper:
    """Every line that the terminal showed, the oldest first, as they are after what moves the cursor and erases."""

    def __init__(self) -> None:
        self.rows: List[str] = [""]
        self.cursor_visible = True
        self._row = self._column = 0

    def write(self, text: str) -> None:
        """Obey `text`. Sequences other than cursor up, erase line and colours are errors."""
        for numbers, final, character in _PIECE.findall(text):
            if final:
                self._obey(numbers, final)
            elif character == "\r":
                self._column = 0
            elif character == "\n":
                self._move(self._row + 1)
            else:
                assert character != "\x1b", "the terminal does not know this sequence"
                self._put(character)

    @property
    def screen(self) -> List[str]:
        return [row.rstrip() for row in self.rows[-LINES:]]

    def _obey(self, numbers: str, final: str) -> None:
        if final == "A":
            self._move(max(self._row - int(numbers or 1), len(self.rows) - LINES, 0))
        elif final == "K":
            assert numbers == "2", numbers
            self.rows[self._row] = ""
        elif numbers == "?25":
            self.cursor_visible = final == "h"
        else:
            assert final == "m", f"the terminal does not know {numbers}{final}"

    def _put(self, character: str) -> None:
        if self._column == COLUMNS:
            self._column = 0
            self._move(self._row + 1)
        row = self.rows[self._row].ljust(self._column)
        self.rows[self._row] = row[: self._column] + character + row[self._column + 1 :]
        self._column += 1

    def _move(self, row: int) -> None:
        self._row = row
        self.rows += [""] * (row + 1 - len(self.rows))


class Terminal:
    """A program that runs on a terminal of its own."""

    def __init__(self, command: Sequence[str]) -> None:
        self.paper = Paper()
        self._ours, self._its = pty.openpty()
        fcntl.ioctl(self._its, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._settings = termios.tcgetattr(self._its)
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), self._its)
        env = {**os.environ, "TERM": "xterm-256color"}
        self.process = child(command, env=env, preexec_fn=_own_terminal, **streams)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def wait(self, seconds: float) -> int:
        """The exit code, once all that was written is on `paper`. The terminal must be as it was before."""
        code: int = self.process.wait(seconds)
        assert termios.tcgetattr(self._its) == self._settings
        os.close(self._its)
        self._reading.join(10)
        return code

    def _read(self) -> None:
        rest = b""
        with contextlib.suppress(OSError):  # no one has the other end any more
            while True:
                *whole, rest = re.split(rb"(?<=\n)", rest + os.read(self._ours, 65536))
                # An escape sequence or a character may be cut between two reads, but not across the end of a line.
                if not re.search(rb"\x1b[^A-Za-z]*$|[\x80-\xff]{1,3}$", rest):
                    whole, rest = [*whole, rest], b""
                # The echo of a key may fall between the bytes of one character.
                self.paper.write(b"".join(whole).decode(errors="replace"))


def _own_terminal() -> None:
    # A background job of a script ignores Ctrl-C, and hands that on.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def terminal(command: Sequence[str]) -> Iterator[Terminal]:
    """A program on a terminal, which has ended with all that it started when the block is left."""
    running = Terminal(command)
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, 9)
        running.process.wait()
