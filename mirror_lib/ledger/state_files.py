"""Lists, reads and deletes files under `state:` on any file system that Spark can write, through Hadoop.

Spark has no public call that lists or deletes a folder, or that shows whether executors and driver see the same
files.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from importlib import import_module
from typing import Any, Optional, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.client_options import on_databricks
from mirror_lib.errors import cause_of
from mirror_lib.spark.errors import spark_ended

log = logging.getLogger(__name__)


def hadoop_folder(spark: SparkSession, path: str) -> Tuple[Any, Any]:
    """Hadoop's `Path` of the folder, and the `FileSystem` that it is on. Raises what Hadoop raises."""
    jvm: Any = spark._jvm
    jsc: Any = spark._jsc
    folder = jvm.org.apache.hadoop.fs.Path(path)
    return folder, folder.getFileSystem(jsc.hadoopConfiguration())


def on_local_disk(spark: SparkSession, path: str) -> Optional[str]:
    """The absolute path of a folder on a disk of this machine; `None` for other storage. Raises what Hadoop raises."""
    folder, files = hadoop_folder(spark, path)
    return str(files.makeQualified(folder).toUri().getPath()) if files.getScheme() == "file" else None


def read_file(spark: SparkSession, path: str) -> str:
    """The text of a small UTF-8 file. The driver reads it without a Spark job, so it waits for no task slot. Raises
    what Hadoop raises."""
    file, files = hadoop_folder(spark, path)
    jvm: Any = spark._jvm
    stream = files.open(file)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def newest_version(spark: SparkSession, path: str) -> Optional[int]:
    """The version of the Delta table in a folder, by the names in its log; -1 without a commit. `None` if Hadoop cannot
    list the log, as with Unity Catalog."""
    try:
        folder, files = hadoop_folder(spark, f"{path}/_delta_log")
        if not files.exists(folder):
            return -1
        jvm: Any = spark._jvm
        # One call for all files: a log has thousands of them, and each call to Java is slow.
        paths = jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(files.listStatus(folder))
        names = str(jvm.scala.runtime.ScalaRunTime.stringOf(paths))
        return max(map(int, re.findall(r"/(\d{20})\.json[,)]", names)), default=-1)
    except Exception as error:
        log.info("%s: its log cannot be listed: %s", path, cause_of(error))
        return None


def is_absent(spark: SparkSession, path: str) -> bool:
    """Whether the folder does not exist. False if Hadoop cannot tell, as with Unity Catalog."""
    try:
        folder, files = hadoop_folder(spark, path)
        return not files.exists(folder)
    except Exception:
        return False


def drop_folder(spark: SparkSession, path: str) -> None:
    """Delete the folder with its content, if it exists. A failure only costs space, so it is logged as a warning."""
    try:
        if on_databricks(os.environ):
            # Databricks' own file system has the credentials of Unity Catalog; Hadoop's FileSystem does not.
            import_module("pyspark.dbutils").DBUtils(spark).fs.rm(path, True)
        else:
            folder, files = hadoop_folder(spark, path)
            files.delete(folder, True)
    except Exception as error:
        if spark_ended(path, spark) is None:
            log.warning("could not delete the folder %s: %s. It holds no data; delete it", path, cause_of(error))


def why_driver_cannot_write(spark: SparkSession, state: str) -> Optional[str]:
    """`None` if the driver can create the folder and a file in it; else the reason. Only the folder remains."""
    try:
        folder, files = hadoop_folder(spark, state)
        files.mkdirs(folder)
        file, _ = hadoop_folder(spark, f"{state.rstrip('/')}/.preflight-{uuid.uuid4().hex}")
        files.create(file).close()
        files.delete(file, False)
    except Exception as error:
        return cause_of(error)
    return None


TASKS = 2


def why_not_writable(spark: SparkSession, state: str) -> Optional[str]:
    """`None` if `TASKS` tasks can each write a file that the driver can read; else the reason. Deletes its files."""
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
    """Whether `state` is a local relative folder in cluster deploy mode: it ends with the application."""
    if spark.conf.get("spark.submit.deployMode", "client") != "cluster" or ":" in state or state.startswith("/"):
        return False
    return on_local_disk(spark, state) is not None
