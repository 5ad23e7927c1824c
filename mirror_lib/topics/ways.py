"""Which of a flow's topics keep their partitions and which go by their keys: what was begun, and a plan in; the plan
with every topic going on in its way out. Pure but for memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterable, Optional, Tuple

from mirror_lib.topics.plan import CopiedTopic, TopicPlan, differ_notes

# Source topic, its id, the remote topic's id.
TopicPair = Tuple[str, str, str]


class Ways:
    """One flow's in one driver's life. `kept` and `placed` are the pairs of topics that were copied before, in either
    way: records that lie where a partition's number put them would be copied again if keys counted all at once."""

    def __init__(self, kept: Iterable[TopicPair], placed: Iterable[TopicPair]) -> None:
        self._placed: Dict[TopicPair, bool] = {**dict.fromkeys(kept, False), **dict.fromkeys(placed, True)}
        self._unseen = False

    def as_begun(self, plan: TopicPlan) -> TopicPlan:
        """`plan`, in which a topic that was begun goes on in its way, whatever partition counts say by now."""
        return replace(plan, copied=tuple(map(self._as_begun, plan.copied)))

    def begin(self, plan: TopicPlan) -> None:
        """Remember the way of each topic of `plan`, whose remote topics are there."""
        for each in plan.copied:
            way = each.keyed_over is not None
            self._unseen = self._unseen or (way and _pair(each) not in self._placed)
            self._placed.setdefault(_pair(each), way)

    def news(self) -> bool:
        """Whether a topic was found that goes by its keys, since this was last `seen`."""
        return self._unseen

    def seen(self) -> None:
        """All topics that go by their keys are looked after."""
        self._unseen = False

    def _as_begun(self, topic: CopiedTopic) -> CopiedTopic:
        placed = self._placed.get(_pair(topic))
        if placed is None or placed == (topic.keyed_over is not None):
            return topic
        if placed:
            # Counts are equal by now: the remote topic has as many partitions as the source.
            return _going(topic, topic.partitions, None)
        grows = topic.create is None and topic.keyed_over is not None and topic.keyed_over < topic.partitions
        return _going(topic, None, topic.partitions if grows else None)


def _going(topic: CopiedTopic, keyed_over: Optional[int], grow_to: Optional[int]) -> CopiedTopic:
    before = differ_notes(topic.keyed_over)
    notes = (*differ_notes(keyed_over), *(note for note in topic.notes if note not in before))
    return replace(topic, keyed_over=keyed_over, grow_to=grow_to, notes=notes)


def _pair(topic: CopiedTopic) -> TopicPair:
    return topic.source.name, topic.source.topic_id, topic.remote_topic_id
