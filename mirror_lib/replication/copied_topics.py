"""Finds the partitions that a flow copies: plans the topics, prepares remote topics, re-checks size limits."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Callable, Collection, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.control.topic_configs import config_changes
from mirror_lib.errors import ClusterError
from mirror_lib.facts import TopicConfigs, TopicDescription, readable, unreadable
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.records import (
    COPIED_AGAIN,
    DATA_LOST,
    OFFSETS_SKIPPED,
    PARTITIONS_ADDED,
    TOPIC_ADDED,
    TOPIC_BLOCKED,
    Incident,
    PartitionKey,
)
from mirror_lib.replication.messages import CopiedPartition, PartitionReport, TaskReport
from mirror_lib.text import counted
from mirror_lib.topics.plan import TopicPlan
from mirror_lib.topics.remote_configs import KAFKA_DEFAULT_MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from mirror_lib.topics.remote_topics import apply_plan, plan_flow

log = logging.getLogger(__name__)

# A change of a config takes a moment to reach the brokers.
CHANGED_SECONDS, PAUSE_SECONDS = 5.0, 0.1
# The incidents of a partition that continues.
PASSED = (DATA_LOST, OFFSETS_SKIPPED, COPIED_AGAIN)
# Partition and offsets of an event of a whole topic.
_WHOLE_TOPIC = (-1, -1, -1)


class TopicWatch:
    """Detects new, grown and re-created topics. Creates and grows remote topics before anything is copied to them."""

    def __init__(
        self, flow: ReplicationFlow, flows: Sequence[ReplicationFlow], source: KafkaCluster, target: KafkaCluster
    ) -> None:
        self._flow = flow
        self._flows = flows
        self._source = source
        self._target = target
        self._seen: Tuple[Mapping[str, TopicDescription], Mapping[str, TopicDescription]] = ({}, {})
        self._checked_at: Optional[float] = None
        self.partitions: Mapping[PartitionKey, CopiedPartition] = {}
        self.plan = TopicPlan((), ())
        # The largest record batch that each remote topic, or the dead letter topic, accepts.
        self.limits: Mapping[str, int] = {}
        self._closed: Optional[str] = None
        self._news: List[Incident] = []
        self._blocked: Set[str] = set()
        self._copied: Optional[Set[str]] = None

    def take_news(self, recorded: Callable[[], Collection[str]]) -> Sequence[Incident]:
        """The topics that were added, grew, or cannot be copied any more since the last call. To a flow without a copy
        added ones are no news: `recorded` gives the topics that earlier processes copied. The remote topic of such a
        topic is created again if it was deleted."""
        copied = self._copied if self._copied is not None else set(recorded())
        news = [each for each in self._news if copied and not (each.kind == TOPIC_ADDED and each.topic in copied)]
        new = (each for each in self.plan.blocked if each.name not in self._blocked)
        news += [Incident(TOPIC_BLOCKED, each.name, *_WHOLE_TOPIC, each.reason) for each in new]
        self._news, self._copied = [], copied | {each.source.name for each in self.plan.copied}
        self._blocked = {each.name for each in self.plan.blocked}
        return news

    @property
    def has_news(self) -> bool:
        """Whether something happened to the topics since the last `take_news`."""
        return bool(self._news) or not self._blocked.issuperset(each.name for each in self.plan.blocked)

    def refresh(self) -> Mapping[PartitionKey, CopiedPartition]:
        """Return the partitions to copy. The topics are planned again when one appeared, grew, vanished or changed its
        id, and every `refresh.topics.interval.seconds` for changes that a topic list does not show. With refreshing
        off, the first plan stays."""
        interval, now = self._flow.refresh_topics_interval, time.monotonic()
        if self._checked_at is not None and interval is None:
            return self.partitions
        seen = (self._source.topics(), self._target.topics())
        if self._checked_at is None or seen != self._seen or now - self._checked_at >= (interval or 0):
            self._plan()
            self._checked_at = now
            # List again: creating and growing remote topics changed the target's list.
            self._seen = (seen[0], self._target.topics())
        return self.partitions

    def recheck(self, topics: Collection[str]) -> None:
        """Re-read the largest record batch that the remote topics of these source topics accept. Where topic configs
        are synchronized, a larger source limit is set first: the next synchronization may come too late. Raises
        `ClusterError`."""
        chosen = {each.source.name: each.remote_topic for each in self.plan.copied if each.source.name in topics}
        raised = {} if self._flow.sync_topic_configs_interval is None else self._raised(chosen)
        patient_until = time.monotonic() + CHANGED_SECONDS
        while True:
            limits = self._limits(sorted(chosen.values()))
            reported = all(limits[remote] == int(limit) for remote, limit in raised.items())
            if reported or time.monotonic() > patient_until:
                break
            time.sleep(PAUSE_SECONDS)
        self.partitions = {
            key: replace(each, max_message_bytes=limits[each.remote_topic]) if each.topic in chosen else each
            for key, each in self.partitions.items()
        }

    def _raised(self, chosen: Mapping[str, str]) -> Mapping[str, str]:
        here = readable(self._source.topic_configs(sorted(chosen), [MAX_MESSAGE_BYTES]))
        there = readable(self._target.topic_configs(sorted(chosen.values()), [MAX_MESSAGE_BYTES]))
        changes = {
            remote: config_changes(self._flow, here[name], there[remote])
            for name, remote in chosen.items()
            if name in here and remote in there
        }
        # `remote.topic.configs` names other keys too, which were not read here.
        limits = {remote: own[MAX_MESSAGE_BYTES] for remote, own in changes.items() if MAX_MESSAGE_BYTES in own}
        orders = {remote: {MAX_MESSAGE_BYTES: limit} for remote, limit in limits.items()}
        outcomes = self._target.alter_topic_configs(orders) if orders else {}
        return {remote: str(limits[remote]) for remote, refused in outcomes.items() if refused is None}

    def _limits(self, remotes: Sequence[str]) -> Mapping[str, int]:
        """The limit of each remote topic; of one whose configs may not be read, the last one or Kafka's default."""
        configs = self._target.topic_configs(remotes, [MAX_MESSAGE_BYTES])
        before, self._closed = self._closed, unreadable(self._flow.target.alias, configs)
        if self._closed not in (None, before):
            log.warning("%s; larger batches than %s allows by default are split", self._closed, MAX_MESSAGE_BYTES)
        found = readable(configs)
        return {
            remote: self.limits[remote] if remote not in found and remote in self.limits else _limit(found.get(remote))
            for remote in remotes
        }

    def present(self) -> Mapping[PartitionKey, CopiedPartition]:
        """Return the partitions to copy. If a cluster does not answer, return the previous ones."""
        try:
            return self.refresh()
        except ClusterError as error:
            log.warning("%s; the next check reads topics again", error)
            return self.partitions

    def _plan(self) -> None:
        plan = plan_flow(self._flow, self._source, self._target, self._flows)
        self.plan = apply_plan(plan, self._target)
        own = self.plan.copied
        self._news += _news(plan, {each.source.name for each in own})
        remotes = sorted({each.remote_topic for each in own})
        dead = None if self._flow.change is None else self._flow.change.dead_letter_topic
        limits = self.limits = self._limits(remotes if dead is None else [*remotes, dead])
        partitions: Dict[PartitionKey, CopiedPartition] = {}
        for each in own:
            limit = limits[each.remote_topic]
            for number in range(each.partitions):
                copied = CopiedPartition(
                    each.source.name, each.remote_topic, number, each.source.topic_id, each.remote_topic_id, limit
                )
                partitions[copied.key] = copied
        self.partitions = partitions


