"""Passes as notes beside the offsets of a consumer group: what a driver that has another ledger needs to know of them.

A pass in, an offset and a note for each of its source partitions out; these in, the pass out. Pure.
"""

from __future__ import annotations

import re
from typing import Collection, Dict, List, Mapping, NamedTuple, Optional

from mirror_lib.errors import RefusedError
from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.state.row_passes import REMOTE, SOURCE, PassRow, RowPass

# Kafka's default offset.metadata.max.bytes: a broker refuses a longer note, and with it the offset.
LONGEST_NOTE = 4096
# Where a note would be too long, or a topic has several remote topics: whoever has no ledger is refused then.
BARE = "mirror: records are placed by their keys"
_NOTE = re.compile(
    r"mirror: pass (\d{1,18}) of topic id ([\w-]*) until (\d{1,18}), into ([\w.-]+) id ([\w-]*) at (\d[\d ]*)"
)


class PassNote(NamedTuple):
    """What stands beside one offset: the pass, its end there, and where the remote topic's partitions stood."""

    number: int
    topic_id: str
    until: int
    remote_topic: str
    remote_topic_id: str
    remotes: List[int]


def notes_of(
    planned: RowPass,
    remote_topics: Mapping[TopicPartition, Collection[str]],
    at: Optional[Mapping[TopicPartition, int]] = None,
) -> Dict[TopicPartition, CommittedOffset]:
    """For the partitions of the source in `remote_topics`, which tells the remote topics of each: where they begin in
    the pass, or with `at`, where remote partitions stand behind it, where they stand once it is done."""
    rows: Dict[str, List[PassRow]] = {}
    for row in sorted(planned.of(REMOTE), key=lambda row: row.partition):
        rows.setdefault(row.topic, []).append(row)
    found: Dict[TopicPartition, CommittedOffset] = {}
    for row in (row for row in planned.of(SOURCE) if row.place in remote_topics):
        remotes = [each for name in remote_topics[row.place] for each in rows.get(name, ())]
        stands = " ".join(str(each.from_offset if at is None else at[each.place]) for each in remotes)
        offset, note = row.from_offset if at is None else row.stands, BARE
        if remotes and len(remote_topics[row.place]) == 1:
            note = (
                f"mirror: pass {planned.number} of topic id {row.topic_id} until {row.stands}, "
                f"into {remotes[0].topic} id {remotes[0].topic_id} at {stands}"
            )
        found[row.place] = CommittedOffset(offset, note if len(note) <= LONGEST_NOTE else BARE)
    return found


def read_pass_note(metadata: str) -> Optional[PassNote]:
    """A note as it was committed; `None` for anything else."""
    match = _NOTE.fullmatch(metadata)
    if match is None:
        return None
    number, topic_id, until, remote, remote_id, at = match.groups()
    return PassNote(int(number), topic_id, int(until), remote, remote_id, [int(each) for each in at.split()])


def pass_told(committed: Mapping[TopicPartition, CommittedOffset]) -> Optional[RowPass]:
    """The last pass that the offsets of a group tell of; `None` where they tell of none.

    All notes of a pass are committed at once. What a later pass does not name stands where the last one that named it
    ended: a pass is begun when the one before is done.
    """
    notes = {place: note for place, at in committed.items() for note in [read_pass_note(at.metadata)] if note}
    if not notes:
        return None
    number = max(note.number for note in notes.values())
    sources, remotes = [], {}
    for (topic, partition), note in sorted(notes.items(), key=lambda item: item[1].number):
        begins = committed[topic, partition].offset if note.number == number else note.until
        sources.append(PassRow(SOURCE, topic, note.topic_id, partition, begins, note.until))
        remotes[note.remote_topic] = note
    rows = [
        PassRow(REMOTE, note.remote_topic, note.remote_topic_id, partition, at)
        for note in remotes.values()
        for partition, at in enumerate(note.remotes)
    ]
    return RowPass(number, (*sources, *rows), told=True)


def last_pass(
    own: Optional[RowPass], committed: Mapping[TopicPartition, CommittedOffset], group: str
) -> Optional[RowPass]:
    """The flow's last pass, of its own table's and that of which its `group` tells: another process may have gone on
    with another table. Raises `RefusedError` where neither tells of one that there was."""
    told = pass_told(committed)
    if told is None and own is None and any(at.metadata == BARE for at in committed.values()):
        raise RefusedError(
            f"group {group} is of records that were placed by their keys, and this ledger does not know of them",
            "give this process the `state` of the one that copied before",
        )
    if told is None or own is None:
        return told or own
    stands = {row.place: row.stands for row in own.of(SOURCE)}
    same = all(stands.get(row.place) == row.stands for row in told.of(SOURCE))
    newer = told.number > own.number or (told.number == own.number and not same)
    return told if newer else own
