"""A flow in; what copies it in one driver's life out, by its engine and by how its records find their partitions."""

from __future__ import annotations

from typing import NamedTuple, Optional, Protocol, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.cluster import KafkaCluster
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.offset_choice import OffsetChoice
from mirror_lib.config.record_change import KEY
from mirror_lib.errors import RefusedError
from mirror_lib.records.engine import RecordEngine
from mirror_lib.records.flow_change import FlowChange
from mirror_lib.records.mixing import MixingMirror
from mirror_lib.records.one_way import pairs_of, refuse_other_way
from mirror_lib.records.pass_notes import last_pass
from mirror_lib.records.refused_rows import Origin
from mirror_lib.records.two_ways import HaltForNews, TwoWayMirror, ways_of
from mirror_lib.replicate.copy_hours import Halt
from mirror_lib.replicate.flow import CopyPass, FlowMirror, Watcher
from mirror_lib.replicate.flow_rates import FlowRates
from mirror_lib.replicate.journal import BatchRef, Journal
from mirror_lib.replicate.lanes import PartitionReport
from mirror_lib.replicate.source_progress import SourceGroup
from mirror_lib.replicate.stage import run_tasks
from mirror_lib.replicate.starts import committed_by
from mirror_lib.replicate.tailing import Tail
from mirror_lib.replicate.totals import Totals
from mirror_lib.state.incidents import IncidentTable
from mirror_lib.state.row_passes import SOURCE, RowPass, RowPassTable
from mirror_lib.topics.ways import Ways


class Mirror(Protocol):
    """One flow in one driver's life; see `FlowMirror`."""

    flow: ReplicationFlow

    def has_history(self) -> bool:
        """True if it was copied before."""

    def reached(self) -> bool:
        """Whether `--until` is reached."""

    def due(self) -> bool:
        """Whether one more look may find `--until` reached."""

    def stopped(self) -> Sequence[PartitionReport]:
        """The partitions that cannot go on."""

    def not_copied(self) -> Sequence[str]:
        """What `--until` names and the flow does not copy."""

    def blocked(self) -> Sequence[str]:
        """Sentences on topics that cannot be copied."""

    def give_way(self) -> None:
        """End tasks that tail."""

    def copy_batch(self, spark: SparkSession, batch: BatchRef, tail: Optional[Tail] = None) -> None:
        """Copy until every partition has reached the end that its source had when this was called."""


class _Life(NamedTuple):
    """What a mirror is given for one driver's life of its flow."""

    journal: Journal
    clusters: Tuple[KafkaCluster, KafkaCluster]
    watcher: Watcher
    totals: Totals
    until: Optional[OffsetChoice]
    group: Optional[SourceGroup]


class Mirrors:
    """Makes the mirrors of a job's flows."""

    def __init__(self, spark: SparkSession, config: MirrorConfig, stop: Halt) -> None:
        self._spark = spark
        self._config = config
        self._stop = stop

    def of(
        self,
        flow: ReplicationFlow,
        journal: Journal,
        source: KafkaCluster,
        target: KafkaCluster,
        watcher: Watcher,
        totals: Totals,
        until: Optional[OffsetChoice],
        group: Optional[SourceGroup],
    ) -> Mirror:
        """The mirror of `flow`, which has looked at both clusters. Raises `RefusedError` where there is none yet,
        or it would copy again what was copied."""
        change, config = flow.change, self._config
        life = _Life(journal, (source, target), watcher, totals, until, group)
        if flow.counts_differ == KEY:
            return self._two_ways(flow, life)
        passes = RowPassTable(self._spark, config.state)
        last = _last_pass(flow, life, passes) if flow.places_anew else passes.latest(flow.name)
        # Before anything is made ready: a remote topic that keys are spread over must not grow.
        self._refuse_other_way(flow, life, last)
        if not flow.places_anew:
            engine: CopyPass = run_tasks
            if change is not None:
                engine = RecordEngine(flow, FlowChange.of(flow, target)).copy
            return FlowMirror(config, flow, journal, source, target, watcher, self._stop, totals, until, group, engine)
        return self._mixing(flow, life, passes, last)

    def _refuse_other_way(self, flow: ReplicationFlow, life: _Life, last: Optional[RowPass]) -> None:
        kept = life.journal.positions() if flow.places_anew else {}
        if kept or (last is not None and not flow.places_anew):
            source, target = life.clusters
            pairs = pairs_of(flow, self._config.flows, source.topics(), target.topics())
            refuse_other_way(flow, pairs, kept, last)

    def _two_ways(self, flow: ReplicationFlow, life: _Life) -> TwoWayMirror:
        config, passes = self._config, RowPassTable(self._spark, self._config.state)
        last = _last_pass(flow, life, passes)
        ways = ways_of(flow, life.journal.positions(), last)
        rates = FlowRates(flow)  # both fetch, in turn, and neither more than the flow may
        placed = self._mixing(flow.placing(), life, passes, last, ways, rates)
        halt, (source, target) = HaltForNews(self._stop, ways), life.clusters
        given = (life.watcher, halt, life.totals, life.until, life.group, run_tasks, ways, rates)
        return TwoWayMirror(FlowMirror(config, flow, life.journal, source, target, *given), placed, ways, self._stop)

    def _mixing(
        self,
        flow: ReplicationFlow,
        life: _Life,
        passes: RowPassTable,
        last: Optional[RowPass],
        ways: Optional[Ways] = None,
        rates: Optional[FlowRates] = None,
    ) -> MixingMirror:
        reason = why_not_mixed(flow)
        if reason is not None:
            raise RefusedError(f"{flow.name}: a flow that places records anew cannot have {reason}")
        left_out = _left_out(IncidentTable(self._spark, self._config.state), flow, last)
        given = (life.watcher, self._stop, life.totals, last, life.until, life.group, ways, rates, left_out)
        return MixingMirror(self._config, flow, passes, life.journal, life.clusters, *given)


def _last_pass(flow: ReplicationFlow, life: _Life, passes: RowPassTable) -> Optional[RowPass]:
    own, group = passes.latest(flow.name), flow.commit_source_group
    return last_pass(own, committed_by(group, life.clusters[0]), group) if group else own


def _left_out(incidents: IncidentTable, flow: ReplicationFlow, last: Optional[RowPass]) -> Sequence[Origin]:
    """What an unfinished pass left out."""
    if flow.on_error != "skip" or last is None or last.empty:
        return ()
    return incidents.skipped(flow.name, [(*row.place, row.from_offset, row.stands) for row in last.of(SOURCE)])


def why_not_mixed(flow: ReplicationFlow) -> Optional[str]:
    """What a flow that places records anew cannot do, by the name of its setting; None where there is nothing."""
    asked = {
        # A record may go to several remote topics, of which one refuses it; by keys alone it has but one.
        "on.error: skip (set dead.letter.topic)": flow.on_error == "skip" and flow.counts_differ != KEY,
        "on.data.loss: continue": flow.on_data_loss == "continue",
    }
    return next((name for name, is_asked in asked.items() if is_asked), None)