def _news(plan: TopicPlan, copied: Collection[str]) -> List[Incident]:
    found: List[Incident] = []
    for each in plan.copied:
        name, remote = each.source.name, each.remote_topic
        if name in copied and each.create is not None:
            count = counted(each.create.partitions, "partition")
            what = f"{name} is new on the source; {remote} was created with {count}"
            found.append(Incident(TOPIC_ADDED, name, *_WHOLE_TOPIC, what))
        elif name in copied and each.grow_to is not None:
            what = f"{name} has {counted(each.partitions, 'partition')} on the source; {remote} got as many"
            found.append(Incident(PARTITIONS_ADDED, name, *_WHOLE_TOPIC, what))
    return found


def _limit(configs: Optional[TopicConfigs]) -> int:
    entry = (configs or {}).get(MAX_MESSAGE_BYTES)
    return int(entry.value) if entry is not None and entry.value else KAFKA_DEFAULT_MAX_MESSAGE_BYTES


def _is_rejected(part: PartitionReport) -> bool:
    return part.stopped is not None and part.stopped.rejected is not None


def recheck_size_limits(flow: str, topics: TopicWatch, reports: Sequence[TaskReport]) -> Sequence[TaskReport]:
    """Check the topics whose batches were refused. `topics.partitions` may have other limits afterwards."""
    refused = {part.topic for report in reports for part in report.partitions if _is_rejected(part)}
    before = topics.partitions
    if not refused:
        return reports
    try:
        topics.recheck(refused)
    except ClusterError as error:
        log.warning("%s: could not read the remote topics' configs: %s", flow, error)
        return reports
    limits = {each.source: each.max_message_bytes for each in topics.partitions.values()}
    other = {each.source for each in before.values() if each.max_message_bytes != limits[each.source]}

    def reported(part: PartitionReport) -> PartitionReport:
        if not _is_rejected(part) or part.source not in other:
            return part
        # The position is already past the offsets of these incidents, so they must still be recorded.
        passed = tuple(each for each in part.incidents if each.kind in PASSED)
        return replace(part, stopped=None, incidents=passed)

    found: List[TaskReport] = [replace(each, partitions=tuple(map(reported, each.partitions))) for each in reports]
    return found
