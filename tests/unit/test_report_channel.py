"""Who may report to a driver, and order a task to end: those who know the stage's secret, and no one in between."""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
import struct
import threading
import time
from array import array
from dataclasses import replace
from typing import Any, Callable, Iterator, List, Tuple

import pytest

from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.records import OffsetSyncs
from mirror_lib.replication import report_channel
from mirror_lib.replication.messages import PartitionReport, ReportTo, TaskReport, to_text
from mirror_lib.replication.report_channel import (
    _HEAD,
    DRIVER,
    END,
    KEY,
    LARGEST_REPORT_BYTES,
    MAC_BYTES,
    NONCE_BYTES,
    STRANGERS,
    TAKEN,
    TASK,
    ReportClient,
    ReportServer,
    mac,
    numbered,
    received,
)
from tests.lab.one_flow import until

SYNCS = OffsetSyncs("orders", 0, array("q", (9, 9, 1)).tobytes())
PART = PartitionReport("orders", "A.orders", 0, 10, 10, 1, -1, records=1)
REPORT = TaskReport(0, {1: Producer(4711, 0)}, False, (PART,), (SYNCS,), 1, 0, 0, 0, 2.0)


@pytest.fixture
def server() -> Iterator[ReportServer]:
    with ReportServer("127.0.0.1", "127.0.0.1", 2.0, 600.0) as listener:
        yield listener


def heard(server: ReportServer, count: int) -> List[TaskReport]:
    found: List[TaskReport] = []

    def all_heard() -> bool:
        found.extend(server.take())
        return len(found) >= count

    until(all_heard)
    return found


class ByHand:
    """A task that knows the secret, and says what it is asked to say."""

    def __init__(self, to: ReportTo) -> None:
        self.line = socket.create_connection((to.host, to.port))
        self.secret, deadline = to.secret.encode(), time.monotonic() + 5
        ours = secrets.token_bytes(NONCE_BYTES)
        both = received(self.line, NONCE_BYTES, deadline) + ours
        self.line.sendall(ours + mac(self.secret, TASK, both))
        assert received(self.line, MAC_BYTES, deadline) == mac(self.secret, DRIVER, both)
        self.key = mac(self.secret, KEY, both)

    def said(self, number: int = 0, report: TaskReport = REPORT) -> bytes:
        text = to_text(report).encode()
        return _HEAD.pack(len(text), numbered(self.key, TASK, number, text)) + text

    def is_hung_up_on(self) -> bool:
        self.line.settimeout(10)
        with contextlib.suppress(ConnectionError):
            while self.line.recv(4096):
                pass
        return True


def test_what_a_task_says_is_taken_as_it_said_it(server: ReportServer) -> None:
    """The control of those below: said by hand, as it should be."""
    task = ByHand(server.address)
    task.line.sendall(task.said(0) + task.said(1))
    assert heard(server, 2) == [REPORT, REPORT]


CHANGES: List[Tuple[str, Callable[[ByHand], bytes]]] = [
    ("changed on its way", lambda task: task.said().replace(b"orders", b"0rders")),
    ("repeated", lambda task: task.said(0) + task.said(0)),
    ("one left out", lambda task: task.said(0) + task.said(2)),
    ("of another connection", lambda task: replaced(task, secrets.token_bytes(MAC_BYTES)).said()),
    ("said as a driver", lambda task: task.said()[:4] + numbered(task.key, DRIVER, 0, b"{}") + b"{}"),
    ("larger than any", lambda task: _HEAD.pack(LARGEST_REPORT_BYTES + 1, bytes(MAC_BYTES))),
    ("not readable", lambda task: _HEAD.pack(2, numbered(task.key, TASK, 0, b"{}")) + b"{}"),
    ("no text at all", lambda task: _HEAD.pack(1, numbered(task.key, TASK, 0, b"\xff")) + b"\xff"),
]


def replaced(task: ByHand, key: bytes) -> ByHand:
    task.key = key
    return task


@pytest.mark.parametrize(("what", "say"), CHANGES, ids=[name for name, _ in CHANGES])
def test_task_that_says_something_else_is_not_heard_any_more(
    server: ReportServer, what: str, say: Callable[[ByHand], bytes]
) -> None:
    task = ByHand(server.address)
    task.line.sendall(say(task))
    task.line.shutdown(socket.SHUT_WR)
    assert task.is_hung_up_on()
    until(lambda: not server.whole(1))
    assert len(server.take()) == (1 if what in ("repeated", "one left out") else 0)


