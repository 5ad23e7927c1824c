"""Translates positions that programs keep outside Kafka from one cluster to the other.

`translate_positions` is the function behind `mirror translate-position`, for notebooks and jobs of your own.
"""

from __future__ import annotations

from itertools import chain
from typing import List, Mapping, Optional, Sequence

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.facts import Cluster, CommittedOffset, OffsetRange, TopicPartition
from mirror_lib.groups.decisions import Decision, Known, PositionsAhead
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.markers import needed_offset, pass_markers
from mirror_lib.groups.position_formats import NOWHERE, TopicPosition, TranslatedPosition, unchanged
from mirror_lib.groups.ranges import RangeScan
from mirror_lib.groups.survey import Pair, Survey, pairs_of
from mirror_lib.groups.translation import (
    NOTHING_COPIED,
    TO_DOWNSTREAM,
    TO_UPSTREAM,
    GroupPosition,
    translate,
    untranslatable,
)
from mirror_lib.kafka.admin import clusters_of
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.takeovers import TakeoverTable
from mirror_lib.topics.plan import select_topics

READER = "reader"
NO_OFFSET = untranslatable("where records are repartitioned an end of one log stands for no place in another")


def repartitioned_positions(
    scan: RangeScan, positions: Sequence[TopicPosition], there: Cluster, direction: str
) -> List[TranslatedPosition]:
    """The answers, by partition of the cluster `there`; positions without an answer come first. `scan` has its pairs.

    Raises `ClusterError`, `StateError`, and `RefusedError` if a partition is given twice, since one reader has one
    position.
    """
    reported = [each for each in positions if not each.symbolic]
    offsets = {(each.topic, each.partition): CommittedOffset(each.offset) for each in reported}
    if len(offsets) < len(reported):
        raise RefusedError(
            "a partition is given twice; where a flow repartitions records, positions belong to one reader",
            "give the positions of each reader by themselves",
            code="MIR-351",
        )
    found = scan.with_logs(Survey({}, {READER: offsets}, {READER: {}}, {}, {}), there, None)
    decisions = scan.decide(found, Known(FlowMaps({}), {}, there.alias, direction), PositionsAhead())
    return [
        *(_unanswered(each, NO_OFFSET) for each in positions if each.symbolic),
        *(_unanswered(each, NOTHING_COPIED) for each in reported if not scan.leads((each.topic, each.partition))),
        *map(_answer, decisions),
    ]


def _answer(decision: Decision) -> TranslatedPosition:
    made = decision.translation
    where = (*decision.here, decision.position.offset)
    return TranslatedPosition(*where, decision.there[0], made.new_offset, made.verdict, decision.there[1])


def _unanswered(position: TopicPosition, verdict: str) -> TranslatedPosition:
    return TranslatedPosition(position.topic, position.partition, position.offset, NOWHERE, None, verdict)


def translate_positions(
    spark: SparkSession,
    config: MirrorConfig,
    flow: ReplicationFlow,
    positions: Sequence[TopicPosition],
    reverse: bool = False,
) -> List[TranslatedPosition]:
    """The positions on the remote topics of a reader whose next records on the source are at `positions`; with
    `reverse` the opposite direction. One answer for each position, in order.

    For topics with repartitioned records all positions count as one reader's. Their answers follow the others, one for
    each partition at which the reader resumes. Changes nothing. Raises `ClusterError`, `StateError`, `RefusedError`.
    """
    direction = TO_UPSTREAM if reverse else TO_DOWNSTREAM
    scan = RangeScan(spark, config.state, flow, direction) if flow.repartitions else None
    with clusters_of(flow) as (source, target):
        topics = source.topics(), target.topics()
        pairs, there = pairs_of(flow, config.flows, *topics, direction), source if reverse else target
        answers: List[TranslatedPosition] = []
        if scan is not None:
            scan.refresh()
            pairs = scan.pairs(pairs, select_topics(flow, topics[0], config.flows)[0], *topics)
            own = [position for position in positions if scan.owns((position.topic, position.partition))]
            answers = repartitioned_positions(scan, own, there, direction)
            positions = [position for position in positions if position not in own]
        asked = [pairs[at] for at in {(p.topic, p.partition) for p in positions} if at in pairs]
        logs = there.offsets([pair.there for pair in asked if not pair.missing], "read_uncommitted")
    triples = OffsetSyncTable(spark, config.state).triples(flow.name)
    # Behind the ledger: a take-over writes down what it leaves out before it writes its rows.
    maps = FlowMaps(triples, TakeoverTable(spark, config.state).incomplete(flow.name))
    ends = ((pairs.get((each.topic, each.partition)), each) for each in positions if not each.symbolic)
    known = [(pair, each.offset) for pair, each in ends if pair is not None and not pair.missing]
    needed = [needed_offset(maps, pair, direction, offset, logs.get(pair.there)) for pair, offset in known]
    pass_markers(maps, chain.from_iterable(needed), flow.target)
    kept = [_translated(each, pairs.get((each.topic, each.partition)), maps, direction, logs) for each in positions]
    return [*kept, *answers]


def _translated(
    position: TopicPosition,
    pair: Optional[Pair],
    maps: FlowMaps,
    direction: str,
    logs: Mapping[TopicPartition, OffsetRange],
) -> TranslatedPosition:
    where = (position.topic, position.partition, position.offset)
    if pair is None:
        return TranslatedPosition(*where, NOWHERE, None, untranslatable("the flow copies no such partition"))
    if position.symbolic:
        return unchanged(position, pair.there[0])
    known = GroupPosition(
        CommittedOffset(position.offset), direction, pair.missing or maps.of(pair.key), logs.get(pair.there)
    )
    found = translate(known)
    return TranslatedPosition(*where, pair.there[0], found.new_offset, found.verdict)
