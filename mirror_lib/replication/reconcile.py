"""Matches records of the remote log with records of the source, also after compaction or retention. Pure.

`Cleaned` has the rules and their proof. Where they do not hold, the partition is refused.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Callable, Collection, Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

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


def key_of(body: bytes) -> Tuple[Optional[bytes], bool]:
    """The key in a record's `body`, and whether the record is a tombstone."""
    key, at = decode_bytes(body, 0)
    return key, decode_varint(body, at)[0] < 0


SourceEnd = Callable[[], int]
# Called with the upstream offset at which copying resumes, and with the reason of a loss.
Lost = Callable[[int, str], None]


class Survivors:
    """The records that the source still has from `position` on, with read-ahead. `end` is the end of its log, once all
    of it was read.

    A record's place is its offset, less the offsets of markers and aborted batches passed before it.
    """

    def __init__(self, source: Records, position: int, end: SourceEnd) -> None:
        self._source = source
        self._end = end
        self._next = position - source.not_data
        self._ahead: Deque[Tuple[int, Record]] = deque()
        self._taken = 0
        # By body: the numbers, counted from the first record ever read ahead, and timestamps of the records ahead.
        self._alike: Dict[bytes, List[Tuple[int, int]]] = {}

    def __len__(self) -> int:
        """How many records are read ahead."""
        return len(self._ahead)

    def peek(self, count: int) -> int:
        """Read ahead up to `count` records; return how many of `count` there are."""
        while len(self._ahead) < count:
            record = self._source.record()
            if record is None:
                break
            self._alike.setdefault(record.body, []).append((self._taken + len(self._ahead), record.timestamp))
            self._ahead.append((record.offset - self._source.not_data, record))
        return min(count, len(self._ahead))

    def alike(self, copy: Record, log_append_time: bool, reach: int, behind: int) -> List[int]:
        """The indexes of the records that may be the original of `copy`, among the first `reach` records ahead and at
        least `behind` offsets ahead. Under the remote topic's `log_append_time` timestamps do not count."""
        found = self._alike.get(copy.body, ())
        numbers = [number - self._taken for number, time in found if log_append_time or time == copy.timestamp]
        return [index for index in numbers if index < reach and self._ahead[index][0] >= self._next + behind]

    def room(self, index: int, behind: int) -> int:
        """The number of empty offsets at least `behind` ahead, and before the record at `index`."""
        first = self._next + behind
        kept = sum(place >= first for place, _ in islice(self._ahead, index))
        return self._ahead[index][0] - first - kept

    def holes(self, index: int) -> int:
        """The number of empty offsets before the record at `index`; before the end of the log if all was read."""
        if index < len(self._ahead):
            return self._ahead[index][0] - self._next - index
        return self._end() - self._source.not_data - self._next - len(self._ahead)

    def next_offset(self) -> int:
        """The offset of the first record ahead, or the end of the log."""
        return self._ahead[0][1].offset if self.peek(1) else self._end()

    def take(self, count: int) -> List[Record]:
        """Take the first `count` records ahead."""
        taken: List[Record] = []
        for _ in range(count):
            place, record = self._ahead.popleft()
            self._next = place + 1
            self._taken += 1
            alike = self._alike[record.body]
            del alike[0]
            if not alike:
                del self._alike[record.body]
            taken.append(record)
        return taken

    def passed(self, upstream_offset: int) -> None:
        """All records before that offset were matched elsewhere; none is read ahead."""
        self._next = upstream_offset - self._source.not_data


class _Orphan(NamedTuple):
    """A copy without a source record: its downstream offset, its key, and whether it is a tombstone."""

    offset: int
    key: Optional[bytes]
    tombstone: bool


