"""The rows of the table `events`: made from what happened, and read again. Pure; rows are of Spark or of Arrow."""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Set, Tuple

from mirror_lib.facts import AclBinding, TopicPartition
from mirror_lib.ledger.records import (
    INCIDENT_KINDS,
    OFFSETS_SKIPPED,
    PRODUCER_ID,
    TAKEN_OVER,
    TOPIC_RECREATED,
    Incident,
    LeftOut,
    PartitionKey,
)

# The columns that the readers below need.
EVENT_COLUMNS = ("kind", "topic", "partition", "from_offset", "until_offset", "detail", "facts", "at")
_PLACE = EVENT_COLUMNS[:5]
_OF_ACL = tuple(AclBinding.__dataclass_fields__)
# What `acls_made` needs of the table `topic_acls`.
ACL_COLUMNS, CREATED = (*_OF_ACL, "action", "at"), "created"
# How many ranges of a partition `left_out` lists.
RANGES_SHOWN = 20

Rows = Iterable[Any]
# The values of a row, but for its time.
Values = Tuple[object, ...]


def incident_row(flow: str, run_id: str, batch_id: int, incident: Incident) -> Values:
    return (flow, run_id, batch_id, *astuple(incident), None)


def event_row(
    flow: str,
    kind: str,
    facts: Mapping[str, object],
    run_id: Optional[str] = None,
    detail: Optional[str] = None,
    place: Values = (None, None, None),
) -> Values:
    """`place`: a topic, a partition, and an offset."""
    return (flow, run_id, -1, kind, *place, None, detail, json.dumps(facts))


def incidents(rows: Rows) -> List[Dict[str, Any]]:
    """The fields of each incident, and `at`, in the order of time."""
    own = _in_order(rows, *INCIDENT_KINDS)
    return [{**{name: row[name] for name in _PLACE}, "reason": row["detail"], "at": row["at"]} for row in own]


def facts_of(rows: Rows, kind: str) -> List[Dict[str, Any]]:
    """The facts of each event of a kind, and `at`, in the order of time."""
    return [{**json.loads(row["facts"]), "at": row["at"]} for row in _in_order(rows, kind)]


def incomplete(rows: Rows) -> FrozenSet[PartitionKey]:
    """The partitions whose remote log has records before the ledger's first row."""
    return frozenset(PartitionKey(**facts["key"]) for facts in facts_of(rows, TAKEN_OVER) if facts["older"])


def producer_ids(rows: Rows) -> Dict[int, FrozenSet[int]]:
    """By lane, every producer id that may have been used for appends."""
    ids: Dict[int, Set[int]] = {}
    for facts in facts_of(rows, PRODUCER_ID):
        ids.setdefault(facts["lane"], set()).add(facts["producer_id"])
    return {lane: frozenset(own) for lane, own in ids.items()}


def acls_made(rows: Rows) -> FrozenSet[AclBinding]:
    """The ACLs that a flow created and has not given up since, by its rows of the table `topic_acls`."""
    in_order = sorted(rows, key=lambda row: row["at"])
    last = {AclBinding(*(row[name] for name in _OF_ACL)): row["action"] for row in in_order}
    return frozenset(acl for acl, action in last.items() if action == CREATED)


def left_out(rows: Rows) -> Dict[TopicPartition, LeftOut]:
    """The offsets that `on.error: skip` skipped, by partition, since a topic's last re-creation."""
    skipped: Dict[TopicPartition, Set[Tuple[int, int]]] = {}
    for row in _in_order(rows, OFFSETS_SKIPPED, TOPIC_RECREATED):
        if row["kind"] == TOPIC_RECREATED:
            skipped = {place: ranges for place, ranges in skipped.items() if place[0] != row["topic"]}
        else:  # after a crash a range may be recorded twice
            skipped.setdefault((row["topic"], row["partition"]), set()).add((row["from_offset"], row["until_offset"]))
    return {
        place: LeftOut(sum(until - start for start, until in ranges), tuple(sorted(ranges)[:RANGES_SHOWN]))
        for place, ranges in skipped.items()
    }


def _in_order(rows: Rows, *kinds: str) -> List[Any]:
    return sorted((row for row in rows if row["kind"] in kinds), key=lambda row: row["at"])
