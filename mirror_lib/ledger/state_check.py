"""Checks the tables of a state folder for damage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Mapping, Optional, Tuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.errors import DamagedError, ForeignTableError, NewerTableError, StateError, cause_of
from mirror_lib.ledger.cutovers import CUTOVERS
from mirror_lib.ledger.delta_log import Fault
from mirror_lib.ledger.delta_table import StateTable, own_session
from mirror_lib.ledger.group_offsets import GROUP_OFFSETS
from mirror_lib.ledger.incidents import INCIDENTS
from mirror_lib.ledger.lane_producers import LANE_PRODUCERS
from mirror_lib.ledger.offset_syncs import OFFSET_SYNCS
from mirror_lib.ledger.runs import RUNS
from mirror_lib.ledger.state_files import listed
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

FINE, MISSING, DAMAGED, NEWER, FOREIGN = "fine", "missing", "damaged", "newer version", "foreign"
# Spark could not read it, but its files show no damage. The storage may be down, or memory or a permission missing.
UNREAD = "could not be read"


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
        found.append(TableState(name, FOREIGN, detail="no table of this release: not read, not written"))
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
