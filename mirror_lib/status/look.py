"""Reads both clusters and the tables of a flow for `mirror status`. Changes nothing, and starts no Spark.

What cannot be read does not keep the rest from being shown: it is a sentence in `FlowStatus.unread`.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.errors import MirrorError, StateError, cause_of
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.offsets import timestamps_at
from mirror_lib.ledger.table_reader import TableReader, last_positions, last_ranges
from mirror_lib.status.facts import (
    FlowStatus,
    GroupStatus,
    IncidentStatus,
    PartitionStatus,
    RunStatus,
    VerifyStatus,
    partition_status,
    run_status,
)
from mirror_lib.topics.plan import CopiedTopic, TopicPlan
from mirror_lib.topics.remote_topics import plan_flow

# Incidents older than that are history.
INCIDENT_SECONDS = 7 * 86400.0
RETENTION = ("retention.ms", "cleanup.policy")
_LEDGER = (
    *("source_topic_id", "remote_topic_id", "source_topic", "partition", "upstream_offset", "downstream_offset"),
    *("record_count", "committed_at", "remote_partition", "upstream_until"),
)
RUN_COLUMNS = ("run_id", "kind", "outcome", "records", "at", "driver", "lag_records")
_INCIDENT = ("kind", "topic", "partition", "from_offset", "until_offset", "reason", "at")
_VERIFIED = ("verdict", "topics", "records", "first_difference", "scope", "at")
_MOVE = ("cluster", "group", "topic", "partition", "verdict", "action", "at")
# The worst first.
_VERDICTS = ("untranslatable", "held", "ahead", "earlier", "exact")


@dataclass(frozen=True)
class _Tables:
    """What the state folder says of a flow."""

    positions: Mapping[Tuple[str, str, str, int], Tuple[int, int, Any]]
    ranges: Mapping[Tuple[str, str, int], Tuple[int, Any]]
    run: Optional[RunStatus]
    incidents: Tuple[IncidentStatus, ...]
    verified: Optional[VerifyStatus]
    moves: Sequence[Mapping[str, Any]]


def flow_status(config: MirrorConfig, flow: ReplicationFlow) -> FlowStatus:
    """The status of `flow` now. Raises `ConfigError` where the tables cannot be read on this machine at all."""
    reader, now = TableReader(config.state), time.time()
    status = FlowStatus(flow.name, now, config.trigger != AVAILABLE_NOW, flow.opening(now).is_open)
    with ThreadPoolExecutor(3, thread_name_prefix="status") as pool:
        asked = [pool.submit(KafkaCluster, each, flow.admin_timeout) for each in (flow.source, flow.target)]
        tables, unread = _attempt(lambda: _tables(reader, flow, now))
        clusters = [_attempt(each.result) for each in asked]
    unread = [*unread, *(sentence for _, sentences in clusters for sentence in sentences)]
    (source, _), (target, _) = clusters
    try:
        if tables is not None:
            status = replace(status, run=tables.run, incidents=tables.incidents, verified=tables.verified)
        if tables is not None and source is not None and target is not None:
            found, more = _attempt(lambda: _of_topics(config, flow, source, target, tables, now))
            unread += more
            status = status if found is None else replace(status, partitions=found[0], blocked=found[1])
            groups, more = _attempt(lambda: _groups(flow, source, target, tables.moves))
            unread += more
            status = replace(status, groups=groups or ())
    finally:
        for cluster in (source, target):
            if cluster is not None:
                cluster.close()
    return replace(status, unread=tuple(dict.fromkeys(unread)))


def _attempt(read: Any) -> Tuple[Any, List[str]]:
    """What `read` returns, or why it could not be read."""
    try:
        return read(), []
    except MirrorError as error:
        return None, [str(error)]
    except Exception as error:  # a library of another release: the rest is still worth showing
        return None, [f"unexpected: {type(error).__name__}: {cause_of(error)}"]


def _tables(reader: TableReader, flow: ReplicationFlow, now: float) -> _Tables:
    ledger = reader.arrow("offset_syncs", _LEDGER, flow.name)
    runs = timed(reader.rows("runs", RUN_COLUMNS, flow.name))
    incidents = timed(reader.rows("incidents", _INCIDENT, flow.name))
    verified = sorted(timed(reader.rows("verifications", _VERIFIED, flow.name)), key=lambda row: float(row["at"]))
    recent = [each for each in incidents if now - float(each["at"]) < INCIDENT_SECONDS]
    return _Tables(
        {} if ledger is None else last_positions(ledger),
        {} if ledger is None else last_ranges(ledger),
        run_status(runs),
        tuple(sorted((IncidentStatus(**each) for each in recent), key=lambda each: each.at)),
        VerifyStatus(**verified[-1]) if verified else None,
        timed(reader.rows("group_offsets", _MOVE, flow.name)),
    )


def timed(rows: Iterable[Mapping[str, Any]], column: str = "at") -> List[Dict[str, Any]]:
    """Rows with the times in `column` as Unix seconds. Raises `StateError`."""
    return [{**row, column: _unix(row[column])} for row in rows]


def last_moves(reader: TableReader, flow: ReplicationFlow) -> Mapping[str, List[Mapping[str, Any]]]:
    """By group the last row of each position that the flow committed on the target. Raises `StateError`."""
    found: Dict[str, List[Mapping[str, Any]]] = {}
    for (group, _, _), row in _last_moves(flow, timed(reader.rows("group_offsets", _MOVE, flow.name))).items():
        found.setdefault(group, []).append(row)
    return found


def _last_moves(
    flow: ReplicationFlow, moves: Sequence[Mapping[str, Any]]
) -> Dict[Tuple[str, str, int], Mapping[str, Any]]:
    last: Dict[Tuple[str, str, int], Mapping[str, Any]] = {}
    for row in sorted(moves, key=lambda each: float(each["at"])):
        if row["cluster"] == flow.target.alias and row["action"] == "commit":
            last[row["group"], row["topic"], row["partition"]] = row
    return last


def _unix(at: Any) -> float:
    if not isinstance(at, datetime):
        raise StateError(f"a row of a table has no time: {at}", "mirror state check CONFIG")
    return at.timestamp()


def _of_topics(
    config: MirrorConfig, flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster, tables: _Tables, now: float
) -> Tuple[Tuple[PartitionStatus, ...], Tuple[Tuple[str, str], ...]]:
    """Every partition to copy, and the topics that cannot be copied with the reason."""
    plan = plan_flow(flow, source, target, config.flows)
    return _partitions(flow, plan, source, tables, now), tuple((each.name, each.reason) for each in plan.blocked)


def partitions_of(
    flow: ReplicationFlow, plan: TopicPlan, source: KafkaCluster, reader: Optional[TableReader], now: float
) -> Tuple[PartitionStatus, ...]:
    """The partitions of a plan, by the ledger that `reader` reads; without one as if nothing was copied. Raises
    `StateError`, `ClusterError`."""
    ledger = None if reader is None else reader.arrow("offset_syncs", _LEDGER, flow.name)
    positions, ranges = ({}, {}) if ledger is None else (last_positions(ledger), last_ranges(ledger))
    return _partitions(flow, plan, source, _Tables(positions, ranges, None, (), None, ()), now)


def _partitions(
    flow: ReplicationFlow, plan: TopicPlan, source: KafkaCluster, tables: _Tables, now: float
) -> Tuple[PartitionStatus, ...]:
    places = [(topic, number) for topic in _once(plan.copied) for number in range(topic.partitions)]
    logs = source.offsets([(topic.source.name, number) for topic, number in places], flow.isolation_level)
    bare = [
        _bare(topic, number, log.log_start, log.end, tables)
        for topic, number in places
        for log in [logs.get((topic.source.name, number))]
        if log is not None
    ]
    lagging = {_key(each): _resumes(each) for each in bare if _resumes(each) < each.log_end}
    times = timestamps_at(flow.source, lagging)
    configs = source.topic_configs(sorted({topic for topic, _ in lagging}), RETENTION)
    retention = {topic: _retention(entries) for topic, entries in configs.items()}
    return tuple(partition_status(each, times.get(_key(each)), retention.get(each.topic), now) for each in bare)


def _once(copied: Sequence[CopiedTopic]) -> List[CopiedTopic]:
    """A topic that goes into several remote topics is one on the source."""
    return list({topic.source.name: topic for topic in reversed(copied)}.values())[::-1]


def _bare(topic: CopiedTopic, number: int, log_start: int, log_end: int, tables: _Tables) -> PartitionStatus:
    name, source_id = topic.source.name, topic.source.topic_id
    at: Optional[Tuple[int, Any]] = tables.ranges.get((source_id, name, number))
    exact = tables.positions.get((source_id, topic.remote_topic_id, name, number))
    if exact is not None:
        at = (exact[0], exact[2])
    return PartitionStatus(
        *(name, topic.remote_topic, number, log_start, log_end),
        None if at is None else at[0],
        None if at is None else _unix(at[1]),
    )


def _key(each: PartitionStatus) -> TopicPartition:
    return each.topic, each.partition


def _resumes(each: PartitionStatus) -> int:
    return max(each.log_start, each.log_start if each.position is None else each.position)


def _retention(entries: Mapping[str, Any]) -> Optional[int]:
    """`retention.ms` where it deletes; `None` for a topic that is only compacted, or that is kept for ever."""
    policy, kept = entries.get("cleanup.policy"), entries.get("retention.ms")
    if policy is None or "delete" not in (policy.value or "") or kept is None or kept.value is None:
        return None
    return int(kept.value) if int(kept.value) >= 0 else None


def _groups(
    flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster, moves: Sequence[Mapping[str, Any]]
) -> Tuple[GroupStatus, ...]:
    """The groups whose offsets the flow committed on the target."""
    last = _last_moves(flow, moves)
    names = sorted({group for group, _, _ in last})
    if not names:
        return ()
    lags = [_lags(cluster, names) for cluster in (source, target)]
    found = []
    for name in names:
        own = [row for (group, _, _), row in last.items() if group == name]
        verdict = min((str(row["verdict"]) for row in own), key=_rank)
        moved = max(float(row["at"]) for row in own)
        found.append(GroupStatus(name, len(own), verdict, lags[0].get(name), lags[1].get(name), moved))
    return tuple(found)


def _rank(verdict: str) -> int:
    return next((n for n, word in enumerate(_VERDICTS) if verdict.startswith(word)), -1)


def _lags(cluster: KafkaCluster, names: Sequence[str]) -> Dict[str, int]:
    committed = cluster.committed_offsets(names)
    ends = cluster.offsets(sorted({at for offsets in committed.values() for at in offsets}), "read_uncommitted")
    return {
        name: sum(max(0, ends[at].end - offset.offset) for at, offset in offsets.items() if at in ends)
        for name, offsets in committed.items()
        if offsets
    }
