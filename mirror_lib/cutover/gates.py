"""What must hold before a cut-over, read from both clusters and the tables. Changes nothing, and starts no Spark."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.control.topic_configs import KEEP
from mirror_lib.cutover.steps import Quiet, writers_line
from mirror_lib.doctor.checks import BLOCKING, OK, Check
from mirror_lib.facts import TopicPartition
from mirror_lib.groups.decisions import Decision
from mirror_lib.groups.survey import group_names, left_out_groups
from mirror_lib.groups.translation import ACTIVE, BACKWARDS, REPARTITIONED, WAYS_OUT
from mirror_lib.kafka.admin import KafkaCluster, clusters_of
from mirror_lib.ledger.table_reader import TableReader
from mirror_lib.plan.preview import FlowPreview, preview
from mirror_lib.status.facts import EQUAL, NOT_RUNNING, TRANSACTIONS, FlowStatus, RunStatus
from mirror_lib.status.groups import group_decisions
from mirror_lib.status.read import flow_state, ledger_of, moves_of
from mirror_lib.status.render import lag
from mirror_lib.text import counted, moment, some
from mirror_lib.topics.matchless import Matchless
from mirror_lib.topics.plan import TopicPlan
from mirror_lib.topics.policy import written_by_mirrors

CORRECT_TOPICS = "correct `topics` or `topics.exclude`; mirror plan CONFIG shows what is copied"
# By verdict on which the step `groups` would end, in addition to `WAYS_OUT`.
STUCK = {
    ACTIVE: "stop its consumers on the target, or give --leave-groups",
    BACKWARDS: "if it was reset on the source: mirror groups plan --group NAME --allow-rewind --execute; else give "
    "--leave-groups",
}
# For so long it is watched which topics grow.
WATCH_SECONDS = 3.0


@dataclass(frozen=True)
class Readiness:
    """The conditions (`gates`) of the cut-over of `flow`, and what its time depends on: offsets to copy (`lag`),
    the most records a second of its runs (`rate`), `records` on the source."""

    flow: str
    gates: Tuple[Check, ...]
    lag: int
    rate: Optional[float]
    records: int


def readiness(config: MirrorConfig, flow: ReplicationFlow) -> Readiness:
    """Watches for a few seconds which topics are written. Raises `ClusterError`, `ConfigError`."""
    state = flow_state(config, flow)
    with clusters_of(flow) as (source, target):
        found = preview(flow, source, target, config)
        left = left_out(flow, config.flows, found.topics, state.matchless)
        gates = [_gate(flow.name, "topics", some(left, 3), CORRECT_TOPICS)] if left else []
        gates += [*_of_state(state), *_of_writers(found, source), *_of_groups(found, state, source)]
        if state.run is not None and not state.unread and not flow.repartitions:
            reader = TableReader(config.state)
            table, moves = ledger_of(reader, flow).table, moves_of(reader, flow)
            gates += _of_offsets(flow, group_decisions(config, flow, source, target, reader, table, moves)[1])
        gates += _of_plan(found)
    held = sum(each.log_end - each.log_start for each in state.partitions)
    return Readiness(flow.name, tuple(gates), state.lag, fastest(state.runs or ()), held)


def left_out(
    flow: ReplicationFlow, flows: Sequence[ReplicationFlow], plan: TopicPlan, matchless: Sequence[Matchless]
) -> List[str]:
    """The topics that `topics` selects and the flow does not copy, with the reasons: applications that move would lack
    their records. `matchless`: the names that the source lacks."""
    found = [each.sentence for each in matchless if each.key == "topics"]
    found += [
        f"{each.name}: {each.reason}"
        for each in plan.skipped
        if each.wanted and (each.unnamed or not written_by_mirrors(flow, each.name, flows))
    ]
    return found if any(not each.heartbeats for each in plan.copied) else [*found, "it copies no topic of applications"]


def fastest(runs: Sequence[RunStatus]) -> Optional[float]:
    """The most records per second between two signs of life of `runs`. A run that has caught up is no faster than the
    source's producers, and says nothing of the copy's speed."""
    pairs = [pair for run in runs for pair in zip(run.signs, run.signs[1:]) if pair[0].at < pair[1].at]
    rates = ((later.records - first.records) / (later.at - first.at) for first, later in pairs)
    return max(rates, default=None) or None


def _gate(flow: str, code: str, detail: str, remedy: str = "") -> Check:
    """A condition that holds, or does not where it has a remedy."""
    return Check(flow, code, BLOCKING if remedy else OK, detail, remedy)


def _of_state(state: FlowStatus) -> Iterator[Check]:
    """The run, the lag, and the problems that `mirror status` has: but for a lag without a run, as the cut-over copies
    the rest."""
    gate = partial(_gate, state.flow)
    if state.running and state.run is not None:
        where = "" if state.run.driver is None else f" on {state.run.driver}"
        yield gate("run", f"a run is under way{where}", "stop it and its schedule before mirror cutover run")
    elif state.run is not None:
        yield gate("run", "no run is under way")
    copied = "everything before open transactions is copied" if state.transactions else "everything is copied"
    yield gate("lag", f"not copied: {lag(state)}" if state.lag else copied)
    for waiting in state.transactions:
        yield gate("transactions", waiting.sentence(state.at), "a cut-over waits until they end")
    for each in state.problems:
        if each.code not in (NOT_RUNNING, *TRANSACTIONS):
            yield gate(each.code, each.what, each.remedy)
    if state.verified is None:
        yield gate("verify", "never; the cut-over verifies all of it")
    elif state.verified.verdict == EQUAL:
        yield gate("verify", f"{EQUAL} {moment(state.verified.at)}")


def _of_writers(found: FlowPreview, source: KafkaCluster) -> Iterator[Check]:
    places: List[TopicPartition] = [
        (each.source.name, n) for each in found.topics.copied if not each.heartbeats for n in range(each.partitions)
    ]
    began, before = time.monotonic(), source.active_producers(places)
    quiet = Quiet(_ends(source, places), began, {})
    time.sleep(WATCH_SECONDS)
    quiet = quiet.seen(_ends(source, places), time.monotonic())
    if quiet.grew:
        said = f"still written: {writers_line(quiet.grew, time.monotonic() - began)}"
        after = source.active_producers([place for place in places if place[0] in quiet.grew])
        wrote = {each.name for place, now in after.items() for each in now if each not in before.get(place, ())}
        said += f"; by {some(sorted(wrote))}" if wrote else ""
        yield _gate(found.flow.name, "producers", said, "stop them when the cut-over waits for silence")
    else:
        yield _gate(found.flow.name, "producers", f"nothing was written for {WATCH_SECONDS:.0f} s")


def _ends(source: KafkaCluster, places: Sequence[TopicPartition]) -> Dict[TopicPartition, int]:
    return {place: log.end for place, log in source.offsets(places, "read_uncommitted").items()}


def _of_groups(found: FlowPreview, state: FlowStatus, source: KafkaCluster) -> Iterator[Check]:
    flow, copied = found.flow, {each.source.name for each in found.topics.copied}
    gate = partial(_gate, flow.name)
    committed = source.committed_offsets(group_names(flow, source))
    names = [name for name, own in committed.items() if any(topic in copied for topic, _ in own)]
    without = left_out_groups(flow, copied, source)
    active = sorted(name for name, each in source.describe_groups(names).items() if each.has_members)
    if active:
        yield gate("consumers", f"group {some(active, 1)} still reads", "stop them before mirror cutover run")
    else:
        yield gate("consumers", "no group that the flow translates has members")
    moved = [each for each in state.groups if each.moved_at is not None]
    if flow.repartitions and names:
        yield gate("groups", REPARTITIONED, f"give --leave-groups, then {WAYS_OUT[REPARTITIONED]}")
    elif moved:
        yield gate("groups", f"{counted(len(moved), 'group')} translated before")
    else:
        yield gate("groups", "the cut-over translates them")
    if without:
        said = f"left out by groups.exclude or groups, {some(without, 3)}: on the target auto.offset.reset decides"
        yield gate("groups left out", said)


def _of_offsets(flow: ReplicationFlow, decisions: Sequence[Decision]) -> Iterator[Check]:
    """The offsets that the cut-over could not commit, also once it has copied the rest."""
    stuck: Dict[str, List[str]] = {}
    for each in decisions:
        verdict = each.translation.verdict
        # With `sync.group.offsets.enabled` the others are problems of `mirror status`.
        if verdict in STUCK or (verdict in WAYS_OUT and flow.sync_group_offsets_interval is None):
            stuck.setdefault(verdict, []).append(f"group {each.group} on {each.here[0]}-{each.here[1]}")
    for verdict, places in stuck.items():
        way_out = STUCK.get(verdict) or WAYS_OUT[verdict]
        yield _gate(flow.name, "groups", f"{some(places, 1)}: {verdict}", way_out)


def _of_plan(found: FlowPreview) -> Iterator[Check]:
    gate = partial(_gate, found.flow.name)
    if found.configs is None:
        yield gate("configs", f"not compared ({found.silent.get('configs', '')})")
    else:
        decided = found.configs.items()
        changing = sorted(topic for topic, own in decided if any(each.action != KEEP for each in own))
        said = f"{counted(len(changing), 'remote topic')} differ: {changing[0]}" if changing else "equal"
        yield gate("configs", said, "mirror run CONFIG sends them" if changing else "")
    if found.acls is None:
        yield gate("acls", f"not compared ({found.silent.get('acls', '')})")
    else:
        # The operator denies Write on the source to silence it: on the target it would stop the producers that moved.
        missing = [each for each in found.acls.create if (each.permission, each.operation) != ("DENY", "WRITE")]
        said = f"{counted(len(missing), 'ACL')} missing on the target" if missing else "equal"
        yield gate("acls", said, "mirror run CONFIG creates them" if missing else "")
