"""Checks the tables of a state folder for damage, and renames damaged ones."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import List, Mapping, Optional, Tuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.errors import DamagedError, ForeignTableError, MirrorError, NewerTableError, StateError, cause_of
from mirror_lib.ledger.cutovers import CUTOVERS
from mirror_lib.ledger.delta_log import Fault
from mirror_lib.ledger.delta_table import StateTable, own_session
from mirror_lib.ledger.group_offsets import GROUP_OFFSETS
from mirror_lib.ledger.incidents import INCIDENTS
from mirror_lib.ledger.lane_producers import LANE_PRODUCERS
from mirror_lib.ledger.offset_syncs import OFFSET_SYNCS
from mirror_lib.ledger.runs import RUNS
from mirror_lib.ledger.state_files import listed, move_folder
from mirror_lib.ledger.table_check import examined, has_log
from mirror_lib.ledger.table_schema import TableSchema
from mirror_lib.ledger.takeovers import TAKEOVERS
from mirror_lib.ledger.topic_acls import TOPIC_ACLS
from mirror_lib.ledger.verifications import VERIFICATIONS

# By name, in the order of the output: the ledger comes first.
STATE_TABLES: Mapping[str, TableSchema] = {
    each.name: each
    for each in (
        *(OFFSET_SYNCS, RUNS, INCIDENTS, GROUP_OFFSETS, TAKEOVERS, TOPIC_ACLS, LANE_PRODUCERS, VERIFICATIONS),
        CUTOVERS,
    )
}

FINE, MISSING, DAMAGED, NEWER, FOREIGN, ASIDE = "fine", "missing", "damaged", "newer version", "foreign", "moved aside"
# Spark could not read it, but its files show no damage. The storage may be down, or memory or a permission missing.
UNREAD = "could not be read"
# In the name of a renamed table, between the table's name and the time.
_ASIDE = ".damaged-"


@dataclass(frozen=True)
class TableState:
    """The state of a folder under `state:`. `rows` if it is fine, `faults` if it is damaged, else `detail`."""

    name: str
    status: str
    rows: Optional[int] = None
    faults: Tuple[Fault, ...] = field(default=())
    detail: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether a run can use the table, or creates it."""
        return self.status in (FINE, MISSING)

    @property
    def is_lost(self) -> bool:
        """Whether rows of the table may be lost."""
        return self.status in (DAMAGED, UNREAD, ASIDE)

    @property
    def table(self) -> str:
        """The table's name, without the suffix of a renamed one."""
        return self.name.partition(_ASIDE)[0]


def state_of(spark: SparkSession, state: str) -> List[TableState]:
    """The state of all tables, and of all other folders. Raises `StateError` if the folder cannot be listed."""
    try:
        there = listed(spark, state) or {}
    except Exception as error:
        hint = "check that Spark may read this folder"
        raise StateError(f"could not list {state}: {cause_of(error)}", hint) from error
    found = [_table(spark, state, schema) for schema in STATE_TABLES.values()]
    others = sorted(name for name, facts in there.items() if facts is None and name not in STATE_TABLES)
    for name in (each for each in others if each != "checkpoints" and not each.startswith(".")):
        aside = name.partition(_ASIDE)[0] in STATE_TABLES and _ASIDE in name
        detail = "moved aside by `mirror state rebuild`" if aside else "no table of this release: not read, not written"
        found.append(TableState(name, ASIDE if aside else FOREIGN, detail=detail))
    return found


def _table(spark: SparkSession, state: str, schema: TableSchema) -> TableState:
    table = StateTable(spark, state, schema)
    if not has_log(spark, table.path):
        return TableState(schema.name, MISSING)
    # The examination comes first: Delta does not detect all damage, and Spark prints messages about unreadable files.
    found = examined(own_session(spark), table.path, data=True)
    if found.faults:
        return TableState(schema.name, DAMAGED, faults=found.faults)
    unseen = f"its files could not be examined for damage: {found.failed}" if found.failed else ""
    try:
        return TableState(schema.name, FINE, _read(table), detail=unseen)
    except NewerTableError as error:
        return TableState(schema.name, NEWER, detail=error.message)
    except ForeignTableError as error:
        return TableState(schema.name, FOREIGN, detail=error.message)
    except DamagedError as error:
        return TableState(schema.name, DAMAGED, detail=error.message)
    except StateError as error:
        return TableState(schema.name, UNREAD, detail="; ".join(filter(None, (error.message, unseen))))


def _read(table: StateTable) -> Optional[int]:
    """The number of rows of the table. Reads every value, so that Spark reads every page of the files."""
    rows = table.rows(made_elsewhere=True)
    if rows is None:
        return None
    with table.explained("read"):
        counted = rows.agg(F.count("*"), F.max(F.xxhash64(*rows.columns))).collect()
    return int(counted[0][0])


def last_written(spark: SparkSession, state: str) -> Optional[float]:
    """The time of the last commit to any table, in Unix seconds; `None` without a commit."""
    times: List[float] = []
    for name in STATE_TABLES:
        found = listed(spark, f"{state.rstrip('/')}/{name}/_delta_log") or {}
        times += [facts.modified for facts in found.values() if facts is not None]
    return max(times, default=None)


def move_aside(spark: SparkSession, state: str, name: str) -> str:
    """Rename a table's folder, and return its new name. Nothing is deleted. Raises `StateError`."""
    root, stamp = state.rstrip("/"), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = f"{name}{_ASIDE}{stamp}"
    try:
        move_folder(spark, f"{root}/{name}", f"{root}/{aside}")
    except MirrorError:
        raise
    except Exception as error:
        raise StateError(
            f"could not rename {root}/{name} to {aside}: {cause_of(error)}. The table was not changed",
            "check that Spark may write this folder",
        ) from error
    return aside
