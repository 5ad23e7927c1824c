"""What an interrupted attempt left on a remote log, and rows as they come in; the rows that are not there yet out.

The source's bytes are of no use here, as rows may have been changed. Nothing is appended while something is left.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, List, Optional, Protocol, Sequence

from mirror_lib.errors import RefusedError
from mirror_lib.log.batch import Record
from mirror_lib.replicate.log_records import Records, equal
from mirror_lib.replicate.partition import PartitionCopy
from mirror_lib.state.records import COPIED_AGAIN, Incident


class Ends(Protocol):
    """What is known of the log by what was read; see `LogEntries`."""

    start: int
    end: int
    expired: bool


class Remainder:
    """The records from a partition's downstream position on. `written` reads them, those of other writers left out.

    `repeatable` says that the rows are what they were for the interrupted attempt. Raises `RefusedError` where they
    are not, though they should be.
    """

    def __init__(self, copy: PartitionCopy, log: Ends, written: Records, repeatable: bool) -> None:
        self._copy = copy
        self._log = log
        self._written = written
        self._repeatable = repeatable
        self._waiting: Deque[Record] = deque()
        self._next: Optional[Record] = None
        self.left = True
        self.found = 0

    def compare(self, records: Sequence[Record]) -> List[Record]:
        """Take rows; return those to append, which are none while something is left."""
        self._waiting.extend(records)
        return self._compare(more_to_come=True)

    def end(self) -> List[Record]:
        """There are no more rows for now. What is left is compared with the next ones, in another pass."""
        return self._compare(more_to_come=False)

    def _compare(self, more_to_come: bool) -> List[Record]:
        while self.left:
            copy = self._peek()
            if copy is None:
                self._finish()
                break
            # Offsets that compaction emptied since; the rows that lay there are stepped over.
            gone = copy.offset - self._copy.downstream - self._written.not_data
            if not self._waiting or (more_to_come and len(self._waiting) <= gone):
                return []
            self._match(copy, gone)
        rest = list(self._waiting)
        self._waiting.clear()
        return rest

    def _peek(self) -> Optional[Record]:
        if self._next is None:
            self._next = self._written.record()
        return self._next

    def _match(self, copy: Record, gone: int) -> None:
        reach = [self._waiting[i] for i in range(min(gone + 1, len(self._waiting)))]
        alike = [i for i, record in enumerate(reach) if equal(record, copy, self._written.log_append_time)]
        if self._repeatable and not alike and len(reach) <= gone:
            self._step_over()
            return
        if len(alike) != 1:
            self._differs(copy, len(alike))
            return
        for _ in range(alike[0] + 1):
            record = self._waiting.popleft()
        self._copy.recover(record.offset, copy.offset, 1)
        self.found += 1
        self._written.not_data, self._next = 0, None

    def _step_over(self) -> None:
        """The pass ends within a stretch that compaction emptied, and all rows that wait lay there."""
        last, count = self._waiting[-1], len(self._waiting)
        self._waiting.clear()
        self._copy.recover(last.offset + 1, self._copy.downstream + count, 0)

    def _differs(self, copy: Record, alike: int) -> None:
        name = f"{self._copy.remote[0]}-{self._copy.remote[1]}"
        if self._repeatable:
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
        if self._log.expired and not self.found:
            raise RefusedError(
                f"{self._copy.remote[0]}-{self._copy.remote[1]}: retention has removed offsets {self._copy.downstream} "
                f"to {self._log.start - 1}, which an interrupted attempt may have written, before they were looked at",
                "give the flow an empty remote topic, or a ledger that knows this one",
            )
        self._copy.downstream = self._log.end
        self.left = False
