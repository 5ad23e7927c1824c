"""The second job: translates the groups of every flow, each with a thread and a streaming query over the ledger.

A failing flow does not stop the others. The ledger is all that this job shares with the copy. A continuous query also
has a clock, Spark's rate source, because groups commit while no data moves. `availableNow` reads the whole ledger in
one micro-batch. Inside `mirror run` the translation runs in the background or right after the copy.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

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
from mirror_lib.groups.flow import CycleReport, FlowTranslation, Triples, is_news, one_cycle, remember
from mirror_lib.kafka.admin import CheckClusters, KafkaCluster, clusters_of
from mirror_lib.ledger.delta_table import StateTable, own_session
from mirror_lib.ledger.group_offsets import GroupOffsetTable
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow
from mirror_lib.ledger.state_files import drop_folder
from mirror_lib.ledger.tables import OFFSET_SYNCS
from mirror_lib.spark.errors import memory_hint
from mirror_lib.supervisor import RESTART_SECONDS, SupervisedFlow, WatchedQuery, await_end
from mirror_lib.threads import BackgroundCall

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger(__name__)


# Commits that delete or rewrite rows are skipped. Delta 2.3 has no such option: there `ignoreChanges` keeps the stream
# alive. Later versions take the first of the two where both are given.
CHANGES = {"skipChangeCommits": "true", "ignoreChanges": "true"}
# All files in one micro-batch: a part of the rows would translate wrongly.
WHOLE = {**CHANGES, "maxFilesPerTrigger": str(2**31 - 1)}
LEDGER_ROW = tuple(LedgerRow.__dataclass_fields__)


class LedgerStream:
    """The ledger of every flow that shares one `state:` folder. `path` is the table's folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._spark = own_session(spark)
        self._table = StateTable(spark, state, OFFSET_SYNCS)
        self.path = self._table.path

    def exists(self) -> bool:
        """Whether anything was ever written. Raises `StateError` if that cannot be determined."""
        return self._table.rows(made_elsewhere=True) is not None

    def added(self, flow: str) -> DataFrame:
        """A streaming DataFrame of the flow's rows, in the columns LEDGER_ROW, from now on. It must exist.

        The stream reports no deleted rows, so its reader must read the whole table now and then. With Delta 2.3 it
        repeats the rows that a compaction or a deletion rewrote, merged as they are then.
        """
        with self._table.explained("read"):
            return self._rows(flow, {**CHANGES, "startingVersion": "latest"})

    def whole(self, flow: str) -> DataFrame:
        """A streaming DataFrame of the flow's rows, all of them in the first micro-batch. The ledger must exist."""
        with self._table.explained("read"):
            return self._rows(flow, WHOLE)

    def _rows(self, flow: str, options: Mapping[str, str]) -> DataFrame:
        rows = self._spark.readStream.format("delta").options(**options).load(self.path)
        # A dead-letter record's row is of another topic than the copies, and a range is of no partition.
        own = self._table.complete(rows).where("remote_partition is null")
        return own.where(F.col("flow") == flow).select(*LEDGER_ROW)

    @staticmethod
    def types() -> Sequence[Tuple[str, str]]:
        types = {column.name: column.type for column in OFFSET_SYNCS.columns}
        return [(name, types[name]) for name in LEDGER_ROW]


# A catch-up of a flow with a filter adds millions between two triggers, more than Java's heap has room for.
MOST_ROWS = 50_000

# `None`: there are more than MOST_ROWS.
OnTrigger = Callable[[Optional[Sequence[LedgerRow]]], None]


