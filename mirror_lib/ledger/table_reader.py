"""Reads the tables of the state folder without Spark and Java, with the package deltalake. Checks whether a local
folder is writable.

Releases only add columns to a table, so this release can also read its own columns from a newer release's table.
"""

from __future__ import annotations

import json
import math
import os
from types import MappingProxyType
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from mirror_lib.errors import ConfigError, MirrorError, RefusedError, StateError, cause_of
from mirror_lib.facts import AclBinding
from mirror_lib.ledger.events import ACL_COLUMNS, acls_made
from mirror_lib.ledger.records import RUN_COLUMNS, PartitionKey, TopicPair, latest_run
from mirror_lib.ledger.reductions import POSITION_COLUMNS, last_positions
from mirror_lib.ledger.tables import EVENTS, SINCE, TOPIC_PAIR, TableSchema, topic_pair
from mirror_lib.text import without_logins

# By scheme of `state`: deltalake's prefix for the same storage.
_SCHEMES = {"file": "", "dbfs": "/dbfs", "s3n": "s3://", "s3a": "s3://"}
_UNREADABLE = ("wasb", "wasbs", "adl", "hdfs", "viewfs")
# If one of these is set, a path without a scheme may not be on a local disk, by Hadoop's configuration.
_HADOOPS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_GATEWAY_PORT")


class TableRows(NamedTuple):
    """Rows of a Delta table, as a pyarrow table; `None` if there is no table. `since`: its columns with the version of
    the schema that added each."""

    rows: Any = None
    since: Mapping[str, int] = MappingProxyType({})


STEPS = "docs/fix/state.md"


def read_table(
    path: str, columns: Sequence[str], flow: str, kinds: Sequence[str] = (), most_bytes: float = math.inf
) -> TableRows:
    """The rows of `flow` in the table in folder `path`, of these `kinds` if any; values of a missing column are null.
    Raises what deltalake raises, `ImportError` without it, `ValueError` if the table's files have more than
    `most_bytes`, and the error of `refuse_lost_lines`."""
    import deltalake
    import pyarrow as pa

    try:
        delta: Any = deltalake.DeltaTable(path)
    except deltalake.exceptions.TableNotFoundError:
        return TableRows()
    sizes = refuse_lost_lines(path, delta)
    if sum(sizes) > most_bytes:
        raise ValueError(f"{path} is large")
    since = {field.name: int((field.metadata or {}).get(SINCE, 1)) for field in delta.schema().fields}
    wanted = [name for name in columns if name in since]
    of_kinds = [("kind", "in", list(kinds))] if kinds else []
    found = delta.to_pyarrow_table(columns=wanted, filters=[("flow", "=", flow), *of_kinds])
    for name in columns:
        if name not in since:
            found = found.append_column(name, pa.nulls(found.num_rows))
    return TableRows(found, since)


def refuse_lost_lines(path: str, delta: Any) -> List[int]:
    """The sizes in bytes of the files of `delta`, the table in folder `path`. Raises `StateError` if Delta's own
    checksum of that version counts more files.

    Readers of Delta do not compare the two. A commit that was cut at the end of a line then reads as a whole one, and
    the ledger lacks rows before others: no end of a remote log shows that. A log on other storage is not checked, as
    such storage writes a file whole or not at all.
    """
    sizes: List[int] = delta.get_add_actions(flatten=True)["size_bytes"].to_pylist()
    try:
        with open(f"{path}/_delta_log/{delta.version():020d}.crc", encoding="utf-8") as checksum:
            counted = json.load(checksum)["numFiles"]
    except (OSError, ValueError, TypeError, KeyError):
        return sizes
    if len(sizes) < counted:
        what = f"version {delta.version()} of the table {path} has {len(sizes)} files, and Delta's checksum counts"
        hint = f"no record on the target is lost; {STEPS} has the steps for a damaged table"
        raise StateError(f"{what} {counted}: a commit in its log lost lines", hint)
    return sizes


