"""Reads both clusters and the tables of a flow for `mirror status`. Changes nothing, and starts no Spark.

What cannot be read does not keep the rest from being shown: it is a sentence in `FlowStatus.unread`.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import ClusterConfig, MirrorConfig, ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.errors import MirrorError, StateError, cause_of
from mirror_lib.facts import CommittedOffset, TopicPartition, readable
from mirror_lib.groups.decisions import Decision
from mirror_lib.groups.translation import COMMIT, EXACT, NOT_COMMITTED, WAYS_OUT, is_ahead
from mirror_lib.kafka.admin import KafkaCluster, answering
from mirror_lib.kafka.connection import name_of
from mirror_lib.kafka.offsets import first_records
from mirror_lib.ledger.events import EVENT_COLUMNS, facts_of, incidents
from mirror_lib.ledger.records import CUTOVER_STEP, PARTITION_STOPPED, TOPIC_BLOCKED, VERIFIED, PartitionKey
from mirror_lib.ledger.reductions import (
    MOVE_COLUMNS,
    POSITION_COLUMNS,
    last_moves,
    last_positions,
    last_ranges,
    records_since,
)
from mirror_lib.ledger.table_reader import STEPS, TableReader
from mirror_lib.run_lock import died_here
from mirror_lib.status.facts import (
    HISTORY_SECONDS,
    KEPT_FOR_EVER,
    FlowStatus,
    GroupStatus,
    IncidentStatus,
    PartitionStatus,
    Retention,
    Rows,
    RunStatus,
    VerifyStatus,
    cutover_status,
    partition_status,
    runs_of,
)
from mirror_lib.status.groups import group_decisions
from mirror_lib.topics.matchless import selected_in_vain
from mirror_lib.topics.plan import CopiedTopic, TopicPlan
from mirror_lib.topics.remote_configs import is_tiered
from mirror_lib.topics.remote_topics import plan_flow
from mirror_lib.transactions import open_transactions

# So long at most a cluster may take for an answer.
ANSWER_SECONDS = 10.0
FLOWS_AT_ONCE = 8
# The ledger's rows of so long have the rate of a run that has no sign of life with a count yet.
RATE_SECONDS = 60.0
# A remote log may end in markers of the mirror, one or a few for each of its runs.
MARKERS_MOST = 1000
RETENTION = ("retention.ms", "retention.bytes", "cleanup.policy", "remote.storage.enable")
RUN_COLUMNS = (
    *("run_id", "kind", "outcome", "records", "bytes", "at", "driver"),
    *("lag_records", "lag_seconds", "filtered", "dead_letters"),
)
Moves = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Ledger:
    """Where the copy of each partition resumes. `table`: all rows, `None` before the first."""

    positions: Mapping[PartitionKey, Tuple[int, int, Any]]
    ranges: Mapping[Tuple[str, str, int], Tuple[int, Any]]
    table: Any = None


def ledger_of(reader: TableReader, flow: ReplicationFlow) -> Ledger:
    """Raises `StateError`."""
    table = reader.arrow("offset_syncs", POSITION_COLUMNS, flow.name)
    return Ledger({}, {}) if table is None else Ledger(last_positions(table), last_ranges(table), table)


def flow_states(config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> List[FlowStatus]:
    with ThreadPoolExecutor(FLOWS_AT_ONCE, thread_name_prefix="status") as pool:
        return list(pool.map(partial(flow_state, config), flows))


def flow_state(config: MirrorConfig, flow: ReplicationFlow, with_source: bool = True) -> FlowStatus:
    """Without the source it has what the tables and the target show. Raises `ConfigError` where the tables cannot be
    read on this machine at all."""
    reader, now = TableReader(config.state), time.time()
    status = FlowStatus(flow.name, now, config.trigger != AVAILABLE_NOW)
    unread: List[str] = []

    def part(read: Callable[[], Any]) -> Any:
        """What `read` returns; `None` where it cannot be read."""
        try:
            return read()
        except MirrorError as error:
            unread.append(str(error))
        except Exception as error:  # a library of another release: the rest is still worth showing
            unread.append(f"unexpected: {type(error).__name__}: {cause_of(error)}")
        return None

    def rows(table: str, columns: Sequence[str]) -> Any:
        # Where the ledger cannot be read, each further table could take as long to fail.
        return None if ledger is None else part(lambda: timed(reader.rows(table, columns, flow.name)))

    with ThreadPoolExecutor(3, thread_name_prefix="status") as pool:
        sides = [*([flow.source] if with_source else []), flow.target]
        patience = min(flow.admin_timeout, ANSWER_SECONDS)
        asked = [pool.submit(answering, each, patience) for each in sides]
        ledger: Optional[Ledger] = part(lambda: ledger_of(reader, flow))
        runs, events = rows("runs", RUN_COLUMNS), rows("events", EVENT_COLUMNS)
        moves = None if ledger is None else part(lambda: moves_of(reader, flow))
        *sources, target = (part(each.result) for each in asked)
        source: Optional[KafkaCluster] = sources[0] if with_source else None
    status = with_history(status, runs, events)
    cutover = cutover_status(facts_of(events or (), CUTOVER_STEP))
    status = replace(status, run=status.run and _with_rate(status.run, ledger, now), cutover=cutover)
    try:
        plan: Optional[TopicPlan] = None
        if ledger is not None and source is not None and target is not None:
            plan = part(lambda: plan_flow(flow, source, target, config.flows))
            if plan is not None:
                status = replace(
                    status,
                    partitions=part(lambda: partitions_of(flow, plan, source, ledger, now)) or (),
                    blocked={**_refused(status, plan), **{each.name: each.reason for each in plan.blocked}},
                    leaderless=tuple(map(name_of, plan.leaderless())),
                    transactions=part(lambda: open_transactions(flow, source, plan.sources())) or (),
                    matchless=part(lambda: selected_in_vain(flow, source, names_only=True)) or (),
                )
        if ledger is not None and moves is not None and target is not None:
            groups = part(lambda: _groups(config, flow, source, target, reader, ledger, moves, plan))
            status = replace(status, groups=groups or ())
    finally:
        for cluster in (source, target):
            if cluster is not None:
                cluster.close()
    return replace(status, unread=tuple(dict.fromkeys(unread)))


def _refused(status: FlowStatus, plan: TopicPlan) -> Mapping[str, str]:
    """The topics whose remote topics the target refused to the run, with the reason, if they are still to be created or
    grown: only a try shows that."""
    due = {each.source.name for each in plan.copied if each.create is not None or each.grow_to is not None}
    return {each.topic: each.reason for each in status.losses if each.kind == TOPIC_BLOCKED and each.topic in due}


def with_history(status: FlowStatus, runs: Optional[Rows], events: Optional[Rows]) -> FlowStatus:
    """`status` with its runs, incidents and verifications, by the rows of the tables, `None` where one could not be
    read."""
    found = [
        each if each.ended is not None else replace(each, killed=died_here(each.driver))
        for each in runs_of(runs or (), status.at)
    ]
    since = status.at - HISTORY_SECONDS
    # What is stopped stays so until the run ends, however long ago it stopped.
    begins = dict.fromkeys((PARTITION_STOPPED, TOPIC_BLOCKED), found[-1].started if found else since)
    lately = (IncidentStatus(**row) for row in incidents(events or ()) if row["at"] >= begins.get(row["kind"], since))
    return replace(
        status,
        run=found[-1] if found else None,
        runs=None if runs is None else tuple(each for each in found if each.last_sign >= since),
        incidents=None if events is None else tuple(lately),
        verifications=None if events is None else tuple(VerifyStatus(**row) for row in facts_of(events, VERIFIED)),
    )


def last_run(reader: TableReader, flow: ReplicationFlow) -> Optional[RunStatus]:
    """Raises `StateError`."""
    found = runs_of(timed(reader.rows("runs", RUN_COLUMNS, flow.name)), time.time())
    return found[-1] if found else None


def moves_of(reader: TableReader, flow: ReplicationFlow) -> Moves:
    """What `last_moves` returns of the flow. Raises `StateError`."""
    table = reader.arrow("group_offsets", MOVE_COLUMNS, flow.name)
    return [] if table is None else timed(last_moves(table))


def run_is_open(reader: TableReader, flow: ReplicationFlow) -> bool:
    """Whether the last run of `flow` has no end and a recent sign of life, killed or not. Raises `StateError`."""
    run = last_run(reader, flow)
    return run is not None and run.running


def _with_rate(run: RunStatus, ledger: Optional[Ledger], now: float) -> RunStatus:
    """A run has signs of life with counts every three minutes. Before the second one the ledger has the rate."""
    if ledger is None or run.records_per_second or not run.running:
        return run
    since, records = max(run.started, now - RATE_SECONDS), 0
    if ledger.table is not None and since < now:
        records = records_since(ledger.table, datetime.fromtimestamp(since, timezone.utc))
    return replace(run, records_per_second=records / (now - since) if records else None)


def timed(rows: Iterable[Mapping[str, Any]], column: str = "at") -> List[Dict[str, Any]]:
    """Rows with the times in `column` as Unix seconds. Raises `StateError`."""
    return [{**row, column: _unix(row[column])} for row in rows]


def _last_moves(flow: ReplicationFlow, moves: Moves) -> Mapping[str, Mapping[TopicPartition, Mapping[str, Any]]]:
    """By group and remote partition, the last commit, with the offset of a later rollback; without those that a
    rollback deleted."""
    last: Dict[str, Dict[TopicPartition, Mapping[str, Any]]] = {}
    for row in sorted(moves, key=lambda each: float(each["at"])):
        if row["cluster"] != flow.target.alias:
            continue
        own, at = last.setdefault(row["group"], {}), (row["topic"], row["partition"])
        if row["action"] == COMMIT:
            own[at] = row
        elif row["new_offset"] is None:
            own.pop(at, None)
        elif at in own:
            own[at] = {**own[at], "new_offset": row["new_offset"]}
    return {group: own for group, own in last.items() if own}


def _is_there(row: Mapping[str, Any], committed: Mapping[TopicPartition, CommittedOffset]) -> bool:
    """Whether the group has the offset of the row, which was written before its commit, or a later one."""
    present = committed.get((row["topic"], row["partition"]))
    return present is not None and present.offset >= row["new_offset"]


def _unix(at: Any) -> float:
    if not isinstance(at, datetime):
        raise StateError(f"a row of a table has no time: {at}", f"{STEPS} has the steps for a damaged table")
    return at.timestamp()


def partitions_of(
    flow: ReplicationFlow, plan: TopicPlan, source: KafkaCluster, ledger: Ledger, now: float
) -> Tuple[PartitionStatus, ...]:
    """The partitions of a plan, by the ledger. Raises `ClusterError`."""
    places = [(topic, number) for topic in plan.copied if topic.counted for number in topic.led]
    logs = source.offsets([(topic.source.name, number) for topic, number in places], flow.isolation_level)
    bare = [
        _bare(topic, number, log.log_start, log.end, ledger)
        for topic, number in places
        for log in [logs.get((topic.source.name, number))]
        if log is not None
    ]
    return _kept(flow, source, bare, now)


def seconds_to_retention(flow: ReplicationFlow, next_offsets: Mapping[TopicPartition, int]) -> Mapping[str, float]:
    """By source topic, how long the source keeps what is not copied yet, at least by time and about by size; 0 where it
    may delete it at any moment. Topics without a time are left out. A few requests to the source. ClusterError."""
    with KafkaCluster(flow.source, flow.admin_timeout) as source:
        logs = source.offsets(list(next_offsets), flow.isolation_level)
        bare = [
            PartitionStatus(topic, "", number, log.log_start, log.end, next_offsets[topic, number])
            for (topic, number), log in logs.items()
        ]
        found: Dict[str, float] = {}
        for each in _kept(flow, source, bare, time.time()):
            for left in (each.kept_seconds, each.full_seconds):
                if left is not None:
                    found[each.topic] = max(0.0, min(left, found.get(each.topic, left)))
    return found


def _kept(
    flow: ReplicationFlow, source: KafkaCluster, bare: Sequence[PartitionStatus], now: float
) -> Tuple[PartitionStatus, ...]:
    """With lag, and how long the source keeps what is to be copied. Log sizes are asked for only where they matter."""
    lagging = {(each.topic, each.partition): each.resumes for each in bare if each.resumes < each.log_end}
    times = first_records(flow.source, lagging).times
    configs = readable(source.topic_configs(sorted({topic for topic, _ in lagging}), RETENTION))
    retention = {topic: _retention(entries) for topic, entries in configs.items()}
    # The brokers have only a part of a tiered log.
    sized = [topic for topic, (_, most) in retention.items() if most is not None and not is_tiered(configs[topic])]
    sizes = (source.log_sizes(sorted(sized)) if sized else None) or {}

    def found(each: PartitionStatus) -> PartitionStatus:
        kept, at = retention.get(each.topic, KEPT_FOR_EVER), (each.topic, each.partition)
        return partition_status(each, times.get(at), kept, now, sizes.get(at))

    return tuple(map(found, bare))


def _bare(topic: CopiedTopic, number: int, log_start: int, log_end: int, ledger: Ledger) -> PartitionStatus:
    name, source_id = topic.source.name, topic.source.topic_id
    exact = ledger.positions.get(PartitionKey(source_id, topic.remote_topic_id, name, number))
    at = ledger.ranges.get((source_id, name, number)) if exact is None else (exact[0], exact[2])
    return PartitionStatus(
        *(name, topic.remote_topic, number, log_start, log_end),
        None if at is None else at[0],
        None if at is None else _unix(at[1]),
        heartbeats=topic.heartbeats,
    )


def _retention(entries: Mapping[str, Any]) -> Retention:
    """A topic that is only compacted deletes nothing so."""
    values = {key: entry.value or "" for key, entry in entries.items()}
    if "delete" not in values.get("cleanup.policy", ""):
        return KEPT_FOR_EVER
    limits = (int(values.get(key) or -1) for key in ("retention.ms", "retention.bytes"))
    ms, nbytes = (limit if limit >= 0 else None for limit in limits)
    return ms, nbytes


def _groups(
    config: MirrorConfig,
    flow: ReplicationFlow,
    source: Optional[KafkaCluster],
    target: KafkaCluster,
    reader: TableReader,
    ledger: Ledger,
    moves: Moves,
    plan: Optional[TopicPlan],
) -> Tuple[GroupStatus, ...]:
    """The groups whose offsets the flow committed on the target, and where there is a source those that it is to keep
    in step. Their lags are on the topics of `plan`, if there is one."""
    last = _last_moves(flow, moves)
    decisions: Sequence[Decision] = ()
    if source is not None and flow.sync_group_offsets_interval is not None:
        _, decisions = group_decisions(config, flow, source, target, reader, ledger.table, moves)
    kept = {each.group for each in decisions}
    names = sorted(last.keys() | kept)
    if not names:
        return ()
    committed, described, topics = target.committed_offsets(names), target.describe_groups(names), target.topics()
    active = {name for name, each in described.items() if each.has_members}
    made = {
        name: {at: row for at, row in rows.items() if name not in committed or _is_there(row, committed[name])}
        for name, rows in last.items()
    }
    verdicts: Dict[str, Dict[TopicPartition, str]] = {}
    for name, rows in last.items():
        # Of a group that is not kept in step, an operator may have taken the offset back. Without the source all count.
        counts = name not in active and (source is None or name in kept)
        lacking = {at for at in rows.keys() - made[name].keys() if counts and at[0] in topics}
        verdicts[name] = {at: NOT_COMMITTED if at in lacking else str(row["verdict"]) for at, row in rows.items()}
    for each in decisions:
        own, at, verdict = verdicts.setdefault(each.group, {}), each.there, each.translation.verdict
        # A group that works is nearly always ahead of the mirror a little, and its last position was translated.
        if at not in own or not (is_ahead(verdict) or (own[at] == NOT_COMMITTED and each.translation.commit)):
            own[at] = verdict
    here = None if plan is None else {each.source.name for each in plan.copied}
    moved = {topic for rows in last.values() for topic, _ in rows}
    there = moved if plan is None else {each.remote_topic for each in plan.copied}
    unread = _unread(target, committed, there)
    source_lags = {} if source is None else _sums(_unread(source, source.committed_offsets(names), here))
    target_lags, markers = _sums(unread), _markers(flow.target, unread)
    return tuple(
        GroupStatus(
            *(name, len(verdicts[name]), _worst_of(verdicts[name].values())),
            *(source_lags.get(name), target_lags.get(name)),
            max((float(row["at"]) for row in made.get(name, {}).values()), default=None),
            markers.get(name, 0),
            name in active,
        )
        for name in names
    )


def _worst_of(verdicts: Iterable[str]) -> str:
    """The first of these that needs the operator, else the first that is not exact."""
    return min(verdicts, key=lambda verdict: (verdict not in WAYS_OUT, verdict == EXACT))


# By group and partition, the offset of the group and how many offsets follow it.
Unread = Mapping[str, Mapping[TopicPartition, Tuple[int, int]]]


def _sums(unread: Unread) -> Dict[str, int]:
    return {name: sum(left for _, left in own.values()) for name, own in unread.items()}


def _unread(
    cluster: KafkaCluster,
    offsets_of: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
    topics: Optional[Collection[str]],
) -> Unread:
    committed = {
        name: {at: each for at, each in offsets.items() if topics is None or at[0] in topics}
        for name, offsets in offsets_of.items()
    }
    ends = cluster.offsets(sorted({at for offsets in committed.values() for at in offsets}), "read_uncommitted")
    return {
        name: {at: (each.offset, max(0, ends[at].end - each.offset)) for at, each in offsets.items() if at in ends}
        for name, offsets in committed.items()
        if offsets
    }


def _markers(cluster: ClusterConfig, unread: Unread) -> Dict[str, int]:
    """By group, how many of these offsets are markers at the end of a log. It is read once for each partition, from the
    last of the groups' offsets, and only where few offsets follow."""
    last: Dict[TopicPartition, int] = {}
    for at, (offset, left) in (item for own in unread.values() for item in own.items()):
        if 0 < left <= MARKERS_MOST:
            last[at] = max(offset, last.get(at, 0))
    without = first_records(cluster, last).without
    return {
        name: sum(left for at, (offset, left) in own.items() if at in without and offset >= last[at])
        for name, own in unread.items()
    }
