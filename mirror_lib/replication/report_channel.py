"""Sends reports of running tasks to their driver over TCP, and the driver's order to end back.

Both ends prove that they have the stage's secret, which Spark distributed and which is never sent: each answers a
random number of the other with an HMAC. Every message has an HMAC over its text and its number, under a key of this
connection alone, so no machine in between can forge, change, repeat or omit one. The text (names of topics, offsets) is
not encrypted. The driver answers each accepted report with TAKEN, and sends END when the task must end. An unanswered
report is repeated in the task's last report, through Spark.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import logging
import queue
import secrets
import socket
import struct
import threading
import time
from collections import deque
from typing import Deque, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.records import OffsetSyncs
from mirror_lib.replication.messages import ReportTo, TaskPlan, TaskReport, from_text, to_text

log = logging.getLogger(__name__)

TAKEN, END = b".", b"!"
CONNECT_SECONDS = 5.0
SEND_SECONDS = 10.0
COMPLETE_SECONDS = 20.0
# A driver without an answer for this long, or for the most cycles that may be unanswered, counts as gone.
ANSWER_SECONDS = 120.0
# A peer that disappeared without closing the connection is detected within a minute.
KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000))
# How often a task tries to reach its driver if the connection is closed again, as by many unproven connections.
ATTEMPTS = 3
AGAIN_SECONDS = 0.5
# If the driver commits more slowly than its tasks copy, the tasks wait, and the driver's memory stays small.
PENDING_REPORTS = 16
# The same as Spark's default for `spark.port.maxRetries`.
PORTS = 16
# The most connections without proof of the secret. Past it the oldest is closed: a task proves itself in a moment.
STRANGERS = 64
# How long to wait before the next `accept` after a failed one, for example without a free file descriptor.
ACCEPT_AGAIN_SECONDS = 0.2

NONCE_BYTES = MAC_BYTES = 32
_HEAD = struct.Struct(">I32s")
# A report with MOST_SYNCS in Base64 has about 10 MB.
LARGEST_REPORT_BYTES = 64 * 1024 * 1024
TASK, DRIVER, KEY = b"task", b"driver", b"key"


class ForgedError(OSError):
    """A message that the other end of this stage did not send."""


def mac(key: bytes, *parts: bytes) -> bytes:
    """An HMAC-SHA256 over `parts`; all but the last have a length that both ends expect."""
    return hmac.new(key, b"".join(parts), "sha256").digest()


def numbered(key: bytes, who: bytes, number: int, text: bytes) -> bytes:
    """The HMAC of the message `number` that the end `who` sends on a connection."""
    return mac(key, who, struct.pack(">Q", number), text)


def received(line: socket.socket, count: int, deadline: float) -> bytes:
    """The next `count` bytes. Raises `OSError` if they have not arrived at `deadline` (`time.monotonic()`)."""
    found = b""
    while len(found) < count:
        line.settimeout(max(0.001, deadline - time.monotonic()))
        more = line.recv(count - len(found))
        if not more:
            raise ConnectionError("it has hung up")
        found += more
    return found


def kept_alive(line: socket.socket) -> None:
    """Send small messages immediately, and end the connection if the peer is gone."""
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class ReportClient:
    """A task's end. If the driver cannot be reached, `connected` is False, and the task ends early to report."""

    def __init__(self, to: Optional[ReportTo]) -> None:
        self._unreported: Deque[Tuple[OffsetSyncs, ...]] = deque()
        self._end_requested = False
        self._line: Optional[socket.socket] = None
        self._key = self._input = b""
        self._reported = self._received_messages = 0
        self._answered_at = time.monotonic()
        if to is None:
            return
        self._patience = max(ANSWER_SECONDS, PENDING_REPORTS * to.every)
        for attempt in range(ATTEMPTS):
            try:
                self._connect(to)
                return
            except OSError as error:
                self.close()
                if attempt + 1 == ATTEMPTS or not isinstance(error, ConnectionError):
                    where = f"{to.host}:{to.port}"
                    what = "the driver cannot be reached at %s: %s; the task ends each cycle to report"
                    log.warning(what, where, error)
                    return
            time.sleep(AGAIN_SECONDS)

    def _connect(self, to: ReportTo) -> None:
        self._line = socket.create_connection((to.host, to.port), CONNECT_SECONDS)
        kept_alive(self._line)
        self._prove(self._line, to.secret.encode())

    def _prove(self, line: socket.socket, secret: bytes) -> None:
        deadline, ours = time.monotonic() + CONNECT_SECONDS, secrets.token_bytes(NONCE_BYTES)
        both = received(line, NONCE_BYTES, deadline) + ours
        line.sendall(ours + mac(secret, TASK, both))
        if not hmac.compare_digest(received(line, MAC_BYTES, deadline), mac(secret, DRIVER, both)):
            raise ForgedError("the answer does not come from the driver")
        self._key = mac(secret, KEY, both)

    @property
    def connected(self) -> bool:
        """Whether reports reach the driver while the task runs."""
        return self._line is not None

    def send_report(self, report: TaskReport) -> None:
        """Send a report; its offset syncs are kept until the driver has accepted them."""
        if not self._unreported:
            self._answered_at = time.monotonic()
        self._unreported.append(report.syncs)
        if self._line is None:
            return
        text = to_text(report).encode()
        try:
            self._line.settimeout(SEND_SECONDS)
            self._line.sendall(_HEAD.pack(len(text), numbered(self._key, TASK, self._reported, text)) + text)
            self._reported += 1
        except OSError as error:
            self._lost(error)

    def end_requested(self) -> bool:
        """Whether the driver ordered the end, or is gone. Call it often."""
        if self._line is not None:
            try:
                self._line.setblocking(False)
                self._receive(self._line.recv(4096))
            except BlockingIOError:
                if self._unreported and time.monotonic() - self._answered_at > self._patience:
                    self._lost(f"no answer in {self._patience:.0f} s")
            except OSError as error:
                self._lost(error)
        return self._end_requested

    def _receive(self, said: bytes) -> None:
        if not said:
            self._lost("it has hung up")
        self._input += said
        size = 1 + MAC_BYTES
        while len(self._input) >= size:
            what, proof, self._input = self._input[:1], self._input[1:size], self._input[size:]
            if not hmac.compare_digest(proof, numbered(self._key, DRIVER, self._received_messages, what)):
                raise ForgedError("a message has a wrong signature")
            self._received_messages += 1
            self._answered_at = time.monotonic()
            if what == END:
                self._end_requested = True
            elif self._unreported:
                self._unreported.popleft()

    def crowded(self) -> bool:
        """Whether so many reports are unanswered that the task must wait."""
        return len(self._unreported) >= PENDING_REPORTS

    def unreported(self) -> List[OffsetSyncs]:
        """The offset syncs that the driver may not have."""
        return [sync for syncs in self._unreported for sync in syncs]

    def close(self) -> None:
        """Close the connection."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _lost(self, error: object) -> None:
        log.warning("lost the connection to the driver: %s; the task ends its cycle", error)
        self._end_requested = True
        self.close()


class _Task:
    """The driver's end of one connection to a task that has proved the secret."""

    def __init__(self, line: socket.socket, key: bytes) -> None:
        self.line = line
        self.untaken = 0
        self._key = key
        self._received_messages = self._input = 0
        self._lock = threading.Lock()

    def receive(self) -> Optional[TaskReport]:
        """The next report; `None` if the connection ended. A partial report was not answered, so it is repeated. Raises
        `ForgedError`, and `ValueError` for a report that this release cannot read."""
        head = self._read(_HEAD.size)
        if head is None:
            return None
        size, proof = _HEAD.unpack(head)
        if size > LARGEST_REPORT_BYTES:
            raise ForgedError(f"a report claims a size of {size} bytes")
        text = self._read(size)
        if text is None:
            return None
        if not hmac.compare_digest(proof, numbered(self._key, TASK, self._received_messages, text)):
            raise ForgedError("a report was changed on its way, or comes from another sender")
        self._received_messages += 1
        try:
            return from_text(text.decode())
        except ValueError as error:
            hint = "is the same release on driver and executors?"
            raise ValueError(f"a report cannot be read ({error}); {hint}") from error

    def say(self, what: bytes) -> None:
        """Send a message, from any thread. Does nothing if the task has closed the connection."""
        with self._lock, contextlib.suppress(OSError):
            self.line.sendall(what + numbered(self._key, DRIVER, self._input, what))
            self._input += 1

    def _read(self, count: int) -> Optional[bytes]:
        found = bytearray()
        while len(found) < count:
            more = self.line.recv(min(count - len(found), 1024 * 1024))
            if not more:
                return None
            found += more
        return bytes(found)


