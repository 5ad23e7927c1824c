"""Names for Spark's jobs in its UI, its event log and its History Server: `A->B: copy, cycle 7`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from pyspark.sql import SparkSession

from mirror_lib.spark.errors import spark_ended

DESCRIPTION = "spark.job.description"
# Spark describes the jobs of a streaming query too, so a description alone does not say that it is ours.
_OURS = "mirror.job.description"


@contextmanager
def named(spark: SparkSession, name: str, *, again: bool = True) -> Iterator[None]:
    """The jobs that this thread starts in the block are described by `name`; not `again` where they have one of ours
    already. Their stages keep the names that PySpark gives them, such as `collect at runs.py:72`."""
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
        # A context that has ended has no properties, and its end is for others to report.
        if spark_ended(name, spark) is None:
            for each, value in before:
                context.setLocalProperty(each, value)  # type: ignore[arg-type]  # null removes it
