"""The main job: runs every flow of a configuration, each with its own thread, streaming query and result."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from dataclasses import replace
from types import MappingProxyType
from typing import Callable, Collection, List, Mapping, Optional, Sequence, Tuple, Type, Union

from pyspark.sql import DataFrame, SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.errors import (
    ClusterError,
    FencedError,
    MirrorError,
    RefusedError,
    StalledError,
    StateError,
    VanishedError,
    cause_of,
)
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.admin import KafkaCluster, clusters_of
from mirror_lib.kafka.group_progress import GroupProgress
from mirror_lib.ledger.delta_table import vanished
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import MirrorRun, PartitionKey, Progress, TopicPair, same_clusters
from mirror_lib.ledger.runs import RunTable
from mirror_lib.ledger.state_files import drop_folder
from mirror_lib.ledger.tables import OFFSET_SYNCS
from mirror_lib.metrics import ENDED, FlowMetrics
from mirror_lib.replication.flow import FlowContext, FlowMirror, Mirror, Watcher
from mirror_lib.replication.flow_state import metrics_of
from mirror_lib.replication.journal import NO_BATCH, STOPPED, BatchRef, Journal
from mirror_lib.replication.query import CopyRows, InputRows, batch_ends, batch_options, row_options, start_query
from mirror_lib.replication.stage import most_slots, warm_workers
from mirror_lib.replication.tail import TAIL_TRIGGER, TOPICS_SECONDS, Every, refuse_stalled, tail_tasks
from mirror_lib.replication.totals import FlowOutcome, Totals
from mirror_lib.rows.flow import refuse_other_partitioning, row_mirror
from mirror_lib.rows.mirror import RowMirror
from mirror_lib.spark.session import cloned
from mirror_lib.supervisor import SupervisedFlow, WatchedQuery, await_end, unforeseen
from mirror_lib.takeover.signs import WriterCheck
from mirror_lib.text import counted
from mirror_lib.threads import BackgroundCall
from mirror_lib.topics.matchless import selected_in_vain
from mirror_lib.topics.old_brokers import runnable
from mirror_lib.transactions import open_transactions

log = logging.getLogger(__name__)

# SIGTERM must end the job within 30 s: a cycle ends by itself in `batch.max.seconds`, else its stage is cancelled.
GRACE_SECONDS = 20.0
STOP_SECONDS = 4.0
# How long an ended run waits for running upkeep of the ledger.
UPKEEP_SECONDS = 60.0
FEW_SLOTS = (
    "%s: Spark has %d task slots for %d flows that tail, so records wait for %s; give it %d or more: ./spark-submit.sh "
    "--master 'local[8,4]' jobs/mirror.py CONFIG"
)
# In the name of Java's exception if a broker refuses the login, by SASL or by TLS.
JAVA_REFUSED = "AuthenticationException"

# How often a flow without records to read checks whether it has some now.
CHECK_SECONDS = 1.0


class FlowRun(SupervisedFlow):
    """One flow of the job, from its first check of the clusters to its outcome."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: ReplicationFlow,
        spark: SparkSession,
        watcher: Watcher,
        stop: threading.Event,
        tailing: int = 0,
        writers: Optional[WriterCheck] = None,
    ) -> None:
        super().__init__(flow.name, stop)
        self._config = config
        self._ends = config.trigger == AVAILABLE_NOW  # by itself, when it has caught up
        self._writers = writers or writer_check(spark, config, flow)
        self._tailing = tailing
        self._warned = False
        self._flow = flow
        self._spark = spark
        self._watcher = watcher
        self._last: Optional[FlowMetrics] = None
        self._totals = Totals()
        self._group: Optional[GroupProgress] = None
        self._journal: Optional[Journal] = None
        self._has_rows = False  # whether this process has read or written rows of the flow
        self._note = self._matchless = ""
        self._waiting: Tuple[str, ...] = ()
        self._run_begun: Optional[Tuple[Journal, MirrorRun]] = None  # the run whose end is not recorded
        self.outcome: Optional[FlowOutcome] = None

    def _passing(self) -> Tuple[Type[MirrorError], ...]:
        if self._ends:
            return ()
        # A folder that this process has never used is more likely damaged, or a wrong one.
        return (ClusterError, StateError) if self._used() else (ClusterError,)

    def _used(self) -> bool:
        return self._has_rows or (self._journal is not None and self._journal.wrote)

    def _over(self, error: Optional[MirrorError]) -> None:
        totals, last = self._totals, self._last
        copied = (totals.records, totals.bytes, totals.topics())
        self.outcome = FlowOutcome(
            *(self._flow.name, *copied, error, self._note, totals.recovered, self._waiting),
            *(totals.filtered, totals.dead_letters),
        )
        if error is not None and last is not None and not self._ends:
            # What the last cycle copied was shown once.
            self._watcher(
                replace(
                    metrics_of(last.flow, NO_BATCH.batch_id, [], {}, 0.0),
                    waiting=ENDED,
                    behind_records=last.behind_records,
                    behind_seconds=last.behind_seconds,
                    stopped=last.stopped,
                    blocked=last.blocked,
                )
            )

    def _live(self) -> Optional[MirrorError]:
        """Check the clusters and copy. Returns the reason if it ended before everything was copied."""
        with clusters_of(self._flow, self._stop) as (source, target):
            self._connected = True
            if not self._flow.commit_source_group:
                return self._mirror(source, target)
            with GroupProgress(source, self._flow) as self._group:
                return self._mirror(source, target)

    def _mirror(self, source: KafkaCluster, target: KafkaCluster) -> Optional[MirrorError]:
        flow = runnable(self._flow, target.missing_for_fence())
        self._has_rows = self._used()
        journal = self._journal = Journal(
            self._spark, self._config.state, flow.name, uuid.uuid4().hex, self._config.history_days
        )
        last, ended_well = journal.last_run()
        if last is None or not self._ends:
            warm_workers(self._spark, flow.tasks_max)  # a scheduled run often has nothing to copy
        clusters = (source.cluster_id(), target.cluster_id())
        same_clusters(flow.name, clusters, None if last is None else last.clusters)

        def recorded() -> Tuple[Collection[PartitionKey], Collection[TopicPair]]:
            return journal.positions(), journal.range_positions().pairs if flow.repartitions else ()

        warning = self._writers.refuse(source, target, recorded).warning(self._name)
        if warning:
            log.warning("%s", warning)
        context = FlowContext(
            config=self._config,
            flow=flow,
            spark=self._spark,
            journal=journal,
            source=source,
            target=target,
            watcher=self._show,
            stop=self._stop,
            totals=self._totals,
            group=self._group,
            unfinished=None if ended_well else last,
        )
        mirror: Union[FlowMirror, RowMirror]
        if flow.change is None:
            refuse_other_partitioning(context)
            mirror = FlowMirror(context)
        else:
            mirror = row_mirror(context)
        if self._has_rows and not mirror.has_history():
            raise vanished(f"{self._config.state.rstrip('/')}/{OFFSET_SYNCS.name}")
        self._has_rows = mirror.has_history()
        if not self._ends:
            self._warn_of_names(source)
        # Spark first repeats an unfinished batch as it was planned, and fails if topics have changed since. The ledger
        # is more current, so only the checkpoint of a run that ended well is reused, and only with the ledger's rows.
        # A query of rows begins a new one each time; its name says to which partitions its records went.
        reused = last if ended_well and mirror.has_history() and not mirror.placement else None
        checkpoint = f"{journal.run_id}{mirror.placement}" if reused is None else reused.checkpoint
        run = MirrorRun(journal.run_id, flow.name, flow.tasks_max, flow.delivery, *clusters, checkpoint)
        # A run that finds an unfinished micro-batch in a checkpoint must find its run in the table. A new checkpoint
        # has none.
        journal.run_begins(run, reused is not None, self._progress)
        self._run_begun = journal, run
        error = self._query(mirror, journal, checkpoint)
        if self._run_begun is None:
            return error  # abandoned: its end is recorded
        halted = STOPPED if self._stop.is_set() else "ok"
        outcome, self._run_begun = halted if error is None else error.coded, None
        try:
            journal.run_ends(run, outcome, self._progress())
        finally:
            # No later run resumes it, except a run that fenced this one: it may have started with the same checkpoint.
            if outcome != "ok" and (reused is None or not isinstance(error, FencedError)):
                drop_folder(self._spark, self._folder(checkpoint))
        journal.await_upkeep(UPKEEP_SECONDS, self._stop.is_set)
        totals = self._totals
        if self._ends and not self._stop.is_set():
            if error is None:
                self._note = _note(flow, source, names_only=bool(totals.records or totals.recovered))
            self._waiting = _waiting(flow, source, mirror.sources())
        return error

    def abandon(self) -> Optional[BackgroundCall[None]]:
        """Begin to record the end of a stopped run whose thread still waits for a cluster; `None` if its start is not
        recorded. Without it the run would count as killed. The ledger lacks at most what the next run finds in the
        remote logs."""
        begun, self._run_begun = self._run_begun, None
        if begun is None:
            return None
        journal, run = begun
        return BackgroundCall(f"{self._name} ends", lambda: journal.run_abandoned(run, self._progress()))

    def _progress(self) -> Progress:
        last, totals = self._last, self._totals
        progress = Progress(totals.records, totals.bytes, None, None, totals.filtered, totals.dead_letters)
        if last is None:
            return progress
        return replace(progress, lag_records=last.behind_records, lag_seconds=last.behind_seconds)

    def _show(self, snapshot: FlowMetrics) -> None:
        self._last = snapshot
        self._watcher(snapshot)

    def _warn_of_names(self, source: KafkaCluster) -> None:
        """Report names and patterns that match no topic now: a continuous run has no end at which to report them."""
        before, self._matchless = self._matchless, _note(self._flow, source)
        if self._matchless not in ("", before):
            later = "" if self._flow.refresh_topics_interval is None else "; once there is one, it is copied"
            log.warning("%s: %s%s", self._name, self._matchless, later)

    def _query(self, mirror: Union[FlowMirror, RowMirror], journal: Journal, checkpoint: str) -> Optional[MirrorError]:
        try:
            if isinstance(mirror, RowMirror):
                self._rows(mirror, checkpoint)
            else:
                self._batches(mirror, checkpoint)
            journal.written()
        except StalledError:
            journal.stalled()
            raise  # nothing more can be written
        except MirrorError as error:
            journal.given_up()
            return error
        except Exception as error:
            journal.given_up()
            return unforeseen(self._name, error)  # here, since the table of runs gets its sentence too
        return incomplete_copy(mirror)

    def _batches(self, mirror: FlowMirror, checkpoint: str) -> None:
        """Copy record batches: Spark's query decides when, the ledger what."""
        if not self._ends and (mirror.has_history() or not self._flow.starts_at_earliest):
            # Spark starts a batch only for new records; records that an earlier run left must not wait for one. And
            # `latest` means now: if it were looked up with the first record, it would be past that record.
            self._copy(mirror)
        self._await_batches(mirror, checkpoint, TAIL_TRIGGER if self._tails() else self._config.trigger)
        if self._ends and not self._stop.is_set():
            self._copy(mirror)

    def _rows(self, mirror: RowMirror, checkpoint: str) -> None:
        """Copy through Spark's rows, query after query. Each starts at the ledger's positions with a new checkpoint:
        after topics came or grew, or when micro-batches need another size."""
        whole = number = 0
        while not self._stop.is_set():
            with self._busy:
                starts = mirror.begin()
            going = bool(starts) and (mirror.behind() or not self._ends)
            if going:
                whole += self._await_rows(mirror, starts, f"{checkpoint}-{number}")
                number += 1
            if self._stop.is_set():
                break
            with self._busy:
                mirror.show_end()
            if self._ends and (whole >= 2 or not going):
                break  # twice, as records that came during the first query belong to the copy
            if not going:
                self._stop.wait(CHECK_SECONDS)

    def _await_rows(self, mirror: RowMirror, starts: Mapping[TopicPartition, int], checkpoint: str) -> bool:
        """Run one query; whether it ended by itself."""
        spark, folder = cloned(self._spark, {}), self._folder(checkpoint)
        looks, over, input_rows = Every(TOPICS_SECONDS), [], InputRows(spark)

        def copy_rows(rows: DataFrame, query_id: str, batch_id: int) -> None:
            ends = batch_ends(rows.sparkSession, folder, batch_id)
            mirror.copy_rows(rows, BatchRef(query_id, batch_id), ends, lambda: input_rows.count(query_id))

        def outdated() -> bool:
            if looks.due() and self._busy.acquire(blocking=False):  # not during a micro-batch
                try:
                    over.extend([True] if mirror.outdated() else [])
                finally:
                    self._busy.release()
            return bool(over)

        try:
            options = row_options(self._flow, spark.version, starts, mirror.most_offsets)
            self._await(spark, options, folder, self._config.trigger, copy_rows, mirror.filtered, outdated)
        finally:
            drop_folder(self._spark, folder)
        return not over

    def _await_batches(self, mirror: FlowMirror, checkpoint: str, trigger: str) -> None:
        def copy_batch(_: DataFrame, query_id: str, batch_id: int) -> None:
            before = self._totals.records
            mirror.copy_batch(BatchRef(query_id, batch_id), self._tails())
            rows.add(query_id, self._totals.records - before)

        while mirror.leaderless() and not self._stop.is_set():
            # Spark's source asks for the offsets of all partitions, and fails after minutes if one has no leader.
            self._copy(mirror)
            if trigger == AVAILABLE_NOW:
                return
            self._stop.wait(CHECK_SECONDS)
        rows = InputRows(self._spark)
        try:
            options = batch_options(self._flow, self._spark.version)
            self._await(self._spark, options, self._folder(checkpoint), trigger, copy_batch)
        except ClusterError as error:
            # Java's client fails at the first broker that refuses its login; the copy after it uses the others.
            if trigger != AVAILABLE_NOW or not (error.code == "MIR-503" and JAVA_REFUSED in error.message):
                raise
            log.warning("%s; what the other brokers hold is copied", error.message)

    def _await(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        folder: str,
        trigger: str,
        copy: CopyRows,
        filtered: Callable[[DataFrame], DataFrame] = lambda rows: rows,
        done: Callable[[], bool] = lambda: False,
    ) -> None:
        journal, failed = self._journal, []
        assert journal is not None

        def over() -> bool:
            try:
                refuse_stalled(self._name, "the ledger's commit", journal.waited())
                journal.check()
            except (StalledError, VanishedError) as error:
                failed.append(error)
            return bool(failed) or done()

        watched = WatchedQuery(self._stop, self._busy)
        query = start_query(spark, self._flow, options, folder, trigger, watched.guarded(copy), filtered)
        failure = watched.until_end(query, GRACE_SECONDS, over)
        if failed:
            raise failed[0]
        if isinstance(failure, MirrorError):
            raise failure
        if failure is not None:
            raise ClusterError(f"{self._flow.name}: the query failed: {cause_of(failure)}", code="MIR-503")

    def _folder(self, checkpoint: str) -> str:
        return f"{self._config.state.rstrip('/')}/checkpoints/{self._flow.name.replace('->', '-')}/{checkpoint}"

    def _copy(self, mirror: FlowMirror) -> None:
        with self._busy:
            mirror.copy_batch(NO_BATCH)

    def _tails(self) -> int:
        """With how many flows it tails, itself included; 0 if not. Computed for each batch: executors come and go."""
        if not self._tailing or not self._flow.tails:
            return 0
        slots, flows = most_slots(self._spark), self._tailing
        tails = tail_tasks(slots, flows, self._flow.tasks_max) > 0
        if slots <= flows and not self._warned:
            for_what = "the ledger's commit between two stages" if tails else "the next trigger"
            log.warning(FEW_SLOTS, self._name, slots, flows, for_what, flows + 1)
            self._warned = True
        return flows if tails else 0


