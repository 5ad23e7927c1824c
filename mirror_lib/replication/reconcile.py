"""Matches records of the remote log with records of the source, also after compaction or retention. Pure.

`Cleaned` has the rules and their proof. Where they do not hold, the partition is refused.
"""

from __future__ import annotations

from collections import deque
from typing import Callable, Collection, Deque, Dict, Iterator, List, NamedTuple, Optional, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.log_reader import Entry
from mirror_lib.kafka.record_batch import HEADER_SIZE, Record, decode_bytes, decode_varint
from mirror_lib.kafka.reencoder import read_records
from mirror_lib.ledger.intervals import Run, Runs
from mirror_lib.ledger.records import Position

# Attributes that make records mean something else: codec (0-2) and timestamp type (3).
_MEANING = 0x0F


class Records:
    """One log's data, read a batch or a record at a time.

    `not_data` counts the offsets of control and aborted batches passed since it was last set to 0. `log_append_time` is
    True if the broker set the timestamps of the last batch read.
    """

    def __init__(self, entries: Iterator[Entry], position: int) -> None:
        self._entries = entries
        self._position = position
        self._batch: Optional[Entry] = None
        self._records: List[Record] = []
        self.not_data = 0
        self.log_append_time = False

    def batch(self) -> Optional[Entry]:
        """The next whole data batch, without taking it; None if part of it was taken or is before the position."""
        if self._records:
            return None
        if self._batch is None:
            self._batch = self._next_data()
        header = self._batch[1] if self._batch is not None else None
        return self._batch if header is not None and header.base_offset >= self._position else None

    def drop_batch(self) -> None:
        """Take the batch that `batch` showed."""
        self._batch = None

    def record(self) -> Optional[Record]:
        """Take the next record; None at the end."""
        while not self._records:
            batch = self._batch if self._batch is not None else self._next_data()
            self._batch = None
            if batch is None:
                return None
            self._records = [r for r in reversed(read_records(batch[0])) if r.offset >= self._position]
        return self._records.pop()

    def put_back(self, records: List[Record]) -> None:
        """Put back records that were taken, first one first."""
        self._records.extend(reversed(records))

    def _next_data(self) -> Optional[Entry]:
        for entry in self._entries:
            if entry[2]:
                if entry[1] is not None:
                    self.log_append_time = entry[1].log_append_time
                return entry
            if entry[1] is not None:
                self.not_data += entry[1].last_offset_delta + 1
        return None


def equal(original: Record, copy: Record, log_append_time: bool) -> bool:
    """Whether `copy` may be the source's record. Under the remote topic's `log_append_time` timestamps do not count."""
    return original.body == copy.body and (log_append_time or original.timestamp == copy.timestamp)


SourceEnd = Callable[[], int]


