"""`start.position` and the source's answers in; where partitions that were never copied are to begin out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Protocol, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import Cluster, GroupCluster, TopicPartition
from mirror_lib.replicate.topics import CopiedPartition

_NOTE = re.compile(r"mirror: goes on at offset (\d{1,18}) of remote topic ([\w-]*)")
BEHIND_REMOTE_LOG = -1


class SourceCluster(Cluster, GroupCluster, Protocol):
    """A source that tells of topics and of groups."""


@dataclass(frozen=True)
class Start:
    """Where a partition begins; `says` names who said so. `upstream_offset` -1 is the end of the source's log.

    `downstream_offset` is where its first record belongs: `None` is the start of the remote log, where what lies there
    is compared with the source before anything is written; -1 is its end, behind what somebody else has written.
    """

    upstream_offset: int
    says: str
    downstream_offset: Optional[int] = None


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

    def _of_group(self, group: str, partitions: Sequence[CopiedPartition]) -> Mapping[TopicPartition, Start]:
        committed = self._source.committed_offsets([group]).get(group, {})
        starts: Dict[TopicPartition, Start] = {}
        for each in partitions:
            if each.source in committed:
                at = committed[each.source]
                starts[each.source] = Start(at.offset, f"group {group}", self._goes_on(each, at.metadata))
        return starts

    def _goes_on(self, copied: CopiedPartition, metadata: str) -> Optional[int]:
        if self._flow.commit_source_group != self._flow_group():
            return None
        # A group that this mirror commits to either has the mirror's note, or was committed by the tool before it.
        note = read_note(metadata)
        return note[1] if note is not None and note[0] == copied.remote_topic_id else BEHIND_REMOTE_LOG

    def _flow_group(self) -> str:
        return self._flow.start_position.group if self._flow.start_position is not None else ""

    def _of_time(self, timestamp: int, partitions: Sequence[CopiedPartition]) -> Mapping[TopicPartition, Start]:
        wanted = [each.source for each in partitions]
        found = self._source.offsets_at(wanted, timestamp, self._flow.isolation_level)
        return {each: Start(offset, "start.position") for each, offset in found.items()}


def note_of(remote_topic_id: str, downstream_offset: int) -> str:
    """What is committed beside an offset."""
    return f"mirror: goes on at offset {downstream_offset} of remote topic {remote_topic_id}"


def read_note(metadata: str) -> Optional[Tuple[str, int]]:
    """Remote topic id and downstream offset of a note; `None` for anything else."""
    match = _NOTE.fullmatch(metadata)
    return (match.group(2), int(match.group(1))) if match else None
