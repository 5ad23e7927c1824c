"""What a run does with a partition that it meets for the first time. Pure.

A run never appends to a remote partition on an assumption that it has not checked. `RULES` is the whole decision: the
first rule that fits a case counts. docs/project/starts.md is made from it. A flow without `mirror.origin` cannot
compare, and stops instead (`RowMirror`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Mapping, Optional, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import OffsetRange
from mirror_lib.kafka.record_batch import Record
from mirror_lib.ledger.records import Position
from mirror_lib.replication.reconcile import equal


class Rows(Enum):
    """The ledger's rows of the partition."""

    NONE = "none"
    OTHER = "of a deleted remote topic"
    SOME = "some"


class RemoteLog(Enum):
    """The log of the remote partition. Without rows of this flow a shared remote log counts as empty."""

    EMPTY = "empty"
    WHOLE = "whole"
    EXPIRED = "expired, all or in part"
    SHORTER = "ends before the ledger's position"


class SourceLog(Enum):
    """The log of the source partition."""

    EMPTY = "without a record"
    RECORDS = "with records"
    RECREATED = "of a re-created topic"
    SHORTER = "ends before the ledger's position"


class Begins(Enum):
    """Where the configuration starts a partition that was never copied."""

    EARLIEST = "earliest"
    LATEST = "latest"
    SEARCHED = "a time or a group"
    OFFSETS = "offsets"


class Writer(Enum):
    """Another replication tool that wrote to the remote topic. NONE: no sign shows one. RUNNING: it may still write."""

    NONE = "none"
    RUNNING = "may still run"
    ENDED = "has ended"


class Action(Enum):
    """What the run does."""

    BEGIN = "copies from the configured start"
    COMPARE = "compares the remote log with the source from the start, and resumes after the last equal record"
    RESUME = "resumes from the ledger's position, and compares what follows it"
    REFILL = "copies again what the remote log lost"
    STOP = "stops"


@dataclass(frozen=True)
class Case:
    """What a run finds for one partition."""

    rows: Rows
    remote: RemoteLog
    source: SourceLog
    begins: Begins
    writer: Writer = Writer.NONE


@dataclass(frozen=True)
class Rule:
    """`code` is the code of a stop, or of the stop that follows if the comparison of the logs proves nothing."""

    action: Action
    code: str
    why: str
    when: Mapping[str, Tuple[Enum, ...]] = field(default_factory=dict)


UNPROVEN = "MIR-329"
_ABSENT = (Rows.NONE, Rows.OTHER)

RULES: Tuple[Rule, ...] = (
    Rule(
        Action.STOP,
        "MIR-340",
        "Both tools would write the same records.",
        {"rows": _ABSENT, "writer": (Writer.RUNNING,)},
    ),
    Rule(
        Action.STOP,
        "MIR-316",
        "The offsets of the new source topic start again.",
        {"rows": (Rows.SOME,), "source": (SourceLog.RECREATED,)},
    ),
    Rule(
        Action.STOP,
        "MIR-312",
        "Both logs lost records that were copied, so neither shows what the other one lost.",
        {"rows": (Rows.SOME,), "source": (SourceLog.SHORTER,), "remote": (RemoteLog.SHORTER,)},
    ),
    Rule(
        Action.STOP,
        "MIR-311",
        "The source lost records that were copied.",
        {"rows": (Rows.SOME,), "source": (SourceLog.SHORTER,)},
    ),
    Rule(
        Action.REFILL,
        "MIR-312",
        "The ledger has the upstream offset that belongs to the present end of the remote log.",
        {"rows": (Rows.SOME,), "remote": (RemoteLog.SHORTER,)},
    ),
    Rule(Action.RESUME, "MIR-313", "Both topics are those that the ledger recorded.", {"rows": (Rows.SOME,)}),
    Rule(Action.BEGIN, "", "The remote log never held a record.", {"remote": (RemoteLog.EMPTY,)}),
    Rule(
        Action.COMPARE,
        UNPROVEN,
        "The operator named the upstream offset of the first record that the remote log still has.",
        {"rows": (Rows.NONE,), "begins": (Begins.OFFSETS,)},
    ),
    Rule(
        Action.BEGIN,
        "",
        "No record that the source has now or gets later is on the remote log: the copy starts at the ends of both.",
        {"source": (SourceLog.EMPTY,)},
    ),
    Rule(
        Action.STOP,
        UNPROVEN,
        "A remote log without its first records does not show which records were copied.",
        {"remote": (RemoteLog.EXPIRED,)},
    ),
    Rule(
        Action.STOP,
        UNPROVEN,
        "The upstream offset of the first copied record was the end of the source at that time.",
        {"rows": (Rows.NONE,), "begins": (Begins.LATEST,)},
    ),
    Rule(
        Action.COMPARE,
        UNPROVEN,
        "Both logs show every record from the start of the copy on.",
    ),
)