class Cleaned:
    """Pairs copies with the records of `source` from `position` on, in order, also where cleaners removed some of
    either. `end` gives the end of the source's log, once all of it was read; `name` is the remote partition's.

    The remote log has copies of the source's records in the source's order, and each copy took one offset. A cleaner
    keeps offsets, and removes a record only if its key has a later one. So it never removes a record and leaves an
    earlier one of the same key. The exceptions are old tombstones and records without a key. Then:

    1. A copy and its record have as many copied records before them. So a record is the copy's if it is the only one
       that equals it, among those that the empty offsets of both logs allow. A copy without one is an orphan: its
       record is gone, and left an empty offset, and the source has a later record of its key. Otherwise another client
       wrote it. Tombstones and records without a key need no later record.
    2. If the record is at the first offset from which the copy can come, it is proven: a later one would leave too many
       copies before. Otherwise the copy's own record may be gone, and the copy equals a later record by chance. From
       then on each record without a copy must have a later match of its key, and no orphan may follow a match of its
       key. That holds in every true history: a cleaner removed the copy of the one for a later copy, whose record the
       source still has, and the record of the other is later than the matched one. So the last record of each key
       before the end of the matches has a copy, which is the last one of its key on the remote log.
    3. Copying resumes after the last match. Proof that nothing is copied twice: suppose that a later record R was
       copied. Its copy is gone, so the remote log has a later copy C of its key. The record of C is gone, as it comes
       after the last match. So the source's cleaner removed the record of C and left R, an earlier one of the same key.
       If R is an exception, it is copied again.

    Where a rule does not hold, or several records equal a copy, the partition is refused.
    """

    def __init__(self, source: Records, position: int, end: SourceEnd, name: str) -> None:
        self._source = source
        self._end = end
        self._name = name
        # A record's place is its offset, less the offsets of markers and aborted batches passed before it.
        self._next = position - source.not_data
        # The records read ahead by place; and by body the places and timestamps of those.
        self._ahead: Deque[Tuple[int, Record]] = deque()
        self._places: Dict[bytes, List[Tuple[int, int]]] = {}
        # The orphans since the last match. Rule 1, by key: the downstream offset of an orphan without a later record so
        # far.
        self._orphans: List[Record] = []
        self._suspects: Dict[Optional[bytes], int] = {}
        # Rule 2, by key: the downstream offset of a match in doubt, and that of the match before which a record has no
        # copy and no later match so far.
        self._doubtful: Dict[Optional[bytes], int] = {}
        self._unproven: Dict[Optional[bytes], int] = {}

    def same_batch(self, remote: Records, expected: int) -> Optional[Run]:
        """Match both next batches as one re-headed copy, without decoding records; take them if they match. Only where
        all before is proven, and both logs have no empty offset before."""
        if self._orphans or self._suspects or self._doubtful or self._unproven or self._ahead:
            return None
        ours = remote.batch()
        theirs = None if ours is None else self._source.batch()  # not requested if there is nothing to compare
        if theirs is None or ours is None or theirs[1] is None or ours[1] is None:
            return None
        header, copied = theirs[1], ours[1]
        if not (header.can_rehead and copied.contiguous) or copied.base_offset - remote.not_data != expected:
            return None
        if header.base_offset - self._source.not_data != self._next:
            return None
        if (header.attributes ^ copied.attributes) & _MEANING or header[6:9] != copied[6:9]:
            return None
        if theirs[0][HEADER_SIZE:] != ours[0][HEADER_SIZE:]:
            return None
        self._source.drop_batch()
        remote.drop_batch()
        self._next += header.record_count
        return Run(header.base_offset, copied.base_offset, header.record_count)

    def match(self, copy: Record, missing: int, log_append_time: bool) -> List[Run]:
        """The match of `copy`, after those of the orphans before it; none for an orphan. Under the remote topic's
        `log_append_time` timestamps do not count.

        `missing` offsets lie between the last match and `copy`: offsets of orphans, and of copies that compaction
        removed. It may have removed their records too, so any record within reach may be the original.
        """
        gone = missing - len(self._orphans)
        reach = self._peek(gone + 1)
        first, last = self._next + missing, self._ahead[reach - 1][0] if reach else -1
        found = self._places.get(copy.body, ())
        alike = [at for at, time in found if first <= at <= last and (log_append_time or time == copy.timestamp)]
        if len(alike) > 1:
            raise self._may_be_another(copy.offset)
        if alike:
            return self._pair(alike[0], copy, bool(self._doubtful) or alike[0] > first)
        key = _key(copy)
        if key in self._doubtful:
            raise self._may_be_another(self._doubtful[key])
        self._orphans.append(copy)
        if self._holes(gone) < len(self._orphans):
            raise self._not_the_next(self._orphans[0].offset)
        return []

    def end(self) -> List[Run]:
        """The matches of the last orphans, after all copies were read. Reads the source on until it has a later record
        of each orphan's key, to its end if a key has none."""
        if self._unproven:
            raise self._may_be_another(min(self._unproven.values()))
        if not (self._orphans or self._suspects):
            return []  # the source is not asked for anything: it may be slow, or far
        until = self._ahead[0][1].offset if self._peek(1) else self._end()
        if self._holes(0) < len(self._orphans):
            raise self._not_the_next(self._orphans[0].offset)
        found = self._orphans_in_holes(until)
        while self._suspects and self._peek(1):
            self._take()
        if self._suspects:
            raise self._not_the_next(min(self._suspects.values()))
        return found

    def _pair(self, place: int, copy: Record, in_doubt: bool) -> List[Run]:
        """Pair `copy` with the record at `place`. The copies of the records before it are gone."""
        others: List[Record] = []
        while self._ahead[0][0] < place:
            others.append(self._take())
        orphans = self._orphans_in_holes(self._ahead[0][1].offset, {each.offset for each in others})
        original, key = self._take(), _key(copy)
        if in_doubt:
            self._unproven.update((_key(each), copy.offset) for each in others)
            self._doubtful[key] = copy.offset
        if key is not None:
            self._unproven.pop(key, None)
        return [*orphans, Run(original.offset, copy.offset, 1)]

    def _orphans_in_holes(self, before: int, kept: Collection[int] = ()) -> List[Run]:
        """Place the orphans at the last holes before that upstream offset that they can fit. A consumer group between
        two holes then reads one record too many, never one too few."""
        found: List[Run] = []
        for orphan in reversed(self._orphans):
            before -= 1
            while before in kept:
                before -= 1
            found.append(Run(before, orphan.offset, 1))
        for orphan in self._orphans:
            key, at = decode_bytes(orphan.body, 0)
            self._suspects.pop(key, None)
            if key is not None and decode_varint(orphan.body, at)[0] >= 0:  # no tombstone
                self._suspects[key] = orphan.offset
        self._orphans = []
        return found[::-1]

    def _peek(self, count: int) -> int:
        """Read ahead up to `count` records; return how many of `count` there are."""
        while len(self._ahead) < count:
            record = self._source.record()
            if record is None:
                break
            place = record.offset - self._source.not_data
            self._ahead.append((place, record))
            self._places.setdefault(record.body, []).append((place, record.timestamp))
        return min(count, len(self._ahead))

    def _take(self) -> Record:
        """Take the first record ahead."""
        place, record = self._ahead.popleft()
        self._next = place + 1
        places = self._places[record.body]
        del places[0]
        if not places:
            del self._places[record.body]
        if self._suspects:
            self._suspects.pop(_key(record), None)
        return record

    def _holes(self, index: int) -> int:
        """The number of empty offsets before the record ahead at `index`; without one, before the end of the log."""
        if index < len(self._ahead):
            return self._ahead[index][0] - self._next - index
        return self._end() - self._source.not_data - self._next - len(self._ahead)

    def _not_the_next(self, offset: int) -> RefusedError:
        hint = (
            "another writer wrote to the remote topic, a log was altered, or the source deleted records or tombstones "
            "that were not yet in the ledger; compare both, then give the flow an empty remote topic"
        )
        if offset == 0:
            # A produce request names the topic, not its id, and a new topic accepts any sequence.
            hint += "; if it was re-created while a record was on its way, delete it again: it is filled again"
        return RefusedError(
            f"{self._name}: the record at offset {offset} of the remote log is not the source's next one",
            hint,
            code="MIR-313",
        )

    def _may_be_another(self, offset: int) -> RefusedError:
        return RefusedError(
            f"{self._name}: the record at offset {offset} of the remote log equals one of the source, and compaction "
            "removed the records that would show whether it is the copy",
            "give the flow an empty remote topic",
            code="MIR-314",
        )


