"""What kept Spark from reading both logs to the end, as an error that says what helps."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from pyspark.sql import SparkSession

from mirror_lib.errors import ClusterError, MirrorError, cause_of
from mirror_lib.spark_end import memory_hint, spark_ended

_EXPIRED = "if records expired meanwhile, verify again; a timestamp beyond the year 294247 cannot be read by Spark"


@contextmanager
def read_to_the_end(flow: str, spark: SparkSession) -> Iterator[None]:
    """Turn whatever Spark raises inside into a ClusterError of `flow`, or a SparkEndedError."""
    try:
        yield
    except MirrorError:
        raise
    except Exception as error:
        raise spark_ended(flow, spark) or unread(flow, error) from error


def unread(flow: str, error: Exception) -> ClusterError:
    """Why a Spark that lives did not read both logs to the end."""
    said = cause_of(error)
    hint = memory_hint(said, "then verify again") or _EXPIRED
    return ClusterError(f"{flow}: Spark could not read both logs to the end: {said}", hint)