class ReportServer:
    """The driver's end, for the tasks of one stage."""

    def __init__(self, bind_to: str, host: str, every: float, seconds: float, port: int = 0) -> None:
        self._server = _server(bind_to, port)
        self.address = ReportTo(host, self._server.getsockname()[1], secrets.token_hex(32), every, seconds)
        self._reports: queue.Queue[Tuple[_Task, TaskReport]] = queue.Queue()
        self._lock = threading.Lock()
        self._tasks: List[_Task] = []
        self._strangers: Deque[socket.socket] = deque()
        self._expected: Optional[Mapping[int, FrozenSet[TopicPartition]]] = None
        self._ending = self._hung_up = self._closed = False
        self._warned: Set[str] = set()
        self._came, self._complete_by = 0, time.monotonic() + COMPLETE_SECONDS
        threading.Thread(target=self._accept, name="reports", daemon=True).start()

    def __enter__(self) -> ReportServer:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            lines = [*(task.line for task in self._tasks), *self._strangers]
        # Closing alone would not wake the threads that accept or read.
        for line in [self._server, *lines]:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def expect(self, plans: Sequence[TaskPlan]) -> None:
        """Accept only reports about the partitions of these plans. Call it before they run."""
        self._expected = {plan.task: frozenset(task.source for task in plan.tasks) for plan in plans}

    def take(self) -> List[TaskReport]:
        """All reports since the last call, in each task's order. Each report is returned once."""
        reports: List[TaskReport] = []
        with self._lock:
            for task in self._tasks:
                task.untaken = 0
        with contextlib.suppress(queue.Empty):
            while True:
                task, report = self._reports.get_nowait()
                reports.append(report)
                task.say(TAKEN)
        return reports

    def crowded(self) -> bool:
        """Whether one task has so many waiting reports that it may have to wait soon."""
        with self._lock:
            return max((task.untaken for task in self._tasks), default=0) >= PENDING_REPORTS // 2

    def unheard(self, tasks: int) -> bool:
        """Whether one of `tasks` tasks has not connected in the time that it had."""
        return self._came < tasks and time.monotonic() >= self._complete_by

    def whole(self, tasks: int) -> bool:
        """False if one of `tasks` tasks has gone already, or cannot connect: its partitions wait for the others."""
        return not self._hung_up and (self._came >= tasks or time.monotonic() < self._complete_by)

    def end_all(self) -> None:
        """Order every task to end, including tasks that connect later."""
        with self._lock:
            if self._ending:
                return
            self._ending = True
            tasks = list(self._tasks)
        for task in tasks:
            task.say(END)

    def _accept(self) -> None:
        while not self._closed:
            try:
                line, _ = self._server.accept()
            except OSError as error:
                # Reached also without a free file descriptor, or when a connection broke before it was accepted.
                if not self._closed:
                    self._warn("a connection for reports could not be accepted; tried again", error)
                    time.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            with self._lock:
                self._strangers.append(line)
                crowd = self._strangers.popleft() if len(self._strangers) > STRANGERS else None
            if crowd is not None:
                with contextlib.suppress(OSError):
                    crowd.shutdown(socket.SHUT_RDWR)
            try:
                threading.Thread(target=self._receive, args=(line,), name="reports", daemon=True).start()
            except RuntimeError as error:  # no thread can be started now
                self._warn("a connection for reports could not be heard", error)
                line.close()

    def _warn(self, sentence: str, error: Exception) -> None:
        # Once per sentence: otherwise any client that can connect could fill the log.
        if sentence not in self._warned:
            self._warned.add(sentence)
            log.warning("%s: %s", sentence, error)

    def _receive(self, line: socket.socket) -> None:
        with line:
            try:
                task = self._proved(line)
            except OSError as error:
                task = None
                if not self._closed:
                    self._warn("a client that is no task of this run connected to the port of reports", error)
            with self._lock:
                if line in self._strangers:
                    self._strangers.remove(line)
                else:
                    task = None  # it was closed to make space for later connections
            if task is not None and self._joined(task):
                self._listen(task)

    def _proved(self, line: socket.socket) -> _Task:
        """Raises `OSError` if the peer does not prove the secret, or not in time."""
        deadline, ours = time.monotonic() + CONNECT_SECONDS, secrets.token_bytes(NONCE_BYTES)
        secret = self.address.secret.encode()
        line.settimeout(CONNECT_SECONDS)
        line.sendall(ours)
        said = received(line, NONCE_BYTES + MAC_BYTES, deadline)
        both = ours + said[:NONCE_BYTES]
        if not hmac.compare_digest(said[NONCE_BYTES:], mac(secret, TASK, both)):
            raise ForgedError("wrong or missing secret")
        line.sendall(mac(secret, DRIVER, both))
        kept_alive(line)
        line.settimeout(None)
        return _Task(line, mac(secret, KEY, both))

    def _joined(self, task: _Task) -> bool:
        with self._lock:
            if self._closed:
                return False
            self._tasks.append(task)
            self._came += 1
            ending = self._ending
        if ending:
            task.say(END)
        return True

    def _listen(self, task: _Task) -> None:
        try:
            report = task.receive()
            while report is not None:
                self._check(report)
                with self._lock:
                    task.untaken += 1
                self._reports.put((task, report))
                report = task.receive()
        except (OSError, ValueError) as error:
            if not self._closed:
                log.warning("lost the connection to a task: %s", error)
        finally:
            with self._lock:
                self._tasks.remove(task)
                self._hung_up = True

    def _check(self, report: TaskReport) -> None:
        if self._expected is not None:
            said = {part.source for part in report.partitions} | {(each.topic, each.partition) for each in report.syncs}
            if not said <= self._expected.get(report.task, frozenset()):
                raise ForgedError("a report names partitions of another task")


def _server(bind_to: str, port: int) -> socket.socket:
    """A server at `port`, or at one of the ports after it, as Spark does; 0 is any port. Raises `OSError`."""
    found = socket.getaddrinfo(bind_to or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # IPv4 first, as Java does: a name may resolve to both, and executors may have only one.
    family = socket.AF_INET if socket.AF_INET in {each[0] for each in found} else socket.AF_INET6
    last = min(port + PORTS, 65536) - 1
    for number in range(port, last):
        try:
            return socket.create_server((bind_to, number), family=family)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return socket.create_server((bind_to, last), family=family)
