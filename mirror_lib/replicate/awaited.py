"""Keys of which a later record has to come, by the record that needs it. Pure.

A cleaner takes no record but those of which a later one of their key is there, tombstones that are old, and records
without a key. So a later one shows that a cleaner may have taken a record: that it was there, or need not be any more.
"""

from __future__ import annotations

from typing import Dict, Optional

from mirror_lib.log.batch import Record
from mirror_lib.replicate.log_records import key_of


class Awaited:
    """By key the offset of the last record that needs a later one, of those that have none yet."""

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

    def add_whatever(self, offset: int, key: Optional[bytes]) -> None:
        """One has to come, whatever the record is; without a key none ever does."""
        self._offsets[key] = offset

    def came(self, record: Record) -> None:
        """A later record was seen."""
        key = key_of(record.body)[0] if self._offsets else None
        if key is not None:
            self._offsets.pop(key, None)