def _note(flow: ReplicationFlow, source: KafkaCluster, names_only: bool = False) -> str:
    try:
        return "; ".join(each.sentence for each in selected_in_vain(flow, source, names_only=names_only))
    except ClusterError as error:
        log.info("%s: names without a topic or group are not reported: %s", flow.name, error)
        return ""  # all is copied, and a remark on names is not worth a failure


def _waiting(flow: ReplicationFlow, source: KafkaCluster, partitions: Sequence[TopicPartition]) -> Tuple[str, ...]:
    try:
        return tuple(each.sentence(time.time()) for each in open_transactions(flow, source, partitions))
    except ClusterError as error:
        log.warning("%s: whether offsets wait for an open transaction is unknown: %s", flow.name, error)
        return ()


def writer_check(spark: SparkSession, config: MirrorConfig, flow: ReplicationFlow, fences: bool = False) -> WriterCheck:
    ledger, runs = OffsetSyncTable(spark, config.state), RunTable(spark, config.state)

    def recorded() -> Tuple[Collection[PartitionKey], Collection[TopicPair]]:
        return ledger.positions(flow.name), ledger.range_positions(flow.name).pairs if flow.repartitions else ()

    # A process that this one fences may still write until then.
    return WriterCheck(flow, config.flows, recorded, lambda: fences or bool(runs.open_runs([flow.name])))


