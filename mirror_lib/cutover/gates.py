"""What must hold before a cut-over, read from both clusters and the tables. Changes nothing, and starts no Spark."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.control.topic_configs import KEEP
from mirror_lib.cutover.steps import Gate, Quiet, writers_line
from mirror_lib.facts import ActiveProducer, TopicPartition
from mirror_lib.groups.translation import REPARTITIONED, WAYS_OUT
from mirror_lib.kafka.admin import KafkaCluster, clusters_of
from mirror_lib.plan.preview import FlowPreview, preview
from mirror_lib.status.facts import FlowStatus
from mirror_lib.status.read import flow_state
from mirror_lib.text import counted, duration, some

# For so long it is watched which topics grow.
WATCH_SECONDS = 3.0
# Problems of `mirror status` that keep records from the target.
HALTED = ("partition stopped", "topic blocked", "data lost", "no leader")


@dataclass(frozen=True)
class Readiness:
    """The gates, and what the time of a cut-over depends on: offsets to copy, records a second of the last run where
    they are known, records that the source holds."""

    gates: Tuple[Gate, ...]
    lag: int
    rate: Optional[float]
    records: int


def readiness(config: MirrorConfig, flow: ReplicationFlow) -> Readiness:
    """Watches for a few seconds which topics are written. Raises `ClusterError`, `ConfigError`."""
    status = flow_state(config, flow)
    with clusters_of(flow) as (source, target):
        found = preview(flow, source, target, config)
        gates = [*_of_status(status), *_of_writers(found, source), *_of_groups(flow, status, source), *_of_plan(found)]
    held = sum(each.log_end - each.log_start for each in status.partitions)
    return Readiness(tuple(gates), status.lag, status.run.records_per_second if status.run else None, held)


def _of_status(status: FlowStatus) -> Iterator[Gate]:
    unread = "; ".join(status.unread)
    yield Gate("readable", not unread, unread or "both clusters and the state folder", "fix this first")
    run = status.run
    if run is None:
        yield Gate("run", False, "the flow never ran", "mirror run CONFIG --once")
    elif status.running:
        where = "" if run.driver is None else f" on {run.driver}"
        yield Gate("run", False, f"a run is under way{where}", "stop it and its schedule before mirror cutover run")
    else:
        yield Gate("run", True, "no run is under way")
    age = "" if status.lag_seconds is None else f", the oldest {duration(status.lag_seconds)} old"
    copied = "everything before open transactions is copied" if status.transactions else "everything is copied"
    lag = f"{counted(status.lag, 'offset')} are not copied{age}" if status.lag else copied
    yield Gate("lag", True, lag)  # the cut-over copies the rest
    for waiting in status.transactions:
        yield Gate("transactions", False, waiting.sentence(status.at), "a cut-over waits until they end")
    kept = [each for each in status.problems if each.code in ("retention", "deleted before copied")]
    for each in kept:
        yield Gate("retention", False, each.what, each.remedy)
    for each in (each for each in status.problems if each.code in HALTED):
        yield Gate(each.code, False, each.what, each.remedy)
    verified = status.verified
    if verified is None:
        yield Gate("verify", True, "never; the cut-over verifies all of it")
    else:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(verified.at))
        yield Gate("verify", verified.verdict == "equal", f"{verified.verdict} at {at}", "mirror verify CONFIG")


def _of_writers(found: FlowPreview, source: KafkaCluster) -> Iterator[Gate]:
    places: List[TopicPartition] = [
        (each.source.name, n) for each in found.topics.copied if not each.heartbeats for n in range(each.partitions)
    ]
    began, before = time.monotonic(), source.active_producers(places)
    quiet = Quiet.first(_ends(source, places), began)
    time.sleep(WATCH_SECONDS)
    quiet = quiet.seen(_ends(source, places), time.monotonic())
    if quiet.grew:
        said = f"still written: {writers_line(quiet.grew, time.monotonic() - began)}"
        wrote = who_wrote(before, source.active_producers([place for place in places if place[0] in quiet.grew]))
        said += f"; by {some(wrote)}" if wrote else ""
        yield Gate("producers", False, said, "stop them when the cut-over waits for silence, or give --fence-source")
    else:
        yield Gate("producers", True, f"nothing was written for {WATCH_SECONDS:.0f} s")


Producers = Mapping[TopicPartition, Sequence[ActiveProducer]]


def who_wrote(before: Producers, after: Producers) -> List[str]:
    wrote = {each.name for place, found in after.items() for each in found if each not in before.get(place, ())}
    return sorted(wrote)


def _ends(source: KafkaCluster, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    return {place: log.end for place, log in source.offsets(places, "read_uncommitted").items()}


def _of_groups(flow: ReplicationFlow, status: FlowStatus, source: KafkaCluster) -> Iterator[Gate]:
    names = [each.group for each in status.groups] or list(source.group_names())
    active = sorted(name for name, each in source.describe_groups(names).items() if each.has_members)
    if active:
        yield Gate("consumers", False, f"group {some(active, 1)} still reads", "stop them before mirror cutover run")
    else:
        yield Gate("consumers", True, "no group of the source has members")
    moved = [each for each in status.groups if each.moved_at is not None]
    if flow.repartitions and names:
        yield Gate("groups", False, REPARTITIONED, f"give --leave-groups, then {WAYS_OUT[REPARTITIONED]}")
    elif moved:
        yield Gate("groups", True, f"{counted(len(moved), 'group')} translated before")
    else:
        yield Gate("groups", True, "the cut-over translates them")


def _of_plan(found: FlowPreview) -> Iterator[Gate]:
    if found.configs is None:
        yield Gate("configs", True, f"not compared: {found.silent.get('configs', '')}")
    else:
        changing = sorted(
            topic for topic, decisions in found.configs.items() if any(each.action != KEEP for each in decisions)
        )
        reported = f"{counted(len(changing), 'remote topic')} differ: {changing[0]}" if changing else "equal"
        yield Gate("configs", not changing, reported, "mirror run CONFIG sends them")
    if found.acls is None:
        yield Gate("acls", True, f"not compared: {found.silent.get('acls', '')}")
    else:
        missing = len(found.acls.create)
        reported = f"{counted(missing, 'ACL')} missing on the target" if missing else "equal"
        yield Gate("acls", not missing, reported, "mirror run CONFIG creates them")
