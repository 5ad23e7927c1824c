"""Helpers for every Spark job of the mirror: its name in Spark's UI, values for its tasks, and small DataFrames.

`shipped` makes a driver-side value available to the tasks of one job. Spark turns a pickled function of more than 1 MB
into a broadcast whose file stays on the driver's disk until the driver ends, and a mirror runs many jobs; `shipped`
removes its broadcast. `local_rows` makes a DataFrame from a few tuples inside the JVM; `createDataFrame` would start
Python workers for them.
"""

from __future__ import annotations

import json
import logging
import pickle
from contextlib import contextmanager
from typing import Any, Dict, Generic, Iterator, List, Optional, Sequence, Tuple, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.spark.errors import spark_ended

log = logging.getLogger(__name__)

DESCRIPTION = "spark.job.description"
# Spark describes the jobs of a streaming query too, so a description alone does not identify the mirror's.
_OURS = "mirror.job.description"


@contextmanager
def named(spark: SparkSession, name: str, *, again: bool = True) -> Iterator[None]:
    """Describe the jobs that this thread starts in the block by `name`. Without `again`, a description that the mirror
    set before stays. Their stages keep PySpark's names, such as `collect at runs.py:72`."""
    context = spark.sparkContext
    before = [(each, context.getLocalProperty(each)) for each in (DESCRIPTION, _OURS)]
    if before[1][1] is not None and not again:
        yield
        return
    for each, _ in before:
        context.setLocalProperty(each, name)
    try:
        yield
    finally:
        # An ended context has no properties; another call reports its end.
        if spark_ended(name, spark) is None:
            for each, value in before:
                context.setLocalProperty(each, value)  # type: ignore[arg-type]  # null removes it


class WorkDone:
    """Counts the tasks of Spark's stages since the first call of `counts`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        # By stage, the tasks done and all of them.
        self._stages: Dict[int, Tuple[int, int]] = {}

    def counts(self) -> Optional[Tuple[int, int]]:
        """The tasks done so far, which never falls, and the ones left of the stages that run now; `None` if none runs,
        or Spark has ended."""
        try:
            tracker = self._spark.sparkContext.statusTracker()
            infos = {each: tracker.getStageInfo(each) for each in tracker.getActiveStageIds()}
        except Exception:
            if spark_ended("progress", self._spark) is None:
                raise
            return None
        active = {each: (info.numCompletedTasks, info.numTasks) for each, info in infos.items() if info is not None}
        over = {each: (tasks, tasks) for each, (_, tasks) in self._stages.items() if each not in active}
        self._stages.update({**over, **active})
        left = sum(tasks - done for done, tasks in active.values())
        return (sum(done for done, _ in self._stages.values()), left) if active else None


# A smaller value travels with the function, which costs less than a broadcast.
SMALL_BYTES = 900 * 1024

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Shipped(Generic[T_co]):
    """A value that a job's function may reference, or its broadcast. `secret` always travels with the function."""

    def __init__(self, held: Any, is_broadcast: bool, secret: Any) -> None:
        self._held, self._is_broadcast, self.secret = held, is_broadcast, secret

    @property
    def value(self) -> T_co:
        """The value, in the driver and in a worker."""
        found: T_co = self._held.value if self._is_broadcast else self._held
        return found


@contextmanager
def shipped(spark: SparkSession, value: T, secret: object = None) -> Iterator[Shipped[T]]:
    """Make `value` and `secret` available to the jobs in the block; the broadcast is removed after it.

    A large `value` is broadcast, which is stored on disks. `secret` never is: it travels with the function, which is
    kept too small for Spark to broadcast it.
    """
    if len(pickle.dumps(value)) + len(pickle.dumps(secret)) <= SMALL_BYTES:
        yield Shipped(value, False, secret)
        return
    held = spark.sparkContext.broadcast(value)
    try:
        yield Shipped(held, True, secret)
    finally:
        try:
            held.destroy()
        except Exception as error:  # Spark has ended, which deletes its files; the job's own call reports it
            log.debug("a broadcast was not deleted: %s", error)


# Rows per text: a plan with texts of many megabytes is slow to print and to optimise.
ROWS_TO_A_TEXT = 50_000


def local_rows(
    spark: SparkSession, columns: Sequence[Tuple[str, str]], rows: Sequence[Tuple[object, ...]]
) -> DataFrame:
    """`rows` under `columns` (name, Spark SQL type: numbers, booleans, strings). A value of another type fails when the
    DataFrame is evaluated."""
    row_type = ", ".join(f"{name}: {type_name}" for name, type_name in columns)
    texts = [_text(columns, rows[first : first + ROWS_TO_A_TEXT]) for first in range(0, len(rows), ROWS_TO_A_TEXT)]
    parsed = F.from_json(F.col("text"), f"array<struct<{row_type}>>", {"mode": "FAILFAST"})
    given = F.array(*(F.lit(text) for text in texts or ["[]"]))
    arrays = spark.range(0, 1, 1, 1).select(F.explode(given).alias("text")).select(parsed.alias("rows"))
    return arrays.selectExpr("inline(rows)")  # PySpark 3.3 has no function of that name


def _text(columns: Sequence[Tuple[str, str]], rows: Sequence[Tuple[object, ...]]) -> str:
    names: List[str] = [name for name, _ in columns]
    counts = set(map(len, rows)) - {len(names)}
    if counts:
        raise ValueError(f"{min(counts)} values for the columns {', '.join(names)}")
    return json.dumps([dict(zip(names, row)) for row in rows])