def rule_of(case: Case) -> Rule:
    """The rule that decides the case. Every case has one: the last rule fits all."""
    return next(rule for rule in RULES if all(getattr(case, name) in values for name, values in rule.when.items()))


def remote_log(log: OffsetRange, known: Optional[Position], shared: bool) -> RemoteLog:
    """Classify a remote log. `known` is the ledger's position, if it has one."""
    if known is not None and log.end < known.downstream_offset:
        return RemoteLog.SHORTER
    if not log.end or (shared and known is None):
        return RemoteLog.EMPTY
    return RemoteLog.EXPIRED if log.log_start else RemoteLog.WHOLE


def source_log(log: OffsetRange, known: Optional[Position], recreated: bool) -> SourceLog:
    """Classify a source log. `recreated`: its topic is not the one that the ledger's rows are of."""
    if recreated:
        return SourceLog.RECREATED
    if known is not None and known.upstream_offset > log.end:
        return SourceLog.SHORTER
    return SourceLog.EMPTY if log.log_start == log.end else SourceLog.RECORDS


def begins_at(flow: ReplicationFlow, found: bool) -> Begins:
    """Where the flow starts a partition that was never copied. `found`: `start.position` has a start for it."""
    choice = flow.start_position
    if choice is not None and found:
        return Begins.OFFSETS if choice.offsets else Begins.SEARCHED
    return Begins.LATEST if flow.auto_offset_reset == "latest" else Begins.EARLIEST


def unlike(
    flow: ReplicationFlow, at: Position, ours: Optional[Record], theirs: Optional[Record], stamped: bool
) -> bool:
    """Whether a source record and its recorded copy, at the offsets `at`, show that one of the topics was re-created.

    `ours` and `theirs` are the first records from those offsets on. They show nothing if one of the logs has lost its
    record. `stamped`: the target's brokers set the timestamp. Records that a flow changes have only the timestamp in
    common.
    """
    if ours is None or theirs is None or (ours.offset, theirs.offset) != (at.upstream_offset, at.downstream_offset):
        return False
    if flow.change is None:
        return not equal(ours, theirs, stamped)
    may_differ = stamped or flow.change.transform is not None or "timestamp" in (flow.change.select or "")
    return not may_differ and ours.timestamp != theirs.timestamp


def unproven(topic: str, remote_topic: str, partition: int, log: OffsetRange, state: str) -> str:
    """Why a run does not append to a remote partition that the ledger in the folder `state` has no rows of, and the
    ways on. `log` is the remote log."""
    gone = f", and lost what was before offset {log.log_start}" if log.log_start else ""
    return (
        f"{topic}-{partition}: the ledger in {state} has no rows of it. {remote_topic}-{partition} has held offsets 0"
        f" to {log.end - 1}{gone}, so it is unproven which records were copied. Set `state` to the folder of the"
        " earlier runs. For the records of a MirrorMaker run `mirror takeover`. To resume at an offset that you know,"
        f" set `start.position: {topic}:{partition}=OFFSET`. To copy all again, delete {remote_topic}"
    )
