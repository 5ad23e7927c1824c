"""The live screen of `mirror run` on a terminal: a table of the flows that `rich` redraws every second.

The JVM and libraries write to the same terminal. So while the screen is on, standard output and standard error of this
process and its children are a pipe. Text from the pipe is printed above the table, in whole lines. The cursor is never
hidden, so a killed process leaves nothing to repair.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from mirror_lib.progress import ALARM, EMPTY, FAINT, FULL, HEADING, PLAIN, FlowProgress, Line, Outage, screen_lines
from mirror_lib.text import visible, wrapped

STDOUT, STDERR = 1, 2
DRAW_SECONDS = 1.0
# Marks the end of the text written to the pipe so far. No other text contains it.
_MARK = b"\x00so far\x00"
# How long to wait for the terminal, which may be halted (Ctrl-S).
_DRAIN_SECONDS = 2.0
STYLES = {PLAIN: "", HEADING: "bold", FAINT: "cyan", ALARM: "bold red"}
# For terminals without UTF-8.
_ASCII = str.maketrans({FULL: "#", EMPTY: "-", "\u2026": "~", "\u00b7": "|", "\u202f": " ", "\u2009": " "})


class Screen:
    """Shows `flows` by name, and `outages` by flow and side. Any thread may change both."""

    def __init__(self, flows: Sequence[str], console: _Console, terminal: int, drain: Callable[[], None]) -> None:
        self.flows: Dict[str, Optional[FlowProgress]] = dict.fromkeys(flows)
        self.outages: Dict[Tuple[str, str], Outage] = {}
        self._console, self._terminal, self._drain = console, terminal, drain
        self._unicode = console.encoding.lower().startswith("utf")
        self._over = threading.Event()

    @contextmanager
    def drawn(self, stop: threading.Event) -> Iterator[None]:
        """Show the table on the terminal during the block; its last state stays there. Once `stop` is set, the table
        shows that the run ends."""
        live = Live(
            self._table(stop),
            console=self._console,
            auto_refresh=False,
            vertical_overflow="crop",
            # Text written to standard output comes through the pipe.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with self._console.turn:
            live.start(refresh=True)
        drawing = threading.Thread(target=self._draw, args=(live, stop), name="screen", daemon=True)
        drawing.start()
        try:
            yield
        finally:
            self._over.set()
            drawing.join(_DRAIN_SECONDS)
            self._drain()
            with self._console.turn, suppress(OSError):
                live.update(self._table(stop))
                live.stop()

    def _draw(self, live: Live, stop: threading.Event) -> None:
        with suppress(OSError):  # the terminal is gone
            while not self._over.wait(DRAW_SECONDS):
                with self._console.turn:
                    live.update(self._table(stop), refresh=True)

    def _table(self, stop: threading.Event) -> Text:
        # The terminal's present size; rich would use the standard streams, which may be files.
        columns, lines = os.get_terminal_size(self._terminal)
        self._console.size = ConsoleDimensions(columns or 80, lines or 24)
        ending = [Line("stopping: the cycles that run are finished first", FAINT)] if stop.is_set() else []
        # The last line is left to the cursor: the terminal echoes keys there, such as ^C.
        free = self._console.height - 1 - len(ending)
        now, width = time.monotonic(), self._console.width
        over = self._over.is_set()
        outages = list(self.outages.values())
        shown = [*screen_lines(dict(self.flows), now, width, free, outages, over), *ending]
        shown += [] if over else [Line("")]
        table = {} if self._unicode else _ASCII
        texts = [Text(each.text.translate(table), STYLES[each.style]) for each in shown]
        return Text("\n", no_wrap=True, overflow="crop").join(texts)


@contextmanager
def screen_on_terminal(flows: Sequence[str]) -> Iterator[Screen]:
    """The screen for `flows` on the terminal that is standard error. During the block standard error is a pipe, and so
    is standard output if it is a terminal; their text is printed on the terminal."""
    saved = {fd: os.dup(fd) for fd in (STDOUT, STDERR) if os.isatty(fd)}
    terminal = saved[STDERR]
    # Never closed: other processes may write to the pipe until this one ends.
    file = open(os.dup(terminal), "w", encoding=sys.stderr.encoding, errors="backslashreplace")  # noqa: SIM115
    console = _Console(file=file, force_terminal=True, highlight=False, markup=False)
    pipe = _Pipe(console)
    _flush()
    for fd in saved:
        os.dup2(pipe.into, fd)
    try:
        yield Screen(flows, console, terminal, pipe.drain)
    finally:
        _flush()
        for fd, before in saved.items():
            os.dup2(before, fd)
        pipe.drain()


class _Console(Console):
    """The printing thread holds `turn`: rich decides what to erase before it writes. A thread that wrote in between
    would leave a line of the table on the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.turn = threading.Lock()

    def show_cursor(self, show: bool = True) -> bool:
        return False


class _Pipe:
    """Prints on `console`, in whole lines, the text that any process writes `into` it."""

    def __init__(self, console: _Console) -> None:
        self._console = console
        self._out, self.into = os.pipe()
        self._drained = threading.Event()
        threading.Thread(target=self._read, name="above the screen", daemon=True).start()

    def drain(self) -> None:
        _flush()
        self._drained.clear()
        os.write(self.into, _MARK + b"\n")
        self._drained.wait(_DRAIN_SECONDS)

    def _read(self) -> None:
        rest = b""
        for data in iter(lambda: os.read(self._out, 65536), b""):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.endswith(_MARK):
                    line = line[: -len(_MARK)]
                    self._print(line + b"\n" if line else b"")
                    self._drained.set()
                else:
                    self._print(line + b"\n")

    def _print(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if line:
            with self._console.turn, suppress(OSError):  # writers must not wait if the terminal is gone
                lines = wrapped(visible(text), self._console.width)
                self._console.print(Text("\n".join(lines)), soft_wrap=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
