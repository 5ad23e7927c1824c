"""`start.position` and the source's answers in; where partitions that were never copied are to begin out."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import AbstractSet, Dict, Mapping, NamedTuple, Optional, Protocol, Sequence

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import ClusterError
from mirror_lib.facts import Cluster, CommittedOffset, GroupCluster, TopicPartition
from mirror_lib.ledger.records import Position
from mirror_lib.replication.copied_topics import CopiedPartition

_NOTE = re.compile(r"mirror: goes on at offset (\d{1,18}) of remote topic ([\w.-]+), id ([\w-]*)")
BEHIND_REMOTE_LOG = -1


class SourceCluster(Cluster, GroupCluster, Protocol):
    """A source that tells of topics and of groups."""


@dataclass(frozen=True)
class Start:
    """Where a partition begins; `says` names who said so. `upstream_offset` -1 is the end of the source's log.

    `downstream_offset` is where its first record belongs: `None` is the start of the remote log, where what lies there
    is compared with the source before anything is written; -1 is its end, behind what somebody else has written.
    `recreated`: this mirror copied to a remote topic of that name which is gone, so all is to be copied again.
    """

    upstream_offset: int
    says: str
    downstream_offset: Optional[int] = None
    recreated: bool = False


def committed_by(group: str, cluster: GroupCluster) -> Mapping[TopicPartition, CommittedOffset]:
    """What a group has committed; nothing where it never did. Raises `ClusterError` where nobody tells: who took that
    for nothing would begin elsewhere, for good."""
    answers = cluster.committed_offsets([group])
    if group not in answers:
        raise ClusterError(
            f"{cluster.alias}: nobody tells where group {group} stands",
            "grant Describe on the group to this principal; its coordinator may be away for a while",
        )
    return answers[group]


class Starts:
    """Answers for one flow."""

    def __init__(self, flow: ReplicationFlow, source: SourceCluster) -> None:
        self._flow = flow
        self._source = source

    def of(self, partitions: Sequence[CopiedPartition]) -> Mapping[TopicPartition, Start]:
        """By source partition, for those that `start.position` says something of. Raises `ClusterError`."""
        choice = self._flow.start_position
        if choice is None or not partitions:
            return {}
        if choice.group:
            return self._of_group(choice.group, partitions)
        if choice.timestamp is not None:
            return self._of_time(choice.timestamp, partitions)
        wanted = {each.source for each in partitions}
        return {each: Start(offset, "start.position") for each, offset in choice.offsets if each in wanted}

    def untold(
        self, partitions: Sequence[CopiedPartition], starts: Mapping[TopicPartition, Start]
    ) -> AbstractSet[TopicPartition]:
        """Those of `partitions` that begin at a time of which their leaders did not tell where it is: they wait."""
        choice = self._flow.start_position
        by_time = choice is not None and choice.timestamp is not None
        return {each.source for each in partitions} - starts.keys() if by_time else frozenset()

    def _of_group(self, group: str, partitions: Sequence[CopiedPartition]) -> Mapping[TopicPartition, Start]:
        committed = committed_by(group, self._source)
        starts: Dict[TopicPartition, Start] = {}
        for each in partitions:
            if each.source in committed:
                at = committed[each.source]
                starts[each.source] = self._goes_on(each, Start(at.offset, f"group {group}"), at.metadata)
        return starts

    def _goes_on(self, copied: CopiedPartition, start: Start, metadata: str) -> Start:
        if self._flow.commit_source_group != self._flow_group():
            return start
        # A group that this mirror commits to either has the mirror's note, or was committed by the tool before it.
        note = read_note(metadata)
        if note is None or note.remote_topic != copied.remote_topic:
            return replace(start, downstream_offset=BEHIND_REMOTE_LOG)
        if note.remote_topic_id != copied.remote_topic_id:
            return replace(start, recreated=True)
        return replace(start, downstream_offset=note.downstream_offset)

    def _flow_group(self) -> str:
        return self._flow.start_position.group if self._flow.start_position is not None else ""

    def _of_time(self, timestamp: int, partitions: Sequence[CopiedPartition]) -> Mapping[TopicPartition, Start]:
        wanted = [each.source for each in partitions]
        found = self._source.offsets_at(wanted, timestamp, self._flow.isolation_level)
        return {each: Start(offset, "start.position") for each, offset in found.items()}


class Note(NamedTuple):
    """What stands beside an offset that this product committed: where its copy goes on."""

    remote_topic: str
    remote_topic_id: str
    downstream_offset: int


def note_of(note: Note) -> str:
    """What is committed beside an offset."""
    topic = f"{note.remote_topic}, id {note.remote_topic_id}"
    return f"mirror: goes on at offset {note.downstream_offset} of remote topic {topic}"


def noted(remote_topic: str, remote_topic_id: str, at: Position) -> CommittedOffset:
    """What is committed for a partition that goes on at `at`."""
    return CommittedOffset(at.upstream_offset, note_of(Note(remote_topic, remote_topic_id, at.downstream_offset)))


def read_note(metadata: str) -> Optional[Note]:
    """A note as it was committed; `None` for anything else."""
    match = _NOTE.fullmatch(metadata)
    return Note(match.group(2), match.group(3), int(match.group(1))) if match else None