class Cleaned:
    """Pairs copies with `survivors` in order. `name` is the remote partition's.

    The remote log has copies of the source's records in the source's order, and each copy took one offset. Where
    neither log was cleaned, batch equals batch and record equals record. A cleaner removes a record only if its key
    has a later one, so it never removes a record and leaves an earlier one of the same key. The exceptions are old
    tombstones and records without a key. Then:

    1. A copy whose record is gone, an orphan, took an upstream offset that is empty now, and the source has a later
       record of its key. Otherwise another client wrote it. Tombstones and records without a key need no later
       record.
    2. A record before a copied one was copied too. If its copy is gone, that took a downstream offset that is empty
       now, and the remote log has a later copy of its key, which has a record.
    3. Copying resumes after the last record that has a copy. Proof: suppose that a later record R was copied. Its
       copy is gone, so the remote log has a later copy C of its key. The record of C is gone, as it comes after the
       last record that has a copy. So the source's cleaner removed the record of C and left R, an earlier one of the
       same key. If R is an exception, it is copied again.

    A copy of a removed record may by chance equal a later record, which was not copied: then all records between the
    two are not copied either. This is possible only if one of the offsets from which the copy can come is empty: as
    many as there are copies before it lie before it. From such a match on there is doubt: rule 2 has no exceptions,
    and an orphan of a key that has a match shows that the match was wrong. Where a rule does not hold, or several
    records equal a copy, the partition is refused.
    """

    def __init__(self, survivors: Survivors, name: str) -> None:
        self._survivors = survivors
        self._name = name
        self._orphans: List[_Orphan] = []
        # Rule 1, by key: the downstream offset of an orphan without a later record on the source so far.
        self._suspects: Dict[bytes, int] = {}
        # Rule 2 in doubt, by key: the offset of the copy after one that is gone and has no later one so far.
        self._unproven: Dict[Optional[bytes], int] = {}
        # By key: the downstream offset of a copy that was matched in doubt.
        self._doubtful: Dict[Optional[bytes], int] = {}

    def nothing_suspect(self) -> bool:
        """Whether all matches are proven."""
        return not (self._orphans or self._suspects or self._unproven)

    def nothing_awaited(self) -> bool:
        """Whether both logs may be read on without this object."""
        return self.nothing_suspect() and not self._doubtful and not len(self._survivors)

    def passed(self, pair: Run) -> None:
        """Both logs were read up to the end of `pair`."""
        self._survivors.passed(pair.upstream_end)

    def match(self, copy: Record, missing: int, log_append_time: bool) -> List[Run]:
        """The matches that `copy` proves; none if its source record seems to be gone.

        `missing` offsets lie between the last match and `copy`: offsets of orphans, and of copies that compaction
        removed. It may have removed their records too, so any record within reach may be the original.
        """
        gone = missing - len(self._orphans)
        reach = self._survivors.peek(gone + 1)
        alike = self._survivors.alike(copy, log_append_time, reach, missing)
        if len(alike) > 1:
            raise RefusedError(
                f"{self._name}: the record at offset {copy.offset} of the remote log equals several of the source, and "
                "compaction removed the records that would tell them apart",
                "give the flow an empty remote topic",
                code="MIR-314",
            )
        if alike and self._survivors.holes(alike[0]) >= len(self._orphans):
            return self._pair(alike[0], copy, missing)
        orphan = _Orphan(copy.offset, *key_of(copy.body))
        for matched in (self._doubtful, self._unproven):
            if orphan.key in matched:
                raise self._may_be_another(matched[orphan.key])
        self._orphans.append(orphan)
        if self._survivors.holes(gone) < len(self._orphans):
            raise self._not_the_next(self._orphans[0].offset)
        return []

    def _not_the_next(self, offset: int) -> RefusedError:
        hint = (
            "another writer wrote to the remote topic, a log was altered, or the source deleted records that were "
            "copied and not yet in the ledger; compare both, then give the flow an empty remote topic"
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

    def _pair(self, index: int, copy: Record, missing: int) -> List[Run]:
        """Pair `copy` with the survivor at `index`. The copies of the survivors before it are gone."""
        doubt = bool(self._doubtful) or self._survivors.room(index, missing) > 0
        *others, original = self._survivors.take(index + 1)
        for record in others:
            self._came(record)
        key = key_of(copy.body)[0]
        if doubt:
            self._unproven.update({key_of(record.body)[0]: copy.offset for record in others})
            self._doubtful[key] = copy.offset
        if key is not None:
            self._unproven.pop(key, None)
        found = self._orphans_in_holes(original.offset, {record.offset for record in others})
        self._came(original)
        return [*found, Run(original.offset, copy.offset, 1)]

    def _came(self, record: Record) -> None:
        """The source has this record: orphans of its key have a later one."""
        key = key_of(record.body)[0] if self._suspects else None
        if key is not None:
            self._suspects.pop(key, None)

    def _orphans_in_holes(self, before: int, kept: Collection[int] = ()) -> List[Run]:
        """Place the orphans at the last holes before that upstream offset that they can fit. A consumer group between
        two holes then reads one record too many, never one too few."""
        found: List[Run] = []
        offset = before
        for orphan in reversed(self._orphans):
            offset -= 1
            while offset in kept:
                offset -= 1
            found.append(Run(offset, orphan.offset, 1))
        for orphan in self._orphans:
            if orphan.key is not None and orphan.tombstone:
                self._suspects.pop(orphan.key, None)
            elif orphan.key is not None:
                self._suspects[orphan.key] = orphan.offset
        self._orphans = []
        return found[::-1]

    def end(self, lost: Lost) -> Sequence[Run]:
        """The remaining matches, after all copies were read. Reads the source on until it has a later record of each
        orphan's key, to its end if a key has none; `lost` is called then."""
        if self._unproven:
            raise self._may_be_another(min(self._unproven.values()))
        if self.nothing_suspect():
            return ()  # the source is not asked for anything: it may be slow, or far
        on_at = self._survivors.next_offset()
        if self._survivors.holes(0) < len(self._orphans):
            raise self._not_the_next(self._orphans[0].offset)
        found = self._orphans_in_holes(on_at)
        while self._suspects and self._survivors.peek(1):
            self._came(self._survivors.take(1)[0])
        if self._suspects:
            lost(
                on_at,
                f"{self._name}: of {len(self._suspects)} keys that the remote log has, the first at offset "
                f"{min(self._suspects.values())}, the source has no record any more: its cleaner took tombstones "
                "before they were copied, or another client wrote to the remote topic",
            )
        return found


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


def reconcile(
    source: Records, remote: Records, name: str, start: Position, source_end: SourceEnd, lost: Lost
) -> Iterator[Run]:
    """Match every record of the remote range, which starts at `start`, with its source record. Pure.

    The remote log is accepted only if its records equal the source's, in order. Compaction keeps offsets, so records
    that it removed from either log since are accounted for.

    `source_end` returns the end of the source's log once all of it was read. `lost` is called if the source's
    compaction removed the last record of a key before it was copied. Raises `RefusedError` naming `name` and the
    downstream offset if the remote log has other records.
    """
    cleaned = Cleaned(Survivors(source, start.upstream_offset, source_end), name)
    expected, held = start.downstream_offset, []
    while True:
        pair = _same_batch(source, remote, expected) if cleaned.nothing_awaited() else None
        if pair is not None:
            cleaned.passed(pair)
            found: List[Run] = [pair]
        else:
            copy = remote.record()
            if copy is None:
                break
            found = cleaned.match(copy, copy.offset - expected - remote.not_data, remote.log_append_time)
        if found:
            remote.not_data = 0
            expected = found[-1].downstream_end
        held.extend(found)
        if cleaned.nothing_suspect():
            yield from held
            held = []
    # Compaction may have removed the last records of the last batch (old tombstones) from the remote log. It cannot be
    # determined which: the source may have lost them too. Those that it still has are copied again, so none is skipped.
    held.extend(cleaned.end(lost))
    yield from held


def _same_batch(source: Records, remote: Records, expected: int) -> Optional[Run]:
    """Match both next batches as one re-headed copy, without decoding records; take them if they match."""
    ours = remote.batch()
    theirs = None if ours is None else source.batch()  # not requested if there is nothing to compare
    if theirs is None or ours is None or theirs[1] is None or ours[1] is None:
        return None
    header, copied = theirs[1], ours[1]
    if not (header.can_rehead and copied.contiguous) or copied.base_offset - remote.not_data != expected:
        return None
    if (header.attributes ^ copied.attributes) & _MEANING or header[6:9] != copied[6:9]:
        return None
    if theirs[0][HEADER_SIZE:] != ours[0][HEADER_SIZE:]:
        return None
    source.drop_batch()
    remote.drop_batch()
    return Run(header.base_offset, copied.base_offset, header.record_count)
