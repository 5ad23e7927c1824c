"""What an interrupted attempt left on a remote log, and rows as they come in; the rows that are not there yet out.

The source's bytes are of no use here, as rows may have been changed. Nothing is appended while something is left.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, List, NamedTuple, Optional, Protocol, Sequence

from mirror_lib.errors import RefusedError
from mirror_lib.log.batch import Record
from mirror_lib.log.connection import name_of
from mirror_lib.replicate.cleaned import Awaited
from mirror_lib.replicate.log_records import Records, equal, key_of
from mirror_lib.replicate.partition import PartitionCopy
from mirror_lib.state.records import COPIED_AGAIN, Incident


class Ends(Protocol):
    """What is known of the log by what was read; see `LogEntries`."""

    start: int
    end: int
    expired: bool


class Unsettled(NamedTuple):
    """What the pass after one that left something has to know. `owed`: an offset that was stepped over on the word of a
    later copy, for which a row has yet to come. `holed`: source offsets were missing behind the position at which the
    life began to compare, so whether that is true is not proven by what lies there."""

    owed: Optional[int] = None
    holed: bool = False


ANEW = Unsettled()


class Remainder:
    """The records from a partition's downstream position on. `written` reads them, those of other writers left out.

    `repeatable` says that the rows are what they were for the interrupted attempt. Raises `RefusedError` where they
    are not, though they should be, or nobody can tell. The source's cleaner may have run since: what lies behind an
    offset that is missing need not be what was copied. Rows that are `mixed` have offsets that do not show it, and the
    driver refuses what is left of them. `before`: what the last pass left unsettled.
    """

    def __init__(
        self,
        copy: PartitionCopy,
        log: Ends,
        written: Records,
        repeatable: bool,
        mixed: bool = False,
        before: Unsettled = ANEW,
    ) -> None:
        self._copy = copy
        self._log = log
        self._written = written
        self._repeatable = repeatable
        self._begin = (copy.acknowledged, copy.downstream)
        self._mixed = mixed
        self._before = before
        # Rows whose copies are said to be gone from the remote log, though they may never have been made.
        self._stepped = Awaited()
        self._begin_anew()
        self._waiting: Deque[Record] = deque()
        self._next: Optional[Record] = None
        self.left = True
        self.found = 0

    def compare(self, records: Sequence[Record]) -> List[Record]:
        """Take rows; return those to append, which are none while something is left."""
        self._waiting.extend(records)
        return self._compare(more_to_come=True)

    def end(self, more_behind: bool = True) -> List[Record]:
        """There are no more rows for now. What is left is compared with those of another pass, where there is
        `more_behind` on the source; else nobody knows what it is."""
        rest = self._compare(more_to_come=False, more_behind=more_behind)
        if self.left:
            self._prove(more_behind)
        if self._next is not None and self._repeatable and not (more_behind or self._mixed):
            self._forget()  # what was found equal may have been so by chance
            raise more_than_given(self._copy, self._next.offset)
        return rest

    @property
    def unsettled(self) -> Unsettled:
        """For the next pass, where something is left."""
        return Unsettled(self._owed, not (self._counted or self._mixed))

    def take_back(self, all: bool) -> None:
        """Where some of what was found is not proven, or with `all` where something is left, forget all of it: whoever
        comes back to it compares it again."""
        if self.left and (all or self._stepped):
            self._forget()

    def _forget(self) -> None:
        self._copy.recover(*self._begin, 0)
        self._copy.syncs.clear()
        self.found = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._owed, self._counted = self._before.owed, not (self._mixed or self._before.holed)

    def _compare(self, more_to_come: bool, more_behind: bool = True) -> List[Record]:
        while self.left:
            copy = self._peek()
            if copy is None:
                self._finish()
                break
            # Offsets that compaction emptied since; the rows that lay there are stepped over.
            gone = copy.offset - self._copy.downstream - self._written.not_data
            if not self._waiting or (more_to_come and len(self._waiting) <= gone):
                return []
            self._match(copy, gone, more_behind)
        rest = list(self._waiting)
        self._waiting.clear()
        return rest

    def _peek(self) -> Optional[Record]:
        if self._next is None:
            self._next = self._written.record()
        return self._next

    def _match(self, copy: Record, gone: int, more_behind: bool) -> None:
        reach = [self._waiting[i] for i in range(min(gone + 1, len(self._waiting)))]
        alike = [i for i, record in enumerate(reach) if equal(record, copy, self._written.log_append_time)]
        # The pass ends within a stretch that compaction emptied. Without more rows to come none is the copy's.
        within = self._repeatable and not alike and len(reach) <= gone and more_behind
        among = reach if within else reach[: alike[0] + 1] if len(alike) == 1 else []
        if not among or not self._steps_over(among, len(among) - (not within)):
            self._differs(copy, len(alike))
            return
        for _ in among:
            last = self._waiting.popleft()
        if within:
            self._copy.recover(last.offset + 1, self._copy.downstream + len(among), 0)
            return
        self._copy.recover(last.offset, copy.offset, 1)
        self._stepped.came(copy)
        self.found += 1
        self._written.not_data, self._next = 0, None

    def _steps_over(self, among: Sequence[Record], over: int) -> bool:
        """Whether the first `over` rows `among` those can have lain where the remote log has nothing any more."""
        self._counted = self._counted and among[-1].offset + 1 - self._copy.acknowledged == len(among)
        if self._counted and (self._copy.task.shared or not self._repeatable):
            return True  # a later record of the key may be another flow's
        # Retention takes records from the front, whatever their keys.
        by_age = self._log.expired and (self._counted or not self._written.log_append_time)
        doubtful = among[max(0, self._log.start - self._copy.downstream) if by_age else 0 : over]
        for row in doubtful if self._repeatable else ():
            key, tombstone = key_of(row.body)
            # Where no offset of the source is missing before it, what has no later record was copied too.
            if self._counted:
                self._stepped.add(row.offset, key, tombstone)
            else:
                self._stepped.add_whatever(row.offset, key)
        return self._repeatable or not doubtful

    def _prove(self, more_behind: bool) -> None:
        """Look for later copies, which rows have to come for: not where there are no more."""
        owed = self._stepped.first if self._stepped else self._owed
        copy = self._next if more_behind else None
        while copy is not None and self._stepped:
            self._stepped.came(copy)
            copy = self._written.record()
        if self._stepped or (owed is not None and not more_behind):
            self._forget()
            raise unproven(self._copy, self._stepped.first if self._stepped else owed)
        self._owed = owed

    def _differs(self, copy: Record, alike: int) -> None:
        name = f"{self._copy.remote[0]}-{self._copy.remote[1]}"
        if self._repeatable:
            self._forget()
            what = "equals several of the rows that the flow gives now" if alike else "is not what the flow gives now"
            raise RefusedError(
                f"{name}: the record at offset {copy.offset} of the remote log {what} for offset "
                f"{self._waiting[0].offset} of {self._copy.source[0]}-{self._copy.source[1]}",
                "an interrupted run had another `where`, `select` or `transform`, or somebody else wrote to the remote "
                "topic; run the old one to its end first, or give the flow an empty remote topic",
            )
        while self._written.record() is not None:
            pass  # to the end of the log, which is only known when it is reached
        reason = (
            f"offsets {copy.offset} to {self._log.end - 1} of {name} are what an interrupted attempt wrote; the flow "
            "does not give the same each time, so their records are written again"
        )
        self._copy.incidents.append(Incident(COPIED_AGAIN, *self._copy.source, self._waiting[0].offset, -1, reason))
        self._finish()

    def _finish(self) -> None:
        if self._stepped:
            self._forget()
            raise unproven(self._copy, self._stepped.first)
        if self._log.expired and not self.found:
            raise RefusedError(
                f"{self._copy.remote[0]}-{self._copy.remote[1]}: retention has removed offsets {self._copy.downstream} "
                f"to {self._log.start - 1}, which an interrupted attempt may have written, before they were looked at",
                "give the flow an empty remote topic, or a ledger that knows this one",
            )
        self._copy.downstream = self._log.end
        self.left = False


def unproven(copy: PartitionCopy, offset: Optional[int]) -> RefusedError:
    """Of an upstream offset that was stepped over and for whose key nothing came."""
    return RefusedError(
        f"{name_of(copy.remote)}: nobody can tell whether offset {offset} of {name_of(copy.source)} was copied: the "
        "remote log has a gap there, and no later record of its key that the flow gives",
        "the source's cleaner took what would tell; give the flow an empty remote topic",
    )


def more_than_given(copy: PartitionCopy, offset: int) -> RefusedError:
    """Of a remote log that goes on at this offset where the source has nothing more."""
    return RefusedError(
        f"{name_of(copy.remote)}: the record at offset {offset} of the remote log is not what the flow gives now: "
        f"nothing more comes before the end of {name_of(copy.source)}",
        "the source's cleaner took what was copied, an interrupted run had another `where`, `select` or `transform`, "
        "or somebody else wrote to the remote topic; give the flow an empty remote topic",
    )
