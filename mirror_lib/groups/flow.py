"""Translates the groups of one flow: survey both clusters, decide, record, commit, report.

Order of effects in a cycle: audit rows, commits on the target, checkpoints. After a crash at any point the next cycle
reads both clusters and continues; a cycle that finds nothing new writes nothing.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass, field
from typing import AbstractSet, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import MirrorError
from mirror_lib.event_lines import log_events
from mirror_lib.facts import CommittedOffset, TopicDescription, TopicPartition
from mirror_lib.groups.decisions import (
    NOTHING_MIRRORED,
    Decision,
    Known,
    Outcome,
    PositionsAhead,
    SyncedOffset,
    decide,
    left_on_source,
    not_moved,
    verdict_counts,
)
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.markers import pass_markers
from mirror_lib.groups.mm2_topics import CheckpointWriter, checkpoints_of, synced_offsets
from mirror_lib.groups.moves import ANOTHER_TOPIC, MOVED_MEANWHILE, GroupMover
from mirror_lib.groups.survey import Pair, Survey, group_names, of_topic, pairs_of, survey
from mirror_lib.groups.translation import ACTIVE, FOREIGN, TO_DOWNSTREAM, TO_UPSTREAM, TranslationRules
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.groups import IN_USE
from mirror_lib.ledger.event_tables import EventTable
from mirror_lib.ledger.group_offsets import GroupOffsetTable, MoveCompaction
from mirror_lib.ledger.intervals import Numbers
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import GROUP_LOST_RECORDS, Incident, MoveKey, PartitionKey
from mirror_lib.ledger.runs import RunTable
from mirror_lib.text import counted, grouped

Triples = Mapping[PartitionKey, Numbers]

log = logging.getLogger(__name__)

# How long the end of a translation waits for the table of moves to be merged; what is not done is done another time.
UPKEEP_SECONDS = 10.0


class FlowTranslation:
    """Translates the groups of a flow, cycle by cycle. Not thread-safe. Reads the last audit rows when it is created.

    The constructor and every method raise `ClusterError` and `StateError`; the next cycle completes an interrupted one.
    Raises `RefusedError` if a cluster is not that of the flow's last run.
    """

    def __init__(
        self,
        config: MirrorConfig,
        flow: ReplicationFlow,
        spark: SparkSession,
        source: KafkaCluster,
        target: KafkaCluster,
        direction: str = TO_DOWNSTREAM,
    ) -> None:
        RunTable(spark, config.state).same_clusters(flow.name, (source.cluster_id(), target.cluster_id()))
        self.flow = flow
        self.run_id = uuid.uuid4().hex
        self._flows = config.flows
        self._source, self._target = source, target
        self._direction = direction
        self._here, self._there = (source, target) if direction == TO_DOWNSTREAM else (target, source)
        self._ledger = OffsetSyncTable(spark, config.state)
        self._events = EventTable(spark, config.state)
        self._maps: Optional[FlowMaps] = None
        self._reread_asked = False
        self._topics: Mapping[str, TopicDescription] = {}
        self._moves = GroupOffsetTable(spark, config.state)
        self._upkeep = MoveCompaction(spark, config.state, flow.name, config.history_days)
        self._mover = GroupMover(self._moves, flow.name, self.run_id, self._there, self._changed_topics, self._upkeep)
        self._ahead = PositionsAhead()
        self._checkpoints: Optional[CheckpointWriter] = None
        self._strangers: Set[Tuple[str, TopicPartition, Optional[CommittedOffset]]] = set()
        self._synced: Optional[AbstractSet[SyncedOffset]] = None if direction == TO_DOWNSTREAM else frozenset()
        self._groups: Sequence[str] = ()
        self._unlisted: Sequence[str] = ()
        self._groups_listed_at: Optional[float] = None

    def close(self) -> None:
        """Close the connections to the checkpoints topic, and wait for the merge of the table `group_offsets`."""
        self._upkeep.wait(UPKEEP_SECONDS)
        if self._checkpoints is not None:
            self._checkpoints.close()

    def reread(self) -> None:
        """Read again what other processes may have changed: the last audit rows now, the ledger and groups at the next
        survey."""
        self._maps = None
        self._mover.read_last()
        self._groups_listed_at = None

    def ledger_is(self, triples: Triples) -> FlowMaps:
        """The whole ledger of the flow, as `OffsetSyncTable.triples`."""
        # After the ledger: a take-over records the excluded partitions before it writes its rows.
        self._maps = FlowMaps(triples, self._events.incomplete(self.flow.name), self._reread_asked)
        self._reread_asked = False
        return self._maps

    def add(self, triples: Triples) -> None:
        """Rows that the ledger gained. A map that was not read yet gets them when it is read."""
        maps = self._maps
        if maps is None:
            return
        self._reread_asked = maps.must_be_reread(triples)
        if self._reread_asked:
            self._maps = None
            return
        if any(map(maps.is_new, triples)):
            maps.now_incomplete(self._events.incomplete(self.flow.name))
        for key, numbers in triples.items():
            maps.add(key, numbers)

    def _ledger_maps(self) -> FlowMaps:
        return self._maps or self.ledger_is(self._ledger.triples(self.flow.name))

    def remember(self) -> None:
        """Remember the present offsets: those ahead of the mirror are translated once it has copied that far."""
        pairs = self._listed_pairs()
        for group, offsets in self._here.committed_offsets(self._group_names(None)).items():
            for here in offsets.keys() & pairs.keys():
                self._ahead.reached((group, *here), offsets[here], NOTHING_MIRRORED)

    def survey(self, group: Optional[str] = None, topic: Optional[str] = None) -> Survey:
        """The present offsets of the groups, or of one `group`; on all topics, or on one `topic`, a name of either
        cluster. Lists groups again every `refresh.groups.interval.seconds`."""
        # The ledger first: the records of its rows are then on the remote logs when these are read.
        self._ledger_maps()
        return survey(of_topic(self._listed_pairs(), topic), self._group_names(group), self._here, self._there)

    def unreadable(self, found: Survey) -> List[str]:
        """A sentence for each group whose offsets are unknown on one of the clusters, and each broker that may have
        more."""
        here, there = self._here.alias, self._there.alias
        silent = [(group, here) for group in found.unreadable]
        silent += [(group, there) for group in found.positions if group not in found.present]
        what = "does not answer with committed offsets"
        groups = [f"group {group}: its coordinator on {alias} {what}" for group, alias in silent]
        return [*groups, *(f"broker {each} of {here} does not list its groups" for each in self._unlisted)]

    def decide(self, found: Survey, allow_rewind: bool = False) -> List[Decision]:
        """A decision for each group and partition; changes nothing. Positions ahead of the mirror are remembered."""
        shared = self.flow.shared_remote_topics and self._direction == TO_DOWNSTREAM
        rules = TranslationRules(allow_rewind, self.flow.groups_simple, shared)
        decisions = self._decide(found, rules)
        if self._ledger_maps().contradicted:
            # Rows may have been deleted since they were read, because a remote log was truncated.
            self._maps = None
            decisions = self._decide(found, rules)
        others = [each for each in decisions if each.translation.verdict in (ACTIVE, FOREIGN)]
        strangers = {(each.group, each.there, each.present) for each in others}
        if strangers - self._strangers:
            # Perhaps no consumer works there: another run of this product, or a command, moved the group. Or
            # MirrorMaker did, before this mirror took over.
            alias = self._there.alias
            self._mover.read_last({(alias, each.group, *each.there): each.present_offset for each in decisions})
            if self._synced is None and (shared or any(each.translation.verdict == FOREIGN for each in decisions)):
                self._synced = self._read_synced()
            decisions = self._decide(found, rules)
        self._strangers = strangers
        return decisions

    def _decide(self, found: Survey, rules: TranslationRules) -> List[Decision]:
        mover, maps = self._mover, self._ledger_maps()
        pass_markers(maps, found, self._direction, self.flow.target)
        back = self._direction == TO_UPSTREAM
        left = left_on_source(mover.last.values(), self._there.alias) if back else {}
        alias, synced = self._there.alias, self._synced or frozenset()
        return decide(found, Known(maps, mover.last, alias, self._direction, rules, synced, left), self._ahead)

    def _read_synced(self) -> Optional[AbstractSet[SyncedOffset]]:
        try:
            return synced_offsets(self.flow)
        except MirrorError as error:
            log.warning("%s: cannot read which offsets MirrorMaker committed: %s", self.flow.name, error)
            return None

    def execute(self, decisions: Sequence[Decision], own_rows: bool = False) -> List[Outcome]:
        """Write the audit rows of the decisions, then commit the offsets. A refused commit does not stop the others.

        `own_rows`: every commit gets a row of this run, so that it can be undone by this run's id.
        """
        alias = self._there.alias
        going = [each for each in decisions if each.translation.commit]
        lost = [each for each in going if each.translation.lost and each.translation.skips_from is not None]
        found = [_incident(each) for each in lost if not self._mover.is_written(each.move(alias))]
        if found:
            self._events.add_incidents(self.flow.name, found, run_id=self.run_id, batch_id=-1)
            log_events(self.flow.name, found)
        moves = [each.move(alias) for each in going]
        reasons = self._mover.move(moves, own_rows)
        return [Outcome(each, _done(each, reasons, alias)) for each in decisions]

    def emit_checkpoints(self, decisions: Sequence[Decision]) -> int:
        """Returns the number of records written."""
        if self._checkpoints is None:
            self._checkpoints = CheckpointWriter(self.flow, self._target)
        return self._checkpoints.write(checkpoints_of(decisions))

    def _listed_pairs(self) -> Mapping[TopicPartition, Pair]:
        source, target = self._source.topics(), self._target.topics()
        self._topics = target if self._direction == TO_DOWNSTREAM else source
        return pairs_of(self.flow, self._flows, source, target, self._direction)

    def _changed_topics(self) -> Set[str]:
        """Topics that were re-created since the last check, on the side that is written to: their earlier offsets are
        invalid."""
        now = self._there.topics()
        return {name for name, was in self._topics.items() if name not in now or now[name].topic_id != was.topic_id}

    def _group_names(self, wanted: Optional[str]) -> Sequence[str]:
        interval, now = self.flow.refresh_groups_interval, time.monotonic()
        listed = self._groups_listed_at
        if wanted is not None or listed is None or (interval is not None and now - listed >= interval):
            self._groups = group_names(self.flow, self._here, wanted)
            self._unlisted = self._here.unlisted_brokers()
            self._groups_listed_at = now
        return self._groups


def _done(decision: Decision, reasons: Mapping[MoveKey, Optional[str]], cluster: str) -> str:
    if not decision.translation.commit:
        return "already there" if decision.already_there else "left alone"
    reason = reasons[decision.key(cluster)]
    return "committed" if reason is None else f"refused: {reason}"


def _incident(decision: Decision) -> Incident:
    move = decision.translation
    return Incident(
        GROUP_LOST_RECORDS,
        *decision.here,
        decision.position.offset,
        -1,
        f"group {decision.group} resumes at {decision.there[0]}-{decision.there[1]} offset {move.new_offset}:"
        f" {move.lost} offsets before it are no longer there",
    )


@dataclass(frozen=True)
class CycleReport:
    """Counts of one cycle: decided `positions`, `committed` and `refused` offsets, records of `checkpoints`.

    `unreadable`: groups that could not be read; `refusals`: commits that the brokers refused, without those that the
    next cycle decides again; `not_moved`: groups that need the operator.
    """

    flow: str
    run_id: str
    positions: int
    committed: int
    refused: int
    checkpoints: int
    seconds: float
    verdicts: Dict[str, int] = field(default_factory=dict)
    unreadable: Tuple[str, ...] = ()
    not_moved: Tuple[str, ...] = ()
    refusals: Tuple[str, ...] = ()


def one_cycle(translation: FlowTranslation, *, commit: bool = True, checkpoints: bool = True) -> CycleReport:
    """Survey, decide, commit and write checkpoints, as far as the flow has these enabled and they are due."""
    began, flow = time.monotonic(), translation.flow
    found = translation.survey()
    decisions = translation.decide(found)
    outcomes: List[Outcome] = []
    if commit and flow.sync_group_offsets_interval is not None:
        outcomes = translation.execute(decisions)
    reported = 0
    if checkpoints and flow.emit_checkpoints_interval is not None:
        reported = translation.emit_checkpoints(decisions)
    done = [outcome.done for outcome in outcomes]
    return CycleReport(
        flow.name,
        translation.run_id,
        len(decisions),
        done.count("committed"),
        sum(word.startswith("refused") for word in done),
        reported,
        time.monotonic() - began,
        verdict_counts(decisions),
        tuple(translation.unreadable(found)),
        not_moved(decisions),
        tuple(filter(None, map(_refusal, outcomes))),
    )


def _refusal(outcome: Outcome) -> Optional[str]:
    """The commit that the brokers refused, and why; `None` if a client or a new topic came in between, so that the next
    cycle decides again."""
    result, _, reason = outcome.done.partition(": ")
    if result != "refused" or reason in (MOVED_MEANWHILE, ANOTHER_TOPIC, IN_USE):
        return None
    topic, number = outcome.decision.there
    return f"group {outcome.decision.group}: the offset on {topic}-{number} was not committed: {reason}"


def is_news(report: CycleReport, reported: Optional[CycleReport]) -> bool:
    """Whether `report` has news compared with `reported`, the last one shown: a line a second is too much."""
    written = report.committed + report.refused + report.checkpoints
    return reported is None or written > 0 or report.verdicts != reported.verdicts


def cycle_line(report: CycleReport) -> str:
    """`A->B groups · 12 positions: 11 exact, 1 held · 3 committed · 4 checkpoints · 0.2 s`."""
    listed = ", ".join(f"{count} {word}" for word, count in sorted(report.verdicts.items()))
    parts = [f"{report.flow} groups", counted(report.positions, "position") + (f": {listed}" if listed else "")]
    done = ((report.committed, "committed"), (report.refused, "refused"), (len(report.unreadable), "unreadable"))
    parts += [f"{grouped(count)} {word}" for count, word in done if count]
    parts += [counted(report.checkpoints, "checkpoint")] if report.checkpoints else []
    return " · ".join([*parts, f"{report.seconds:.1f} s", *report.not_moved])
