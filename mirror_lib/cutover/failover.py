"""What the target holds of a flow whose source is gone. Reads the target and the tables alone, and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.groups.translation import NOT_COMMITTED, REPARTITIONED, WAYS_OUT
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.connection import name_of
from mirror_lib.kafka.offsets import first_records
from mirror_lib.ledger.records import DATA_LOST, PARTITION_STOPPED
from mirror_lib.ledger.reductions import last_commits
from mirror_lib.ledger.table_reader import TableReader
from mirror_lib.status.facts import RUN_DIED, RUN_FAILED, VERIFICATION, GroupStatus
from mirror_lib.status.read import flow_state, timed
from mirror_lib.status.render import GROUP
from mirror_lib.text import Column, counted, duration, grouped, moment, one_entry, some, table_lines
from mirror_lib.topics.policy import counts

# The problems of a status that concern the copy, wherever the source is.
OF_THE_COPY = (RUN_FAILED, RUN_DIED, PARTITION_STOPPED, DATA_LOST, VERIFICATION)
LEDGER = ("source_topic", "remote_topic", "remote_topic_id", "committed_at")


@dataclass(frozen=True)
class RemoteTopic:
    """A remote topic: its `offsets`, and when the mirror last committed a copy into it (`copied_at`). `here`: it is on
    the target, with the ledger's topic id. `without_offset`: its groups without an offset on a partition
    with records."""

    topic: str
    remote_topic: str
    offsets: int
    copied_at: float
    here: bool
    without_offset: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Failover:
    """A flow without its source. `seen_at`: the last sign of life or commit of the mirror; later records of the source
    are not on the target. `lag`: offsets to copy then, if recorded. `repartitioned`: group offsets cannot be
    translated. `unread`: what could not be read. `problems`: what is wrong with the copy by the tables."""

    flow: str
    at: float
    seen_at: Optional[float]
    lag: Optional[int]
    topics: Tuple[RemoteTopic, ...]
    groups: Tuple[GroupStatus, ...]
    repartitioned: bool = False
    unread: Tuple[str, ...] = ()
    problems: Tuple[str, ...] = ()


def failover(config: MirrorConfig, flow: ReplicationFlow) -> Failover:
    """Raises `ClusterError`, `StateError`, `ConfigError`."""
    state = flow_state(config, flow, with_source=False)
    table = TableReader(config.state).arrow("offset_syncs", LEDGER, flow.name)
    with KafkaCluster(flow.target, flow.admin_timeout) as target:
        ledger = [] if table is None else timed(last_commits(table), "committed_at")
        topics = _topics(flow, target, ledger, [each.group for each in state.groups])
    signs = [state.run.last_sign] if state.run is not None else []
    seen = max([*(each.copied_at for each in topics), *signs], default=None)
    lags = [each.lag_records for run in state.runs or () for each in run.signs if each.lag_records is not None]
    shown = tuple(each for each in topics if counts(flow, each.topic, config.flows))
    lag = lags[-1] if lags else None
    problems = tuple(each.what for each in state.problems if each.code in OF_THE_COPY)
    return Failover(flow.name, state.at, seen, lag, shown, state.groups, flow.repartitions, state.unread, problems)


def _topics(
    flow: ReplicationFlow, target: KafkaCluster, ledger: List[Dict[str, Any]], groups: Sequence[str]
) -> Tuple[RemoteTopic, ...]:
    last: Dict[str, Dict[str, Any]] = {}
    for row in sorted(ledger, key=lambda each: float(each["committed_at"])):
        last[row["remote_topic"]] = row
    there = target.topics()
    places = [(name, n) for name in last if name in there for n in range(there[name].partitions)]
    logs = target.offsets(places, "read_uncommitted")
    held: Dict[str, int] = {}
    for (name, _), log in logs.items():
        held[name] = held.get(name, 0) + log.end - log.log_start
    starts = {at: log.log_start for at, log in logs.items() if log.end > log.log_start}
    bare = [
        (group, at)
        for group, own in sorted(target.committed_offsets(groups).items())
        for at in sorted(starts.keys() - own.keys())
        if at[0] in {topic for topic, _ in own}
    ]
    empty = first_records(flow.target, {at: starts[at] for _, at in bare}).without
    return tuple(
        RemoteTopic(
            *(row["source_topic"], name, held.get(name, 0), float(row["committed_at"])),
            name in there and there[name].topic_id == row["remote_topic_id"],
            tuple(f"{group} on {name_of(at)}" for group, at in bare if at[0] == name and at not in empty),
        )
        for name, row in sorted(last.items())
    )


def failover_lines(found: Failover, columns: Optional[int] = None) -> List[str]:
    ago = "never" if found.seen_at is None else f"{duration(max(0.0, found.at - found.seen_at))} ago"
    lines = [f"{found.flow}: the mirror was last seen {ago}"]
    if found.lag:
        lines.append(f"  {counted(found.lag, 'offset')} were not copied then; they are on the source alone")
    lines.append("  records that the source took after that are not on the target; how many cannot be known")
    lines += [f"  ! {one_entry(each)}" for each in (*found.unread, *found.problems)]
    if found.topics:
        lines += ["", *table_lines(TOPIC, found.topics, columns)]
    if found.groups:
        lines += ["", *table_lines(GROUPS, found.groups, columns)]
        bare = [each for topic in found.topics for each in topic.without_offset]
        skips = "" if bare else ", and skips no record"
        lines.append(f"a group reads again what it read on the source after COMMITTED{skips}")
        if bare:
            remedy = "auto.offset.reset decides and may skip records; else kafka-consumer-groups.sh --reset-offsets"
            lines.append(f"! groups without an offset, {some(bare, 3)}: {remedy}")
        if any(each.verdict == NOT_COMMITTED for each in found.groups):
            remedy = "set them with kafka-consumer-groups.sh --reset-offsets"
            lines.append(f"! groups that are {NOT_COMMITTED} lack the offsets that the mirror translated: {remedy}")
    else:
        way_out = f"{REPARTITIONED}; {WAYS_OUT[REPARTITIONED]}"
        otherwise = "consumers start where auto.offset.reset says"
        lines += ["", f"no group offset was committed on the target: {way_out if found.repartitioned else otherwise}"]
    return lines


def _on_the_target(group: GroupStatus) -> str:
    if group.active:
        return "reads already"
    return "can start" if group.verdict != NOT_COMMITTED else "not committed"


TOPIC = (
    Column("Topic", lambda each: each.topic),
    Column("Remote topic", lambda each: each.remote_topic),
    Column("Offsets", lambda each: each.offsets, grouped),
    Column("Last copied", lambda each: each.copied_at, moment),
    Column("State", lambda each: "there" if each.here else "gone"),
)
GROUPS = (
    *(column for column in GROUP if column.title != "Source lag"),
    Column("On the target", _on_the_target),
)
