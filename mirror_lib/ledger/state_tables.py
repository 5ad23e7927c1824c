"""The tables of a state folder."""

from __future__ import annotations

from typing import Mapping

from mirror_lib.ledger.group_offsets import GROUP_OFFSETS
from mirror_lib.ledger.incidents import INCIDENTS
from mirror_lib.ledger.lane_producers import LANE_PRODUCERS
from mirror_lib.ledger.offset_syncs import OFFSET_SYNCS
from mirror_lib.ledger.runs import RUNS
from mirror_lib.ledger.table_schema import TableSchema
from mirror_lib.ledger.takeovers import TAKEOVERS
from mirror_lib.ledger.topic_acls import TOPIC_ACLS

# The ledger first. By name, in the order in which they are shown.
STATE_TABLES: Mapping[str, TableSchema] = {
    each.name: each
    for each in (OFFSET_SYNCS, RUNS, INCIDENTS, GROUP_OFFSETS, TAKEOVERS, TOPIC_ACLS, LANE_PRODUCERS)
}
