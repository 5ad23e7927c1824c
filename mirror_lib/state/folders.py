"""A folder of tables or checkpoints as Hadoop sees it, wherever it lies."""

from __future__ import annotations

from typing import Any, Tuple

from pyspark.sql import SparkSession


def hadoop_folder(spark: SparkSession, path: str) -> Tuple[Any, Any]:
    """Hadoop's `Path` of the folder, and the `FileSystem` that it is on. Raises what Hadoop raises."""
    jvm: Any = spark._jvm
    jsc: Any = spark._jsc
    folder = jvm.org.apache.hadoop.fs.Path(path)
    return folder, folder.getFileSystem(jsc.hadoopConfiguration())
