"""Examines the files of a state table, and reports the damaged ones.

Another process may commit meanwhile, and a listing is no snapshot. So a fault counts only if two examinations find it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import Dict, List, Optional, Sequence, Tuple
from urllib.parse import unquote

from pyspark.sql import SparkSession

from mirror_lib.errors import cause_of
from mirror_lib.ledger.delta_log import (
    DAMAGED_CHECKPOINT,
    LOG,
    UNREADABLE,
    Checksum,
    Commit,
    DataFile,
    Fault,
    LogFiles,
    checksum_file,
    commit_file,
    data_faults,
    in_doubt,
    live_files,
    log_files,
    lost_lines,
    parsed_checksum,
    parsed_commit,
    without_metadata,
)
from mirror_lib.ledger.state_files import FileText, ends_with, listed, names_in, texts

log = logging.getLogger(__name__)

# Between the two examinations.
AGAIN_SECONDS = 1.0
OLDEST_READER = 1
# The last bytes of each Parquet file.
PARQUET = b"PAR1"


@dataclass(frozen=True)
class Examined:
    """The result of an examination. `protocol` is the minimum reader and writer version, if a commit that was read has
    one, `version` the table's last, -1 for none. `failed` is the reason if the files could not be examined, else empty.
    """

    faults: Tuple[Fault, ...] = ()
    version: int = -1
    protocol: Optional[Tuple[int, int]] = None
    failed: str = ""

    @property
    def needs_newer_delta(self) -> bool:
        """Whether the table needs a higher reader version than the mirror's tables have."""
        return self.protocol is not None and self.protocol[0] > OLDEST_READER


def has_log(spark: SparkSession, path: str) -> bool:
    """Whether the folder has a Delta log with at least one file. Raises what Hadoop raises."""
    return any(name[0] not in "._" for name in names_in(spark, f"{path}/{LOG}"))


def examined(spark: SparkSession, path: str, *, data: bool) -> Examined:
    """Examine the table in folder `path`; with `data` also its data files.

    If Hadoop's file system cannot be used, as with Unity Catalog, or does not answer, the result has no faults."""
    try:
        found = _examined(spark, path, data)
        if found.faults:
            time.sleep(AGAIN_SECONDS)
            again = _examined(spark, path, data)
            return replace(again, faults=tuple(each for each in again.faults if each in found.faults))
        return found
    except Exception as error:
        log.info("%s: its files cannot be examined for damage: %s", path, cause_of(error))
        return Examined(failed=cause_of(error))


def _examined(spark: SparkSession, path: str, data: bool) -> Examined:
    files = log_files(names_in(spark, f"{path}/{LOG}"))
    if files.last < 0 and not files.faults:
        return Examined()
    commits, faults = _commits(spark, path, files)
    faults = [*files.faults, *faults, *_checkpoint_faults(spark, path, files)]
    if not faults:
        faults += lost_lines(commits, _checksums(spark, path, files, in_doubt(commits)))
        missing = without_metadata(files, commits)
        faults += [] if missing is None else [missing]
    protocols = [each.protocol for each in commits if each.protocol is not None]
    protocol = protocols[-1] if protocols else None
    if faults or not data:
        return Examined(tuple(faults), files.last, protocol)
    live = _live(spark, path, files, commits)
    folder = listed(spark, path) or {}
    there = {name: facts.nbytes for name, facts in folder.items() if facts is not None}
    return Examined(tuple(data_faults(live, there)), files.last, protocol)


def _commits(spark: SparkSession, path: str, files: LogFiles) -> Tuple[List[Commit], List[Fault]]:
    found = texts(spark, [f"{path}/{commit_file(version)}" for version in files.commits])
    commits: List[Commit] = []
    faults: List[Fault] = []
    for version in files.commits:
        commit, fault = _parsed(version, found[f"{path}/{commit_file(version)}"])
        commits += [] if commit is None else [commit]
        faults += [] if fault is None else [fault]
    return commits, faults


def _parsed(version: int, read: FileText) -> Tuple[Optional[Commit], Optional[Fault]]:
    if read.text is None:
        return None, Fault(commit_file(version), UNREADABLE, f"it cannot be read: {read.error}")
    commit, fault = parsed_commit(version, read.text)
    if fault is None and read.broken:
        return None, Fault(commit_file(version), UNREADABLE, f"its bytes do not match its checksum: {read.error}")
    return commit, fault


def _checkpoint_faults(spark: SparkSession, path: str, files: LogFiles) -> List[Fault]:
    parquet = [file for file in files.checkpoint if file.endswith(".parquet")]
    cut = [file for file in parquet if not ends_with(spark, f"{path}/{file}", PARQUET)]
    return [Fault(file, DAMAGED_CHECKPOINT, "it is no whole Parquet file") for file in cut]


def _checksums(spark: SparkSession, path: str, files: LogFiles, doubted: Sequence[int]) -> Dict[int, Checksum]:
    wanted = {each for version in doubted for each in (version - 1, version)} & set(files.checksums)
    found = texts(spark, [f"{path}/{checksum_file(version)}" for version in sorted(wanted)])
    read = {version: found[f"{path}/{checksum_file(version)}"].text for version in wanted}
    parsed = {version: parsed_checksum(text) for version, text in read.items() if text is not None}
    return {version: each for version, each in parsed.items() if each is not None}


def _live(spark: SparkSession, path: str, files: LogFiles, commits: Sequence[Commit]) -> Dict[str, int]:
    """The data files in the table's own folder, with their sizes in bytes."""
    base: List[DataFile] = []
    if files.checkpoint and all(each.endswith(".parquet") for each in files.checkpoint):
        rows = spark.read.parquet(*(f"{path}/{each}" for each in files.checkpoint)).where("add is not null")
        base = [DataFile(row[0], row[1]) for row in rows.select("add.path", "add.size").collect()]
    live = live_files(base, commits)
    return {unquote(name): nbytes for name, nbytes in live.items() if "/" not in name}
