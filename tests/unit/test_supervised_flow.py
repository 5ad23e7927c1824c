"""A flow's thread and its query: what is tried again, what has failed, and that an end comes whatever Spark begins."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from typing import Any, List, Optional, Sequence, Tuple, Type
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from mirror_lib import supervisor as flow_life
from mirror_lib.errors import (
    ClusterError,
    FencedError,
    LoginError,
    MirrorError,
    RefusedError,
    SparkEndedError,
    StateError,
)
from mirror_lib.spark.errors import asked_again
from mirror_lib.supervisor import SupervisedFlow, WatchedQuery, await_end
from mirror_lib.threads import Stop


class FakeFlow(SupervisedFlow):
    """Ends its runs with `errors`, one after the other; in the last one it is asked to end. With None it was
    connected before the cluster went away."""

    def __init__(self, *errors: Optional[Exception], passing: Tuple[Type[MirrorError], ...] = (ClusterError,)) -> None:
        super().__init__("A->B", threading.Event())
        self.errors, self.passing = list(errors), passing
        self.ends: List[Optional[MirrorError]] = []

    def _live(self) -> Optional[MirrorError]:
        error = self.errors.pop(0)
        if not self.errors:
            self._stop.set()
        if error is None:
            self._connected = True
            error = ClusterError("away")
        raise error

    def _passing(self) -> Tuple[Type[MirrorError], ...]:
        return self.passing

    def _over(self, error: Optional[MirrorError]) -> None:
        self.ends.append(error)


def left(
    *errors: Optional[Exception], passing: Tuple[Type[MirrorError], ...] = (ClusterError,)
) -> Sequence[Optional[Exception]]:
    """What the flow ended with, and the errors of the runs that it did not come to."""
    run = FakeFlow(*errors, passing=passing)
    run.start()
    await_end([run], threading.Event(), 0, "")
    return [*run.ends, *run.errors]


AWAY, BROKEN = ClusterError("away"), StateError("no")


@pytest.mark.parametrize(
    ("error", "passing", "end"),
    [
        *((error, (), error) for error in (RefusedError("no"), BROKEN, AWAY)),
        (AWAY, (ClusterError,), None),
        (None, (ClusterError,), None),
        (BROKEN, (ClusterError, StateError), BROKEN),
        (SparkEndedError("Spark has ended"), (ClusterError,), None),
    ],
)
def test_flow_that_was_told_to_end_has_failed_only_by_what_does_not_pass(
    error: Optional[MirrorError], passing: Tuple[Type[MirrorError], ...], end: Optional[MirrorError]
) -> None:
    assert left(error, passing=passing) == [end]


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_life, "RESTART_SECONDS", 0.01)
    monkeypatch.setattr(flow_life, "REFUSED_SECONDS", 0.01)


def test_patience_counts_from_when_the_stop_was_set_first() -> None:
    run, stop, over = FakeFlow(), Stop(), threading.Event()
    run._thread = threading.Thread(target=over.wait, daemon=True)
    run.start()
    stop.set()
    stop.at, before = time.monotonic() - 60, time.monotonic()
    stop.set()  # again, which changes nothing
    assert not await_end([run], stop, 30, "") and time.monotonic() - before < 20
    over.set()
    assert await_end([run], stop, 30, "")


REFUSED = LoginError("cannot log in")
NEVER = ClusterError("never seen")


def test_login_that_is_refused_ends_a_flow_that_was_never_connected() -> None:
    assert left(REFUSED, NEVER) == [REFUSED, NEVER]
    assert left(ClusterError("away"), REFUSED, NEVER) == [REFUSED, NEVER]
    assert left(None, REFUSED, REFUSED, ClusterError("away")) == [None]


def test_unexpected_error_ends_the_flow_and_its_trace_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    end, unseen = left(KeyError("x"), NEVER)
    assert (str(end), type(end), unseen) == ("A->B: KeyError: 'x'", MirrorError, NEVER)
    (trace,) = [record for record in caplog.records if record.exc_info]
    assert trace.levelname == "ERROR" and "raise error" in caplog.text


class SparkQuery:
    """As Spark's: while it is being stopped it may begin one more call, and waits for it."""

    def __init__(self, call: Any) -> None:
        self.isActive = True
        self.call = call

    def stop(self) -> None:
        calling = threading.Thread(target=self.call, args=("late",), daemon=True)
        calling.start()
        calling.join(30)
        assert not calling.is_alive(), "a call that began at the end never returned"
        self.isActive = False

    def exception(self) -> None:
        return None


