"""Decides about the groups of a flow by the rules of the translation, without Spark. Commits nothing."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import AbstractSet, Any, Dict, List, Mapping, Sequence, Tuple

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.groups.decisions import Decision, Known, PositionsAhead, decide
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.markers import pass_markers
from mirror_lib.groups.mm2_topics import synced_offsets
from mirror_lib.groups.survey import Survey, group_names, pairs_of, survey
from mirror_lib.groups.translation import FOREIGN, TO_DOWNSTREAM, TranslationRules
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.events import EVENT_COLUMNS, incomplete
from mirror_lib.ledger.intervals import Numbers
from mirror_lib.ledger.records import TAKEN_OVER, GroupOffset, MoveKey, PartitionKey
from mirror_lib.ledger.table_reader import TableReader

_PARTITION_KEY = tuple(PartitionKey.__dataclass_fields__)
_RUN = ("upstream_offset", "downstream_offset", "record_count")


def group_decisions(
    config: MirrorConfig,
    flow: ReplicationFlow,
    source: KafkaCluster,
    target: KafkaCluster,
    reader: TableReader,
    ledger: Any,
    moves: Sequence[Mapping[str, Any]],
) -> Tuple[Survey, List[Decision]]:
    """The groups' positions, and what the mirror would decide now about each. `ledger` is the pyarrow table of the
    flow's rows or `None`, `moves` what `moves_of` returns. Raises `ClusterError`, `StateError`,
    `BatchError`."""
    pairs = pairs_of(flow, config.flows, source.topics(), target.topics(), TO_DOWNSTREAM)
    found = survey(pairs, group_names(flow, source), source, target)
    keys = {pairs[at].key for offsets in found.positions.values() for at in offsets}
    maps = FlowMaps(_triples(ledger, keys), incomplete(reader.rows("events", EVENT_COLUMNS, flow.name, [TAKEN_OVER])))
    pass_markers(maps, found, TO_DOWNSTREAM, flow.target)
    rules = TranslationRules(simple_groups=flow.groups_simple, shared=flow.shared_remote_topics)
    known = Known(maps, _last(moves), flow.target.alias, rules=rules)
    decisions = decide(found, known, PositionsAhead())
    if rules.shared or any(each.translation.verdict == FOREIGN for each in decisions):
        decisions = decide(found, replace(known, synced=synced_offsets(flow)), PositionsAhead())
    return found, decisions


def _triples(ledger: Any, keys: AbstractSet[PartitionKey]) -> Mapping[PartitionKey, Numbers]:
    """The rows of the partitions `keys`, flat as in `mirror_lib.ledger.intervals`."""
    found: Dict[PartitionKey, Numbers] = {}
    if ledger is None or not keys:
        return found
    import pyarrow
    import pyarrow.compute as pc

    topics = pyarrow.array(sorted({key.source_topic for key in keys}), pyarrow.string())
    exact = pc.and_(pc.is_null(ledger["remote_partition"]), pc.is_null(ledger["upstream_until"]))
    rows = ledger.filter(pc.and_(exact, pc.is_in(ledger["source_topic"], value_set=topics)))
    columns = rows.select([*_PARTITION_KEY, *_RUN]).to_pydict()
    for own, run in zip(zip(*(columns[name] for name in _PARTITION_KEY)), zip(*(columns[name] for name in _RUN))):
        key = PartitionKey(*own)
        if key in keys:
            found.setdefault(key, array("q")).extend(run)
    return found


def _last(moves: Sequence[Mapping[str, Any]]) -> Mapping[MoveKey, GroupOffset]:
    last: Dict[MoveKey, GroupOffset] = {}
    for row in sorted(moves, key=lambda each: (each["at"], each["append_number"])):
        place = (row["cluster"], row["group"], row["topic"], row["partition"])
        before, now, here = row["previous_offset"], row["new_offset"], row["from_offset"]
        last[place] = GroupOffset(*place, before, "", now, "", "", here, row["verdict"], row["action"])
    return last
