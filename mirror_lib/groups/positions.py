"""Translates positions that programs keep outside Kafka from one cluster to the other.

`translate_positions` is the function behind `mirror translate-position`, for notebooks and jobs of your own.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.facts import CommittedOffset
from mirror_lib.groups.decisions import Decision, Known, PositionsAhead, decide
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.markers import pass_markers
from mirror_lib.groups.position_formats import TopicPosition, TranslatedPosition
from mirror_lib.groups.survey import Survey, pairs_of
from mirror_lib.groups.translation import TO_DOWNSTREAM, TO_UPSTREAM, untranslatable
from mirror_lib.kafka.admin import clusters_of
from mirror_lib.ledger.event_tables import EventTable
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import NO_PARTITION


def translate_positions(
    spark: SparkSession,
    config: MirrorConfig,
    flow: ReplicationFlow,
    positions: Sequence[TopicPosition],
    reverse: bool = False,
) -> List[TranslatedPosition]:
    """The positions on the remote topics of a reader whose next records on the source are at `positions`; with
    `reverse` the opposite direction. One answer for each position, in order. Changes nothing. Raises `ClusterError`,
    `StateError`.
    """
    direction = TO_UPSTREAM if reverse else TO_DOWNSTREAM
    with clusters_of(flow) as (source, target):
        pairs = pairs_of(flow, config.flows, source.topics(), target.topics(), direction)
        there = source if reverse else target
        asked = [pairs[at] for at in {(p.topic, p.partition) for p in positions} if at in pairs]
        logs = there.offsets([pair.there for pair in asked if not pair.missing], "read_uncommitted")
    triples = OffsetSyncTable(spark, config.state).triples(flow.name)
    # After the ledger: a take-over records the excluded partitions before it writes its rows.
    maps = FlowMaps(triples, EventTable(spark, config.state).incomplete(flow.name))
    # Each position is that of a group of its own, which has no offset on the other side.
    places = [(str(number), (each.topic, each.partition), each.offset) for number, each in enumerate(positions)]
    groups = {group: {here: CommittedOffset(offset)} for group, here, offset in places if here in pairs}
    found = Survey(pairs, groups, {group: {} for group in groups}, {}, logs)
    pass_markers(maps, found, direction, flow.target)
    decided = decide(found, Known(maps, {}, there.alias, direction), PositionsAhead())
    by_group = {each.group: each for each in decided}
    return [_answer(by_group.get(group), *here, offset) for group, here, offset in places]


def _answer(decision: Optional[Decision], topic: str, partition: int, offset: int) -> TranslatedPosition:
    if decision is None:
        nowhere = untranslatable("the flow copies no such partition")
        return TranslatedPosition(topic, partition, offset, "-", None, None, nowhere)
    (remote_topic, number), made = decision.there, decision.translation
    place = (remote_topic, None if number == NO_PARTITION else number, made.new_offset)
    return TranslatedPosition(topic, partition, offset, *place, made.verdict, made.lost)
