"""Decides which offsets of each partition are copied, from the ledger and both logs. Pure.

Spark's checkpoint does not matter here: the difference between the ledger and the source remains to be copied. A
partition that was never copied starts where `start.position` says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Collection, Iterable, Mapping, Optional, Sequence

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import CommittedOffset, OffsetRange, TopicPartition
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.records import (
    DATA_LOST,
    REMOTE_LOG_HEALED,
    STARTED_LATER,
    TOPIC_RECREATED,
    Incident,
    PartitionKey,
    Position,
    TopicPair,
)
from mirror_lib.replication.messages import CopiedPartition
from mirror_lib.replication.reconcile import CONTINUE_HINT, left_the_log, loss_hint
from mirror_lib.replication.start_rules import (
    Action,
    Begins,
    Case,
    Rows,
    SourceLog,
    begins_at,
    remote_log,
    rule_of,
    source_log,
    unproven,
)

_METADATA = re.compile(r"mirror: goes on at offset (\d{1,18}) of remote topic ([\w.-]+), id ([\w-]*)")
BEHIND_REMOTE_LOG = -1


@dataclass(frozen=True)
class Start:
    """Where the copy of a partition starts; `says` names the setting or group that decided it. `upstream_offset` -1 is
    the end of the source's log.

    `downstream_offset` is the remote offset of its first record. `None` is the start of the remote log, whose present
    records are compared with the source before anything is written. -1 is its end, after the records of another writer.
    `recreated`: this mirror copied to a remote topic of that name which was deleted, so everything is copied again.
    """

    upstream_offset: int
    says: str
    downstream_offset: Optional[int] = None
    recreated: bool = False


def committed_by(group: str, cluster: KafkaCluster) -> Mapping[TopicPartition, CommittedOffset]:
    """The committed offsets of a group; empty if it never committed. Raises `ClusterError` if they cannot be read:
    without them the copy would start from a wrong offset, permanently."""
    answers = cluster.committed_offsets([group])
    if group not in answers:
        raise ClusterError(
            f"{cluster.alias}: cannot read the committed offsets of group {group}",
            "retry if its coordinator is unavailable; else grant Describe on the group to this principal",
        )
    return answers[group]


def starts_of(
    flow: ReplicationFlow, source: KafkaCluster, partitions: Sequence[CopiedPartition]
) -> Mapping[TopicPartition, Start]:
    """The start of each source partition for which `start.position` gives one. Raises `ClusterError`."""
    choice, wanted = flow.start_position, {each.source: each for each in partitions}
    if choice is None or not partitions:
        return {}
    if choice.group:
        committed = committed_by(choice.group, source)
        starts = {each: Start(committed[each].offset, f"group {choice.group}") for each in wanted if each in committed}
        if flow.commit_source_group != choice.group:
            return starts
        # The group has this mirror's offset metadata, or the previous tool's commits.
        return {each: _by_metadata(wanted[each], start, committed[each].metadata) for each, start in starts.items()}
    offsets = dict(choice.offsets)
    if choice.timestamp is not None:
        offsets = dict(source.offsets_at(list(wanted), choice.timestamp, flow.isolation_level))
    return {each: Start(offset, "start.position") for each, offset in offsets.items() if each in wanted}


def moved_on(
    flow: ReplicationFlow, source: KafkaCluster, positions: Mapping[TopicPartition, Position]
) -> Mapping[TopicPartition, str]:
    """Why partitions at these positions of the ledger must not be copied: another client, such as a MirrorMaker that
    ran meanwhile, committed a later offset to the flow's group. Raises `ClusterError`."""
    choice = flow.start_position
    if not positions or choice is None or not choice.group or choice.group != flow.commit_source_group:
        return {}
    committed = committed_by(choice.group, source)
    others = {each: at.offset for each, at in committed.items() if not _METADATA.fullmatch(at.metadata)}
    return {
        (topic, number): f"{topic}-{number}: another client committed offset {others[topic, number]} to group "
        f"{choice.group}, and the ledger ends at {at.upstream_offset}: the remote log may have the records between. "
        "Use a new `state` to resume from the group, or reset the group to the ledger's offset"
        for (topic, number), at in positions.items()
        if others.get((topic, number), -1) > at.upstream_offset
    }


