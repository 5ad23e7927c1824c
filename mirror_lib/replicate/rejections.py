"""What becomes of records that the target refuses: `on.error: fail` stops their partition, `skip` leaves them out.

A refused batch is sent again one record at a time, so that only the record that is refused is skipped.
"""

from __future__ import annotations

from typing import Dict, List, Set, Tuple

from mirror_lib.replicate.lanes import PartitionReport
from mirror_lib.state.records import DATA_LOST, Incident, PartitionKey


class Rejections:
    """Remembers, for a flow, which stretch of each partition is being sent record by record."""

    def __init__(self, on_error: str) -> None:
        self._skip = on_error == "skip"
        self._isolate: Dict[PartitionKey, int] = {}
        self._noted: Set[Tuple[PartitionKey, int]] = set()

    def isolate_until(self, key: PartitionKey) -> int:
        """Upstream offset before which records go one by one; -1 for none."""
        return self._isolate.get(key, -1)

    def goes_on(self, key: PartitionKey, part: PartitionReport) -> bool:
        """Whether the partition goes on in the next pass: sent one by one, or with the refused record left out."""
        if not self._skip or part.rejected_from is None:
            return False
        self._isolate[key] = max(self._isolate.get(key, -1), part.rejected_until)
        return True

    def position(self, key: PartitionKey, part: PartitionReport) -> int:
        """Where the partition stands: behind the refused record if that is skipped."""
        return part.rejected_until if self._skips(key, part) else part.position

    def incidents(self, key: PartitionKey, part: PartitionReport) -> List[Incident]:
        """What an operator must be able to look up about this pass; a partition that stays stopped is told once."""
        if self._skips(key, part):
            return [
                Incident(
                    "offsets skipped",
                    part.topic,
                    part.partition,
                    part.rejected_from or 0,
                    part.rejected_until,
                    part.stopped or "",
                )
            ]
        if part.stopped is None or (self._skip and part.rejected_from is not None):
            return [each for each in part.incidents if each.kind == DATA_LOST]
        told = (key, part.position)
        if told in self._noted:
            return []
        self._noted.add(told)
        return list(part.incidents)

    def _skips(self, key: PartitionKey, part: PartitionReport) -> bool:
        return self._skip and part.rejected_from is not None and part.rejected_from < self._isolate.get(key, -1)
