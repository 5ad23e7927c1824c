"""Makes the cut-over of one flow, step by step. Each step is recorded before it is made, and can be made again.

Order of effects: silence, copy, verify, groups, check. After a kill the next call resumes with the first step
that is not done. Where the source was written to meanwhile, it resumes with `silence`.
"""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass, replace
from typing import Callable, Collection, Dict, Iterator, List, Mapping, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.cutover.gates import CORRECT_TOPICS, left_out
from mirror_lib.cutover.steps import (
    BACK,
    CHECK,
    COPY,
    DONE,
    FAILED,
    GROUPS,
    OVER,
    SILENCE,
    STARTED,
    STEPS,
    STEPS_BACK,
    VERIFY,
    Quiet,
    ends_of,
    ends_text,
    not_copied,
    places_line,
    to_go,
    to_resume,
    to_undo,
    writers_line,
)
from mirror_lib.errors import ClusterError, MirrorError, RefusedError
from mirror_lib.facts import TopicPartition, held_back
from mirror_lib.groups.decisions import Outcome
from mirror_lib.groups.flow import FlowTranslation
from mirror_lib.groups.markers import marker_ends
from mirror_lib.groups.survey import left_out_groups
from mirror_lib.groups.translation import ACTIVE, FOREIGN, REPARTITIONED, TO_DOWNSTREAM, TO_UPSTREAM, WAYS_OUT
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.connection import Disconnected
from mirror_lib.ledger.event_tables import EventTable
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import CutoverStep
from mirror_lib.ledger.runs import RunTable
from mirror_lib.rows.transform import check_change
from mirror_lib.run_lock import STOP_OR_END, STOP_RUN
from mirror_lib.text import counted, some
from mirror_lib.topics.matchless import selected_in_vain
from mirror_lib.topics.plan import CopiedTopic, TopicPlan
from mirror_lib.topics.remote_topics import plan_flow
from mirror_lib.verify.flow import key_of, verify_planned
from mirror_lib.verify.ranges import Scope
from mirror_lib.verify.verdicts import summary

# Makes a step: what to say of it, and the facts that a later call needs.
Act = Callable[[], Tuple[str, str]]

CHECK_SECONDS = 1.0
REPORT_SECONDS = 5.0
AGAIN = "call this command again: it resumes with this step"


@dataclass(frozen=True)
class Options:
    """What the operator chose: how long the source must be silent and how long to wait for that, whether groups may be
    left where they are, and whether to end a run that is under way."""

    quiet_seconds: float
    wait_seconds: float
    leave_groups: bool
    take_over: bool


