"""A value of the driver in, the way to it for the tasks of one job out.

A function that Spark's workers run is pickled with all that it refers to. Of more than 1 MB Spark makes a broadcast by
itself, whose file lies on the driver's disk until the driver ends: one for each job, of which a mirror runs many.
"""

from __future__ import annotations

import logging
import pickle
from contextlib import contextmanager
from typing import Generic, Iterator, Protocol, TypeVar

from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# What is smaller travels with the function, which costs less than a broadcast.
SMALL_BYTES = 900 * 1024

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Shipped(Protocol[T_co]):
    """To be referred to by the function."""

    @property
    def value(self) -> T_co:
        """The value, in the driver and in a worker."""


class _Along(Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value


@contextmanager
def shipped(spark: SparkSession, value: T) -> Iterator[Shipped[T]]:
    """What the jobs that are run inside may refer to; nothing of it is left behind."""
    if len(pickle.dumps(value)) <= SMALL_BYTES:
        yield _Along(value)
        return
    held = spark.sparkContext.broadcast(value)
    try:
        yield held
    finally:
        try:
            held.destroy()
        except Exception as error:  # Spark has ended, and takes its files along; what it was asked for says so
            log.debug("a broadcast was not deleted: %s", error)
