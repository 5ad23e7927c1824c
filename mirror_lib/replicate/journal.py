"""What a driver writes down about a flow: offset syncs and positions to the ledger, incidents to theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Sequence

from pyspark.sql import SparkSession

from mirror_lib.replicate.topics import CopiedPartition
from mirror_lib.state.incidents import IncidentTable
from mirror_lib.state.offset_syncs import OffsetSyncTable
from mirror_lib.state.records import Incident, LedgerRow, PartitionKey, Position


@dataclass(frozen=True)
class BatchRef:
    """The Spark batch that something was done for; `batch_id` is -1 outside of one."""

    query_id: str
    batch_id: int


class Journal:
    """One flow's rows in one driver's life. Each append is one commit, and repeating it adds nothing."""

    def __init__(self, spark: SparkSession, state: str, flow: str, run_id: str) -> None:
        self._flow = flow
        self._run_id = run_id
        self._ledger = OffsetSyncTable(spark, state)
        self._incidents = IncidentTable(spark, state)
        self._appends = 0

    def positions(self) -> Mapping[PartitionKey, Position]:
        """Where the ledger says each partition stands."""
        return self._ledger.positions(self._flow)

    def append(self, rows: Sequence[LedgerRow], batch: BatchRef) -> None:
        """Add rows to the ledger; nothing for no rows."""
        if not rows:
            return
        number, self._appends = self._appends, self._appends + 1
        self._ledger.append(
            self._flow,
            rows,
            run_id=self._run_id,
            append_number=number,
            query_id=batch.query_id,
            batch_id=batch.batch_id,
        )

    def note(self, incidents: Sequence[Incident], batch: BatchRef) -> None:
        """Add incidents; nothing for none."""
        if incidents:
            self._incidents.append(self._flow, incidents, run_id=self._run_id, batch_id=batch.batch_id)

    def forget_from(self, key: PartitionKey, downstream_offset: int) -> Optional[int]:
        """Void the facts about a remote log from an offset on, which the log no longer holds.

        Returns the upstream offset that belongs there. Voided before anything is copied again: two facts about one
        downstream offset would contradict each other.
        """
        upstream = self._ledger.upstream_of(self._flow, key, downstream_offset)
        self._ledger.void_from(self._flow, key, downstream_offset)
        return upstream


def position_row(copied: CopiedPartition, position: Position) -> LedgerRow:
    """The row that says where a partition stands, without a record of its own."""
    return copied.ledger_row(position.upstream_offset, position.downstream_offset, 0)
