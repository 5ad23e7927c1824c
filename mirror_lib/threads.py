"""Runs calls in threads of their own: one call whose result is waited for, or the same call again and again."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import Callable, Generic, Iterator, List, Optional, TypeVar

from mirror_lib.log_lines import of_this_flow

log = logging.getLogger(__name__)
Result = TypeVar("Result")


class BackgroundCall(Generic[Result]):
    """`call`, begun when this is made. A process that ends does not wait for it."""

    def __init__(self, name: str, call: Callable[[], Result]) -> None:
        self._call = call
        self._results: List[Result] = []
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=of_this_flow(self._run), name=name, daemon=True)
        self._thread.start()

    def result(self) -> Result:
        """Wait for its end: what it returned. Raises what it raised, each time it is asked."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def over(self) -> bool:
        """Whether it has ended, so that no caller would wait for its result."""
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
