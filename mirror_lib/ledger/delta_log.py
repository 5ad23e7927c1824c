"""Decides from the files of a Delta log whether the log is complete. Pure.

Delta itself detects a gap, and a line that is not JSON. It does not detect a commit that lost whole lines, or the loss
of the newest commit. Two records of Delta show such a loss. `commitInfo`, the first line of a commit, counts the files
that the commit adds and removes. The version checksum (`N.crc`) counts the files of the table. A commit without both
cannot be checked, nor can the loss of the newest commit together with its checksum.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)")
# By operation: the metric of `commitInfo.operationMetrics` and the action that the commit has at least as often.
_COUNTS: Mapping[str, Sequence[Tuple[str, str]]] = {
    "WRITE": (("numFiles", "add"),),
    "MERGE": (("numTargetFilesAdded", "add"), ("numTargetFilesRemoved", "remove")),
    "DELETE": (("numAddedFiles", "add"), ("numRemovedFiles", "remove")),
    "UPDATE": (("numAddedFiles", "add"), ("numRemovedFiles", "remove")),
}

# Kinds of faults. The words are part of the output of `mirror state check --json`.
MISSING_COMMIT = "commit missing"
CUT = "cut off"
LOST_LINES = "lines lost"
NOT_A_COMMIT = "not a commit of Delta"
UNREADABLE = "unreadable"
DAMAGED_CHECKPOINT = "checkpoint damaged"
NO_METADATA = "no metadata"
MISSING_DATA = "data file missing"
CUT_DATA = "data file of another size"


@dataclass(frozen=True)
class Fault:
    """A fault in one file of a table. `file` is relative to the table's folder, `detail` is a clause about the file."""

    file: str
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.file}: {self.detail}"


@dataclass(frozen=True)
class LogFiles:
    """The files that Delta reads: the parts of the newest complete checkpoint (`base`), and the commits after it.

    `base` is the checkpoint's version, -1 without one. `faults` has the missing commits.
    """

    base: int
    checkpoint: Tuple[str, ...]
    commits: Tuple[int, ...]
    checksums: Tuple[int, ...]
    faults: Tuple[Fault, ...]

    @property
    def last(self) -> int:
        """The newest version; -1 for an empty log."""
        return max((self.base, *self.commits))


def commit_file(version: int) -> str:
    """The file of a commit, relative to the table's folder."""
    return f"{LOG}/{version:020d}.json"


def checksum_file(version: int) -> str:
    """The file of Delta's version checksum, relative to the table's folder."""
    return f"{LOG}/{version:020d}.crc"


def log_files(names: Sequence[str]) -> LogFiles:
    """The files that Delta reads from a log folder with these file names."""
    commits = _versions(_COMMIT, names)
    checksums = _versions(_CHECKSUM, names)
    base, parts = _newest_checkpoint(names)
    read = tuple(version for version in commits if version > base)
    # Delta writes a checksum after its commit, so a checksum proves that its commit existed.
    last = max([base, *read, *checksums])
    missing = sorted(set(range(base + 1, last + 1)) - set(read))
    faults = [Fault(commit_file(version), MISSING_COMMIT, "this commit is missing") for version in missing]
    return LogFiles(base, parts, read, tuple(each for each in checksums if each >= base), tuple(faults))


def _versions(pattern: re.Pattern[str], names: Sequence[str]) -> List[int]:
    matches = map(pattern.fullmatch, names)
    return sorted(int(match.group(1)) for match in matches if match is not None)


def _newest_checkpoint(names: Sequence[str]) -> Tuple[int, Tuple[str, ...]]:
    found: Dict[int, Tuple[str, ...]] = {}
    parts: Dict[Tuple[int, int], List[str]] = {}
    for name in sorted(names):
        match = _CHECKPOINT.fullmatch(name)
        if match is None:
            continue
        version, number, count = match.groups()
        if number is None:
            found[int(version)] = (f"{LOG}/{name}",)
        else:
            parts.setdefault((int(version), int(count)), []).append(f"{LOG}/{name}")
    for (version, count), files in parts.items():
        if len(files) == count:
            found.setdefault(version, tuple(files))
    base = max(found, default=-1)
    return base, found.get(base, ())


@dataclass(frozen=True)
class DataFile:
    """A data file as recorded in the log: name relative to the table's folder, size in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class Commit:
    """A parsed commit.

    `lost` has the actions with missing lines by the commit's own count: `None` without a count, empty if no line is
    missing. `counts_exactly`: the count is reliable without a checksum. `protocol` is the minimum reader and writer
    version, if the commit has one.
    """

    version: int
    added: Tuple[DataFile, ...] = ()
    removed: Tuple[str, ...] = ()
    lost: Optional[Tuple[str, ...]] = None
    counts_exactly: bool = False
    protocol: Optional[Tuple[int, int]] = None
    has_metadata: bool = False

    @property
    def in_doubt(self) -> bool:
        """Whether the commit's own count does not prove that it is complete."""
        return self.lost is None or bool(self.lost)


@dataclass(frozen=True)
class Checksum:
    """The number of files of the table at a version."""

    files: int


