"""Whether files that executors write under `state` are there for the driver, as Delta's tables need it."""

from __future__ import annotations

import uuid
from typing import Optional

from pyspark.sql import SparkSession

from mirror_lib.errors import cause_of
from mirror_lib.ledger.folders import drop_folder, hadoop_folder

TASKS = 2


def why_not_writable(spark: SparkSession, state: str) -> Optional[str]:
    """`None` where `TASKS` tasks can write a file each that the driver then reads; else the reason. Leaves nothing."""
    folder = f"{state.rstrip('/')}/.preflight-{uuid.uuid4().hex}"
    try:
        if _is_lost(spark, state):
            return "it is relative, and the folder that it counts from ends with the application"
        spark.range(0, TASKS, 1, TASKS).write.parquet(folder)
        seen = spark.read.schema("id bigint").parquet(folder).count()
        return None if seen == TASKS else "the driver does not see the files there; it is a disk of one machine"
    except Exception as error:
        return cause_of(error)
    finally:
        drop_folder(spark, folder)


def _is_lost(spark: SparkSession, state: str) -> bool:
    """Whether a folder of the local disk is in the working folder of a driver that the cluster runs."""
    if spark.conf.get("spark.submit.deployMode", "client") != "cluster" or ":" in state or state.startswith("/"):
        return False
    _, files = hadoop_folder(spark, state)
    return bool(files.getScheme() == "file")
