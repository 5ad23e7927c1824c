"""Lists, reads, moves and deletes files under `state:` on any file system that Spark can write, through Hadoop.

Spark has no public call that lists, moves or deletes a folder, or that shows whether executors and driver see the same
files.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

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


def read_file(spark: SparkSession, path: str, *, checked: bool = True) -> str:
    """The text of a small UTF-8 file. The driver reads it without a Spark job, so it waits for no task slot.

    `checked`: compare with Hadoop's checksum file, which only local disks have. Raises what Hadoop raises."""
    file, files = hadoop_folder(spark, path)
    if not checked:
        files = files.getRawFileSystem()
    jvm: Any = spark._jvm
    stream = files.open(file)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


@dataclass(frozen=True)
class FileFacts:
    """A file in a folder: size in bytes, and modification time (Unix seconds)."""

    nbytes: int
    modified: float


def names_in(spark: SparkSession, path: str) -> List[str]:
    """The names in a folder; none if it does not exist. Raises what Hadoop raises.

    Faster than `listed`, because it does not read the status of each file on a local disk."""
    folder, files = hadoop_folder(spark, path)
    if not files.exists(folder):
        return []
    hadoop: Any = spark._jvm
    statuses = files.listStatus(folder)
    text = str(hadoop.scala.runtime.ScalaRunTime.stringOf(hadoop.org.apache.hadoop.fs.FileUtil.stat2Paths(statuses)))
    found = [each.rpartition("/")[2] for each in text[len("Array(") : -1].split(", ") if each]
    return found if len(found) == len(statuses) else [str(each.getPath().getName()) for each in statuses]


def listed(spark: SparkSession, path: str) -> Optional[Mapping[str, Optional[FileFacts]]]:
    """The content of the folder by name, `None` for a subfolder. Returns `None` if the folder does not exist.

    Raises what Hadoop raises."""
    folder, files = hadoop_folder(spark, path)
    if not files.exists(folder):
        return None
    jvm: Any = spark._jvm
    statuses = files.listStatus(folder)
    # One call for all files: a log has thousands of them, and each call to Java is slow.
    found = _STATUS.findall(str(jvm.scala.runtime.ScalaRunTime.stringOf(statuses)))
    if len(found) != len(statuses):
        found = [
            _STATUS.findall(
                f"{{path={each.getPath()}; isDirectory={str(each.isDirectory()).lower()}; "
                f"length={each.getLen()}; modification_time={each.getModificationTime()};"
            )[0]
            for each in statuses
        ]
    return {
        name: None if is_folder == "true" else FileFacts(int(nbytes), int(modified) / 1000)
        for name, is_folder, nbytes, modified in found
    }


_STATUS = re.compile(
    r"\{path=[^;]*?([^/;]+)/?; isDirectory=(true|false);(?: length=(\d+);)?[^{]*?modification_time=(\d+);"
)


def is_absent(spark: SparkSession, path: str) -> bool:
    """Whether the folder does not exist. False if Hadoop cannot tell, as with Unity Catalog."""
    try:
        folder, files = hadoop_folder(spark, path)
        return not files.exists(folder)
    except Exception:
        return False


def texts(spark: SparkSession, paths: Sequence[str]) -> Dict[str, FileText]:
    """The texts of small files, read in parallel. Raises what Hadoop raises if the storage fails."""
    if not paths:
        return {}
    with ThreadPoolExecutor(min(READERS, len(paths))) as pool:
        return dict(zip(paths, pool.map(lambda path: _text(spark, path), paths)))


READERS = 8


@dataclass(frozen=True)
class FileText:
    """The text of a file; `None` if it does not exist. `broken`: it does not match its checksum file."""

    text: Optional[str]
    error: str = ""
    broken: bool = False


def _text(spark: SparkSession, path: str) -> FileText:
    try:
        return FileText(read_file(spark, path))
    except Exception as error:
        said = cause_of(error)
        file, files = hadoop_folder(spark, path)
        if not files.exists(file):
            return FileText(None, said)
        # Java reports "not found" also for a file without read permission.
        if "ChecksumException" not in said:
            raise
    # Read again without the checksum, so that the caller can find the damage in the text.
    return FileText(read_file(spark, path, checked=False), said, broken=True)


def ends_with(spark: SparkSession, path: str, end: bytes) -> bool:
    """Whether a file ends with `end`. False if it does not match its checksum file. Raises what Hadoop raises."""
    file, files = hadoop_folder(spark, path)
    jvm: Any = spark._jvm
    nbytes = files.getFileStatus(file).getLen()
    if nbytes < len(end):
        return False
    stream = files.open(file)
    try:
        stream.seek(nbytes - len(end))
        return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)) == end
    except Exception as error:
        if "ChecksumException" in cause_of(error):
            return False
        raise
    finally:
        stream.close()


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


# A checkpoint in one file. Checkpoints of several parts have other names and are ignored.
CHECKPOINT = ".checkpoint.parquet"
SUFFIXES = (".json", ".crc", CHECKPOINT)


class CommitLog:
    """Deletes old commits of the Delta log of the table in folder `path`, if the operator wants fewer than Delta keeps.

    Delta's retention removes whole days, and every commit lists all files of the log. Each call raises what Hadoop
    raises."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._paths = jvm.org.apache.hadoop.fs
        self._folder, self._files = hadoop_folder(spark, f"{path}/_delta_log")

    def checkpoints(self) -> Sequence[int]:
        """The versions that have a checkpoint."""
        found = self._files.listStatus(self._folder, self._paths.GlobFilter(f"*{CHECKPOINT}"))
        names = [status.getPath().getName()[: -len(CHECKPOINT)] for status in found]
        return [int(name) for name in names if name.isdigit()]

    def delete(self, versions: range) -> None:
        """Delete these commits, their checkpoints included."""
        # The oldest first: after a kill at any point, the log only starts later and has no gap.
        for version in versions:
            for suffix in SUFFIXES:
                self._files.delete(self._paths.Path(self._folder, f"{version:020d}{suffix}"), False)


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
