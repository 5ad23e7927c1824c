"""Where each partition goes on and how far: the ledger and both logs' offsets in, a decision per partition out. Pure.

Spark's checkpoint has no say here: what remains to copy is the difference between the ledger and the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import OffsetRange
from mirror_lib.replicate.starts import Start
from mirror_lib.state.records import Incident, PartitionKey, Position

CONTINUE_HINT = "set on.data.loss: continue to go on from there"


@dataclass(frozen=True)
class Range:
    """One partition's decision: copy from `start` until `end`, or stop for the reason in `refused`.

    `anchor`: the start is a fact of its own, to be written to the ledger before anything is copied from it.
    `bound`: upstream offset from which on nothing is copied, even where a record batch goes on beyond it.
    `void_from`: downstream offset from which on the ledger's facts are no longer true.
    """

    key: PartitionKey
    start: Position
    end: int
    incident: Optional[Incident] = None
    anchor: bool = False
    void_from: Optional[int] = None
    refused: Optional[str] = None
    bound: Optional[int] = None

    @property
    def behind(self) -> int:
        """Upstream offsets still to go through."""
        return max(0, self.end - self.start.upstream_offset)


def first_range(
    flow: ReplicationFlow,
    key: PartitionKey,
    positions: Mapping[PartitionKey, Position],
    source: OffsetRange,
    target: OffsetRange,
    begin: Optional[Start] = None,
) -> Range:
    """The first decision of a driver's life for a partition, when both logs are looked at.

    `begin` is what `start.position` says; it counts only where the partition was never copied.
    """
    known = positions.get(key)
    if known is not None:
        if target.end < known.downstream_offset:
            return _healed(key, known, source, target)
        return next_range(flow, key, known, source)
    relatives = [other for other in positions if _same_name(other, key)]
    if any(other.remote_topic_id == key.remote_topic_id != "" for other in relatives):
        return _source_recreated(flow, key, source, target)
    if begin is not None and not relatives:
        return _begun(flow, key, begin, source, target)
    start = source.end if flow.auto_offset_reset == "latest" and not relatives else source.log_start
    incident = None
    if relatives:
        reason = "the remote topic was deleted and created again; copied again from the source's log start"
        incident = Incident("topic recreated", key.source_topic, key.partition, start, source.end, reason)
    # "latest" must be remembered: by the next run the end has moved on.
    anchor = flow.auto_offset_reset == "latest"
    return Range(key, Position(start, target.log_start), source.end, incident, anchor)


def next_range(flow: ReplicationFlow, key: PartitionKey, position: Position, source: OffsetRange) -> Range:
    """A later decision: only the source can have lost something. The target answers for itself when appended to."""
    name, at = f"{key.source_topic}-{key.partition}", position.upstream_offset
    if at < source.log_start:
        reason = f"{name}: offsets {at} to {source.log_start - 1} left the source's log before they were copied"
        return _lost(flow, key, position, source, source.log_start, reason)
    if at > source.end:
        reason = f"{name}: the source's log ends at {source.end}, before offset {at} that was copied; it was truncated"
        return _lost(flow, key, position, source, source.end, reason)
    return Range(key, position, source.end)


def _begun(flow: ReplicationFlow, key: PartitionKey, begin: Start, source: OffsetRange, target: OffsetRange) -> Range:
    at = source.end if begin.upstream_offset < 0 else begin.upstream_offset
    wanted = begin.downstream_offset
    downstream = target.log_start if wanted is None else target.end if wanted < 0 else wanted
    start, name = Position(at, downstream), f"{key.source_topic}-{key.partition}"
    if downstream > target.end:
        reason = f"{name}: {begin.says} stands at offset {downstream} of the remote log, which ends at {target.end}"
        return Range(key, start, source.end, refused=f"{reason}; it has lost records, or it is another topic")
    if at < source.log_start:
        reason = f"{name}: {begin.says} is at offset {at}, and the source's log starts at {source.log_start} by now"
        return _lost(flow, key, start, source, source.log_start, reason)
    if at > source.end:
        reason = f"{name}: {begin.says} is at offset {at}, and the source's log ends at {source.end}"
        return _lost(flow, key, start, source, source.end, reason)
    # To be remembered: a group moves on, and of a time another offset may be the first later.
    return Range(key, start, source.end, anchor=True)


def _lost(
    flow: ReplicationFlow, key: PartitionKey, position: Position, source: OffsetRange, start: int, reason: str
) -> Range:
    if flow.on_data_loss == "fail":
        return Range(key, position, source.end, refused=f"{reason}; {CONTINUE_HINT}")
    bounds = sorted((position.upstream_offset, start))
    incident = Incident("data lost", key.source_topic, key.partition, bounds[0], bounds[1], reason)
    return Range(key, Position(start, position.downstream_offset), source.end, incident, anchor=True)


def _source_recreated(flow: ReplicationFlow, key: PartitionKey, source: OffsetRange, target: OffsetRange) -> Range:
    start = Position(source.log_start, target.end)
    reason = f"{key.source_topic} was deleted and created again on the source"
    if flow.on_data_loss == "fail":
        hint = "set on.data.loss: continue to append the new topic's records after the old ones"
        return Range(key, start, source.end, refused=f"{reason}; {hint}")
    incident = Incident("topic recreated", key.source_topic, key.partition, source.log_start, source.end, reason)
    return Range(key, start, source.end, incident, anchor=True)


def _healed(key: PartitionKey, known: Position, source: OffsetRange, target: OffsetRange) -> Range:
    reason = (
        f"the remote log ends at {target.end}, before offset {known.downstream_offset} that was acknowledged; "
        "what it lost is copied again"
    )
    incident = Incident("remote log healed", key.source_topic, key.partition, -1, known.upstream_offset, reason)
    # The upstream offset that belongs there is in the ledger; the caller looks it up by `void_from`.
    return Range(key, known, source.end, incident, void_from=target.end)


def _same_name(one: PartitionKey, other: PartitionKey) -> bool:
    return one.source_topic == other.source_topic and one.partition == other.partition
