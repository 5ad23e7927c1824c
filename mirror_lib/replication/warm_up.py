"""Starts Python workers before the first cycle and imports what a lane needs."""

from __future__ import annotations

import logging
import sys
from typing import Iterable, Iterator
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import SparkSession

from mirror_lib.replication import copier
from mirror_lib.spark.jobs import named
from mirror_lib.threads import BackgroundCall

log = logging.getLogger(__name__)


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

    Spark keeps the workers for later stages. An obstacle to this stage also blocks the first cycle, which reports it.
    """
    count = min(tasks, spark.sparkContext.defaultParallelism)

    def warm() -> None:
        with named(spark, "warm-up"):
            spark.range(0, count, 1, count).mapInArrow(_nothing, "id bigint").collect()

    BackgroundCall("warm-up", warm)


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # A worker that finds this function has imported this module, and with it the copier.
    log.debug("%s is imported", copier.__name__)
    forget_archives()
    yield from (batch.slice(0, 0) for batch in batches)