def start_query(
    spark: SparkSession,
    flow: str,
    ledger: LedgerStream,
    checkpoint_location: str,
    seconds: float,
    call: OnTrigger,
    watched: Watched,
) -> StreamingQuery:
    """Start the query. `call` gets the flow's new ledger rows every `seconds`, often none. The ledger must exist. For
    more than MOST_ROWS it gets `None`: the caller reads the table. `watched` guards the whole call from Spark."""

    @watched
    def pass_on(batch: DataFrame, batch_id: int) -> None:
        call(_rows(batch))

    clock = spark.readStream.format("rate").options(rowsPerSecond=1, numPartitions=1).load()
    ticks = clock.select(*(F.lit(None).cast(type_name).alias(name) for name, type_name in ledger.types()))
    # The ledger first: a look for so many rows goes through the partitions in order, and is over when it has them.
    rows = ledger.added(flow).unionByName(ticks)
    interval = f"{max(1, round(seconds * 1000))} milliseconds"
    return _writer(flow, rows, checkpoint_location, pass_on).trigger(processingTime=interval).start()


def start_once(
    flow: str, ledger: LedgerStream, checkpoint_location: str, call: Callable[[DataFrame], None]
) -> StreamingQuery:
    """Start the query that ends by itself. `call` gets the flow's ledger. It is not called if the ledger, which must
    exist, has no file."""
    rows = ledger.whole(flow)
    return _writer(flow, rows, checkpoint_location, lambda batch, _: call(batch)).trigger(availableNow=True).start()


def _writer(
    flow: str, rows: DataFrame, checkpoint_location: str, call: Callable[[DataFrame, int], None]
) -> DataStreamWriter:
    named = rows.writeStream.queryName(f"translate {flow}").foreachBatch(call)
    return named.option("checkpointLocation", checkpoint_location)


def _rows(batch: DataFrame) -> Optional[List[LedgerRow]]:
    found = batch.where("source_topic is not null").take(MOST_ROWS + 1)
    return None if len(found) > MOST_ROWS else [LedgerRow(*row) for row in found]


# SIGTERM must end the job within 30 s, also one that waits for a cluster. A pass that is cut short does no harm.
STOP_SECONDS = 15.0
LEFT = "the next run resumes there"

Watcher = Callable[[CycleReport], None]
Watched = Callable[[Callable[..., None]], Callable[..., None]]

# With every interval off there is still the ledger to follow.
IDLE_SECONDS = 60.0

COMMIT, CHECKPOINTS, LEDGER = "commit", "checkpoints", "ledger"


