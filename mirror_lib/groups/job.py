"""The second job: translates the groups of every flow, each with a thread and a streaming query over the ledger.

The query feeds the map: its first micro-batch is the whole ledger, later ones are the rows that were added. The thread
moves the groups, at the flow's intervals and after new rows. A failing flow does not stop the others. The ledger is all
that this job shares with the copy. Inside `mirror run` the translation runs in the background or right after the copy.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, Type

from pyspark.sql import DataFrame, SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.errors import (
    BatchError,
    ClusterError,
    CustomClassError,
    MirrorError,
    RefusedError,
    StateError,
    cause_of,
)
from mirror_lib.groups.flow import CycleReport, FlowTranslation, Triples, is_news, one_cycle
from mirror_lib.kafka.admin import CheckClusters, clusters_of
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.state_files import drop_folder
from mirror_lib.spark.errors import memory_hint
from mirror_lib.supervisor import RESTART_SECONDS, SupervisedFlow, WatchedQuery, await_end

log = logging.getLogger(__name__)

# SIGTERM must end the job within 30 s, also one that waits for a cluster. A pass that is cut short does no harm.
STOP_SECONDS = 15.0
LEFT = "the next run resumes there"

Watcher = Callable[[CycleReport], None]

# With every interval off there is still the ledger to follow.
IDLE_SECONDS = 60.0

COMMIT, CHECKPOINTS, LEDGER = "commit", "checkpoints", "ledger"


class Timers:
    """The due times of the flow's intervals. `shortest`, in seconds, is the trigger of the query over the ledger."""

    def __init__(self, flow: ReplicationFlow) -> None:
        intervals = {
            COMMIT: flow.sync_group_offsets_interval,
            CHECKPOINTS: flow.emit_checkpoints_interval,
            LEDGER: flow.refresh_groups_interval,
        }
        self._intervals = {name: seconds for name, seconds in intervals.items() if seconds is not None}
        self._taken: Dict[str, float] = {LEDGER: time.monotonic()}
        self.shortest = min(self._intervals.values(), default=IDLE_SECONDS)

    def take(self, name: str, early: bool = False) -> bool:
        """Whether `name` is due, with `early` also if it will be before the query's next trigger. If so, its interval
        starts again."""
        interval, now = self._intervals.get(name), time.monotonic()
        if interval is None:
            return False
        if now - self._taken.get(name, -interval) < interval - (self.shortest if early else 0.0):
            return False
        self._taken[name] = now
        return True


class TranslationRun(SupervisedFlow):
    """One flow of the job. After the end `error` has the reason, if the flow was not stopped.

    With `copied`, a bounded run only surveys the groups until that event is set, and translates then. `checked` is set
    after the first survey, or at the end.
    """

    def __init__(
        self,
        config: MirrorConfig,
        flow: ReplicationFlow,
        spark: SparkSession,
        watcher: Watcher,
        stop: threading.Event,
        copied: Optional[threading.Event] = None,
        refuse: Optional[CheckClusters] = None,
    ) -> None:
        super().__init__(f"translation of {flow.name}", stop, flow.name)
        self._refuse = refuse
        self._config, self._flow, self._spark = config, flow, spark
        self._watcher, self._copied = watcher, copied
        self._ledger = OffsetSyncTable(spark, config.state)
        self._due = Timers(flow)
        self._reported: Optional[CycleReport] = None
        # Micro-batches that the map lacks: their numbers, and the ledger's rows as `OffsetSyncTable.triples`.
        self._batches: SimpleQueue[Tuple[int, Triples]] = SimpleQueue()
        self.checked = threading.Event()
        self.flow = flow.name
        self.error: Optional[MirrorError] = None

    def _passing(self) -> Tuple[Type[MirrorError], ...]:
        # What may be fixed on a cluster, in its topics or in the tables passes; a mistake of ours, a Spark that has
        # ended and a file that cannot be used do not.
        passing = (ClusterError, StateError, RefusedError, CustomClassError, BatchError)
        return () if self._config.trigger == AVAILABLE_NOW else passing

    def _over(self, error: Optional[MirrorError]) -> None:
        self.error = error
        self.checked.set()

    def _live(self) -> Optional[MirrorError]:
        with clusters_of(self._flow, self._stop) as (source, target):
            self._connected = True
            try:
                if self._refuse is not None:
                    self._refuse(source, target)
            except RefusedError as error:  # the copy reports it
                log.debug("nothing is translated: %s", error)
                return None
            with closing(FlowTranslation(self._config, self._flow, self._spark, source, target)) as translation:
                if self._config.trigger == AVAILABLE_NOW:
                    self._once(translation)
                else:
                    self._follow(translation)
        return None

    def _once(self, translation: FlowTranslation) -> None:
        if self._copied is not None:
            translation.remember()
            self.checked.set()
            while not self._copied.wait(self._due.shortest):
                translation.remember()
            translation.reread()
        else:
            rows = self._ledger.stream(self._flow.name)
            if rows is not None:
                self._query(translation, rows, {"availableNow": True}, lambda: False)
            self._take_batches(translation)
        if not self._stop.is_set():
            self._cycle_once(translation)

    def _cycle_once(self, translation: FlowTranslation) -> None:
        report = one_cycle(translation)
        self._notify(report)
        failed = [*report.unreadable, *report.refusals]
        if failed:
            more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
            hint = "or add the group to groups.exclude"
            if report.unreadable:
                hint = "retry once its coordinator is up, or grant Describe on the group"
            raise ClusterError(f"{self._flow.name}: {failed[0]}{more}", hint)

    def _follow(self, translation: FlowTranslation) -> None:
        rows = self._ledger.stream(self._flow.name)
        while rows is None:
            log.info("%s: waiting for the first rows of %s", self._flow.name, self._ledger.path)
            if self._stop.wait(min(self._due.shortest, RESTART_SECONDS)):
                return
            rows = self._ledger.stream(self._flow.name)
        trigger = {"processingTime": f"{max(1, round(self._due.shortest * 1000))} milliseconds"}
        begun = False

        def cycle() -> bool:
            nonlocal begun
            new = self._take_batches(translation)
            begun = begun or new
            if begun:
                self._cycle_if_due(translation, new)
            return False

        self._query(translation, rows, trigger, cycle)

    def _query(
        self, translation: FlowTranslation, rows: DataFrame, trigger: Mapping[str, Any], cycle: Callable[[], bool]
    ) -> None:
        """Run the query until it ends or this run is stopped; it adds to `_batches`. Calls `cycle` meanwhile."""
        name, flow = self._flow.name.replace("->", "-"), self._flow.name
        self._batches = SimpleQueue()  # none of a query that failed
        checkpoint = f"{self._config.state.rstrip('/')}/checkpoints/translate-{name}/{translation.run_id}"
        watched = WatchedQuery(self._stop, self._busy)
        add = watched.guarded(lambda batch, number: self._batches.put((number, self._ledger.triples_of(flow, batch))))
        writer = rows.writeStream.queryName(f"translate {flow}").option("checkpointLocation", checkpoint)
        query = writer.foreachBatch(add).trigger(**trigger).start()
        try:
            failure = watched.until_end(query, STOP_SECONDS, cycle)
        finally:
            query.stop()
            # No later query resumes it: its progress is in the ledger.
            drop_folder(self._spark, checkpoint)
        if isinstance(failure, MirrorError):
            raise failure
        if failure is not None:
            said = cause_of(failure)
            what = f"{self._flow.name}: the translating query failed: {said}"
            raise StateError(what, memory_hint(said), code="MIR-503")

    def _take_batches(self, translation: FlowTranslation) -> bool:
        """Give the micro-batches since the last call to the map. Returns whether there was one."""
        new = False
        while not self._batches.empty():
            number, triples = self._batches.get()
            new = True
            if number == 0:
                translation.ledger_is(triples)
            else:
                translation.add(triples)
        return new

    def _cycle_if_due(self, translation: FlowTranslation, new: bool) -> None:
        if self._due.take(LEDGER):
            # Rows may also have been taken back, which the stream does not tell.
            translation.reread()
        commit, checkpoints = self._due.take(COMMIT, new), self._due.take(CHECKPOINTS, new)
        if new or commit or checkpoints:
            self._notify(one_cycle(translation, commit=commit, checkpoints=checkpoints))

    def _notify(self, report: CycleReport) -> None:
        if is_news(report, self._reported):
            self._reported = report
            self._watcher(report)


