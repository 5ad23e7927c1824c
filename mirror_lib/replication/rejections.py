"""Handles records that the target refuses: `on.error: fail` stops their partition, `skip` skips them.

A refused batch is sent again one record at a time, so only the refused record is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import FrozenSet, List, Mapping, Optional, Tuple

from mirror_lib.kafka.connection import error_name, is_retriable
from mirror_lib.ledger.records import COPIED_AGAIN, DATA_LOST, OFFSETS_SKIPPED, Incident, PartitionKey
from mirror_lib.replication.messages import PartitionReport

# The incidents of a partition that continues.
PASSED = (DATA_LOST, OFFSETS_SKIPPED, COPIED_AGAIN)

# Errors by which the target refuses one batch: the partition stops, the flow continues.
REJECTED = {
    10: "the batch is larger than the remote topic's max.message.bytes",
    18: "the batch is larger than the remote topic's segment.bytes",
    29: "not authorised to write; the target principal needs Write on the remote topic",
    32: "a timestamp is outside the remote topic's message.timestamp.before.max.ms or .after.max.ms",
    44: "the target's policy refuses the record",
    76: "the target does not take this compression codec",
    87: "the target refuses a record, for example one without a key in a compacted topic",
}
TOPIC_AUTHORIZATION_FAILED = 29
# Not about a record, so no record is skipped for it: the batch may be accepted once an ACL is granted.
OF_THE_TOPIC = frozenset([TOPIC_AUTHORIZATION_FAILED])
FOREIGN_WRITER = (
    "the batch expected at offset {} of {} was written at {}, so another producer writes to this remote topic; stop "
    "that one, or set shared.remote.topics: true if several flows may share the topic"
)
OFFSET_OUT_OF_RANGE = 1


def why_rejected(code: int, message: str) -> str:
    """The reason for a batch that the target refused with a code of `REJECTED`, and perhaps a `message`."""
    return f"{REJECTED[code]}: {message}" if message else REJECTED[code]


def why_not_fetched(code: int) -> Optional[str]:
    """Why a partition cannot be fetched from; None if a later fetch may succeed."""
    if code == TOPIC_AUTHORIZATION_FAILED:
        return "not authorised to fetch; the source principal needs Read on the topic"
    if code == OFFSET_OUT_OF_RANGE or not is_retriable(code):
        return f"cannot fetch: {error_name(code)}"
    return None


@dataclass(frozen=True)
class Rejections:
    """The state of a flow's refused records, an immutable value. `isolate` is the upstream offset before which records
    of a partition are written one by one. `noted` is the offset at which it stopped by the last report. `skips`:
    refused records are skipped."""

    skips: bool
    isolate: Mapping[PartitionKey, int] = field(default_factory=dict)
    noted: FrozenSet[Tuple[PartitionKey, int]] = frozenset()

    def isolate_until(self, key: PartitionKey) -> int:
        """The upstream offset before which records are written one by one; -1 for none."""
        return self.isolate.get(key, -1)

    def continues(self, part: PartitionReport) -> bool:
        """Whether the partition continues in the next cycle: sent one by one, or with the refused record skipped."""
        return self.skips and part.rejected_from is not None

    def position(self, key: PartitionKey, part: PartitionReport) -> int:
        """The upstream offset of the partition: after the refused record if that is skipped."""
        return part.rejected_until if self._skipped(key, part) else part.position

    def incidents(self, key: PartitionKey, part: PartitionReport) -> List[Incident]:
        """The incidents of this cycle for the operator. A partition that stays stopped is reported once."""
        passed = [each for each in part.incidents if each.kind in PASSED]
        if self._skipped(key, part):
            skipped = (part.topic, part.partition, part.rejected_from or 0, part.rejected_until, part.stopped or "")
            return [*passed, Incident(OFFSETS_SKIPPED, *skipped)]
        if part.stopped is None or self.continues(part):
            return passed
        return [] if (key, part.position) in self.noted else list(part.incidents)

    def after(self, parts: Mapping[PartitionKey, PartitionReport]) -> Rejections:
        """The state once these reports are recorded."""
        stopped = {key: part for key, part in parts.items() if part.stopped is not None}
        going = {key: part for key, part in stopped.items() if self.continues(part)}
        isolated = {key: max(self.isolate_until(key), part.rejected_until) for key, part in going.items()}
        noted = {(key, part.position) for key, part in stopped.items() if key not in going}
        return replace(self, isolate={**self.isolate, **isolated}, noted=self.noted | noted)

    def _skipped(self, key: PartitionKey, part: PartitionReport) -> bool:
        return self.skips and part.rejected_from is not None and part.rejected_from < self.isolate_until(key)
