"""Something that continues in a thread of its own while a block runs, and is asked to end with it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Callable, Iterator, List, Sequence, TypeVar

Result = TypeVar("Result")


@contextmanager
def meanwhile(work: Callable[[threading.Event], Sequence[Result]]) -> Iterator[List[Result]]:
    """`work` gets the event that ends it. Its results are there once it has ended, its error is raised afterwards."""
    stop = threading.Event()
    results: List[Result] = []
    running = ThreadPoolExecutor(1).submit(lambda: results.extend(work(stop)))
    try:
        yield results
    finally:
        stop.set()
        wait([running], 60)
    running.result(0)