@pytest.mark.parametrize("stopped", [True, False])
def test_call_that_begins_while_the_query_is_ended_returns_at_once_and_does_nothing(stopped: bool) -> None:
    made: List[str] = []
    stop = threading.Event()
    watched = WatchedQuery(stop, threading.Lock())
    call = watched.guarded(made.append)
    call("first")
    if stopped:
        stop.set()
    query: Any = SparkQuery(call)
    assert watched.until_end(query, 30, lambda: not stopped) is None
    assert made == ["first"] and not query.isActive


def failed(failure: Exception) -> Tuple[WatchedQuery, RuntimeError]:
    """A query whose call failed, and what Spark gets of it."""
    watched = WatchedQuery(threading.Event(), threading.Lock())
    with pytest.raises(RuntimeError) as raised:
        watched.guarded(Mock(side_effect=failure))()
    return watched, raised.value


def test_what_a_call_failed_with_is_why_the_query_ended_and_what_nobody_expected_is_raised() -> None:
    query, refused = Mock(isActive=False), RefusedError("no")
    assert failed(refused)[0].until_end(query, 30) is refused
    with pytest.raises(KeyError):
        failed(KeyError("x"))[0].until_end(query, 30)


def test_spark_gets_no_text_of_java_where_a_call_failed() -> None:
    """Spark's search in it overflowed the stack of a thread, with a thousand lines on the terminal."""
    _, raised = failed(Py4JError("An error occurred while calling o1.take\n" + "\tat org.apache.spark.Frame\n" * 1000))
    reported = "".join(traceback.format_exception(None, raised, raised.__traceback__))
    assert "Py4JError" in reported and "org.apache.spark" not in reported and "An error occurred" not in reported


def ended_amid_a_call(failure: Exception) -> Optional[BaseException]:
    """What becomes of a query that is asked to end while a call is under way, which then fails."""
    stop, begun = threading.Event(), threading.Event()
    watched = WatchedQuery(stop, threading.Lock())

    def fail(*_: object) -> None:
        begun.set()
        stop.wait(30)
        raise failure

    call = watched.guarded(fail)

    def calling() -> None:
        with contextlib.suppress(RuntimeError):
            call()

    thread = threading.Thread(target=calling, daemon=True)
    thread.start()
    assert begun.wait(30)
    stop.set()
    query: Any = SparkQuery(call)
    try:
        return watched.until_end(query, 30)
    finally:
        assert not query.isActive
        thread.join(30)


def test_call_that_fails_while_the_query_is_ended_is_reported_unless_a_cluster_or_java_is_away() -> None:
    broken = StateError("the ledger cannot be written")
    assert ended_amid_a_call(broken) is broken
    with pytest.raises(KeyError):
        ended_amid_a_call(KeyError("x"))
    for error in (ClusterError("away"), FencedError("no"), SparkEndedError("no"), Py4JNetworkError()):
        assert ended_amid_a_call(error) is None, error


def test_question_to_java_whose_connection_broke_is_asked_once_more() -> None:
    assert asked_again(Mock(side_effect=[Py4JError("An error occurred while calling o18115.isActive"), True]))
    ask = Mock(side_effect=Py4JError("Java is gone"))
    with pytest.raises(Py4JError, match="Java is gone"):
        asked_again(ask)
    assert ask.call_count == 2
