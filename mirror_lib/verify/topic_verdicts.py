"""What was compared of topics and what the ledger knows of them in, their verdicts out. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Sequence, Sized, Tuple

from mirror_lib.state.records import PartitionKey
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.copied_range import CopiedRange
from mirror_lib.verify.verdicts import DIFFERS, EQUAL, NOT_COMPARED, PartitionVerdict, TopicVerdict

NO_LOG = "one of the two logs does not exist yet or has no leader now: not compared"
ANOTHER_TOPIC = "the ledger speaks of another topic that had this name, on one of the two sides: not compared"
EXTRA = "the source has no such partition, and the remote one holds records: not compared"


def topic_verdicts(
    topics: Sequence[CopiedTopic],
    ranges: Sequence[CopiedRange],
    partitions: Sequence[PartitionVerdict],
    syncs: Mapping[PartitionKey, Sized],
    extra: Mapping[str, Sequence[int]] = {},
) -> Tuple[TopicVerdict, ...]:
    """`ranges` and `partitions`: what was compared and what came of each; `syncs`: the whole ledger; `extra`: by remote
    topic, partitions that the source has not and that hold records."""
    now = {(topic.source.topic_id, topic.remote_topic_id) for topic in topics}
    gone = [key for key in syncs if (key.source_topic_id, key.remote_topic_id) not in now]
    strays = {(key.source_topic, key.partition) for key in gone}
    # The remote log holds what came of the topic that had the source's name before.
    held = {(key.source_topic, key.partition, key.remote_topic_id) for key in gone}
    found = {(r.topic, r.remote_topic, r.partition): verdict for r, verdict in zip(ranges, partitions)}

    def of(topic: CopiedTopic, number: int, begun: bool) -> PartitionVerdict:
        was_copied = bool(syncs.get(key_of(topic, number)))
        stray = not begun and (topic.source.name, number) in strays
        verdict = found.get((topic.source.name, topic.remote_topic, number))
        if verdict is None:
            return PartitionVerdict(number, 0, 0, NOT_COMPARED if was_copied or stray else EQUAL, None, (NO_LOG,))
        if verdict.verdict == DIFFERS:
            stray = not was_copied and (topic.source.name, number, topic.remote_topic_id) in held
        if not stray:
            return verdict
        told = (*verdict.unknown, ANOTHER_TOPIC)
        return replace(verdict, verdict=NOT_COMPARED, difference=None, unknown=told)

    def whole(topic: CopiedTopic) -> TopicVerdict:
        numbers = range(topic.partitions)
        # Once one of its partitions is copied anew, the others have had no records since.
        begun = any(syncs.get(key_of(topic, number)) for number in numbers)
        further = (PartitionVerdict(n, 0, 0, NOT_COMPARED, None, (EXTRA,)) for n in extra.get(topic.remote_topic, ()))
        own = (of(topic, n, begun) for n in numbers)
        return TopicVerdict(topic.source.name, topic.remote_topic, (*own, *further))

    return tuple(whole(topic) for topic in topics)


def key_of(topic: CopiedTopic, partition: int) -> PartitionKey:
    """What the rows of a partition of these two topics go by in the ledger."""
    return PartitionKey(topic.source.topic_id, topic.remote_topic_id, topic.source.name, partition)
