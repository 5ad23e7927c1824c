"""Decides for a flow and for each remote partition whether a run without a ledger makes an exact copy. Pure.

Such a run compares whole record batches with the source, from the first record of both logs on. Flows that change
records read the headers `mirror.origin` of the remote log instead. Where neither shows the copied records, the rebuild
is refused, with a way out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import OffsetRange, TopicPartition
from mirror_lib.kafka.record_batch import Record
from mirror_lib.replication.reconcile import equal
from mirror_lib.rows.origin import ORIGIN_HEADER, origin_of

# How a run without a ledger finds the records copied to a remote partition.
COMPARED, ORIGINS, GROUP, COPIED = "compared", "origins", "group", "copied"


@dataclass(frozen=True)
class Refusal:
    """Why a rebuild is refused, and what makes it possible. `code` is for programs."""

    code: str
    reason: str
    way_out: str


@dataclass(frozen=True)
class FlowFacts:
    """What state and clusters say of a flow.

    `copied`: one of its remote topics has records or had some. `taken_over`: `mirror takeover` wrote its first ledger,
    or may have.
    `producers`: the table `lane_producers` has ids of its lanes.
    """

    copied: bool
    taken_over: bool
    producers: bool


def flow_refusal(flow: ReplicationFlow, facts: FlowFacts) -> Optional[Refusal]:
    """Why no partition of the flow can be rebuilt, whatever the logs hold."""
    if not facts.copied:
        return None
    empty = f"delete the flow's remote topics on {flow.target.alias}; the next run copies them again from the source"
    change = flow.change
    if change is not None and not change.provenance:
        return Refusal("no origins", "with `provenance: off` its records do not show where they came from", empty)
    if change is not None and flow.repartitions and flow.shared_remote_topics:
        reason = "it repartitions records into shared remote topics, and without a ledger it starts at their end"
        return Refusal("shared", reason, f"give the flow remote topics of its own by `rename`, or {empty}")
    if change is None and flow.shared_remote_topics and not facts.producers:
        reason = "its remote topics are shared, and the table lane_producers does not say which records it wrote"
        return Refusal("shared", reason, "restore the table lane_producers from a backup")
    if change is None and facts.taken_over:
        reason = (
            "`mirror takeover` started it after another tool's records, which a comparison cannot match; or it is "
            "unknown whether it did, since the table takeovers was lost"
        )
        return Refusal("taken over", reason, empty)
    if flow.auto_offset_reset == "latest" and flow.start_position is None:
        reason = "with `consumer.auto.offset.reset: latest` a run without a ledger starts at the end of the source"
        return Refusal("latest", reason, "set `start.position` to the offsets at which the copy began")
    return None


@dataclass(frozen=True)
class Logs:
    """A source log and its remote log from where a run without a ledger starts.

    `source_first` and `remote_first` are the first records there; `log_append_time` is that of the remote log.
    `compacted`: one of both topics is compacted, so first records may differ. `from_group`: a group's offset metadata
    says where to start.
    """

    source: OffsetRange
    remote: OffsetRange
    source_first: Optional[Record] = None
    remote_first: Optional[Record] = None
    log_append_time: bool = False
    compacted: bool = False
    from_group: bool = False


@dataclass(frozen=True)
class PartitionRebuild:
    """What becomes of a remote partition. `records` are the offsets of the remote log that are read for it."""

    remote: TopicPartition
    how: str
    records: int
    refusal: Optional[Refusal] = None


def rebuilt_batches(flow: ReplicationFlow, remote: TopicPartition, logs: Logs) -> PartitionRebuild:
    """Of a flow that copies whole record batches."""
    count = logs.remote.end - logs.remote.log_start
    expired = _expired(flow, remote, logs)
    if expired is not None or not count:
        return PartitionRebuild(remote, COPIED, 0, expired)
    how = GROUP if logs.from_group else COMPARED
    if logs.remote_first is None or logs.compacted or flow.shared_remote_topics:
        # Markers alone; or the run itself, which reads all of both logs, has to tell.
        return PartitionRebuild(remote, how, count)
    if logs.source_first is None or not equal(logs.source_first, logs.remote_first, logs.log_append_time):
        return PartitionRebuild(remote, how, count, _unlike(flow, remote, logs))
    return PartitionRebuild(remote, how, count)


def rebuilt_rows(flow: ReplicationFlow, remote: TopicPartition, logs: Logs) -> PartitionRebuild:
    """Of a flow that changes records. The source's log may have lost what the remote log still holds."""
    count = logs.remote.end - logs.remote.log_start
    expired = _expired(flow, remote, logs)
    if expired is not None or not count:
        return PartitionRebuild(remote, COPIED, 0, expired)
    first = logs.remote_first
    if first is not None and not flow.shared_remote_topics and origin_of(first.body) is None:
        reason = f"{_name(remote)}: the record at offset {first.offset} has no header `{ORIGIN_HEADER}`"
        return PartitionRebuild(remote, ORIGINS, count, Refusal("no origins", reason, _empty(flow, remote)))
    return PartitionRebuild(remote, ORIGINS, count)


def _expired(flow: ReplicationFlow, remote: TopicPartition, logs: Logs) -> Optional[Refusal]:
    """Where the remote log lost all records of a source partition, nothing shows that they were copied."""
    if logs.source.end == logs.source.log_start or logs.from_group:
        return None
    start, mixed = logs.remote.log_start, flow.shared_remote_topics or flow.repartitions
    if not start or (start < logs.remote.end and not mixed):
        return None
    reason = (
        f"{_name(remote)}: retention removed its records up to offset {start}, and the ones that the source still "
        "holds may be copied again"
    )
    return Refusal("expired on the target", reason, _empty(flow, remote))


def _unlike(flow: ReplicationFlow, remote: TopicPartition, logs: Logs) -> Refusal:
    here = f"the source's log starts at offset {logs.source.log_start}"
    if logs.source.log_start and logs.source_first is None:
        here = f"the source's log holds no record after offset {logs.source.log_start}"
    first = logs.remote_first.offset if logs.remote_first is not None else logs.remote.log_start
    reason = f"{_name(remote)}: its first record, at offset {first}, is not the first of the source; {here}"
    code = "expired on the source" if logs.source.log_start else "unlike"
    return Refusal(code, reason, _empty(flow, remote))


def _name(partition: Tuple[str, int]) -> str:
    return f"{partition[0]}-{partition[1]}"


def _empty(flow: ReplicationFlow, remote: TopicPartition) -> str:
    return f"delete {remote[0]} on {flow.target.alias}; the next run copies it again from the source"


@dataclass(frozen=True)
class FlowRebuild:
    """A flow's rebuild: its remote partitions that exist, how many source topics they are of, and why it is refused."""

    flow: str
    topics: int
    partitions: Tuple[PartitionRebuild, ...]
    refusal: Optional[Refusal] = None

    @property
    def refusals(self) -> Tuple[Refusal, ...]:
        """All reasons, the flow's own first."""
        own = () if self.refusal is None else (self.refusal,)
        return (*own, *(each.refusal for each in self.partitions if each.refusal is not None))

    @property
    def records(self) -> int:
        """How many offsets of remote logs are read."""
        return sum(each.records for each in self.partitions)
