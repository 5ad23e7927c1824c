"""Runs one call in a thread of its own; `result()` returns what the call returned, or raises what it raised."""

from __future__ import annotations

import logging
import threading
from typing import Callable, Generic, List, Optional, TypeVar

log = logging.getLogger(__name__)
Result = TypeVar("Result")


class UnderWay(Generic[Result]):
    """`call`, begun when this is made. A process that ends does not wait for it."""

    def __init__(self, name: str, call: Callable[[], Result]) -> None:
        self._call = call
        self._results: List[Result] = []
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def result(self) -> Result:
        """Wait for its end: what it returned. Raises what it raised, each time it is asked."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def over(self) -> bool:
        """Whether it has ended, so that nobody would wait for its result."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            log.debug("%s failed", self._thread.name, exc_info=True)
            self._error = error
