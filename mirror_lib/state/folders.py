"""A folder of tables or checkpoints as Hadoop sees it, wherever it lies."""

from __future__ import annotations

import logging
from typing import Any, Tuple

from pyspark.sql import SparkSession

from mirror_lib.errors import cause_of

log = logging.getLogger(__name__)


def hadoop_folder(spark: SparkSession, path: str) -> Tuple[Any, Any]:
    """Hadoop's `Path` of the folder, and the `FileSystem` that it is on. Raises what Hadoop raises."""
    jvm: Any = spark._jvm
    jsc: Any = spark._jsc
    folder = jvm.org.apache.hadoop.fs.Path(path)
    return folder, folder.getFileSystem(jsc.hadoopConfiguration())


def drop_folder(spark: SparkSession, path: str) -> None:
    """Delete it with all that is in it, where it is there. A folder too many is no reason to fail: it is told."""
    try:
        folder, files = hadoop_folder(spark, path)
        files.delete(folder, True)
    except Exception as error:
        log.info("the folder %s was left behind: %s", path, cause_of(error))
