"""Reports of running tasks to their driver over TCP, and the driver's order to end, back.

A task sends its driver's secret and then one report a line. The driver answers each with `.` when it is taken, and
with `!` when the task shall end. An unanswered report is repeated in the task's last report, through Spark.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import logging
import queue
import secrets
import socket
import threading
import time
from collections import deque
from typing import BinaryIO, Deque, Dict, List, Optional, Tuple

from mirror_lib.ledger.records import OffsetSyncs
from mirror_lib.replication.messages import ReportTo, TaskReport, from_text, to_text

log = logging.getLogger(__name__)

TAKEN, END = b".", b"!"
CONNECT_SECONDS = 5.0
SEND_SECONDS = 10.0
COMPLETE_SECONDS = 20.0
# A driver that writes down more slowly than is copied holds its tasks up, and its memory stays small.
UNTOLD_REPORTS = 16
# Spark's default for `spark.port.maxRetries` as well.
PORTS = 16


class ReportClient:
    """A task's end. Without a driver to be reached `connected` is False, and the task ends early to report."""

    def __init__(self, to: Optional[ReportTo]) -> None:
        self._untold: Deque[Tuple[OffsetSyncs, ...]] = deque()
        self._told_to_end = False
        self._line: Optional[socket.socket] = None
        if to is None:
            return
        try:
            self._line = socket.create_connection((to.host, to.port), CONNECT_SECONDS)
            self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._line.sendall(to.secret.encode() + b"\n")
        except OSError as error:
            log.warning("the driver cannot be reached at %s:%d: %s; passes end to report", to.host, to.port, error)
            self.close()

    @property
    def connected(self) -> bool:
        """Whether reports reach the driver while the task goes on."""
        return self._line is not None

    def tell(self, report: TaskReport) -> None:
        """Send a report; its offset syncs are kept until the driver has them."""
        self._untold.append(report.syncs)
        if self._line is None:
            return
        try:
            self._line.settimeout(SEND_SECONDS)
            self._line.sendall(to_text(report).encode() + b"\n")
        except OSError as error:
            self._lost(error)

    def shall_end(self) -> bool:
        """Whether the driver said so, or is gone. To be asked often."""
        if self._line is not None:
            try:
                self._line.setblocking(False)
                said = self._line.recv(4096)
                for _ in range(said.count(TAKEN)):
                    self._untold.popleft()
                self._told_to_end = self._told_to_end or END in said
                if not said:
                    self._lost("it has hung up")
            except BlockingIOError:
                pass
            except OSError as error:
                self._lost(error)
        return self._told_to_end

    def crowded(self) -> bool:
        """Whether so much is told and not answered that the task must wait."""
        return len(self._untold) >= UNTOLD_REPORTS

    def untold(self) -> List[OffsetSyncs]:
        """The offset syncs that the driver may not have."""
        return [sync for syncs in self._untold for sync in syncs]

    def close(self) -> None:
        """Hang up."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _lost(self, error: object) -> None:
        log.warning("the driver cannot be reached any more: %s; the pass ends", error)
        self._told_to_end = True
        self.close()


class ReportServer:
    """The driver's end, for the tasks of one stage."""

    def __init__(self, bind_to: str, host: str, every: float, seconds: float, port: int = 0) -> None:
        self._server = _server(bind_to, port)
        self.address = ReportTo(host, self._server.getsockname()[1], secrets.token_hex(32), every, seconds)
        self._reports: queue.Queue[Tuple[socket.socket, TaskReport]] = queue.Queue()
        self._lock = threading.Lock()
        self._lines: List[socket.socket] = []
        self._untaken: Dict[socket.socket, int] = {}
        self._ending = self._hung_up = self._closed = False
        self._came, self._complete_by = 0, time.monotonic() + COMPLETE_SECONDS
        threading.Thread(target=self._accept, name="reports", daemon=True).start()

    def __enter__(self) -> ReportServer:
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone would not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            self._closed = True
            for line in self._lines:
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)

    def take(self) -> List[TaskReport]:
        """All reports that came since the last call, in each task's order. They are the caller's now."""
        reports: List[TaskReport] = []
        with self._lock:
            self._untaken.clear()
        with contextlib.suppress(queue.Empty):
            while True:
                line, report = self._reports.get_nowait()
                reports.append(report)
                self._say(line, TAKEN)
        return reports

    def crowded(self) -> bool:
        """Whether so much of one task waits to be taken that it may have to wait soon."""
        with self._lock:
            return max(self._untaken.values(), default=0) >= UNTOLD_REPORTS // 2

    def unheard(self, tasks: int) -> bool:
        """Whether one of so many tasks has not reached us in the time that it had."""
        return self._came < tasks and time.monotonic() >= self._complete_by

    def whole(self, tasks: int) -> bool:
        """False where one of so many tasks has gone already, or cannot reach us: its partitions wait for the others."""
        return not self._hung_up and (self._came >= tasks or time.monotonic() < self._complete_by)

    def end_all(self) -> None:
        """Tell every task to end, also one that is not there yet."""
        with self._lock:
            if self._ending:
                return
            self._ending = True
            for line in self._lines:
                self._say(line, END)

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._hear, args=(line,), name="reports", daemon=True).start()

    def _hear(self, line: socket.socket) -> None:
        with line, line.makefile("rb") as text, contextlib.suppress(OSError):
            if not self._known(line, text):
                return
            try:
                for report in text:
                    # Cut off where the connection broke: it was not answered, so it comes again.
                    if report.endswith(b"\n"):
                        self._reports.put((line, from_text(report.decode())))
                        with self._lock:
                            self._untaken[line] = self._untaken.get(line, 0) + 1
            finally:
                with self._lock:
                    self._lines.remove(line)
                    self._hung_up = True

    def _known(self, line: socket.socket, text: BinaryIO) -> bool:
        line.settimeout(CONNECT_SECONDS)
        secret = text.readline(256).rstrip(b"\n")
        if not hmac.compare_digest(secret, self.address.secret.encode()):
            log.warning("somebody who is no task of ours asked for the port of reports")
            return False
        line.settimeout(None)
        with self._lock:
            if self._closed:
                return False
            self._lines.append(line)
            self._came += 1
            if self._ending:
                self._say(line, END)
        return True

    def _say(self, line: socket.socket, what: bytes) -> None:
        with contextlib.suppress(OSError):
            line.sendall(what)


def _server(bind_to: str, port: int) -> socket.socket:
    """A server at `port`, or at one of those after it, as Spark's own; 0 is any. Raises `OSError`."""
    last = min(port + PORTS, 65536) - 1
    for number in range(port, last):
        try:
            return socket.create_server((bind_to, number))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return socket.create_server((bind_to, last))