def _by_metadata(copied: CopiedPartition, start: Start, metadata: str) -> Start:
    note = _METADATA.fullmatch(metadata)
    if note is None or note.group(2) != copied.remote_topic:  # this product did not write it
        return replace(start, downstream_offset=BEHIND_REMOTE_LOG)
    if note.group(3) not in ("", copied.remote_topic_id):  # brokers that were upgraded meanwhile have ids by now
        return replace(start, recreated=True)
    return replace(start, downstream_offset=int(note.group(1)))


def noted(remote_topic: str, remote_topic_id: str, at: Position) -> CommittedOffset:
    """The offset and metadata to commit for a partition that resumes at `at`."""
    topic = f"{remote_topic}, id {remote_topic_id}"
    metadata = f"mirror: goes on at offset {at.downstream_offset} of remote topic {topic}"
    return CommittedOffset(at.upstream_offset, metadata)


@dataclass(frozen=True)
class Range:
    """One partition's decision: copy from `start` until `end`, or stop for the reason in `refused`.

    `anchor`: the start must be written to the ledger before anything is copied from it.
    `log_start`: the start of the source's log; if it is past `start`, the lane finds out what is lost.
    `void_from`: downstream offset from which on the ledger's rows are no longer true; see `healed`.
    `code`: the code of the refusal, if the range is `refused`.
    `unrecorded`: set if the remote log has held records and the ledger has no rows of it. It is the reason to stop if
    both logs do not prove which records were copied.
    `isolate_until`: records before this upstream offset are sent one by one.
    """

    key: PartitionKey
    start: Position
    end: int
    incident: Optional[Incident] = None
    anchor: bool = False
    void_from: Optional[int] = None
    refused: Optional[str] = None
    log_start: int = 0
    code: str = ""
    unrecorded: str = ""
    isolate_until: int = -1

    @property
    def source(self) -> TopicPartition:
        return (self.key.source_topic, self.key.partition)

    @property
    def behind(self) -> int:
        return max(0, self.end - self.start.upstream_offset)


def refuse_other_mode(
    flow: ReplicationFlow, pairs: Iterable[TopicPair], kept: Iterable[PartitionKey], ranges: Collection[TopicPair]
) -> None:
    """Raise `RefusedError` where a topic of `pairs` was copied in the other partitioning mode.

    `kept` are the partitions of the ledger that keep their numbers, `ranges` its repartitioned topics. Where the ledger
    has both of a topic, `ranges` count.
    """
    in_partitions = {(key.source_topic, key.source_topic_id, key.remote_topic_id) for key in kept}
    for each in pairs:
        repartitioned = each in ranges
        was_kept = (each.topic, each.topic_id, each.remote_topic_id) in in_partitions
        if (was_kept and not repartitioned) if flow.repartitions else repartitioned:
            before, now = "in their partitions", "repartitioned"
            raise RefusedError(
                f"{flow.name}: {each.topic} was copied to {each.remote_topic} with records "
                f"{before if flow.repartitions else now}, and would be copied there again with records "
                f"{now if flow.repartitions else before}",
                "set `partitioner` back; or copy it again, into another remote topic or after this one is deleted",
                code="MIR-317",
            )