def parsed_commit(version: int, text: str) -> Tuple[Optional[Commit], Optional[Fault]]:
    """The commit, or the fault of its file."""
    file, lines = commit_file(version), text.split("\n")
    actions: List[Dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            action = json.loads(line)
        except ValueError:
            if number == len(lines) and line.startswith("{"):
                return None, Fault(file, CUT, f"it is cut off within line {number}")
            return None, Fault(file, NOT_A_COMMIT, f"line {number} is no JSON")
        if not isinstance(action, dict) or len(action) != 1:
            return None, Fault(file, NOT_A_COMMIT, f"line {number} is no action of Delta")
        actions.append(action)
    if not actions:
        return None, Fault(file, CUT, "it is empty")
    try:
        return _commit(version, actions), None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None, Fault(file, NOT_A_COMMIT, "an entry lacks what Delta writes there")


def _commit(version: int, actions: Sequence[Dict[str, Any]]) -> Commit:
    by_kind: Dict[str, List[Any]] = {}
    for action in actions:
        ((kind, content),) = action.items()
        by_kind.setdefault(kind, []).append(content)
    protocol = by_kind.get("protocol", [None])[-1]
    info = by_kind.get("commitInfo", [{}])[0]
    return Commit(
        version,
        tuple(DataFile(each["path"], int(each["size"])) for each in by_kind.get("add", ())),
        tuple(each["path"] for each in by_kind.get("remove", ())),
        _lost(info, by_kind),
        info.get("operation") != "WRITE",
        None if protocol is None else (int(protocol["minReaderVersion"]), int(protocol["minWriterVersion"])),
        "metaData" in by_kind,
    )


def _lost(info: Mapping[str, Any], by_kind: Mapping[str, Sequence[Any]]) -> Optional[Tuple[str, ...]]:
    metrics, counts = info.get("operationMetrics") or {}, _COUNTS.get(info.get("operation", ""), ())
    if info.get("operation") == "WRITE" and metrics.get("numOutputRows") == "0":
        return ()  # Spark counts its file without rows, but Delta excludes the file from the commit
    counted = [(kind, int(metrics[name])) for name, kind in counts if name in metrics]
    if not counted:
        return None
    return tuple(kind for kind, count in counted if len(by_kind.get(kind, ())) < count)


def parsed_checksum(text: str) -> Optional[Checksum]:
    """The checksum; `None` if the text is no checksum, which Delta ignores too."""
    try:
        found = json.loads(text)
        return Checksum(int(found["numFiles"]))
    except (KeyError, TypeError, ValueError):
        return None


def in_doubt(commits: Sequence[Commit]) -> List[int]:
    """The versions that need their checksum and the previous version's; the other commits are complete."""
    return [each.version for each in commits if each.in_doubt]


def lost_lines(commits: Sequence[Commit], checksums: Mapping[int, Checksum]) -> List[Fault]:
    """The commits that lost lines.

    If the checksums before and after a commit exist, they decide, unless the commit's own count is exact. A commit
    without a count may add files that the table already has."""
    found = []
    for each in (each for each in commits if each.in_doubt):
        before = Checksum(0) if each.version == 0 else checksums.get(each.version - 1)
        after = checksums.get(each.version)
        by_itself = each.counts_exactly and bool(each.lost)
        if before is not None and after is not None and not by_itself:
            net, grown = len(each.added) - len(each.removed), after.files - before.files
            whole = net == grown or (each.lost is None and net > grown)
            detail = "it has other files than its checksum counts, so it lost lines"
        else:
            whole = not each.lost
            detail = f"it has fewer lines `{'` and `'.join(each.lost or ())}` than it counts"
        if not whole:
            found.append(Fault(commit_file(each.version), LOST_LINES, detail))
    return found


def without_metadata(log: LogFiles, commits: Sequence[Commit]) -> Optional[Fault]:
    """The fault of a first commit without metadata or protocol, in a log without a checkpoint: it lost lines."""
    first = next((each for each in commits if each.version == 0), None)
    if log.base >= 0 or first is None or (first.has_metadata and first.protocol is not None):
        return None
    return Fault(commit_file(0), NO_METADATA, "it lacks the columns or the protocol of the table, so it lost lines")


def live_files(base: Sequence[DataFile], commits: Sequence[Commit]) -> Dict[str, int]:
    """The files of the newest version with their sizes in bytes. `base` are the files of the checkpoint."""
    found = {each.name: each.size for each in base}
    for commit in commits:
        for name in commit.removed:
            found.pop(name, None)
        found.update({each.name: each.size for each in commit.added})
    return found


def data_faults(live: Mapping[str, int], present: Mapping[str, int]) -> List[Fault]:
    """The data files of the log that the folder lacks or has with another size."""
    found = []
    for name, nbytes in sorted(live.items()):
        if name not in present:
            found.append(Fault(name, MISSING_DATA, "this file with rows is missing"))
        elif present[name] != nbytes:
            found.append(Fault(name, CUT_DATA, f"it has {present[name]} bytes, and the log {nbytes}"))
    return found
