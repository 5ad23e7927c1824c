"""Deletes folders under `state:`, on any file system that Spark can write. Spark has no public call for it."""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import Any, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.databricks import on_databricks
from mirror_lib.errors import cause_of
from mirror_lib.spark.errors import spark_ended

log = logging.getLogger(__name__)


def hadoop_folder(spark: SparkSession, path: str) -> Tuple[Any, Any]:
    """Hadoop's `Path` of the folder, and the `FileSystem` that it is on. Raises what Hadoop raises."""
    jvm: Any = spark._jvm
    jsc: Any = spark._jsc
    folder = jvm.org.apache.hadoop.fs.Path(path)
    return folder, folder.getFileSystem(jsc.hadoopConfiguration())


def drop_folder(spark: SparkSession, path: str) -> None:
    """Delete the folder with its content, if it exists. A folder that cannot be deleted costs space only: a warning
    names it."""
    try:
        if on_databricks(os.environ):
            # The runtime's own, which has the credentials of Unity Catalog. Hadoop's FileSystem has not.
            import_module("pyspark.dbutils").DBUtils(spark).fs.rm(path, True)
        else:
            folder, files = hadoop_folder(spark, path)
            files.delete(folder, True)
    except Exception as error:
        if spark_ended(path, spark) is None:
            log.warning("could not delete the folder %s: %s. It holds no data; delete it", path, cause_of(error))
