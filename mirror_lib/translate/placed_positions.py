"""Positions of one reader of a flow that places records anew in, an answer for each partition it goes on at out."""

from __future__ import annotations

from typing import List, Sequence

from mirror_lib.errors import RefusedError
from mirror_lib.facts import Cluster, CommittedOffset
from mirror_lib.translate.ahead import PositionsAhead
from mirror_lib.translate.decisions import Decision, Known
from mirror_lib.translate.maps import FlowMaps
from mirror_lib.translate.placed_look import PlacedLook
from mirror_lib.translate.position_input import TopicPosition
from mirror_lib.translate.position_output import NOWHERE, TranslatedPosition
from mirror_lib.translate.survey import Survey
from mirror_lib.translate.verdicts import untranslatable

READER = "reader"
NO_OFFSET = untranslatable("where records are placed anew an end of one log stands for no place in another")
NOTHING_COPIED = untranslatable("nothing of this partition is copied yet")


def placed_positions(
    placed: PlacedLook, positions: Sequence[TopicPosition], there: Cluster, direction: str
) -> List[TranslatedPosition]:
    """The answers, by the partitions of the cluster `there`; those without one come first. `placed` has its pairs.

    Raises ClusterError, StateError; RefusedError where a partition is given twice, as no one reader is at two places.
    """
    told = [each for each in positions if not each.symbolic]
    offsets = {(each.topic, each.partition): CommittedOffset(each.offset) for each in told}
    if len(offsets) < len(told):
        raise RefusedError(
            "a partition is given twice, and records of several partitions lie in one: a place is one reader's",
            "give the positions of each reader by themselves",
        )
    found = placed.with_logs(Survey({}, {READER: offsets}, {READER: {}}, {}, {}), there, None)
    decisions = placed.decide(found, Known(FlowMaps({}), {}, there.alias, direction), PositionsAhead())
    return [
        *(_unanswered(each, NO_OFFSET) for each in positions if each.symbolic),
        *(_unanswered(each, NOTHING_COPIED) for each in told if not placed.leads((each.topic, each.partition))),
        *map(_answer, decisions),
    ]


def _answer(decision: Decision) -> TranslatedPosition:
    made = decision.translation
    where = (*decision.here, decision.position.offset)
    return TranslatedPosition(*where, decision.there[0], made.new_offset, made.verdict, decision.there[1])


def _unanswered(position: TopicPosition, verdict: str) -> TranslatedPosition:
    return TranslatedPosition(position.topic, position.partition, position.offset, NOWHERE, None, verdict)