@dataclass(frozen=True)
class Found:
    """What a driver's run finds of a partition at first.

    `positions` are the ledger's of all partitions of the source topic; `source` and `target` are both logs. `begin` is
    the start that `start.position` gives. It applies only if the partition was never copied. `unlike`: a topic without
    an id no longer has the last recorded record. `moved_on`: what the function of that name says. `tails`:
    a lane will mark the remote log, and the ledger get that position.
    """

    key: PartitionKey
    remote_topic: str
    positions: Mapping[PartitionKey, Position]
    source: OffsetRange
    target: OffsetRange
    begin: Optional[Start] = None
    unlike: bool = False
    moved_on: Optional[str] = None
    tails: bool = False

    @property
    def known(self) -> Optional[Position]:
        return self.positions.get(self.key)

    def reached(self) -> Mapping[PartitionKey, int]:
        """Where the ledger ends on this remote log, for the source topic and earlier ones of that name."""
        remote, rows = (self.key.remote_topic_id, self.key.partition), self.positions.items()
        return {old: at.downstream_offset for old, at in rows if (old.remote_topic_id, old.partition) == remote}

    def had_other_records(self, end: int) -> bool:
        """Whether the remote log has held, at `end` or later, records of an earlier source topic of that name."""
        return any(offset > end for old, offset in self.reached().items() if old != self.key)

    def case(self, flow: ReplicationFlow) -> Case:
        key, known = self.key, self.known
        # The rows of the topic's other partitions matter only if this one has none: a topic may have thousands. Under
        # offset 0 nothing was copied.
        others = () if known is not None else [old for old, at in self.positions.items() if at.downstream_offset]
        of_remote = [each for each in others if each.remote_topic_id == key.remote_topic_id != ""]
        same_number = [each for each in others if each.partition == key.partition]
        # A re-created topic may have partitions that the old one lacked.
        new_topic = bool(of_remote) and all(each.source_topic_id != key.source_topic_id for each in others)
        recreated = self.unlike or new_topic or any(each in of_remote for each in same_number)
        relatives = bool(same_number) or (self.begin is not None and self.begin.recreated)
        return Case(
            Rows.SOME if known is not None or recreated else Rows.OTHER if relatives else Rows.NONE,
            remote_log(self.target, known, flow.shared_remote_topics),
            source_log(self.source, known, recreated),
            begins_at(flow, self.begin is not None),
        )


def first_range(flow: ReplicationFlow, found: Found, state: str = "") -> Range:
    """The first decision for a partition in a driver's run, from both logs, by the rules of `start_rules`. The folder
    `state` is for messages."""
    key, known, begin, source, target = found.key, found.known, found.begin, found.source, found.target
    if known is not None and found.moved_on is not None:
        return Range(key, known, source.end, refused=found.moved_on, code="MIR-329")
    if known is None and begin is not None and begin.downstream_offset is not None:
        # The offset metadata of a group takes the place of the ledger's row.
        return _begun(flow, key, begin, source, target)
    case = found.case(flow)
    rule = rule_of(case)
    if rule.code == "MIR-316":
        # An older ledger lacks records of the new topic that follow its rows: those are compared.
        reached = max([*found.reached().values(), target.log_start])
        lost = f"; {_cut(target.end, reached)}; what it lost is not copied again" if target.end < reached else ""
        return _source_recreated(flow, key, source, min(reached, target.end), found.unlike, lost)
    if known is not None:
        if rule.code == "MIR-312" and rule.action is Action.STOP:
            reason = (
                f"{key.source_topic}-{key.partition}: the source's log ends at {source.end}, before offset "
                f"{known.upstream_offset} that was copied, and {_cut(target.end, known.downstream_offset)}; delete the "
                "remote topic to copy all again"
            )
            return Range(key, known, source.end, refused=reason, code=rule.code)
        if rule.action is Action.REFILL:
            # The ledger has the upstream offset that belongs at this end: the caller reads it, and `healed` decides.
            return Range(key, known, source.end, void_from=target.end)
        return _resumed(flow, key, known, source, target)
    names = (key.source_topic, found.remote_topic, key.partition)
    unrecorded = "" if rule.action is Action.BEGIN else unproven(*names, target, state)
    if rule.action is Action.STOP:
        at = Position(source.log_start, target.end)
        return Range(key, at, source.end, refused=unrecorded, code=rule.code)
    if case.rows is Rows.OTHER:
        decided = _remote_recreated(key, source, target.end if rule.action is Action.BEGIN else target.log_start)
    elif begin is not None:
        decided = _begun(flow, key, begin, source, target)
    else:
        latest, empty = flow.auto_offset_reset == "latest", case.source is SourceLog.EMPTY
        start = Position(source.end if latest else source.log_start, target.end if empty else target.log_start)
        # Must be recorded: by the next run the ends have moved, or there are records that nothing can be compared with.
        # And a group at the end of a log without records can be translated.
        blind = flow.change is not None and not flow.change.provenance
        passed = empty and (target.end > 0 or not found.tails)
        decided = Range(key, start, source.end, anchor=latest or passed or blind)
    skipped = (source.log_start, decided.start.upstream_offset)
    if case.rows is Rows.NONE and not (unrecorded or decided.incident or decided.refused) and skipped[0] < skipped[1]:
        reason = f"the copy starts after what the source held, by {'latest' if begin is None else 'start.position'}"
        return replace(decided, incident=Incident(STARTED_LATER, key.source_topic, key.partition, *skipped, reason))
    # An unproved offset of the file is not recorded, so it can be corrected. That of a group or a time may change.
    fixed = case.begins is not Begins.SEARCHED
    return replace(decided, unrecorded=unrecorded, anchor=decided.anchor and not (unrecorded and fixed))


