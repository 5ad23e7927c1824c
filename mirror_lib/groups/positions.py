"""Translates positions that programs keep outside Kafka from one cluster to the other.

`translate_positions` is the function behind `mirror translate-position`, for notebooks and jobs of your own.
"""

from __future__ import annotations

from itertools import chain
from typing import List, Mapping, Optional, Sequence

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.facts import CommittedOffset, OffsetRange, TopicPartition
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.markers import needed_offset, pass_markers
from mirror_lib.groups.position_formats import TopicPosition, TranslatedPosition
from mirror_lib.groups.survey import Pair, pairs_of
from mirror_lib.groups.translation import (
    REPARTITIONED,
    TO_DOWNSTREAM,
    TO_UPSTREAM,
    GroupPosition,
    translate,
    untranslatable,
)
from mirror_lib.kafka.admin import clusters_of
from mirror_lib.ledger.event_tables import TakeoverTable
from mirror_lib.ledger.offset_syncs import OffsetSyncTable


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
    # Behind the ledger: a take-over writes down what it leaves out before it writes its rows.
    maps = FlowMaps(triples, TakeoverTable(spark, config.state).incomplete(flow.name))
    ends = ((pairs.get((each.topic, each.partition)), each.offset) for each in positions)
    known = [(pair, offset) for pair, offset in ends if pair is not None and not pair.missing]
    needed = [needed_offset(maps, pair, direction, offset, logs.get(pair.there)) for pair, offset in known]
    pass_markers(maps, chain.from_iterable(needed), flow.target)
    return [_translated(each, pairs.get((each.topic, each.partition)), maps, direction, logs) for each in positions]


def _translated(
    position: TopicPosition,
    pair: Optional[Pair],
    maps: FlowMaps,
    direction: str,
    logs: Mapping[TopicPartition, OffsetRange],
) -> TranslatedPosition:
    where = (position.topic, position.partition, position.offset)
    if pair is None:
        return TranslatedPosition(*where, "-", None, None, untranslatable("the flow copies no such partition"))
    known = GroupPosition(
        CommittedOffset(position.offset), direction, pair.missing or maps.of(pair.key), logs.get(pair.there)
    )
    found = translate(known)
    partition = None if pair.missing == REPARTITIONED else pair.there[1]
    return TranslatedPosition(*where, pair.there[0], partition, found.new_offset, found.verdict)
