"""What the target holds of a flow whose source is gone. Reads the target and the tables alone, and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.groups.translation import REPARTITIONED, WAYS_OUT
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.table_reader import TableReader, last_commits
from mirror_lib.status.facts import runs_of
from mirror_lib.status.read import RUN_COLUMNS, Moves, lags_of, last_at, last_moves, timed, worst_of
from mirror_lib.text import aligned, counted, duration, grouped
from mirror_lib.topics.policy import counts

LEDGER = ("source_topic", "remote_topic", "remote_topic_id", "committed_at")


@dataclass(frozen=True)
class RemoteTopic:
    """A remote topic: offsets that it holds, and when the mirror last committed a copy into it (Unix seconds). `here`:
    it is on the target, as the one that the ledger speaks of."""

    topic: str
    remote_topic: str
    offsets: int
    copied_at: float
    here: bool


@dataclass(frozen=True)
class TargetGroup:
    """A group that the mirror moved: positions, the worst verdict, offsets left to read on the target, when the mirror
    committed last (Unix seconds). `active`: consumers read on the target already."""

    group: str
    positions: int
    verdict: str
    lag: Optional[int]
    committed_at: float
    active: bool


@dataclass(frozen=True)
class Failover:
    """What is known of a flow without its source. `seen_at`: the last sign of life or commit of the mirror; what was
    written to the source after that is not on the target. `lag`: offsets that were to be copied at that time, where the
    run recorded. `repartitioned`: no group's offset has a place on the target."""

    flow: str
    at: float
    seen_at: Optional[float]
    lag: Optional[int]
    topics: Tuple[RemoteTopic, ...]
    groups: Tuple[TargetGroup, ...]
    repartitioned: bool = False


def failover(config: MirrorConfig, flow: ReplicationFlow, now: float) -> Failover:
    """Raises `ClusterError`, `StateError`, `ConfigError`."""
    reader = TableReader(config.state)
    table = reader.arrow("offset_syncs", LEDGER, flow.name)
    ledger = [] if table is None else timed(last_commits(table), "committed_at")
    runs = timed(reader.rows("runs", RUN_COLUMNS, flow.name))
    run = next(reversed(runs_of(runs, now)), None)
    with KafkaCluster(flow.target, flow.admin_timeout) as target:
        topics = _topics(target, ledger)
        groups = _groups(target, last_moves(reader, flow))
    seen = max([*(each.copied_at for each in topics), *([] if run is None else [run.last_sign])], default=None)
    signs = [row for row in runs if row["lag_records"] is not None]
    lag = max(signs, key=lambda row: float(row["at"]))["lag_records"] if signs else None
    shown = tuple(each for each in topics if counts(flow, each.topic, config.flows))
    return Failover(flow.name, now, seen, lag, shown, groups, flow.repartitions)


def _topics(target: KafkaCluster, ledger: List[Dict[str, Any]]) -> Tuple[RemoteTopic, ...]:
    last: Dict[str, Dict[str, Any]] = {}
    for row in sorted(ledger, key=lambda each: float(each["committed_at"])):
        last[row["remote_topic"]] = row
    there = target.topics()
    places = [(name, n) for name in last if name in there for n in range(there[name].partitions)]
    logs = target.offsets(places, "read_uncommitted")
    held: Dict[str, int] = {}
    for (name, _), log in logs.items():
        held[name] = held.get(name, 0) + log.end - log.log_start
    return tuple(
        RemoteTopic(
            *(row["source_topic"], name, held.get(name, 0), float(row["committed_at"])),
            name in there and there[name].topic_id == row["remote_topic_id"],
        )
        for name, row in sorted(last.items())
    )


def _groups(target: KafkaCluster, moves: Mapping[str, Moves]) -> Tuple[TargetGroup, ...]:
    topics = {row["topic"] for own in moves.values() for row in own}
    described, lags = target.describe_groups(sorted(moves)), lags_of(target, sorted(moves), topics)
    return tuple(
        TargetGroup(
            *(name, len(own), worst_of(row["verdict"] for row in own), lags.get(name), last_at(own)),
            name in described and described[name].has_members,
        )
        for name, own in sorted(moves.items())
    )


def failover_lines(found: Failover, columns: Optional[int] = None) -> List[str]:
    ago = "never" if found.seen_at is None else f"{duration(max(0.0, found.at - found.seen_at))} ago"
    lines = [f"{found.flow}: the mirror was last seen {ago}"]
    if found.lag:
        lines.append(f"  {counted(found.lag, 'offset')} were not copied then; they are on the source alone")
    lines.append("  records that the source took after that are not on the target; how many cannot be known")
    if found.topics:
        rows = [("TOPIC", "REMOTE TOPIC", "OFFSETS", "LAST COPIED", "STATE")]
        for each in found.topics:
            age = f"{duration(max(0.0, found.at - each.copied_at))} ago"
            rows.append((each.topic, each.remote_topic, grouped(each.offsets), age, "there" if each.here else "gone"))
        lines += ["", *aligned(rows, {2, 3}, columns)]
    if found.groups:
        header = ("GROUP", "POSITIONS", "VERDICT", "TARGET LAG", "COMMITTED", "ON THE TARGET")
        rows_of = [
            (
                *(each.group, str(each.positions), each.verdict, "-" if each.lag is None else grouped(each.lag)),
                f"{duration(max(0.0, found.at - each.committed_at))} ago",
                "reads already" if each.active else "can start",
            )
            for each in found.groups
        ]
        lines += ["", *aligned([header, *rows_of], {1, 3, 4}, columns)]
        lines.append("a group reads again what it read on the source after COMMITTED, and passes no record")
    else:
        way_out = f"{REPARTITIONED}; {WAYS_OUT[REPARTITIONED]}"
        otherwise = "consumers start where auto.offset.reset says"
        lines += ["", f"no group was moved to the target: {way_out if found.repartitioned else otherwise}"]
    return lines
