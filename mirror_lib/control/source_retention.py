"""Raises `retention.ms` of topics of the source until they are copied, and restores it.

Each change is in the table `source_retentions` before it is made, so it is undone after a crash too. A value that was
changed by someone else in the meantime is left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterable, List, Mapping, Optional, Sequence

from mirror_lib.facts import TopicConfigs
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.records import SourceRetention
from mirror_lib.ledger.source_retentions import SourceRetentionTable
from mirror_lib.text import counted

RETENTION_MS = "retention.ms"
CONFIGS = (RETENTION_MS, "cleanup.policy")
OWN = "DYNAMIC_TOPIC_CONFIG"
UNKNOWN_LAG = "its lag is unknown: a partition has no leader, or the flow does not copy the topic"
Raised = Mapping[str, SourceRetention]
# What `raised_of` reads of the table.
COLUMNS = ("topic", "action", "before", "raised", "at")
# By topic the reason of the broker.
Refused = Mapping[str, str]


@dataclass(frozen=True)
class RetentionChange:
    """What becomes of `retention.ms` of a topic: `now` is in effect, `to` is to be set; `None` deletes the topic's own
    value. `kept` says why nothing is changed, and is empty otherwise."""

    topic: str
    now: Optional[str]
    to: Optional[str]
    row: SourceRetention
    kept: str = ""


def raised_of(rows: Iterable[Mapping[str, Any]]) -> Raised:
    """By topic of the source what was raised and not restored, by `rows` of the table `source_retentions`. Pure."""
    in_order = sorted(rows, key=lambda row: row["at"])
    changes = (SourceRetention(row["topic"], row["action"], row["before"], row["raised"]) for row in in_order)
    last = {each.topic: each for each in changes}
    return {topic: each for topic, each in last.items() if each.action == SourceRetention.RAISE}


def raises(configs: Mapping[str, TopicConfigs], milliseconds: int, raised: Raised) -> List[RetentionChange]:
    """The topics of `configs` that delete records earlier than `milliseconds` after they were written, with the value
    to set. Pure. A topic that was raised before keeps the value to restore."""
    found = []
    for topic, entries in sorted(configs.items()):
        entry, policy = entries.get(RETENTION_MS), entries.get("cleanup.policy")
        if entry is None or policy is None or "delete" not in (policy.value or ""):
            continue
        if not 0 <= int(entry.value or -1) < milliseconds:
            continue
        before = entry.value if entry.source == OWN else None
        if topic in raised and entry.value == raised[topic].raised:
            before = raised[topic].before
        row = SourceRetention(topic, SourceRetention.RAISE, before, str(milliseconds))
        found.append(RetentionChange(topic, entry.value, row.raised, row))
    return found


def restores(
    configs: Mapping[str, TopicConfigs], lags: Mapping[str, Optional[int]], raised: Raised
) -> List[RetentionChange]:
    """What to restore of `raised`. Pure. A topic with a lag, or with an unknown one, stays raised; one that is gone, or
    has another value than the raised one, is left as it is."""
    found = []
    for topic, row in sorted(raised.items()):
        entry = configs.get(topic, {}).get(RETENTION_MS)
        now = None if entry is None else entry.value
        done = replace(row, action=SourceRetention.RESTORE)
        change = RetentionChange(topic, now, row.before, done)
        lag = lags.get(topic)
        if lag:
            change = replace(change, to=now, row=row, kept=f"{counted(lag, 'offset')} are not copied")
        elif now == row.raised and lag is None:
            change = replace(change, to=now, row=row, kept=UNKNOWN_LAG)
        elif now != row.raised:
            change = replace(change, to=now, kept="deleted" if now is None else "changed since it was raised")
        found.append(change)
    return found


def raise_retention(
    flow: str, changes: Sequence[RetentionChange], source: KafkaCluster, table: SourceRetentionTable
) -> Refused:
    """Record `changes` and make them: a crash in between leaves a row of a value that was not set, which is left as it
    is later. Returns by topic why a broker refused it. Raises ClusterError and StateError."""
    table.append(flow, [each.row for each in changes])
    return _altered(source, changes)


def restore_retention(
    flow: str, changes: Sequence[RetentionChange], source: KafkaCluster, table: SourceRetentionTable
) -> Refused:
    """Make `changes` and record them: after a crash in between the value is no longer the raised one, and is left as it
    is. Returns by topic why a broker refused it. Raises ClusterError and StateError."""
    refused = _altered(source, [each for each in changes if not each.kept])
    done = [each.row for each in changes if each.row.action == SourceRetention.RESTORE and each.topic not in refused]
    if done:
        table.append(flow, done)
    return refused


def _altered(source: KafkaCluster, changes: Sequence[RetentionChange]) -> Refused:
    wanted = {each.topic: {RETENTION_MS: each.to} for each in changes}
    outcomes = source.alter_topic_configs(wanted) if wanted else {}
    return {topic: why for topic, why in outcomes.items() if why is not None}
