"""What a driver writes down about a flow: when it begins and ends, offset syncs and positions, incidents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.replicate.topics import CopiedPartition
from mirror_lib.state.incidents import IncidentTable
from mirror_lib.state.offset_syncs import OffsetSyncTable
from mirror_lib.state.records import Incident, LedgerRow, MirrorRun, PartitionKey, Position
from mirror_lib.state.runs import RunTable
from mirror_lib.under_way import UnderWay


@dataclass(frozen=True)
class BatchRef:
    """The Spark batch that something was done for; `batch_id` is -1 outside of one."""

    query_id: str
    batch_id: int


class Journal:
    """One flow's rows in one driver's life. Each append is one commit, and repeating it adds nothing.

    The ledger is read in a thread of its own, from now on: the first look at a Delta table in a process takes seconds.
    """

    def __init__(self, spark: SparkSession, state: str, flow: str, run_id: str) -> None:
        self._flow = flow
        self.run_id = run_id
        self._runs = RunTable(spark, state)
        self._ledger = OffsetSyncTable(spark, state)
        self._incidents = IncidentTable(spark, state)
        self._appends = 0
        self._positions = UnderWay(f"{flow} ledger", lambda: self._ledger.positions(flow))
        self._begun: Optional[UnderWay[None]] = None

    def last_run(self) -> Tuple[Optional[MirrorRun], bool]:
        """The flow's run before this one, if there is one, and whether it ended with nothing left over."""
        return self._runs.latest_with_end(self._flow)

    def run_begins(self, run: MirrorRun, wait: bool) -> None:
        """Write down that `run` begins: before this returns, or else before any other row of it is written."""
        self._begun = UnderWay(f"{self._flow} begins", lambda: self._runs.started(run))
        if wait:
            self._begun.result()

    def run_ends(self, run: MirrorRun, *, outcome: str, records: int, bytes: int) -> None:
        """Write down how `run` ended: `outcome` is `ok` or one sentence."""
        self._await_begin()
        self._runs.ended(run, outcome=outcome, records=records, bytes=bytes)

    def positions(self) -> Mapping[PartitionKey, Position]:
        """Where the ledger said each partition stands when this was made."""
        return self._positions.result()

    def append(self, rows: Sequence[LedgerRow], batch: BatchRef) -> None:
        """Add rows to the ledger; nothing for no rows."""
        if not rows:
            return
        self._await_begin()
        number, self._appends = self._appends, self._appends + 1
        self._ledger.append(
            self._flow,
            rows,
            run_id=self.run_id,
            append_number=number,
            query_id=batch.query_id,
            batch_id=batch.batch_id,
        )

    def note(self, incidents: Sequence[Incident], batch: BatchRef) -> None:
        """Add incidents; nothing for none."""
        if incidents:
            self._await_begin()
            self._incidents.append(self._flow, incidents, run_id=self.run_id, batch_id=batch.batch_id)

    def forget_from(self, key: PartitionKey, downstream_offset: int) -> Optional[int]:
        """Void the facts about a remote log from an offset on, which the log no longer holds.

        Returns the upstream offset that belongs there. Voided before anything is copied again: two facts about one
        downstream offset would contradict each other.
        """
        self._await_begin()
        upstream = self._ledger.upstream_of(self._flow, key, downstream_offset)
        self._ledger.void_from(self._flow, key, downstream_offset)
        return upstream

    def _await_begin(self) -> None:
        if self._begun is not None:
            self._begun.result()


def position_row(copied: CopiedPartition, position: Position) -> LedgerRow:
    """The row that says where a partition stands, without a record of its own."""
    return copied.ledger_row(position.upstream_offset, position.downstream_offset, 0)
