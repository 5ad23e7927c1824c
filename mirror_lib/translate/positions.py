"""Positions of one cluster as positions of the other, for programs that keep offsets outside Kafka.

`translate_positions` is the function behind `mirror translate-position`, for notebooks and jobs of your own.
"""

from __future__ import annotations

from typing import List, Mapping, Optional, Sequence

from pyspark.sql import SparkSession

from mirror_lib.cluster import clusters_of
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.facts import CommittedOffset, OffsetRange, TopicPartition
from mirror_lib.state.offset_syncs import OffsetSyncTable
from mirror_lib.state.takeovers import TakeoverTable
from mirror_lib.translate.maps import FlowMaps
from mirror_lib.translate.position_input import TopicPosition
from mirror_lib.translate.position_output import TranslatedPosition, unchanged
from mirror_lib.translate.survey import Pair, pairs_of
from mirror_lib.translate.verdicts import TO_DOWNSTREAM, TO_UPSTREAM, GroupPosition, translate, untranslatable


def translate_positions(
    spark: SparkSession,
    config: MirrorConfig,
    flow: ReplicationFlow,
    positions: Sequence[TopicPosition],
    reverse: bool = False,
) -> List[TranslatedPosition]:
    """Where whoever reads `positions` next on the source goes on on the remote topics; with `reverse` the other way.

    An answer for each position, in their order. Changes nothing. Raises ClusterError, StateError.
    """
    direction = TO_UPSTREAM if reverse else TO_DOWNSTREAM
    with clusters_of(flow) as (source, target):
        pairs = pairs_of(flow, config.flows, source.topics(), target.topics(), direction)
        asked = [pairs[at] for at in {(p.topic, p.partition) for p in positions} if at in pairs]
        there = source if reverse else target
        logs = there.offsets([pair.there for pair in asked if not pair.missing], "read_uncommitted")
    incomplete = TakeoverTable(spark, config.state).incomplete(flow.name)
    maps = FlowMaps(OffsetSyncTable(spark, config.state).triples(flow.name), incomplete, flow.places_anew)
    return [
        _translated(position, pairs.get((position.topic, position.partition)), maps, direction, logs)
        for position in positions
    ]


def _translated(
    position: TopicPosition,
    pair: Optional[Pair],
    maps: FlowMaps,
    direction: str,
    logs: Mapping[TopicPartition, OffsetRange],
) -> TranslatedPosition:
    where = (position.topic, position.partition, position.offset)
    if pair is None:
        return TranslatedPosition(*where, "-", None, untranslatable("the flow copies no such partition"))
    if position.symbolic:
        return unchanged(position, pair.there[0])
    known = GroupPosition(
        CommittedOffset(position.offset), direction, pair.missing or maps.of(pair.key), logs.get(pair.there)
    )
    found = translate(known)
    return TranslatedPosition(*where, pair.there[0], found.new_offset, found.verdict)
