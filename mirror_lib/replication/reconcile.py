"""Copies whose source records the source's cleaner took since (`cleanup.policy=compact`): the source's records and the
remote log's in, which belongs to which out. Pure.

A cleaner leaves a hole in the offsets for each record that it takes, and takes none but those of which a later one of
their key is there, tombstones that are old, and records without a key.
"""

from __future__ import annotations

from collections import deque
from typing import Callable, Collection, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.kafka.record_batch import Record
from mirror_lib.ledger.intervals import Run
from mirror_lib.replication.log_records import Records, key_of

SourceEnd = Callable[[], int]
# Told where the copying goes on upstream, and why something is lost.
Lost = Callable[[int, str], None]


class Awaited:
    """By key the offset of the last record that needs a later one, of those that have none yet.

    Compaction removes no record but those that a later one of their key follows, old tombstones, and records without a
    key. So a later record shows that compaction may have removed one: it was there, or is not needed any more.
    """

    def __init__(self) -> None:
        self._offsets: Dict[Optional[bytes], int] = {}

    def __len__(self) -> int:
        """How many keys are left."""
        return len(self._offsets)

    @property
    def first(self) -> int:
        """The lowest offset of those that are left."""
        return min(self._offsets.values())

    def add(self, offset: int, key: Optional[bytes], tombstone: bool) -> None:
        """Behind a tombstone none has to come: cleaners take it too when it is old. Nor behind what has no key."""
        if key is not None and tombstone:
            self._offsets.pop(key, None)
        elif key is not None:
            self._offsets[key] = offset

    def came(self, record: Record) -> None:
        """A later record was seen."""
        key = key_of(record.body)[0] if self._offsets else None
        if key is not None:
            self._offsets.pop(key, None)


def refuse_lost(_: int, reason: str) -> None:
    """Raises `RefusedError`."""
    raise RefusedError(reason, "give the flow an empty remote topic")


class Survivors:
    """What the source still has from `position` on, looked at before it is taken. `end` tells the end of its log once
    all of it was read.

    A record's place is its offset, less the offsets of markers and aborted batches that were passed.
    """

    def __init__(self, source: Records, position: int, end: SourceEnd) -> None:
        self._source = source
        self._end = end
        self._next = position - source.not_data
        self._ahead: Deque[Tuple[int, Record]] = deque()
        self._taken = 0
        # By body, those ahead: their numbers, counted from the first that was ever looked at, and timestamps.
        self._alike: Dict[bytes, List[Tuple[int, int]]] = {}

    def __len__(self) -> int:
        """How many are ahead."""
        return len(self._ahead)

    def look(self, count: int) -> int:
        """Have so many ahead, or all that there are; says how many of `count`."""
        while len(self._ahead) < count:
            record = self._source.record()
            if record is None:
                break
            self._alike.setdefault(record.body, []).append((self._taken + len(self._ahead), record.timestamp))
            self._ahead.append((record.offset - self._source.not_data, record))
        return min(count, len(self._ahead))

    def alike(self, copy: Record, log_append_time: bool, reach: int) -> List[int]:
        """Which of the first `reach` that are ahead `copy` may have been made from, whatever its timestamp under the
        remote topic's `log_append_time`."""
        found = self._alike.get(copy.body, ())
        numbers = [number - self._taken for number, time in found if log_append_time or time == copy.timestamp]
        return [index for index in numbers if index < reach]

    def holes(self, index: int) -> int:
        """Of how many offsets before the one at `index`, or before the end, the cleaner took what they held."""
        if index < len(self._ahead):
            return self._ahead[index][0] - self._next - index
        return self._end() - self._source.not_data - self._next - len(self._ahead)

    def next_offset(self) -> int:
        """The offset of the first one, or the end of the log."""
        return self._ahead[0][1].offset if self.look(1) else self._end()

    def take(self, count: int) -> List[Record]:
        """The first `count` of those that are ahead."""
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
        """All before that offset was taken past this; nothing is ahead."""
        self._next = upstream_offset - self._source.not_data


class _Orphan(NamedTuple):
    """A copy without a source record: its downstream offset, its key, whether it is a tombstone."""

    offset: int
    key: Optional[bytes]
    tombstone: bool


