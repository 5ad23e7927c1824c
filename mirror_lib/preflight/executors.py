"""Runs one small Spark job on the executors before a run writes anything; a finding ends the run.

Of a local master only the state folder is checked: its executor is the driver's own process and machine.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
from itertools import count
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.client_options import on_databricks
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import MirrorError, RefusedError, cause_of
from mirror_lib.kafka.reach import Access, log_in, unreachable
from mirror_lib.ledger.state_files import why_driver_cannot_write, why_not_writable
from mirror_lib.ledger.table_reader import unwritable
from mirror_lib.preflight.probe import examine
from mirror_lib.spark.errors import spark_ended
from mirror_lib.spark.jobs import named, shipped
from mirror_lib.threads import repeated

log = logging.getLogger(__name__)

MOST_TASKS = 64
NOTICE_SECONDS = 30.0
UNCHANGED = "Nothing was copied, and no topic was created"
PYTHON_HINT = (
    "set PYSPARK_PYTHON to a Python that every executor has with the same packages, or ship one: "
    "--archives mirror-env.tar.gz#env"
)
STATE_HINT = "take a state folder that the driver and every executor can write, such as hdfs://, abfss:// or s3a://"
SHIPPED_HINT = "start the job with spark-submit.sh, which ships mirror_lib, or install this package on every executor"
NETWORK_HINT = "open the network between the executors and these listeners, or correct the cluster's properties"


def check_executors(
    spark: SparkSession, flows: Sequence[ReplicationFlow], state: str, notify: Callable[[str], None]
) -> List[RefusedError]:
    """Why a run of `flows` cannot work on these executors, one error for each reason; empty where it can.

    Waits for a first executor, and gives `notify` a line each half minute of it. Raises `SparkEndedError`.
    """
    if not on_cluster(str(spark.sparkContext.master)):
        # Hadoop's FileSystem has no credentials of Unity Catalog.
        reason = None if on_databricks(os.environ) else why_driver_cannot_write(spark, state)
        return [] if reason is None else [unwritable(state, reason)]
    times = count(1)

    def remind() -> None:
        waited = next(times) * NOTICE_SECONDS
        notify(f"the executors have not answered for {waited:.0f} s; waiting for Spark to give the run executors")

    with repeated(NOTICE_SECONDS, "preflight", remind), named(spark, "preflight"):
        refused = _python_refusals(spark, flows)
        why = why_not_writable(spark, state)
    if why is not None:
        what = f"The executors cannot write to the state folder {state}: {why}"
        refused.append(_refused(what, STATE_HINT, "MIR-309"))
    return refused


def on_cluster(master: str) -> bool:
    """Whether executors are processes of their own."""
    return not (master == "local" or master.startswith("local["))


def _python_refusals(spark: SparkSession, flows: Sequence[ReplicationFlow]) -> List[RefusedError]:
    context = spark.sparkContext
    tasks = min(max(sum(flow.tasks_max for flow in flows), context.defaultParallelism, 1), MOST_TASKS)
    try:
        with shipped(spark, pickle.dumps(tuple(_reached(flows)))) as held:
            found = context.parallelize(range(tasks), tasks).mapPartitions(lambda _: examine(held.value)).collect()
    except Exception as error:
        gone = spark_ended("preflight", spark)
        if gone is not None:
            raise gone from error
        return [_python_failure(error)]
    return [_refused(said, NETWORK_HINT, "MIR-308") for said in dict.fromkeys(found)]  # each once, by its first task


def _reached(flows: Sequence[ReplicationFlow]) -> Iterator[Access]:
    """What the driver itself can use now: a cluster or broker that is down is the flow's own affair, which waits."""
    asked: Dict[Tuple[str, str, str], Access] = {}
    for flow in flows:
        for access in (Access(flow.source, "consumer"), Access(flow.target, "producer")):
            asked.setdefault((access.cluster.alias, access.cluster.bootstrap_servers, access.role), access)
    for access in asked.values():
        try:
            advertised = log_in(access)
        except MirrorError as error:
            log.info("the preflight skips a cluster: %s", error)
            continue
        away = {address for address, _ in unreachable(advertised)}
        yield Access(access.cluster, access.role, tuple(each for each in advertised if each not in away))


def _python_failure(error: Exception) -> RefusedError:
    worker = re.search(r"Error from python worker:\s*(\S.*?)\s*PYTHONPATH was:", str(error), re.DOTALL)
    program = re.search(r'Cannot run program ".*', str(error))
    if worker is not None:  # it did not come up, and printed its trace, whose last line is the error
        said = worker.group(1).splitlines()[-1].strip()
    else:  # the innermost cause does not name the program
        said = cause_of(error) if program is None else program.group()
    hint = SHIPPED_HINT if "No module named 'mirror_lib" in said else PYTHON_HINT
    return _refused(f"The executors' Python cannot run a task: {said}", hint, "MIR-307")


def _refused(what: str, hint: str, code: str) -> RefusedError:
    return RefusedError(f"{what}. {UNCHANGED}", hint, code=code)
