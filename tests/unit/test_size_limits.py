"""A record was refused: whether its partition continues depends on what its remote topic takes by now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Mapping, Optional, Sequence

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import ClusterError
from mirror_lib.facts import TopicConfigEntry, TopicDescription
from mirror_lib.ledger.records import OFFSETS_SKIPPED, Incident
from mirror_lib.replication.copied_topics import TopicWatch, recheck_size_limits
from mirror_lib.replication.messages import CopiedPartition, PartitionReport, Stop, TaskReport
from mirror_lib.topics.plan import CopiedTopic, TopicPlan

LIMIT = "max.message.bytes"
REFUSED = PartitionReport(
    *("orders", "A.orders", 0, 3, 3, 3, 1),
    stopped=Stop("too large", rejected=(3, 4)),
    incidents=(Incident("partition stopped", "orders", 0, 3, 4, "too large"),),
)


class Limits:
    """A cluster whose topics take so many bytes."""

    def __init__(self, **limits: int) -> None:
        self.limits = {name.replace("_", "."): limit for name, limit in limits.items()}
        self.away = False

    def topic_configs(self, names: Sequence[str], keys: Sequence[str]) -> Mapping[str, Any]:
        if self.away:
            raise ClusterError("B: no answer")
        source = "DYNAMIC_TOPIC_CONFIG"
        return {name: {LIMIT: TopicConfigEntry(str(self.limits[name]), source, False)} for name in names}

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, str]]) -> Mapping[str, Optional[str]]:
        self.limits.update({name: int(change[LIMIT]) for name, change in changes.items()})
        return dict.fromkeys(changes)


def watch(at_source: int, at_target: Limits, known: int, settings: Mapping[str, Any]) -> TopicWatch:
    sides: Any = (Limits(orders=at_source), at_target)
    flow = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), **settings)
    made = TopicWatch(flow, (flow,), *sides)
    made.plan = TopicPlan((CopiedTopic(TopicDescription("orders", "id", 1), "A.orders", "remote id", 1),), ())
    copied = CopiedPartition("orders", "A.orders", 0, "id", "remote id", known)
    made.partitions = {copied.key: copied}
    return made


def after(topics: TopicWatch, part: PartitionReport = REFUSED) -> PartitionReport:
    (report,) = recheck_size_limits("A->B", topics, [TaskReport(0, {}, False, (part,), 0.0)])
    (found,) = report.partitions
    return found


SYNC_OFF: Dict[str, Any] = {"sync_topic_configs_interval": None}


@pytest.mark.parametrize(
    ("at_source", "at_target", "known", "settings", "limit"),
    [
        pytest.param(5000, 2000, 2000, {}, 5000, id="raised on the source"),
        pytest.param(2000, 5000, 2000, SYNC_OFF, 5000, id="raised on the target by hand"),
        pytest.param(1000, 1000, 2000, {}, 1000, id="lowered, so batches have to be split"),
    ],
)
def test_partition_goes_on_with_a_limit_that_was_not_known(
    at_source: int, at_target: int, known: int, settings: Mapping[str, Any], limit: int
) -> None:
    target = Limits(A_orders=at_target)
    topics = watch(at_source, target, known, settings)
    assert after(topics) == replace(REFUSED, stopped=None, incidents=())
    assert [each.max_message_bytes for each in topics.partitions.values()] == [limit]
    assert target.limits == {"A.orders": limit}


def test_what_was_left_out_before_the_refused_record_is_told_of_a_partition_that_goes_on() -> None:
    skipped = Incident(OFFSETS_SKIPPED, "orders", 0, 1, 2, "value cannot be computed")
    topics = watch(5000, Limits(A_orders=2000), 2000, {})
    found = after(topics, replace(REFUSED, incidents=(skipped, *REFUSED.incidents)))
    assert (found.stopped, found.incidents) == (None, (skipped,))


@pytest.mark.parametrize(
    ("at_source", "settings"),
    [
        pytest.param(2000, {}, id="the source takes no more"),
        pytest.param(5000, SYNC_OFF, id="topic configs are not kept in step"),
        pytest.param(5000, {"config_properties_exclude": (r"max\.message\.bytes",)}, id="this config is excluded"),
    ],
)
def test_partition_stays_stopped_where_the_limit_is_what_it_was(at_source: int, settings: Mapping[str, Any]) -> None:
    target = Limits(A_orders=2000)
    assert after(watch(at_source, target, 2000, settings)) == REFUSED
    assert target.limits == {"A.orders": 2000}


def test_nobody_is_asked_where_nothing_was_refused_and_silence_leaves_it_stopped() -> None:
    target = Limits(A_orders=2000)
    target.away = True
    topics = watch(5000, target, 2000, {})
    other = replace(REFUSED, stopped=Stop("not authorised"))
    assert after(topics, other) == other
    assert after(topics) == REFUSED
