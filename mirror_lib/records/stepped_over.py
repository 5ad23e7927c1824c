"""Rows whose copies are said to be gone from a remote log, though they may never have been made. Pure.

A cleaner takes no record but those of which a later one of their key is there, tombstones that are old, and records
without a key. So a later copy of its key shows that a row was copied, or need not be any more.
"""

from __future__ import annotations

from typing import Dict, Iterable, Optional

from mirror_lib.log.batch import Record
from mirror_lib.replicate.log_records import key_of


class SteppedOver:
    """By key, rows of which no later copy was seen yet."""

    def __init__(self) -> None:
        self._waiting: Dict[Optional[bytes], int] = {}

    def __bool__(self) -> bool:
        """Whether any is left."""
        return bool(self._waiting)

    def add(self, rows: Iterable[Record], counted: bool) -> None:
        """`counted`: no offset of the source is missing up to them, so what has no later record was copied too."""
        for row in rows:
            key, tombstone = key_of(row.body)
            if not counted or (key is not None and not tombstone):
                self._waiting[key] = row.offset
            elif key is not None:
                self._waiting.pop(key, None)

    def came(self, copy: Record) -> None:
        """A later record on the remote log."""
        key = key_of(copy.body)[0] if self._waiting else None
        if key is not None:
            self._waiting.pop(key, None)

    @property
    def first(self) -> int:
        """The lowest offset of those that are left."""
        return min(self._waiting.values())
