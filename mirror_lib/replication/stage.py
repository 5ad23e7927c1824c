"""Runs one Spark stage of lane tasks: no shuffle, one action, one report from each task. Starts the workers before."""

from __future__ import annotations

import pickle
import sys
import uuid
from dataclasses import replace
from typing import Any, Callable, Iterable, Iterator, List, Sequence, Tuple
from zipimport import zipimporter

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskPlan, TaskReport
from mirror_lib.spark.errors import stage_error
from mirror_lib.spark.jobs import Shipped, named, shipped
from mirror_lib.threads import BackgroundCall

REPORT_DDL = "report binary"
# The fields of a plan that travel with the function only: a broadcast is stored on disks.
LOGINS = ("source_options", "target_options")
# Without a limit of executors there is no limit of slots.
MANY = 2**31 - 1

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


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


def collected(
    spark: SparkSession,
    flow: str,
    rows: Callable[[], DataFrame],
    plans: Sequence[Any],
    task: Callable[[Shipped[Any]], Task],
) -> List[Any]:
    """The reports of a stage over `rows`, whose tasks run the function that `task` makes of `plans`, and return what
    `reported` gives. The function adds the logins of `Shipped.secret` to a plan: they are the same in all plans.

    Raises `ClusterError` with the task's message if one keeps failing, and `SparkEndedError`.
    """
    secret = {name: getattr(plans[0], name) for name in LOGINS}
    bare = tuple(replace(plan, **{name: {} for name in LOGINS}) for plan in plans)
    try:
        with shipped(spark, bare, secret) as held:
            return [pickle.loads(row.report) for row in rows().mapInArrow(task(held), REPORT_DDL).collect()]
    except Exception as error:
        raise stage_error(flow, spark, error) from error


def run_tasks(spark: SparkSession, plans: Sequence[TaskPlan]) -> List[TaskReport]:
    """Run every plan as a Spark task, in parallel as the cluster's cores allow. Raises the errors of `collected`."""
    if not plans:
        return []
    # Row i of the range is plan i. A plan travels with its task, so executors never need the driver's state.
    count = len(plans)
    return collected(spark, plans[0].flow, lambda: spark.range(0, count, 1, count), plans, _copier)


class CancellableStage(BackgroundCall[List[TaskReport]]):
    """Runs plans as `run_tasks` does, in a thread from construction on. Its `result` raises the errors of `run_tasks`,
    also after `cancel`. `name` describes the job."""

    def __init__(self, spark: SparkSession, plans: Sequence[TaskPlan], name: str) -> None:
        self._spark, self._group = spark, uuid.uuid4().hex

        def run() -> List[TaskReport]:
            spark.sparkContext.setJobGroup(self._group, name, interruptOnCancel=True)
            with named(spark, name):
                return run_tasks(spark, plans)

        super().__init__(name, run)

    def cancel(self) -> None:
        """End the stage soon, without reports. Its Python processes may still append for some seconds: only a fence
        ends that. Call it until the stage has ended: a job that Spark does not know yet is not cancelled."""
        self._spark.sparkContext.cancelJobGroup(self._group)


def _copier(plans: Shipped[Tuple[TaskPlan, ...]]) -> Task:
    def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for batch in batches:
            for index in batch.column(0).to_pylist():
                plan = replace(plans.value[index], **plans.secret)
                yield reported(copy_lanes(plan, attempt))
        forget_archives()

    return copy


def reported(report: object) -> pa.RecordBatch:
    """The row of REPORT_DDL that brings a task's report to the driver."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(report)], pa.binary())], names=["report"])


def forget_archives() -> None:
    """Make the next task of this Python worker start sooner. Imported modules stay.

    At the start of each task Spark invalidates Python's caches of folders. Since Python 3.10 the directory of
    `pyspark.zip` is then read again for each of its packages, which takes a tenth of a second of CPU or more. Forgotten
    archives are opened again for later imports.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)


def warm_workers(spark: SparkSession, tasks: int) -> None:
    """Start a stage that copies nothing, and do not wait for it: `tasks` tasks, at most one for each core.

    Spark keeps the workers for later stages, with what a lane needs imported. An obstacle to this stage also blocks the
    first cycle, which reports it.
    """
    count = min(tasks, spark.sparkContext.defaultParallelism)

    def warm() -> None:
        with named(spark, "warm-up"):
            spark.range(0, count, 1, count).mapInArrow(_nothing, "id bigint").collect()

    BackgroundCall("warm-up", warm)


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    forget_archives()  # a worker that finds this function has imported this module, and with it the copier
    yield from (batch.slice(0, 0) for batch in batches)