def test_conversation_that_was_listened_to_is_worth_nothing_on_another_connection(server: ReportServer) -> None:
    task = ByHand(server.address)
    said = task.said()
    task.line.sendall(said)
    assert heard(server, 1) == [REPORT]
    with socket.create_connection((server.address.host, server.address.port)) as stranger:
        received(stranger, NONCE_BYTES, time.monotonic() + 5)
        stranger.sendall(secrets.token_bytes(NONCE_BYTES + MAC_BYTES) + said)
        stranger.settimeout(10)
        with contextlib.suppress(ConnectionError):
            assert stranger.recv(1) == b""
    assert server.take() == [] and server.whole(1)


def test_who_does_not_know_the_secret_is_not_heard_and_hears_nothing(server: ReportServer) -> None:
    stranger = ReportClient(replace(server.address, secret="a guess"))
    stranger.send_report(REPORT)
    assert not stranger.connected and server.take() == []
    assert "secret" not in repr(replace(server.address, secret="secret"))


def test_report_of_what_the_task_was_not_given_is_refused(server: ReportServer) -> None:
    plan: Any = type("Plan", (), {"task": 0, "tasks": [type("Task", (), {"source": ("orders", 0)})]})
    server.expect([plan])
    client = ReportClient(server.address)
    client.send_report(REPORT)
    assert heard(server, 1) == [REPORT]
    other = replace(REPORT.partitions[0], partition=1)
    client.send_report(replace(REPORT, partitions=(other,)))
    until(client.end_requested)
    assert server.take() == []
    late = ReportClient(server.address)
    late.send_report(replace(REPORT, task=7))
    until(late.end_requested)
    assert server.take() == []


def test_task_that_reaches_a_port_where_nobody_proves_himself_is_not_connected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        began = time.monotonic()
        client = ReportClient(ReportTo("127.0.0.1", deaf.getsockname()[1], "secret", 2.0, 600.0))
        # The kernel takes the connection, so an answer is what counts.
        assert not client.connected and time.monotonic() - began < 60


