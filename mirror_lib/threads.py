"""Runs calls in threads: one call with an awaited result, or the same call at an interval."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import Callable, Generic, Iterator, List, Optional, TypeVar

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


@contextmanager
def repeated(seconds: float, name: str, call: Callable[[], None]) -> Iterator[None]:
    """Call `call` every `seconds` while the block runs, first after that time. No call runs after the block."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            call()

    thread = threading.Thread(target=of_this_flow(run), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
