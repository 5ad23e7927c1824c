"""Explains Spark's exceptions: whether the Spark application itself has ended, and which error the flow has."""

from __future__ import annotations

import logging
from typing import Any, Callable, Optional, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from mirror_lib.errors import ClusterError, MirrorError, SparkEndedError, cause_of

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


def spark_ended(what: str, spark: Optional[SparkSession] = None) -> Optional[SparkEndedError]:
    """The error of `what` if Java is gone, or the context of `spark` in it (by default the running one); else
    `None`."""
    context: Any = SparkContext._active_spark_context if spark is None else spark.sparkContext
    if context is None or _is_alive(context):
        return None
    advice = "check whether it was stopped, or the driver's Java ran out of memory"
    return SparkEndedError(f"{what}: Spark has ended", advice)


def memory_hint(said: str, then: str = "the next run resumes here") -> Optional[str]:
    """A hint if Java ran out of memory, followed by `then`; `None` for any other error."""
    if "OutOfMemoryError" not in said:
        return None
    return f"give the driver more memory: `--driver-memory 2g`, where Spark's default is 1g; {then}"


def is_sparks(error: BaseException) -> bool:
    """Whether Spark or Py4J raised it, by the module's name: the classes have moved between versions."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def asked_again(ask: Callable[[], Answer]) -> Answer:
    """The answer of a call to Java, repeated once if this thread's connection to Java broke: Java itself may still be
    running."""
    try:
        return ask()
    except Py4JJavaError:
        raise
    except Py4JError as error:
        log.warning("Java did not answer: %s; trying again", cause_of(error))
        return ask()


def stage_error(flow: str, spark: SparkSession, error: Exception) -> MirrorError:
    """Why a stage of `flow` failed for good, with the message of the failed task, which may name the flow already."""
    gone = spark_ended(flow, spark)
    if gone is not None:
        return gone
    said = cause_of(error)
    named = said if said.startswith(f"{flow}: ") else f"{flow}: {said}"
    return ClusterError(named, memory_hint(said) or "the executors' logs have the trace", code="MIR-503")


def _is_alive(context: Any) -> bool:
    java = context._jsc  # None once Python has stopped it
    try:
        return java is not None and not java.sc().isStopped()
    except Py4JJavaError:
        return True  # the context answers
    except (Py4JError, OSError):
        return False
