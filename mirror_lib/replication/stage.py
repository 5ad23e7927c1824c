"""Runs one Spark stage of lane tasks: no shuffle, one action, one JSON report from each task."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Iterable, Iterator, List, Sequence, Tuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from mirror_lib.errors import ClusterError
from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskPlan, TaskReport, from_text, to_text
from mirror_lib.replication.report_channel import ReportServer
from mirror_lib.replication.tail import Tail
from mirror_lib.replication.warm_up import forget_archives
from mirror_lib.spark.errors import stage_error
from mirror_lib.spark.jobs import Shipped, shipped

REPORT = "report"
# Without a limit of executors there is no limit of slots.
MANY = 2**31 - 1


def listening(spark: SparkSession, flow: str, tail: Tail, port: int) -> ReportServer:
    """A server at a port of the driver, for the cycle reports of a stage that tails. Raises `ClusterError`."""
    # Spark puts an IPv6 address in brackets.
    host = str(spark.conf.get("spark.driver.host")).strip("[]")
    bind_to = str(spark.conf.get("spark.driver.bindAddress", host)).strip("[]")
    try:
        return ReportServer(bind_to, host, tail.cycle_seconds, tail.batch_seconds, port)
    except OSError as error:
        # The name may not resolve for a while, or there are too many open files: the next start may succeed.
        hint = "see report.port, spark.driver.bindAddress and spark.driver.host"
        raise ClusterError(f"{flow}: no port of {bind_to} for reports can be opened: {error}", hint) from error


def task_slots(spark: SparkSession) -> int:
    """How many tasks Spark can run at once now. `spark.default.parallelism` gives that only if it is not set."""
    context = spark.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def most_slots(spark: SparkSession) -> int:
    """How many tasks Spark may later run at once: with dynamic allocation the slots of the maximum number of executors,
    else `task_slots`."""
    conf = spark.sparkContext.getConf()
    now = task_slots(spark)
    if str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() != "true":
        return now
    executors = int(str(conf.get("spark.dynamicAllocation.maxExecutors", str(MANY))))
    cores = int(str(conf.get("spark.executor.cores", "1"))) // max(1, int(str(conf.get("spark.task.cpus", "1"))))
    return max(now, min(MANY, executors * max(1, cores)))


def run_tasks(spark: SparkSession, plans: Sequence[TaskPlan]) -> List[TaskReport]:
    """Run every plan as a Spark task, in parallel as the cluster's cores allow. Raises `ClusterError` with the task's
    message if one keeps failing, and `SparkEndedError`."""
    if not plans:
        return []
    # Row i of the range is plan i. A plan travels with its task, so executors never need the driver's state.
    first = plans[0]  # these fields are the same in all plans
    secret = {name: getattr(first, name) for name in ("source_options", "target_options", "report_to")}
    bare = tuple(replace(plan, source_options={}, target_options={}, report_to=None) for plan in plans)
    try:
        with shipped(spark, bare, secret) as held:
            rows = spark.range(0, len(plans), 1, len(plans)).mapInArrow(_copier(held), f"{REPORT} string").collect()
    except Exception as error:
        raise stage_error(plans[0].flow, spark, error) from error
    return [from_text(row[REPORT]) for row in rows]


def _copier(plans: Shipped[Tuple[TaskPlan, ...]]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for batch in batches:
            for index in batch.column(0).to_pylist():
                report = to_text(copy_lanes(replace(plans.value[index], **plans.secret), attempt))
                yield pa.RecordBatch.from_arrays([pa.array([report], pa.string())], names=[REPORT])
        forget_archives()

    return copy