def _key(record: Record) -> Optional[bytes]:
    return decode_bytes(record.body, 0)[0]


CONTINUE_HINT = "set on.data.loss: continue to resume from there"


def loss_hint(topic: str) -> str:
    """What to do after the source deleted records of `topic` that were not copied."""
    if topic.endswith("-repartition"):
        return f"Kafka Streams deletes such records: add .*-repartition to topics.exclude, or {CONTINUE_HINT}"
    return CONTINUE_HINT


def left_the_log(source: TopicPartition, first: int, log_start: int) -> str:
    """The text that describes the loss of the upstream offsets from `first` to `log_start`."""
    return f"{source[0]}-{source[1]}: offsets {first} to {log_start - 1} left the source's log before they were copied"


class Settled(NamedTuple):
    """`downstream_offset` is the offset of the copy of the source's first record, `None` if it was not copied.

    `matches` pair the copies of the lost offsets, if every one was copied. `lost_from` is the first offset that was not
    copied; `None` if all were. If the log had gaps, some records from there on may have been copied.
    """

    downstream_offset: Optional[int]
    matches: Tuple[Run, ...]
    lost_from: Optional[int]


def settle(source: Records, remote: Records, start: Position, log_start: int, name: str) -> Settled:
    """Find the copies of the upstream offsets from `start` to `log_start`, which have left the source's log.

    `source` reads from `log_start`. `remote` reads from the start's downstream offset, after which there are only
    copies of records after the start. N offsets are empty between the start and the source's first record, and had N
    records or fewer. So of more than N copies, one of the first N + 1 is that of the first record: the only one that
    equals it. Of N copies or fewer, none is if none equals it. Raises `RefusedError` naming `name` in all other cases.
    """
    first = source.record()
    lost = log_start - start.upstream_offset
    empty = lost if first is None else first.offset - start.upstream_offset
    matches, alike, expected = Runs(), [], start.downstream_offset
    copies = 0
    while copies <= empty:
        copy = remote.record()
        if copy is None:
            break
        if copy.offset != expected + remote.not_data:
            raise RefusedError(
                f"{name}: an interrupted attempt wrote records before offset {copy.offset} of the remote log; "
                "neither log has them any more",
                "give the flow an empty remote topic",
                code="MIR-315",
            )
        remote.not_data = 0
        expected = copy.offset + 1
        if first is not None and equal(first, copy, remote.log_append_time):
            alike.append((copies, copy.offset))
        if copies < lost:
            matches.append(start.upstream_offset + copies, copy.offset, 1)
        copies += 1
    # If there are as many copies as empty offsets, each of these had a record.
    whole = () if first is None else tuple(matches)
    if len(alike) == 1 and copies > empty:
        index, offset = alike[0]
        return Settled(offset, whole if index == empty else (), None)
    if not alike and lost <= copies <= empty:
        return Settled(None, whole if copies == empty else (), None)
    if not alike and copies < lost:
        return Settled(None, (), start.upstream_offset + copies)
    raise RefusedError(
        f"{name}: the source's log starts at {log_start} now. Of the records that an interrupted attempt wrote from "
        f"offset {start.downstream_offset} on, it is unknown which it copied from before {log_start}",
        "give the flow an empty remote topic",
        code="MIR-315",
    )


def reconcile(source: Records, remote: Records, name: str, start: Position, source_end: SourceEnd) -> Iterator[Run]:
    """Match every record of the remote range, which starts at `start`, with its source record. Pure.

    The remote log is accepted only if its records equal the source's, in order. Compaction keeps offsets, so records
    that it removed from either log since are accounted for. Matches count only once all were given: a later record may
    show that an earlier one was equal by chance.

    `source_end` returns the end of the source's log once all of it was read. Raises `RefusedError` naming `name` and
    the downstream offset if the remote log has other records.
    """
    cleaned, expected = Cleaned(source, start.upstream_offset, source_end, name), start.downstream_offset
    while True:
        pair = cleaned.same_batch(remote, expected)
        if pair is None:
            copy = remote.record()
            if copy is None:
                break
            found = cleaned.match(copy, copy.offset - expected - remote.not_data, remote.log_append_time)
        else:
            found = [pair]
        if found:
            remote.not_data = 0
            expected = found[-1].downstream_end
        yield from found
    # Compaction may have removed the last records of the last batch (old tombstones) from the remote log. It cannot be
    # determined which: the source may have lost them too. Those that it still has are copied again, so none is skipped.
    yield from cleaned.end()