def run_flows(
    config: MirrorConfig,
    flows: Sequence[ReplicationFlow],
    spark: SparkSession,
    watcher: Watcher,
    stop: threading.Event,
    writers: Mapping[str, WriterCheck] = MappingProxyType({}),
) -> List[FlowOutcome]:
    """Run `flows` until each has ended: caught up, failed, or stopped by `stop`.

    `writers`: by flow the check for other tools, where what writes alongside the copy shares it.
    """
    tailing = sum(flow.tails for flow in flows) if config.trigger != AVAILABLE_NOW else 0
    runs = [FlowRun(config, flow, spark, watcher, stop, tailing, writers.get(flow.name)) for flow in flows]
    for run in runs:
        run.start()
    patience = GRACE_SECONDS + STOP_SECONDS
    if not await_end(runs, stop, patience, "what it was doing is found and finished by the next run"):
        until = time.monotonic() + STOP_SECONDS
        # All begin before the first one is awaited.
        for end in [run.abandon() for run in runs if not run.wait(0)]:
            if end is not None:
                end.wait(max(0.0, until - time.monotonic()))
    return [run.outcome for run in runs if run.outcome is not None]


def incomplete_copy(mirror: Mirror) -> Optional[MirrorError]:
    """Why the copy is incomplete; `None` if every partition is caught up."""
    stops, blocked, name = mirror.stopped(), mirror.blocked(), mirror.flow.name
    if not stops:
        reason = f"{name}: {counted(len(blocked), 'topic')} cannot be copied; the first: "
        return MirrorError(reason + blocked[0], code="MIR-205") if blocked else None
    reason = f"{name}: {counted(len(stops), 'partition')} stopped; the first: {stops[0]}"
    refused = [stop.code for stop in stops if stop.refused]
    if refused:
        return RefusedError(reason, code=refused[0] or None)
    if any(stop.fails for stop in stops):
        way = "name a dead.letter.topic for records that cannot be changed, or skip them by on.error: skip"
        return MirrorError(reason, way, code="MIR-206")
    return MirrorError(reason, code=stops[0].code or "MIR-205")
