"""Something that continues in a thread of its own while a block runs, and is asked to end with it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Callable, Iterator, List, Sequence, TypeVar

Result = TypeVar("Result")


@contextmanager
def meanwhile(work: Callable[[threading.Event], Sequence[Result]]) -> Iterator[List[Result]]:
    """`work` gets the event that ends it. What it returned is there after the block, and what it raised is raised."""
    stop = threading.Event()
    results: List[Result] = []
    raised: List[BaseException] = []

    def run() -> None:
        try:
            results.extend(work(stop))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield results
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive(), "it did not end in time"
    if raised:
        raise raised[0]
