"""Writes a flow's facts to the tables: start and end of runs, heartbeats, offset syncs, positions and incidents.

`FlowDriver` in `driver.py` has the order in which these and the records on the remote logs become durable.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable, FrozenSet, Iterator, Mapping, Optional, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.errors import MirrorError, SparkEndedError, VanishedError
from mirror_lib.event_lines import log_events
from mirror_lib.ledger.compaction import LedgerCompaction
from mirror_lib.ledger.event_tables import EventTable
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import (
    SIGN_SECONDS,
    DeadLetterPlace,
    Incident,
    LedgerRow,
    LedgerRuns,
    MirrorRun,
    PartitionKey,
    Position,
    Progress,
    RangePositions,
)
from mirror_lib.ledger.runs import RunTable
from mirror_lib.ledger.table_reader import named_folder
from mirror_lib.log_lines import of_this_flow
from mirror_lib.spark.jobs import named
from mirror_lib.threads import BackgroundCall

log = logging.getLogger(__name__)

SIGNS_TO_A_CLEANING = 100
# The outcome of a run that SIGTERM or Ctrl-C ended.
STOPPED = "stopped"
NOTHING_LOST = "No data is lost: the next run reads them from the remote log"


@dataclass(frozen=True)
class BatchRef:
    """The Spark batch to which recorded rows belong; `batch_id` is -1 outside of one."""

    query_id: str
    batch_id: int


NO_BATCH = BatchRef("", -1)


class Journal:
    """One flow's rows in one process. Each append is one commit.

    Rows appended `in_background` are in the ledger before anything else is written. If that append fails, the next
    caller gets the error. The ledger is read in a separate thread from construction on: the first read of a Delta table
    in a process takes seconds. `folder` is the state folder for messages, and `batch` what is recorded belongs to.
    Signs of life are kept for `history_days`.
    """

    def __init__(self, spark: SparkSession, state: str, flow: str, run_id: str, history_days: int) -> None:
        self._spark = spark
        self._flow = flow
        self.run_id = run_id
        self._history_days = history_days
        self.batch = NO_BATCH
        self.folder = named_folder(state)
        self._runs = RunTable(spark, state)
        self._ledger = OffsetSyncTable(spark, state)
        self._events = EventTable(spark, state)
        self._upkeep = LedgerCompaction(spark, state, flow)
        self.wrote = False  # whether a row of the ledger was written
        self._positions = BackgroundCall(f"{flow} ledger", lambda: self._ledger.positions(flow))
        self._ranges = BackgroundCall(f"{flow} ranges", lambda: self._ledger.range_positions(flow))
        self._begun: Optional[BackgroundCall[None]] = None
        self._over = threading.Event()
        self._vanished: Optional[VanishedError] = None
        self._background: Optional[BackgroundCall[None]] = None
        self._writes_since: Optional[float] = None

    def waited(self) -> float:
        """The age in seconds of the write in progress; 0 if there is none. Callable from any thread."""
        since = self._writes_since
        return 0.0 if since is None else time.monotonic() - since

    def check(self) -> None:
        """Raise `VanishedError` if a heartbeat found its table gone. Callable from any thread."""
        if self._vanished is not None:
            raise self._vanished

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._writes_since = time.monotonic()
        try:
            with named(self._spark, f"{self._flow}: ledger"):
                yield
        finally:
            self._writes_since = None

    def last_run(self) -> Tuple[Optional[MirrorRun], bool]:
        """The flow's previous run, if there is one, and whether it ended with nothing to recover."""
        return self._runs.latest_with_end(self._flow)

    def run_begins(self, run: MirrorRun, wait: bool, progress: Callable[[], Progress]) -> None:
        """Record the start of `run`: before this returns if `wait`, else before any other row of it is written. Until
        its end a thread writes a heartbeat every SIGN_SECONDS, filled by `progress`."""
        self._begun = BackgroundCall(f"{self._flow} begins", lambda: self._begin(run))
        if wait:
            self._begun.result()
        beat = of_this_flow(lambda: self._beat(run, progress))
        threading.Thread(target=beat, name=f"{self._flow} signs of life", daemon=True).start()

    def _begin(self, run: MirrorRun) -> None:
        self._events.exists()  # refuses a state folder of before the table, and writes nothing there
        self._runs.started(run)

    def _beat(self, run: MirrorRun, progress: Callable[[], Progress]) -> None:
        # A failure does not end the copy, unless the table is gone.
        signs = 0
        while not self._over.wait(SIGN_SECONDS):
            try:
                with named(self._spark, f"{self._flow}: sign of life"):
                    self._runs.alive(run, progress())
                    if signs % SIGNS_TO_A_CLEANING == 0:
                        self._runs.drop_old_signs(self._flow, self._history_days)
                signs += 1
            except VanishedError as error:
                self._vanished = error
                return
            except MirrorError as error:
                log.info("%s: no sign of life was written: %s", self._flow, error)

    def run_ends(self, run: MirrorRun, outcome: str, at: Progress) -> None:
        """Record how `run` ended: `outcome` is `ok` or one sentence."""
        self._over.set()
        self.written()
        self._runs.ended(run, outcome, at)
        self._runs.merge_files()
        self._events.merge_files()

    def run_abandoned(self, run: MirrorRun, at: Progress) -> None:
        """Record that `run` was stopped, while its thread may still wait for a cluster."""
        self._over.set()
        self._runs.ended(run, STOPPED, at)

    def positions(self) -> Mapping[PartitionKey, Position]:
        """Each partition's position in the ledger, as of construction."""
        return self._positions.result()

    def range_positions(self) -> RangePositions:
        return self._ranges.result()

    def topics(self) -> FrozenSet[str]:
        """The source topics with rows in the ledger, as of construction."""
        return frozenset(
            [*(key.source_topic for key in self.positions()), *(pair.topic for pair in self.range_positions().pairs)]
        )

    def last_records(self) -> Mapping[PartitionKey, Position]:
        self.written()
        return self._ledger.last_records(self._flow)

    def dead_letters_at(self, remote_topic: str, remote_topic_id: str) -> Mapping[DeadLetterPlace, int]:
        return self._ledger.dead_letters_at(self._flow, remote_topic, remote_topic_id)

    def append(
        self, rows: Sequence[LedgerRow], runs: Sequence[LedgerRuns] = (), *, in_background: bool = False
    ) -> None:
        """Add rows, and the rows of `runs`, to the ledger in one commit; nothing for none.

        `in_background`: the append runs in a thread. A kill before its end leaves the ledger without that commit.
        """
        if not rows and not runs:
            if self._background is not None and self._background.over():
                self.written()
            return
        self.written()
        batch = self.batch
        if in_background:
            self._background = BackgroundCall(f"{self._flow} ledger", lambda: self._append(rows, batch, runs))
        else:
            self._append(rows, batch, runs)

    def _append(self, rows: Sequence[LedgerRow], batch: BatchRef, runs: Sequence[LedgerRuns]) -> None:
        with self._writing():
            self._ledger.append(self._flow, rows, runs, run_id=self.run_id, **vars(batch))
        self.wrote = True
        self._upkeep.committed()

    def await_upkeep(self, seconds: float, ended: Callable[[], bool]) -> None:
        """Wait for running upkeep of the tables, at most `seconds` for each, unless `ended` returns True."""
        self._upkeep.wait(seconds, ended)

    def begin(self, rows: Sequence[LedgerRow]) -> Mapping[PartitionKey, Position]:
        """Add the first rows of partitions that another driver has not begun. Return each partition's position in the
        ledger; empty for no rows."""
        if not rows:
            return {}
        self.written()
        with self._writing():
            return self._ledger.begin(self._flow, rows, run_id=self.run_id, **vars(self.batch))

    def note(self, incidents: Sequence[Incident]) -> None:
        if incidents:
            self.written()
            with self._writing():
                self._events.add_incidents(self._flow, incidents, run_id=self.run_id, batch_id=self.batch.batch_id)
            log_events(self._flow, incidents)

    def producer_ids(self) -> Mapping[int, FrozenSet[int]]:
        return self._events.producer_ids(self._flow)

    def add_producer_ids(self, ids: Sequence[Tuple[int, int]]) -> None:
        self.written()
        self._events.add_producers(self._flow, ids, run_id=self.run_id)

    def history(self, key: PartitionKey, downstream_offset: int) -> Optional[Tuple[Position, int]]:
        """The position of a partition's first row, and the upstream offset that by its rows belongs at
        `downstream_offset`."""
        self.written()
        return self._ledger.history(self._flow, key, downstream_offset)

    def forget_from(self, key: PartitionKey, downstream_offset: int) -> None:
        """Void the rows about a remote log from an offset on, which the log no longer has.

        Call it before these records are copied again: two rows about one downstream offset would contradict each other.
        """
        self.written()
        self._ledger.void_from(self._flow, key, downstream_offset)

    def written(self) -> None:
        """Return when the start of the run and all rows appended in the background are recorded. Raises `StateError` if
        that failed."""
        if self._begun is not None:
            self._begun.result()
        in_background, self._background = self._background, None
        if in_background is not None:
            in_background.result()

    def stalled(self) -> None:
        """The run has ended and nothing can be written: stop the heartbeats too."""
        self._over.set()

    def given_up(self) -> None:
        """Like `written`, for a caller that already has an error to report: an error here is only logged."""
        try:
            self.written()
        except SparkEndedError:
            log.warning("%s: Spark ended before the last offset ranges were committed. %s", self._flow, NOTHING_LOST)
        except MirrorError as error:
            log.error(
                "%s: could not commit the last offset ranges to the ledger: %s. %s", self._flow, error, NOTHING_LOST
            )