def next_range(flow: ReplicationFlow, key: PartitionKey, position: Position, source: OffsetRange) -> Range:
    """A later decision. Only the source can have lost records: an append shows whether the target has."""
    name, at = f"{key.source_topic}-{key.partition}", position.upstream_offset
    if at < source.log_start:
        reason = left_the_log((key.source_topic, key.partition), at, source.log_start)
        return _lost(flow, key, position, source, source.log_start, reason)
    if at > source.end:
        reason = f"{name}: the source's log ends at {source.end}, before offset {at} that was copied; it was truncated"
        return _lost(flow, key, position, source, source.end, reason)
    return Range(key, position, source.end)


def _resumed(
    flow: ReplicationFlow, key: PartitionKey, known: Position, source: OffsetRange, target: OffsetRange
) -> Range:
    """Resume from a position of an earlier process, which may have written more than it could report.

    If offsets left the source's log, the lane fences and reads the remote log to find out what is lost. If the source's
    log was truncated, the records past the position are copied from the truncation point.
    """
    if known.upstream_offset < source.log_start:
        return Range(key, known, source.end, log_start=source.log_start)
    cut_off = known.upstream_offset > source.end
    return next_range(flow, key, replace(known, downstream_offset=target.end) if cut_off else known, source)


def _begun(flow: ReplicationFlow, key: PartitionKey, begin: Start, source: OffsetRange, target: OffsetRange) -> Range:
    at = source.end if begin.upstream_offset < 0 else begin.upstream_offset
    wanted = begin.downstream_offset
    downstream = target.log_start if wanted is None else target.end if wanted < 0 else wanted
    start, name = Position(at, downstream), f"{key.source_topic}-{key.partition}"
    if downstream > target.end:
        reason = f"{name}: {begin.says} names offset {downstream} of the remote log, which ends at {target.end}"
        return Range(
            key,
            start,
            source.end,
            refused=f"{reason}; it has lost records, or it is another topic",
            code="MIR-312",
        )
    if at < source.log_start and (wanted is None or wanted < 0):
        reason = f"{name}: {begin.says} is at offset {at}, and the source's log starts at {source.log_start} by now"
        return _lost(flow, key, start, source, source.log_start, reason)
    if at > source.end:
        reason = f"{name}: {begin.says} is at offset {at}, and the source's log ends at {source.end}"
        return _lost(flow, key, start, source, source.end, reason)
    # Must be recorded: a group's offset changes, and a timestamp may later resolve to another offset.
    return Range(key, start, source.end, anchor=True, log_start=source.log_start if at < source.log_start else 0)


