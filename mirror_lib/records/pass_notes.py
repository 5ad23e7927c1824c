"""Passes as notes beside the offsets of a consumer group: what a driver that has another ledger needs to know of them.

A pass in, an offset and a note for each of its source partitions out; these in, the pass out. Pure.
"""

from __future__ import annotations

import re
from itertools import groupby
from operator import attrgetter
from typing import Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence

from mirror_lib.errors import RefusedError
from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.records.packed_offsets import packed, unpacked
from mirror_lib.state.row_passes import REMOTE, SOURCE, PassRow, RowPass

# Kafka's default offset.metadata.max.bytes: a broker refuses a longer note, and with it the offset.
LONGEST_NOTE = 4096
# A commit is one batch of records, of 1 MB at most; others may have notes in it too.
ALL_OF_A_TOPIC = 200_000
_NOTE = re.compile(
    r"mirror: pass (\d{1,18}) of topic id ([\w-]*) until (\d{1,18}), "
    r"(?:into ([\w.-]+) id ([\w-]*) at (?:(\d[\d ]*)|part (\d{1,9}) of (\d{1,9}) ([\w-]*))|placed by keys)"
)


class PassNote(NamedTuple):
    """What stands beside one offset: the pass, its end there, and where the remote topic's partitions stood, or some of
    them: part `part` of `parts`. Without a remote topic (`None`) there was no room for that."""

    number: int
    topic_id: str
    until: int
    remote_topic: Optional[str] = None
    remote_topic_id: str = ""
    remotes: Sequence[int] = ()
    part: int = 0
    parts: int = 1


def notes_of(
    planned: RowPass,
    remote_topics: Mapping[TopicPartition, Collection[str]],
    at: Optional[Mapping[TopicPartition, int]] = None,
) -> Dict[TopicPartition, CommittedOffset]:
    """For the partitions of the source in `remote_topics`, which tells the remote topics of each: where they begin in
    the pass, or with `at`, where remote partitions stand behind it, where they stand once it is done."""
    remotes: Dict[str, List[PassRow]] = {}
    for row in sorted(planned.of(REMOTE), key=attrgetter("partition")):
        remotes.setdefault(row.topic, []).append(row)
    found: Dict[TopicPartition, CommittedOffset] = {}
    copied = sorted((row for row in planned.of(SOURCE) if row.place in remote_topics), key=attrgetter("place"))
    for _, own in ((topic, list(rows)) for topic, rows in groupby(copied, key=attrgetter("topic"))):
        into = [each for name in remote_topics[own[0].place] for each in remotes.get(name, ())]
        one = len({each.topic for each in into}) == 1
        stands = [each.from_offset if at is None else at[each.place] for each in into]
        for row, note in zip(own, _notes(planned.number, own, into[0] if one else None, stands)):
            found[row.place] = CommittedOffset(row.from_offset if at is None else row.stands, note)
    return found


def _notes(number: int, rows: Sequence[PassRow], remote: Optional[PassRow], stands: Sequence[int]) -> List[str]:
    """The notes of a source topic's partitions. Each tells all of the remote topic's where there is room."""
    heads = [f"mirror: pass {number} of topic id {row.topic_id} until {row.stands}, " for row in rows]
    parts = len(rows)
    cuts = [len(stands) * n // parts for n in range(parts + 1)]
    forms = (
        [" ".join(map(str, stands))] * parts,
        [f"part 0 of 1 {packed(stands)}"] * parts,
        [f"part {n} of {parts} {packed(stands[cuts[n] : cuts[n + 1]])}" for n in range(parts)],
    )
    into = None if remote is None else f"into {remote.topic} id {remote.topic_id} at"
    for form in () if into is None else forms:
        notes = [f"{head}{into} {told}" for head, told in zip(heads, form)]
        if max(map(len, notes)) <= LONGEST_NOTE and sum(map(len, notes)) <= ALL_OF_A_TOPIC:
            return notes
    return [f"{head}placed by keys" for head in heads]


def read_pass_note(metadata: str) -> Optional[PassNote]:
    """A note as it was committed; `None` for anything else."""
    match = _NOTE.fullmatch(metadata)
    if match is None:
        return None
    number, topic_id, until, remote, remote_id, at, part, parts, places = match.groups()
    known = PassNote(int(number), topic_id, int(until))
    if remote is None:
        return known
    if at is not None:
        return known._replace(remote_topic=remote, remote_topic_id=remote_id, remotes=list(map(int, at.split())))
    whole = unpacked(places)
    if whole is None or int(part) >= int(parts):
        return known
    return known._replace(
        remote_topic=remote, remote_topic_id=remote_id, remotes=whole, part=int(part), parts=int(parts)
    )


def pass_told(committed: Mapping[TopicPartition, CommittedOffset]) -> Optional[RowPass]:
    """The last pass that the offsets of a group tell of; `None` where they tell of none, or not all of it.

    All notes of a pass are committed at once. What a later pass does not name stands where the last one that named it
    ended: a pass is begun when the one before is done.
    """
    notes = _read(committed)
    number = max((note.number for note in notes.values()), default=0)
    sources: List[PassRow] = []
    remotes: Dict[str, Sequence[PassRow]] = {}
    by_age = sorted(notes.items(), key=lambda item: (item[1].number, item[0]))
    for (topic, last), same in groupby(by_age, key=lambda item: (item[0][0], item[1].number)):
        own = dict(same)
        into = _remote_rows(list(own.values()))
        if into is None:
            return None
        remotes[into[0].topic] = into
        for place, note in own.items():
            begins = committed[place].offset if last == number else note.until
            sources.append(PassRow(SOURCE, topic, note.topic_id, place[1], begins, note.until))
    rows = [row for into in remotes.values() for row in into]
    return RowPass(number, (*sources, *rows), told=True) if notes else None


def _read(committed: Mapping[TopicPartition, CommittedOffset]) -> Dict[TopicPartition, PassNote]:
    found = {place: read_pass_note(at.metadata) for place, at in committed.items()}
    return {place: note for place, note in found.items() if note is not None}


def _remote_rows(notes: Sequence[PassNote]) -> Optional[List[PassRow]]:
    """Where the remote topic's partitions stood, from the notes of one topic's partitions; `None` where a part is
    missing."""
    parts = {note.part: note for note in notes}
    first = notes[0]
    if first.remote_topic is None or sorted(parts) != list(range(first.parts)):
        return None
    places = [place for _, note in sorted(parts.items()) for place in note.remotes]
    return [PassRow(REMOTE, first.remote_topic, first.remote_topic_id, n, at) for n, at in enumerate(places)] or None


def last_pass(
    own: Optional[RowPass], committed: Mapping[TopicPartition, CommittedOffset], group: str
) -> Optional[RowPass]:
    """The flow's last pass, of its own table's and that of which its `group` tells: another process may have gone on
    with another table. Raises `RefusedError` where that one went further, and the group does not tell all of it."""
    notes = _read(committed)
    if not notes:
        return own
    if own is not None and not _newer(notes, own):
        return own
    told = pass_told(committed)
    if told is None:
        raise RefusedError(
            f"group {group} is of records that were placed by their keys, and this ledger does not know of the last of"
            " them",
            "give this process the `state` of the one that copied before",
        )
    return told


def _newer(notes: Mapping[TopicPartition, PassNote], own: RowPass) -> bool:
    """Whether the notes tell of a pass behind `own`, or of another one with its number."""
    number = max(note.number for note in notes.values())
    stands = {row.place: row.stands for row in own.of(SOURCE)}
    same = all(stands.get(place) == note.until for place, note in notes.items())
    return number > own.number or (number == own.number and not same)