class Cleaned:
    """Pairs copies with `survivors`, one after the other. `name` is the remote partition's."""

    def __init__(self, survivors: Survivors, name: str) -> None:
        self._survivors = survivors
        self._name = name
        self._orphans: List[_Orphan] = []
        # By key, the downstream offset of an orphan of which no later record was seen on the source yet.
        self._suspects = Awaited()
        # By key, the downstream offset behind a copy that is said to be gone from the remote log, though it may never
        # have been made, and of whose key no later copy was seen there yet.
        self._unproven = Awaited()
        # By key, the downstream offset of a copy that may have come from a hole and was found equal to a survivor.
        self._doubtful: Dict[bytes, int] = {}

    def nothing_suspect(self) -> bool:
        """Whether all that was matched is proven."""
        return not (self._orphans or self._suspects or self._unproven)

    def nothing_awaited(self) -> bool:
        """Whether both logs may be read on without this."""
        return self.nothing_suspect() and not self._doubtful and not len(self._survivors)

    def passed(self, pair: Run) -> None:
        """Both logs were read on so far."""
        self._survivors.passed(pair.upstream_end)

    def match(self, copy: Record, missing: int, log_append_time: bool) -> List[Run]:
        """The matches that `copy` settles; none where its source record seems to be gone.

        So many offsets are `missing` between the last match and `copy`: those of orphans, and of copies that are gone
        from the remote log. The source may have lost some of the latter too, so any record within reach may be the one;
        where more than one is equal, compaction took what would tell them apart.
        """
        self._unproven.came(copy)
        gone = missing - len(self._orphans)
        reach = self._survivors.look(gone + 1)
        alike = self._survivors.alike(copy, log_append_time, reach)
        if len(alike) > 1:
            raise RefusedError(
                f"{self._name}: the record at offset {copy.offset} of the remote log equals several of the source, and "
                "compaction has removed what would tell them apart",
                "give the flow an empty remote topic",
            )
        if alike and (not self._orphans or self._survivors.holes(alike[0]) >= len(self._orphans)):
            return self._pair(alike[0], copy)
        orphan = _Orphan(copy.offset, *key_of(copy.body))
        if orphan.key in self._doubtful:
            # No cleaner takes a record and leaves an earlier one of its key. So that one is not copied yet.
            raise self._may_be_another(self._doubtful[orphan.key])
        self._orphans.append(orphan)
        if self._survivors.holes(gone) < len(self._orphans):
            raise self._not_the_next(self._orphans[0].offset)
        return []

    def _not_the_next(self, offset: int) -> RefusedError:
        hint = (
            "somebody else wrote to the remote topic, or one of the logs was altered; compare them, then give the flow "
            "an empty remote topic"
        )
        if offset == 0:
            # A batch is sent to a topic's name, and a topic that is new takes any sequence.
            hint += "; if it was created anew while a record was on its way, delete it once more: it is filled again"
        return RefusedError(
            f"{self._name}: the record at offset {offset} of the remote log is not the source's next one", hint
        )

    def _may_be_another(self, offset: int) -> RefusedError:
        return RefusedError(
            f"{self._name}: the record at offset {offset} of the remote log equals one of the source, and compaction "
            "has removed what would tell whether it is its copy",
            "give the flow an empty remote topic",
        )

    def _pair(self, index: int, copy: Record) -> List[Run]:
        """`copy` with the survivor at `index`. Those before it were copied too, and are gone from the remote log.

        Unless there is a hole from which `copy` may have come, being equal by chance: then none of them was copied. So
        the remote log has to have a later record of their key, without which no cleaner takes one.
        """
        doubtful = self._survivors.holes(index) > len(self._orphans)
        *others, original = self._survivors.take(index + 1)
        for record in others:
            self._suspects.came(record)
            if doubtful or self._unproven:
                self._unproven.add(copy.offset, *key_of(record.body))
        self._unproven.came(copy)
        key = key_of(copy.body)[0] if doubtful else None
        if key is not None:
            self._doubtful[key] = copy.offset
        found = self._placed(original.offset, {record.offset for record in others})
        self._suspects.came(original)
        return [*found, Run(original.offset, copy.offset, 1)]

    def _placed(self, before: int, kept: Collection[int] = ()) -> List[Run]:
        """The orphans, at the last holes before that upstream offset in which they may have been: a group that stands
        between two of them then reads one too many, never one too few."""
        found: List[Run] = []
        offset = before
        for orphan in reversed(self._orphans):
            offset -= 1
            while offset in kept:
                offset -= 1
            found.append(Run(offset, orphan.offset, 1))
        for orphan in self._orphans:
            self._suspects.add(*orphan)
        self._orphans = []
        return found[::-1]

    def end(self, lost: Lost) -> Sequence[Run]:
        """The matches that are left when all copies were looked at. Reads the source on until it has seen a later
        record of each key of an orphan; `lost` is told of those that have none."""
        if self._unproven:
            raise self._may_be_another(self._unproven.first)
        if self.nothing_suspect():
            return ()
        passed = 0
        while self._orphans and self._survivors.holes(passed) < len(self._orphans):
            passed += 1
        # What lies before the holes was copied as well, and is gone from the remote log.
        others = self._survivors.take(passed)
        for record in others:
            self._suspects.came(record)
        on_at = self._survivors.next_offset()
        found = self._placed(on_at, {record.offset for record in others})
        while self._suspects and self._survivors.look(1):
            self._suspects.came(self._survivors.take(1)[0])
        if self._suspects:
            lost(
                on_at,
                f"{self._name}: of {len(self._suspects)} keys that the remote log has, the first at offset "
                f"{self._suspects.first}, the source has no record any more: its cleaner took tombstones before they "
                "were copied, or somebody else wrote to the remote topic",
            )
        return found
