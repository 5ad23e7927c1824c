"""A flow's thread and its query: what is tried again, what has failed, and that an end comes whatever Spark begins."""

from __future__ import annotations

import threading
from typing import Any, List, Optional, Tuple, Type

import pytest

from mirror_lib.errors import ClusterError, MirrorError, RefusedError, StateError
from mirror_lib.flow_life import FlowLife, WatchedQuery, await_end


class Once(FlowLife):
    """Lives once and ends with `error`; it was told to end meanwhile."""

    def __init__(self, error: Optional[Exception], passing: Tuple[Type[MirrorError], ...]) -> None:
        super().__init__("A->B", threading.Event())
        self.error, self.passing = error, passing
        self.ends: List[Optional[MirrorError]] = []

    def _live(self) -> Optional[MirrorError]:
        self._stop.set()
        if isinstance(self.error, MirrorError) or self.error is None:
            return self.error
        raise self.error

    def _passing(self) -> Tuple[Type[MirrorError], ...]:
        return self.passing

    def _over(self, error: Optional[MirrorError]) -> None:
        self.ends.append(error)


def ended(error: Optional[Exception], *passing: Type[MirrorError]) -> Optional[MirrorError]:
    run = Once(error, passing)
    run.start()
    await_end([run], threading.Event(), 0, "")
    (end,) = run.ends
    return end


@pytest.mark.parametrize("error", [RefusedError("no"), StateError("no"), ClusterError("away")])
def test_error_that_does_not_pass_is_what_became_of_the_flow(error: MirrorError) -> None:
    assert ended(error) is error


def test_flow_that_was_told_to_end_while_it_waited_for_a_cluster_has_not_failed() -> None:
    assert ended(ClusterError("away"), ClusterError) is None
    assert ended(None, ClusterError) is None
    broken = StateError("no")
    assert ended(broken, ClusterError, StateError) is broken


def test_error_that_nobody_expected_is_told_as_one_of_the_flow() -> None:
    assert str(ended(KeyError("x"))) == "A->B: KeyError: 'x'"


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


@pytest.mark.parametrize("told", ["stop", "done"])
def test_call_that_begins_while_the_query_is_ended_returns_at_once_and_does_nothing(told: str) -> None:
    made: List[str] = []
    stop = threading.Event()
    watched = WatchedQuery(stop, threading.Lock())
    call = watched.guarded(made.append)
    call("first")
    if told == "stop":
        stop.set()
    query: Any = SparkQuery(call)
    assert watched.until_end(query, 30, lambda: told == "done") is None
    assert made == ["first"] and not query.isActive


def test_what_a_call_failed_with_is_why_the_query_ended() -> None:
    watched = WatchedQuery(threading.Event(), threading.Lock())
    failure = RefusedError("no")

    def fail() -> None:
        raise failure

    with pytest.raises(RefusedError):
        watched.guarded(fail)()
    query: Any = SparkQuery(fail)
    query.isActive = False
    assert watched.until_end(query, 30) is failure