def _lost(
    flow: ReplicationFlow, key: PartitionKey, position: Position, source: OffsetRange, start: int, reason: str
) -> Range:
    code = "MIR-310" if position.upstream_offset < start else "MIR-311"  # deleted before, or truncated after
    if flow.on_data_loss == "fail":
        hint = loss_hint(key.source_topic) if code == "MIR-310" else CONTINUE_HINT
        return Range(key, position, source.end, refused=f"{reason}; {hint}", code=code)
    bounds = sorted((position.upstream_offset, start))
    incident = Incident(DATA_LOST, key.source_topic, key.partition, bounds[0], bounds[1], reason)
    return Range(key, Position(start, position.downstream_offset), source.end, incident, anchor=True)


def _source_recreated(
    flow: ReplicationFlow, key: PartitionKey, source: OffsetRange, downstream_offset: int, unlike: bool, lost: str
) -> Range:
    start = Position(source.log_start, downstream_offset)
    reason = f"{key.source_topic} was deleted and created again on the source"
    if unlike:
        reason += ": a record that was copied from there is not its copy's any more"
    reason += lost
    if flow.on_data_loss == "fail":
        hint = "set on.data.loss: continue to append the new topic's records after the old ones"
        return Range(key, start, source.end, refused=f"{reason}; {hint}", code="MIR-316")
    incident = Incident(TOPIC_RECREATED, key.source_topic, key.partition, source.log_start, source.end, reason)
    return Range(key, start, source.end, incident, anchor=True)


def _remote_recreated(key: PartitionKey, source: OffsetRange, downstream_offset: int) -> Range:
    reason = (
        f"the remote topic of {key.source_topic} was deleted and created again, or has another name than before; the "
        "source's log is copied again from its start, and consumers there read its records again"
    )
    incident = Incident(TOPIC_RECREATED, key.source_topic, key.partition, source.log_start, source.end, reason)
    # Must be recorded: `start.position` and "latest" give another start for a partition without a row in the ledger.
    return Range(key, Position(source.log_start, downstream_offset), source.end, incident, anchor=True)


def healed(
    flow: ReplicationFlow, each: Range, source: OffsetRange, first: Position, upstream_offset: int, older: bool = False
) -> Range:
    """Decide on a range with `void_from`, the end of a remote log that was truncated.

    `first` is the position of the partition's first row in the ledger. `upstream_offset` belongs at that end by those
    rows. The rows do not describe records before `first`, such as another tool's or, `older`, those of a source topic
    that was deleted. Those are not copied again.
    """
    end, key = each.void_from or 0, each.key
    start, name = Position(upstream_offset, end), f"{key.source_topic}-{key.partition}"
    lost = _cut(end, each.start.downstream_offset)
    if end < first.downstream_offset and (older or first.upstream_offset > source.log_start):
        unknown = f"its offsets {end} to {first.downstream_offset - 1} held what the ledger does not know"
        if flow.on_data_loss == "fail":
            hint = f"{CONTINUE_HINT}, offset {upstream_offset}, or give the flow an empty remote topic"
            return replace(each, void_from=None, refused=f"{name}: {lost}, and {unknown}; {hint}", code="MIR-312")
        reason = f"{lost}; {unknown}, and are not filled again"
        incident = Incident(DATA_LOST, key.source_topic, key.partition, -1, upstream_offset, reason)
    else:
        reported = (key.source_topic, key.partition, upstream_offset, each.start.upstream_offset)
        incident = Incident(REMOTE_LOG_HEALED, *reported, f"{lost}; what it lost is copied again")
    # The start must be recorded before the rows past it are voided: without any row, another start would be chosen.
    return replace(each, start=start, incident=incident, anchor=True, log_start=source.log_start)


def _cut(end: int, reached: int) -> str:
    return f"the remote log ends at {end}, before offset {reached} that was acknowledged"