def run_translations(
    config: MirrorConfig, flows: Sequence[ReplicationFlow], spark: SparkSession, watcher: Watcher, stop: threading.Event
) -> Dict[str, MirrorError]:
    """Translate `flows` until each has ended: one full cycle (`availableNow`), or until `stop` is set.

    Returns the errors of the flows that failed, by flow."""
    runs = [TranslationRun(config, flow, spark, watcher, stop) for flow in flows]
    for run in runs:
        run.start()
    await_end(runs, stop, STOP_SECONDS, LEFT)
    return _errors(runs)


def _errors(runs: Sequence[TranslationRun]) -> Dict[str, MirrorError]:
    return {run.flow: run.error for run in runs if run.error is not None}


class BackgroundTranslation:
    """A context for the copy. After its end `errors` has the errors of failed translations, by flow."""

    def __init__(
        self,
        config: MirrorConfig,
        flows: Sequence[ReplicationFlow],
        spark: SparkSession,
        watcher: Watcher,
        stop: threading.Event,
        refuse: Mapping[str, CheckClusters],
    ) -> None:
        """`refuse`: by flow, raises RefusedError where another tool may still write to its remote topics."""
        syncing = [flow for flow in flows if flow.translates_in_run]
        self._at_the_end = config.trigger == AVAILABLE_NOW
        self._copied = threading.Event()
        self._stop = stop
        self._runs = [
            TranslationRun(
                config, flow, spark, watcher, stop, self._copied if flow.copied else None, refuse.get(flow.name)
            )
            for flow in syncing
        ]
        self.errors: Dict[str, MirrorError] = {}

    def __enter__(self) -> BackgroundTranslation:
        for run in self._runs:
            run.start()
        # What is seen later may lie beyond what is going to be copied.
        while self._at_the_end and not all([run.checked.wait(0.1) for run in self._runs]) and not self._stop.is_set():
            pass
        return self

    def alone(self) -> Tuple[()]:
        """For runs without a copy: return when the translations have ended or the run is stopped; in a bounded run at
        once."""
        while not self._at_the_end and not self._stop.wait(0.2):
            if self._runs and all([run.wait(0) for run in self._runs]):
                break
        return ()

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        # A continuous copy that ended has failed, or was stopped: translation alone is another job.
        if error is not None or not self._at_the_end:
            self._stop.set()
        self._copied.set()
        await_end(self._runs, self._stop, STOP_SECONDS, LEFT)
        self.errors = _errors(self._runs)