@contextlib.contextmanager
def driver_by_hand(answer: Callable[[socket.socket, bytes], None], proof: bytes = b"") -> Iterator[ReportTo]:
    """A driver that proves itself, or says `proof`, and then answers what it wants."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            line, _ = listener.accept()
            with line:
                ours = secrets.token_bytes(NONCE_BYTES)
                line.sendall(ours)
                both = ours + received(line, NONCE_BYTES + MAC_BYTES, time.monotonic() + 5)[:NONCE_BYTES]
                line.sendall(proof or mac(b"secret", DRIVER, both))
                answer(line, mac(b"secret", KEY, both))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield ReportTo("127.0.0.1", listener.getsockname()[1], "secret", 2.0, 600.0)
        thread.join(30)


def test_driver_that_cannot_prove_itself_is_told_nothing() -> None:
    with driver_by_hand(lambda line, key: None, proof=bytes(MAC_BYTES)) as to:
        assert not ReportClient(to).connected


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(lambda key: END + bytes(MAC_BYTES), id="without proof"),
        pytest.param(lambda key: END + numbered(key, DRIVER, 1, END), id="of another place"),
        pytest.param(lambda key: END + numbered(key, TASK, 0, END), id="as a task"),
        pytest.param(lambda key: TAKEN + numbered(key, DRIVER, 0, END), id="changed"),
    ],
)
def test_answer_that_was_not_the_drivers_takes_no_report(said: Callable[[bytes], bytes]) -> None:
    done = threading.Event()

    def answer(line: socket.socket, key: bytes) -> None:
        line.sendall(said(key))
        done.wait(10)

    with driver_by_hand(answer) as to:
        client = ReportClient(to)
        client.send_report(REPORT)
        until(client.end_requested)
        done.set()
        assert not client.connected and client.unreported() == [SYNCS]


def test_reports_that_nobody_answered_are_told_again() -> None:
    def answer(line: socket.socket, key: bytes) -> None:
        line.sendall(TAKEN + numbered(key, DRIVER, 0, TAKEN))
        answered.wait(10)

    answered = threading.Event()
    with driver_by_hand(answer) as to:
        client = ReportClient(to)
        client.send_report(REPORT)
        client.send_report(REPORT)
        until(lambda: not client.end_requested() and len(client.unreported()) == 1)
        answered.set()
        until(client.end_requested)
    assert client.unreported() == [SYNCS] and not client.connected


def test_driver_that_answers_nothing_for_long_is_taken_for_gone(
    server: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_channel, "ANSWER_SECONDS", 0.1)
    client = ReportClient(replace(server.address, every=0.0))
    client.send_report(REPORT)
    until(client.end_requested)
    assert not client.connected and client.unreported() == [SYNCS]


def test_driver_that_is_to_answer_seldom_is_waited_for(server: ReportServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_channel, "ANSWER_SECONDS", 0.1)
    client = ReportClient(replace(server.address, every=60.0))
    client.send_report(REPORT)
    time.sleep(0.3)
    assert not client.end_requested() and client.connected


def test_silence_is_no_matter_where_nothing_is_to_be_answered(
    server: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_channel, "ANSWER_SECONDS", 0.1)
    client = ReportClient(replace(server.address, every=0.0))
    time.sleep(0.3)
    assert not client.end_requested()
    client.send_report(REPORT)
    assert heard(server, 1) and client.connected


def test_silent_connections_keep_no_task_away(server: ReportServer) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(STRANGERS + 20):
            held.enter_context(socket.create_connection((server.address.host, server.address.port)))
        client = ReportClient(server.address)
        client.send_report(REPORT)
        assert heard(server, 1) == [REPORT]
        until(lambda: sum(thread.name == "reports" for thread in threading.enumerate()) <= STRANGERS + 3)


def test_connection_that_says_a_byte_now_and_then_is_not_waited_for(
    server: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_channel, "CONNECT_SECONDS", 0.5)
    with socket.create_connection((server.address.host, server.address.port)) as slow:
        slow.settimeout(10)
        slow.recv(NONCE_BYTES)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < NONCE_BYTES and not hung_up(slow):
                slow.sendall(b"x")
                sent += 1
                time.sleep(0.1)
        assert sent < NONCE_BYTES


def hung_up(line: socket.socket) -> bool:
    line.setblocking(False)
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        line.setblocking(True)


def test_accept_that_fails_is_tried_again(server: ReportServer) -> None:
    accept, failures = server._server.accept, [errno.EMFILE, errno.ECONNABORTED]

    class Failing:
        def accept(self) -> Any:
            if failures:
                raise OSError(failures.pop(), "no")
            return accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    real, failing = server._server, Failing()
    server._server = failing  # type: ignore[assignment]
    ReportClient(server.address).close()  # the call that was under way
    client = ReportClient(server.address)
    client.send_report(REPORT)
    assert heard(server, 1) == [REPORT] and failures == []


def test_stage_listens_where_spark_does_also_by_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with ReportServer("::1", "::1", 2.0, 600.0) as listener:
        client = ReportClient(listener.address)
        client.send_report(REPORT)
        assert heard(listener, 1) == [REPORT]


@pytest.mark.parametrize("families", [[socket.AF_INET6, socket.AF_INET], [socket.AF_INET]])
def test_stage_listens_by_ipv4_where_its_name_has_both(families: List[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **more: [(family,) for family in families])
    server = report_channel._server("127.0.0.1", 0)
    assert server.family is socket.AF_INET
    server.close()


def test_task_whose_connection_is_closed_at_once_tries_again(server: ReportServer) -> None:
    closing = [True, True]

    def proved(line: socket.socket) -> Any:
        if closing:
            closing.pop()
            raise ConnectionError("a crowd")
        return proof(line)

    proof = server._proved
    server._proved = proved  # type: ignore[method-assign]
    client = ReportClient(server.address)
    client.send_report(REPORT)
    assert client.connected and heard(server, 1) == [REPORT]


def test_stage_that_is_over_leaves_no_thread_behind() -> None:
    with ReportServer("127.0.0.1", "127.0.0.1", 2.0, 600.0) as listener:
        silent = socket.create_connection((listener.address.host, listener.address.port))
        client = ReportClient(listener.address)
    until(lambda: not any(thread.name == "reports" for thread in threading.enumerate()))
    until(client.end_requested)
    silent.close()


def test_head_of_a_report_is_its_size_and_its_proof() -> None:
    assert _HEAD.size == struct.calcsize(">I") + MAC_BYTES
