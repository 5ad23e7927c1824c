"""Topics that were copied and that the plan does not copy any more. In: what is written down, the plan. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Collection, Dict, Iterable, List, Mapping, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.records import LeftOut
from mirror_lib.topics.plan import TopicPlan
from mirror_lib.topics.policy import remote_topics
from mirror_lib.topics.selection import why_skipped
from mirror_lib.verify.verdicts import NOT_COMPARED, PartitionVerdict, TopicVerdict, VerifyReport

GONE = "the topic was copied and is not seen on the source any more; if that is meant, leave it out by topics.exclude"
FILTERED = "the topic was copied, and the flow leaves it out now: not compared"
DELETED = "the topic was copied, and is on neither cluster any more: not compared"


def with_left_out(report: VerifyReport, left_out: Mapping[TopicPartition, LeftOut]) -> VerifyReport:
    """`report` with what `on.error: skip` left out of each partition of the source. Verdicts stay as they are: what the
    target refused is missing there, and what an expression failed on was not asked for."""

    def told(topic: str, partition: PartitionVerdict) -> PartitionVerdict:
        return replace(partition, left_out=left_out.get((topic, partition.partition)))

    topics = (
        replace(topic, partitions=tuple(told(topic.topic, partition) for partition in topic.partitions))
        for topic in report.topics
    )
    return replace(report, topics=tuple(topics))


@dataclass(frozen=True)
class Unlisted:
    """Topics with those of their partitions that were copied: `gone` ones are not on the source and the flow asks for
    them, `filtered` ones it leaves out by now, `deleted` ones are on neither cluster."""

    gone: Mapping[str, Sequence[int]]
    filtered: Mapping[str, Sequence[int]]
    deleted: Mapping[str, Sequence[int]]


def unlisted(
    flow: ReplicationFlow,
    plan: TopicPlan,
    copied: Iterable[TopicPartition],
    present: Collection[str],
    remote: Collection[str],
) -> Unlisted:
    """`copied` are the partitions of the source of which something is written down, read whenever; `present` are the
    source's topics, read behind both: one that came since the plan was made is not gone. `remote` are the target's."""
    listed = {each.source.name for each in plan.copied} | {each.name for each in plan.blocked}
    skipped = {each.name for each in plan.skipped}
    gone: Dict[str, List[int]] = {}
    filtered: Dict[str, List[int]] = {}
    deleted: Dict[str, List[int]] = {}
    for name, number in sorted(set(copied)):
        if name in listed:
            continue
        if name in skipped or why_skipped(name, flow) is not None:
            filtered.setdefault(name, []).append(number)
        elif name not in present:
            missing = gone if any(each in remote for each in remote_topics(flow, name)) else deleted
            missing.setdefault(name, []).append(number)
    return Unlisted(gone, filtered, deleted)


def with_unlisted(flow: ReplicationFlow, report: VerifyReport, found: Unlisted) -> VerifyReport:
    """`report` with a verdict for each topic that is gone; where nothing was compared, for the other ones, too."""
    gone = _not_compared(flow, found.gone, GONE)
    if report.topics:
        return replace(report, topics=(*report.topics, *gone))
    others = (*_not_compared(flow, found.filtered, FILTERED), *_not_compared(flow, found.deleted, DELETED))
    return replace(report, topics=(*gone, *others))


def _not_compared(flow: ReplicationFlow, topics: Mapping[str, Sequence[int]], why: str) -> Tuple[TopicVerdict, ...]:
    def of(numbers: Sequence[int]) -> Tuple[PartitionVerdict, ...]:
        # A sentence on the topic is told once.
        return tuple(PartitionVerdict(n, 0, 0, NOT_COMPARED, None, (why,) if n == numbers[0] else ()) for n in numbers)

    return tuple(TopicVerdict(name, ", ".join(remote_topics(flow, name)), of(each)) for name, each in topics.items())