class Timers:
    """The due times of the flow's intervals. `shortest`, in seconds, is the trigger of the query."""

    def __init__(self, flow: ReplicationFlow) -> None:
        intervals = {
            COMMIT: flow.sync_group_offsets_interval,
            CHECKPOINTS: flow.emit_checkpoints_interval,
            LEDGER: flow.refresh_groups_interval,
        }
        self._intervals = {name: seconds for name, seconds in intervals.items() if seconds is not None}
        self._taken: Dict[str, float] = {LEDGER: time.monotonic()}
        self.shortest = min(self._intervals.values(), default=IDLE_SECONDS)

    def take(self, name: str) -> bool:
        """Whether `name` is due. If so, its interval starts again."""
        interval, now = self._intervals.get(name), time.monotonic()
        # A trigger comes a little early or late: half a trigger is not worth a whole one of waiting.
        if interval is None or now - self._taken.get(name, -interval) < interval - self.shortest / 2:
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
        ahead: Optional[Callable[[], Triples]] = None
        if self._copied is not None and self._config.trigger == AVAILABLE_NOW:
            # What takes longest begins first. Where there is a stream it must have begun before: see below.
            ahead = BackgroundCall(f"{self._flow.name} ledger", partial(self._ledger.triples, self._flow.name)).result
        with clusters_of(self._flow, self._stop) as (source, target):
            self._connected = True
            if not self._refused(source, target):
                self._translate(source, target, ahead)
        return None

    def _refused(self, source: KafkaCluster, target: KafkaCluster) -> bool:
        """Whether the flow's copy is refused, which reports it."""
        try:
            if self._refuse is not None:
                self._refuse(source, target)
        except RefusedError as error:
            log.debug("nothing is translated: %s", error)
            return True
        return False

    def _translate(self, source: KafkaCluster, target: KafkaCluster, ahead: Optional[Callable[[], Triples]]) -> None:
        translation = FlowTranslation(self._config, self._flow, self._spark, source, target, ledger_read=ahead)
        try:
            if self._config.trigger == AVAILABLE_NOW:
                self._once(translation)
            else:
                self._resume(translation)
        finally:
            translation.close()

    def _once(self, translation: FlowTranslation) -> None:
        if self._flow.sync_group_offsets_interval is not None:
            # While the ledger is read. Its outcome is not read: the first offset commit needs the table, and would
            # fail.
            BackgroundCall(f"{self._flow.name} moves", GroupOffsetTable(self._spark, self._config.state).make)
        if self._copied is not None:
            remember(translation, self._flow)
            self.checked.set()
            while not self._copied.wait(self._due.shortest):
                remember(translation, self._flow)
            translation.reread()
        else:
            self._stream_once(translation)
        # An empty ledger has no micro-batch, and its groups are looked at all the same.
        if self._reported is None and not self._stop.is_set():
            self._cycle_once(translation)

    def _stream_once(self, translation: FlowTranslation) -> None:
        def on_batch(rows: DataFrame) -> None:
            if self._reported is None:
                translation.ledger_is(self._ledger.triples_of(self._flow.name, rows))
            else:  # a part of the ledger, which means nothing by itself
                translation.reread_ledger()
            self._cycle_once(translation)

        stream = LedgerStream(self._spark, self._config.state)
        if stream.exists():
            self._query(translation, lambda watched, at: start_once(self._flow.name, stream, at, watched(on_batch)))

    def _cycle_once(self, translation: FlowTranslation) -> None:
        report = one_cycle(translation, self._flow)
        self._notify(report)
        if report.unreadable:
            more = f", and {len(report.unreadable) - 1} more" if len(report.unreadable) > 1 else ""
            hint = "retry once its coordinator is up, or grant Describe on the group"
            raise ClusterError(f"{self._flow.name}: {report.unreadable[0]}{more}", hint)

    def _resume(self, translation: FlowTranslation) -> None:
        ledger = LedgerStream(self._spark, self._config.state)
        while not ledger.exists():
            log.info("%s: waiting for the first rows of %s", self._flow.name, ledger.path)
            if self._stop.wait(min(self._due.shortest, RESTART_SECONDS)):
                return
        # The stream begins some time after the query has started. When it calls it has begun, so the ledger, which is
        # read at the first look and not before, lacks nothing; rows that are in both change nothing.
        call = partial(self._on_trigger, translation)
        name, seconds = self._flow.name, self._due.shortest
        self._query(
            translation, lambda watched, at: start_query(self._spark, name, ledger, at, seconds, call, watched)
        )

    def _query(self, translation: FlowTranslation, start: Callable[[Watched, str], StreamingQuery]) -> None:
        name = self._flow.name.replace("->", "-")
        checkpoint = f"{self._config.state.rstrip('/')}/checkpoints/translate-{name}/{translation.run_id}"
        watched = WatchedQuery(self._stop, self._busy)
        query = start(watched.guarded, checkpoint)
        try:
            failure = watched.until_end(query, STOP_SECONDS)
        finally:
            # No later query resumes it: its progress is in the ledger.
            drop_folder(self._spark, checkpoint)
        if isinstance(failure, MirrorError):
            raise failure
        if failure is not None:
            said = cause_of(failure)
            what = f"{self._flow.name}: the translating query failed: {said}"
            raise StateError(what, memory_hint(said), code="MIR-503")

    def _on_trigger(self, translation: FlowTranslation, rows: Optional[Sequence[LedgerRow]]) -> None:
        if rows is None:
            translation.reread_ledger()
        else:
            translation.add_rows(rows)
        if self._due.take(LEDGER):
            # Rows may also have been taken back, which the stream does not tell.
            translation.reread()
        commit, checkpoints = self._due.take(COMMIT), self._due.take(CHECKPOINTS)
        if rows is None or rows or commit or checkpoints:
            self._notify(one_cycle(translation, self._flow, commit=commit, checkpoints=checkpoints))

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
        refuse: Mapping[str, CheckClusters] = MappingProxyType({}),
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
