"""Something that goes on in a thread of its own while a block runs, and is told to end with it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Callable, Iterator, List, Sequence, TypeVar

Result = TypeVar("Result")


@contextmanager
def meanwhile(work: Callable[[threading.Event], Sequence[Result]]) -> Iterator[List[Result]]:
    """`work` gets the event that ends it. What it returned is there after the block."""
    stop, results = threading.Event(), []  # type: threading.Event, List[Result]
    thread = threading.Thread(target=lambda: results.extend(work(stop)))
    thread.start()
    try:
        yield results
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive(), "it did not end in time"