class TableReader:
    """The tables under one state folder."""

    def __init__(self, state: str) -> None:
        """Raises `ConfigError` if the package is missing, or cannot read this kind of storage."""
        try:
            import deltalake  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                f"the Python package deltalake is missing: {error}", "pip install '.[status]', or 'deltalake'"
            ) from None
        self._root = place_of(state)

    def rows(self, table: str, columns: Sequence[str], flow: str, kinds: Sequence[str] = ()) -> List[Dict[str, Any]]:
        """The rows of `flow`; none if the table does not exist. Values of a missing column are None.

        Raises `StateError` if the table cannot be read.
        """
        found = self.arrow(table, columns, flow, kinds)
        return [] if found is None else found.to_pylist()

    def arrow(self, table: str, columns: Sequence[str], flow: str, kinds: Sequence[str] = ()) -> Any:
        """The same as a pyarrow table; `None` if the table does not exist."""
        path = f"{self._root}/{table}"
        try:
            found = read_table(path, columns, flow, kinds).rows
            if found is None and table == EVENTS.name:
                refuse_replaced(EVENTS, self._root, lambda old: read_table(old, ("at",), flow).rows is not None)
            return found
        except MirrorError:
            raise
        except Exception as error:  # the library raises several classes, and OSError
            hint = f"check the folder and this machine's access to it; {STEPS} has the steps for a damaged table"
            raise StateError(without_logins(f"could not read the table {path}: {cause_of(error)}"), hint) from error

    def last_clusters(self, flow: str) -> Optional[Tuple[str, str]]:
        """The ids of source and target at the last start of `flow`; `None` before the first."""
        last, _ = latest_run(self.rows("runs", RUN_COLUMNS, flow))
        return None if last is None else last.clusters

    def acls_made(self, flow: str) -> FrozenSet[AclBinding]:
        """The ACLs that the flow created, and may delete."""
        return acls_made(self.rows("topic_acls", ACL_COLUMNS, flow))

    def copied(self, flow: str) -> Tuple[Set[PartitionKey], Set[TopicPair]]:
        """The partitions of `flow` in the ledger with their numbers kept, and its topics that were repartitioned."""
        table = self.arrow("offset_syncs", [*POSITION_COLUMNS, "remote_topic"], flow)
        if table is None:
            return set(), set()
        ranges = table.filter(table["upstream_until"].is_valid())
        pairs = ranges.group_by(list(TOPIC_PAIR)).aggregate([("partition", "count")]).to_pylist()
        return set(last_positions(table)), set(map(topic_pair, pairs))


def refuse_replaced(schema: TableSchema, state: str, is_table: Callable[[str], bool]) -> None:
    """For a folder `state` without the table. Raises `RefusedError` if it has one that had its rows before 0.1.0."""
    found = [name for name in schema.replaced if is_table(f"{state}/{name}")]
    if found:
        what = f"the state folder {without_logins(state)} has the table {found[0]} and not {schema.name}"
        how = f"run the code that wrote it, or move the folder aside: {STEPS} has the steps"
        raise RefusedError(f"{what}: nothing was read or written there", how, code="MIR-321")


def place_of(state: str) -> str:
    """The folder `state` as an address for deltalake. Raises `ConfigError` for storage that deltalake does not read."""
    scheme, colon, rest = state.rstrip("/").partition(":")
    if not colon or "/" in scheme:
        return state.rstrip("/")
    if scheme in _UNREADABLE:
        raise ConfigError(
            f"the state folder {without_logins(state)} cannot be read without Spark: {scheme} is Hadoop's",
            "run the queries of docs/reference/tables.md in Spark; for Azure name the folder by abfss",
        )
    if scheme not in _SCHEMES:
        return state.rstrip("/")
    mapped = _SCHEMES[scheme]
    return mapped + rest.lstrip("/") if mapped.endswith("//") else f"{mapped}/{rest.lstrip('/')}"


def unwritable(state: str, why: str) -> RefusedError:
    """The error for a state folder that the driver cannot write, raised before anything is written."""
    what = f"The state folder {without_logins(state)} cannot be written: {why}"
    hint = "set state: to a folder that this user can create and write"
    return RefusedError(f"{what}. Nothing was copied, and no topic was created", hint, code="MIR-309")


def local_folder(state: str, environ: Mapping[str, str]) -> Optional[str]:
    """The absolute path of a state folder on this machine; `None` for storage, and where Hadoop's settings decide."""
    scheme, colon, _ = state.partition(":")
    has_scheme = bool(colon) and "/" not in scheme
    if scheme != "file" if has_scheme else any(name in environ for name in _HADOOPS):
        return None
    return os.path.abspath(place_of(state))


def named_folder(state: str) -> str:
    """The state folder for messages, without logins; a relative one with the folder that it counts from."""
    absolute = ":" in state or state.startswith("/")
    return without_logins(state) if absolute else f"{state} (from {os.getcwd()})"


def local_refusal(state: str, environ: Mapping[str, str]) -> Optional[RefusedError]:
    """The error if this process cannot write the state folder; `None` if it can, or if the folder is not local.

    Creates nothing."""
    path = local_folder(state, environ)
    if path is None:
        return None
    while not os.path.exists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        return unwritable(state, f"{path} is a file")
    if not os.access(path, os.W_OK | os.X_OK):
        return unwritable(state, f"this user cannot write the folder {path}")
    return None
