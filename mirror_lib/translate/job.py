"""The second job: the translation of every flow of a configuration, each in a thread and with a query of its own.

A flow that fails does not stop the others. The ledger is all that it shares with the job that copies.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, List, Optional, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mirror_lib.cluster import KafkaCluster, clusters_of
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import ClusterError, MirrorError, StateError, cause_of
from mirror_lib.replicate.query import AVAILABLE_NOW
from mirror_lib.state.ledger_stream import LedgerStream
from mirror_lib.state.records import LedgerRow
from mirror_lib.translate.flow import FlowTranslation
from mirror_lib.translate.passes import PassReport, is_news, one_pass, remember
from mirror_lib.translate.query import drop_checkpoint, start_query
from mirror_lib.translate.timers import CHECKPOINTS, COMMIT, LEDGER, Timers

log = logging.getLogger(__name__)

RESTART_SECONDS = 5.0
# SIGTERM must end the job within 30 s, also one that waits for a cluster. A pass that is cut short does no harm.
STOP_SECONDS = 15.0

Watcher = Callable[[PassReport], None]


class TranslationRun:
    """One flow of the job. `error` says, after the end, why it ended if it was not told to.

    With `copied`, a run that ends by itself only looks at the groups until that is set, and translates then. `looked`
    is set when it has looked once, or has ended.
    """

    def __init__(
        self,
        config: MirrorConfig,
        flow: ReplicationFlow,
        spark: SparkSession,
        watcher: Watcher,
        stop: threading.Event,
        copied: Optional[threading.Event] = None,
    ) -> None:
        self._config, self._flow, self._spark = config, flow, spark
        self._watcher, self._stop, self._copied = watcher, stop, copied
        self._due = Timers(flow)
        self._failure: Optional[BaseException] = None
        self._told: Optional[PassReport] = None
        self._busy = threading.Lock()
        self.looked = threading.Event()
        self.error: Optional[MirrorError] = None
        self._thread = threading.Thread(target=self._run, name=f"translate {flow.name}", daemon=True)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """True when it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        goes_on = self._config.trigger != AVAILABLE_NOW
        while True:
            error = self._life()
            if error is None or not goes_on or self._stop.wait(RESTART_SECONDS):
                break
            log.warning("%s; translation of %s starts again", error, self._flow.name)
        # A job that was told to end while it waited for a cluster has not failed.
        waited = goes_on and self._stop.is_set() and isinstance(error, ClusterError)
        self.error = None if waited else error
        self.looked.set()

    def _life(self) -> Optional[MirrorError]:
        try:
            with clusters_of(self._flow) as (source, target):
                self._translate(source, target)
        except MirrorError as error:
            return error
        except Exception as error:
            # The thread's last resort: without it a flow could end in silence and the job with exit code 0.
            log.debug("translation of %s failed", self._flow.name, exc_info=True)
            return ClusterError(f"{self._flow.name}: {type(error).__name__}: {cause_of(error)}")
        return None

    def _translate(self, source: KafkaCluster, target: KafkaCluster) -> None:
        translation = FlowTranslation(self._config, self._flow, self._spark, source, target)
        try:
            if self._config.trigger == AVAILABLE_NOW:
                self._once(translation)
            else:
                self._go_on(translation)
        finally:
            translation.close()

    def _once(self, translation: FlowTranslation) -> None:
        if self._copied is not None:
            remember(translation, self._flow)
            self.looked.set()
            while not self._copied.wait(self._due.shortest):
                remember(translation, self._flow)
            translation.read_anew()
        if not self._stop.is_set():
            self._tell(one_pass(translation, self._flow))

    def _go_on(self, translation: FlowTranslation) -> None:
        ledger = LedgerStream(self._spark, self._config.state)
        while not ledger.exists():
            log.info("%s: waiting for the first rows of %s", self._flow.name, ledger.path)
            if self._stop.wait(min(self._due.shortest, RESTART_SECONDS)):
                return
        name = self._flow.name.replace("->", "-")
        checkpoint = f"{self._config.state.rstrip('/')}/checkpoints/translate-{name}/{translation.run_id}"
        # The stream begins some time after the query has started. When it calls it has begun, so the ledger, which is
        # read at the first look and not before, lacks nothing; rows that are in both change nothing.
        query = start_query(
            self._spark, self._flow.name, ledger, checkpoint, self._due.shortest, self._caller(translation)
        )
        try:
            self._watch(query)
        finally:
            drop_checkpoint(self._spark, checkpoint)

    def _caller(self, translation: FlowTranslation) -> Callable[[Sequence[LedgerRow]], None]:
        def call(rows: Sequence[LedgerRow]) -> None:
            with self._busy:
                if self._stop.is_set():
                    return
                try:
                    self._on_trigger(translation, rows)
                except BaseException as error:
                    self._failure = error
                    raise

        return call

    def _on_trigger(self, translation: FlowTranslation, rows: Sequence[LedgerRow]) -> None:
        translation.add_rows(rows)
        if self._due.take(LEDGER):
            # Rows may also have been taken back, which the stream does not tell.
            translation.read_anew()
        commit, checkpoints = self._due.take(COMMIT), self._due.take(CHECKPOINTS)
        if rows or commit or checkpoints:
            self._tell(one_pass(translation, self._flow, commit=commit, checkpoints=checkpoints))

    def _tell(self, report: PassReport) -> None:
        if is_news(report, self._told):
            self._told = report
            self._watcher(report)

    def _watch(self, query: StreamingQuery) -> None:
        while query.isActive and not self._stop.wait(0.2):
            pass
        if query.isActive:
            # The pass under way may end; one that begins now returns at once, else the query would never stop.
            if self._busy.acquire(timeout=STOP_SECONDS):
                self._busy.release()
            query.stop()
            return
        failure, self._failure = self._failure, None
        if isinstance(failure, MirrorError):
            raise failure
        error = query.exception()
        if error is not None:
            raise StateError(f"{self._flow.name}: the translating query failed: {cause_of(failure or error)}")


def run_translations(
    config: MirrorConfig, flows: Sequence[ReplicationFlow], spark: SparkSession, watcher: Watcher, stop: threading.Event
) -> List[MirrorError]:
    """Translate `flows` until each has ended: one full pass (`availableNow`), or told to. Returns why some failed."""
    runs = [TranslationRun(config, flow, spark, watcher, stop) for flow in flows]
    for run in runs:
        run.start()
    await_end(runs, stop)
    return [run.error for run in runs if run.error is not None]


def await_end(runs: Sequence[TranslationRun], stop: threading.Event) -> None:
    """Return when all `runs` have ended, or a while after `stop`: one may hang on a cluster that does not answer."""
    given_up_at: Optional[float] = None
    while not all([run.wait(0.1) for run in runs]):
        if stop.is_set() and given_up_at is None:
            given_up_at = time.monotonic() + STOP_SECONDS
        if given_up_at is not None and time.monotonic() > given_up_at:
            log.warning("a translation did not end in time; the next run goes on where it was")
            return
