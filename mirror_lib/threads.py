"""Runs calls in threads: one call with an awaited result, or the same call at an interval."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing, contextmanager
from typing import Callable, Generator, Generic, Iterator, List, Optional, Sequence, TypeVar

from mirror_lib.log_lines import of_this_flow

log = logging.getLogger(__name__)
Result = TypeVar("Result")


class Stop(threading.Event):
    """An event that has the time at which it was set first, by `time.monotonic()`."""

    at: Optional[float] = None

    def set(self) -> None:
        if self.at is None:
            self.at = time.monotonic()
        super().set()


class BackgroundCall(Generic[Result]):
    """Runs `call` in a thread from construction on. A process that ends does not wait for it."""

    def __init__(self, name: str, call: Callable[[], Result]) -> None:
        self._call = call
        self._results: List[Result] = []
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=of_this_flow(self._run), name=name, daemon=True)
        self._thread.start()

    def result(self) -> Result:
        """Wait for the end of the call; return its result or raise its error, on each call."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def wait(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return self.over()

    def over(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            log.debug("%s failed", self._thread.name, exc_info=True)
            self._error = error


class Repeating:
    """Runs `turns` in a thread: a generator that yields the seconds to wait before its next turn. It is closed after
    its last turn. A process that ends does not wait for it."""

    def __init__(self, name: str, turns: Generator[float, None, None]) -> None:
        self.name, self._turns = name, turns
        self.over = threading.Event()
        self.thread = threading.Thread(target=of_this_flow(self._run), name=name, daemon=True)

    def _run(self) -> None:
        with closing(self._turns):
            for pause in self._turns:
                if self.over.wait(pause):
                    return


@contextmanager
def running(threads: Sequence[Repeating], patience: Optional[float] = None) -> Iterator[None]:
    """Run `threads` during the block. No turn starts after it; the present ones are awaited for `patience` seconds in
    all, `None` for their ends."""
    for each in threads:
        each.thread.start()
    try:
        yield
    finally:
        for each in threads:
            each.over.set()
        until = None if patience is None else time.monotonic() + patience
        for each in threads:
            each.thread.join(None if until is None else max(0.0, until - time.monotonic()))


@contextmanager
def repeated(seconds: float, name: str, call: Callable[[], None], patience: Optional[float] = None) -> Iterator[None]:
    """Call `call` every `seconds` while the block runs, first after that time. The end of the block waits for a call
    that runs, at most for `patience` seconds."""

    def turns() -> Generator[float, None, None]:
        while True:
            yield seconds
            call()

    with running([Repeating(name, turns())], patience):
        yield