class Cutover:
    """One flow's cut-over, connected to both clusters. Every method raises `MirrorError`. `say` gets its progress."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: ReplicationFlow,
        spark: SparkSession,
        clusters: Tuple[KafkaCluster, KafkaCluster],
        options: Options,
        say: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self._config, self._flow, self._spark, self._options = config, flow, spark, options
        self._source, self._target = clusters
        self._print, self._stop = say, stop
        self._events, self._runs = EventTable(spark, config.state), RunTable(spark, config.state)
        self._topics = sorted({each.source.name for each in _written_by_applications(self._plan())})
        self._ends: Mapping[TopicPartition, int] = {}

    def over(self) -> Iterator[CutoverStep]:
        """Make the steps that are not done yet; yields each as it is recorded."""
        rows = self._events.cutover_steps(self._flow.name)
        cutover_id, done = to_resume(rows, OVER)
        if not done:
            self._refuse_left_out()
        if SILENCE in done:
            self._ends = ends_of(done[SILENCE])
        steps = to_go(done, self._log_ends())
        kept = [step for step in done if step not in steps]
        if kept:
            self._say(f"cut-over {cutover_id} resumes; done before: {', '.join(kept)}")
        if not self._options.take_over:
            self._runs.refuse_while_copied(self._flow.name, STOP_OR_END)
        reason = check_change(self._spark, self._flow)
        if reason is not None:
            what = f"nothing was changed: the step {VERIFY} would fail, as records cannot be computed again: {reason}"
            hint = "stop the producers, then `mirror run CONFIG --once` and `mirror groups plan CONFIG --execute`"
            raise self._refusal("MIR-350", what, hint)
        acts: Mapping[str, Act] = {
            SILENCE: self._silence,
            COPY: self._copy,
            VERIFY: self._verify,
            GROUPS: self._groups,
            CHECK: self._check,
        }
        yield from self._make(cutover_id, OVER, {step: acts[step] for step in steps})

    def _refuse_left_out(self) -> None:
        matchless = selected_in_vain(self._flow, self._source, names_only=True)
        reasons = left_out(self._flow, self._config.flows, self._plan(), matchless)
        if reasons:
            what = f"topics are not copied, nothing was changed: {some(reasons, 3)}"
            raise self._refusal("MIR-332", what, CORRECT_TOPICS)

    def back(self) -> Iterator[CutoverStep]:
        self._runs.refuse_while_copied(self._flow.name, STOP_RUN)
        rows = self._events.cutover_steps(self._flow.name)
        over = to_undo(rows)
        if not over:
            hint = "mirror groups plan --reverse moves groups alone"
            raise self._refusal("MIR-333", "there was no cut-over; nothing was changed", hint)
        acts: Mapping[str, Act] = {
            CHECK: lambda: self._check_target(over),
            GROUPS: lambda: self._groups(TO_UPSTREAM),
        }
        yield from self._make(to_resume(rows, BACK)[0], BACK, acts)

    def _make(self, cutover_id: str, direction: str, steps: Mapping[str, Act]) -> Iterator[CutoverStep]:
        for number, (step, act) in enumerate(steps.items(), start=1):
            if self._stop.is_set():
                raise self._refusal("MIR-330", f"stopped before the step {step}; earlier steps are complete", AGAIN)
            words = (STEPS if direction == OVER else STEPS_BACK)[step]
            row = CutoverStep(self._flow.name, cutover_id, direction, step, STARTED, words)
            self._say(f"step {number} of {len(steps)}, {step}: {words}")
            yield self._recorded(row)
            try:
                detail, facts = act()
            except MirrorError as error:
                yield self._recorded(replace(row, status=FAILED, detail=str(error)))
                raise
            yield self._recorded(replace(row, status=DONE, detail=detail, facts=facts))
            self._say(f"{step}: {detail}")

    def _say(self, line: str) -> None:
        self._print(f"{self._flow.name}: {line}")

    def _refusal(self, code: str, what: str, hint: str) -> RefusedError:
        return RefusedError(f"{self._flow.name}: {what}", hint, code=code)

    def _recorded(self, row: CutoverStep) -> CutoverStep:
        self._events.add_cutover_step(row)
        return row

    def _places(self) -> List[TopicPartition]:
        there = self._source.topics()
        return [(name, n) for name in self._topics if name in there for n in range(there[name].partitions)]

    def _log_ends(self) -> Dict[TopicPartition, int]:
        return self._ends_on(self._source, self._places())

    def _ends_on(self, cluster: KafkaCluster, places: Sequence[TopicPartition]) -> Dict[TopicPartition, int]:
        found = cluster.offsets(places, "read_uncommitted")
        missing = sorted(set(places) - found.keys())
        if missing:
            raise self._refusal("MIR-332", f"{cluster.alias}: {missing[0][0]}-{missing[0][1]} has no leader", AGAIN)
        return {place: log.end for place, log in found.items()}

    def _silence(self) -> Tuple[str, str]:
        options, began = self._options, time.monotonic()
        quiet, reported = Quiet(self._log_ends(), began, {}), began
        while quiet.lasts(time.monotonic()) < options.quiet_seconds or self._open_transactions(quiet):
            if self._stop.wait(CHECK_SECONDS):
                raise self._refusal("MIR-330", "stopped while waiting for the source", AGAIN)
            now = time.monotonic()
            quiet = quiet.seen(self._log_ends(), now)
            if quiet.since == now and now - reported >= REPORT_SECONDS:
                reported = now
                self._say(f"still written: {writers_line(quiet.grew, CHECK_SECONDS)}")
            if now - began > options.wait_seconds:
                what = self._still_written(quiet, quiet.lasts(now) < options.quiet_seconds)
                raise self._refusal("MIR-330", what, "stop the producers, and call this again")
        self._ends = quiet.ends
        return f"nothing was written to {counted(len(self._topics), 'topic')} for {options.quiet_seconds:.0f} s", (
            ends_text(quiet.ends)
        )

    def _still_written(self, quiet: Quiet, grows: bool) -> str:
        waited = f"the source is not silent after {self._options.wait_seconds:.0f} s"
        if grows and quiet.grew:
            return f"{waited}: {writers_line(quiet.grew, CHECK_SECONDS)}"
        held = self._open_transactions(quiet)
        producers = self._source.active_producers(sorted(held))
        names = sorted({each.name for found in producers.values() for each in found if each.open_since is not None})
        of = f" of {some(names)}" if names else ""
        return f"{waited}: open transactions{of}: {places_line(held)}" if held else waited

    def _open_transactions(self, quiet: Quiet) -> Mapping[TopicPartition, int]:
        stable = self._source.offsets(sorted(quiet.ends), "read_committed")
        return held_back(quiet.ends, {place: log.end for place, log in stable.items()})

    def _copy(self) -> Tuple[str, str]:
        from mirror_lib.copy_job import run_flows

        once = replace(self._config, trigger=AVAILABLE_NOW)
        (outcome,) = run_flows(once, [self._flow], self._spark, lambda snapshot: None, self._stop)
        if outcome.error is not None:
            raise outcome.error
        self._refuse_not_copied()
        return f"{counted(outcome.records, 'record')} copied; the ledger reaches the end of every log", ""

    def _refuse_not_copied(self) -> None:
        logs = self._source.offsets(self._places(), self._flow.isolation_level)
        left = not_copied(self._ends, {place: log.log_start for place, log in logs.items()}, self._positions())
        if left:
            what = f"not copied: {places_line(left)}; this step changed no group's offset"
            raise self._refusal("MIR-332", what, AGAIN)

    def _positions(self) -> Dict[TopicPartition, int]:
        """By source partition the offset that the ledger reaches in the remote topics of today."""
        ledger = OffsetSyncTable(self._spark, self._config.state)
        if self._flow.repartitions:
            stands = ledger.range_positions(self._flow.name).sources
            return {place: stand.offset for place, stand in stands.items()}
        positions = ledger.positions(self._flow.name)
        return {
            (topic.source.name, number): positions[key_of(topic, number)].upstream_offset
            for topic in self._plan().copied
            for number in range(topic.partitions)
            if key_of(topic, number) in positions
        }

    def _plan(self) -> TopicPlan:
        return plan_flow(self._flow, self._source, self._target, self._config.flows)

    def _verify(self) -> Tuple[str, str]:
        flow = self._flow
        scope = Scope(seed=random.randrange(1_000_000))
        report = verify_planned(self._spark, self._config, flow, self._plan(), self._source, self._target, scope)
        self._events.add_verification(summary(report, scope))
        if not report.equal:
            bad = next(topic for topic in report.topics if not topic.fine)
            what = f"{bad.remote_topic} is {bad.verdict}; no offset of a group was changed"
            hint = "mirror verify CONFIG shows where; then call mirror cutover run again"
            raise self._refusal("MIR-332", what, hint)
        records = sum(topic.records for topic in report.topics)
        return f"{counted(len(report.topics), 'topic')} equal, {counted(records, 'record')}", ""

    def _groups(self, direction: str = TO_DOWNSTREAM) -> Tuple[str, str]:
        clusters = (self._source, self._target)
        here, there = clusters if direction == TO_DOWNSTREAM else clusters[::-1]
        translation = FlowTranslation(self._config, self._flow, self._spark, *clusters, direction)
        try:
            # Members first, then offsets: a consumer that leaves in between has committed its last one.
            self._refuse_consumers(translation.survey().positions, here)
            found = translation.survey()
            without = left_out_groups(self._flow, {topic for topic, _ in found.pairs}, here)
            decisions, unknown = translation.decide(found), translation.unreadable(found)
            later = not self._flow.starts_at_earliest
            skipping = [
                f"{each.group} on {each.here[0]}-{each.here[1]} from offset {each.translation.skips_from} on"
                for each in decisions
                if each.translation.skips_from is not None
                and (each.translation.commit or each.already_there)
                and (each.translation.lost or later)
            ]
            if skipping and not self._options.leave_groups:
                what = f"groups would skip unread records, no offset was changed: {some(skipping, 3)}"
                way = "let their consumers read these first, or accept the loss by --leave-groups"
                raise self._refusal("MIR-335", what, way)
            outcomes = translation.execute(decisions, own_rows=True)
        finally:
            translation.close()
        left = [each for each in outcomes if each.done not in ("committed", "already there")]
        reasons = [*unknown, *(_why_left(each, there.alias) for each in left)]
        if reasons and not self._options.leave_groups:
            way = "stop the consumers of both clusters and call this again, or give --leave-groups"
            if any(each.decision.translation.verdict == REPARTITIONED for each in left):
                way = f"give --leave-groups, then {WAYS_OUT[REPARTITIONED]}"
            if any(each.decision.translation.verdict == FOREIGN for each in left):
                way = f"stop the consumers of such a group on {there.alias}, set groups.simple: include and call this"
                way += " again, or give --leave-groups"
            raise self._refusal("MIR-335", f"offsets were not committed: {some(reasons, 1)}", way)
        done = sum(each.done == "committed" for each in outcomes)
        right = sum(each.done == "already there" for each in outcomes)
        undo = f"; mirror groups rollback CONFIG --run {translation.run_id} --execute undoes it" if done else ""
        reported = f"{counted(done, 'offset')} committed, {right} were right already, {len(reasons)} left"
        reported += f", {len(skipping)} with a loss{undo}" if skipping else undo
        reported += f"; left out by the file: {some(without, 3)}" if without else ""
        return reported, json.dumps({"run_id": translation.run_id})

    def _refuse_consumers(self, groups: Collection[str], here: KafkaCluster) -> None:
        """A consumer that still reads commits further offsets, which the other side would not get."""
        active = sorted(name for name, each in here.describe_groups(sorted(groups)).items() if each.has_members)
        reading = active or ([] if self._options.leave_groups else here.undescribed_groups())
        if reading:
            still = "still read" if active else "may still read"
            what = f"consumers of group {some(reading, 1)} {still} on {here.alias}; no offset was changed"
            raise self._refusal("MIR-330", what, "stop these consumers, and call this again")

    def _check(self) -> Tuple[str, str]:
        now = self._log_ends()
        written = {place: end - self._ends.get(place, 0) for place, end in now.items() if end != self._ends.get(place)}
        if written:
            what = f"the source was written to after it was silent: {places_line(written)}"
            hint = "stop these producers and call mirror cutover run again: it copies them and moves the groups again"
            raise self._refusal("MIR-330", what, hint)
        self._refuse_not_copied()
        copied = _written_by_applications(self._plan())
        places = [(each.remote_topic, n) for each in copied for n in range(each.remote_partitions)]
        ends = self._ends_on(self._target, [*places, *self._own_places(copied)])
        return "the source stayed silent, and all of it is on the target", ends_text(ends)

    def _own_places(self, copied: Sequence[CopiedTopic]) -> List[TopicPartition]:
        """The partitions of the target's own topics that have the name of a topic of the source: applications that move
        with their topics' names write there. Without those that a flow back copies."""
        ends = (self._flow.target.alias, self._flow.source.alias)
        back = [each for each in self._config.flows if each.copied and (each.source.alias, each.target.alias) == ends]
        plans = [plan_flow(each, self._target, self._source, self._config.flows) for each in back]
        copied_back = {each.source.name for own in plans for each in own.copied}
        remote = {each.remote_topic for each in copied}
        names = {each.source.name for each in copied} - remote - copied_back
        return [(name, n) for name, topic in self._target.topics().items() if name in names
                for n in range(topic.partitions)]  # fmt: skip

    def _check_target(self, over: Sequence[CutoverStep]) -> Tuple[str, str]:
        """Records that were written to the target after the cut-over, by its rows `over`, are on no source."""
        ends = [ends_of(row.facts) for row in over if (row.step, row.status) == (CHECK, DONE)]
        if not ends:
            return "the cut-over did not come to its end, so nothing was to be written to the target", ""
        copied = _written_by_applications(self._plan())
        remote = {each.remote_topic for each in copied}
        # Each cut-over verifies the remote topics; what applications write to others is counted from the first one on.
        before = {**ends[-1], **{place: end for place, end in ends[0].items() if place[0] not in remote}}
        present = {name: topic.partitions for name, topic in self._target.topics().items()}
        known = {place for place in before if place[0] in remote or place[0] not in self._topics}
        places = {(name, number) for name, number in known if number < present.get(name, 0)}
        logs = self._ends_on(self._target, sorted({*places, *self._own_places(copied)}))
        grown = {place: (before.get(place, 0), end) for place, end in logs.items() if end > before.get(place, 0)}
        written = self._records_after(grown)
        if written:
            here, there = self._flow.source.alias, self._flow.target.alias
            what = f"{there} was written to after the cut-over: {places_line(written)}"
            what += f"; {here} lacks these records, and nothing was changed"
            raise self._refusal("MIR-330", what, f"copy them by a flow {there}->{here} and cut that one over")
        return f"no record was written to {counted(len(logs), 'partition')} of the target after the cut-over", ""

    def _records_after(self, grown: Mapping[TopicPartition, Tuple[int, int]]) -> Dict[TopicPartition, int]:
        """By partition of the target, how many of these offsets are after the markers at their start, if any is: each
        run of a flow leaves the marker of its fence, and that is no record."""
        target = self._flow.target
        try:
            ends = marker_ends(grown, target) if grown else {}
        except Disconnected as error:
            raise ClusterError(f"{self._flow.name}: cannot read the logs of {target.alias}: {error}") from error
        left = {place: end - ends.get(place, start) for place, (start, end) in grown.items()}
        return {place: count for place, count in left.items() if count}


def _why_left(outcome: Outcome, there: str) -> str:
    group, verdict = outcome.decision.group, outcome.decision.translation.verdict
    if verdict == FOREIGN:
        return f"{group}: it has no membership, and a client other than the mirror committed its offset on {there}"
    if verdict == ACTIVE:
        return f"{group}: consumers read with it on {there}"
    return f"{group}: {verdict if outcome.done == 'left alone' else outcome.done}"


def _written_by_applications(plan: TopicPlan) -> List[CopiedTopic]:
    """The topics that applications write. Mirrors write heartbeats before, during and after a cut-over, and no
    application reads them."""
    return [each for each in plan.copied if not each.heartbeats]
