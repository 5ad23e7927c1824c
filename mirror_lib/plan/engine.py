"""A flow in, which engine copies it and with which guarantee out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.record_change import CHANGE_KEYS, RECORDS, RecordChange

AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True)
class EngineNote:
    """`engine` by its setting's word; `changes` are the settings that change records, `reason` why not exactly once."""

    engine: str
    changes: Tuple[str, ...]
    delivery: str
    reason: str

    @property
    def repeats(self) -> bool:
        """Whether nothing is said against the delivery that the flow asks for."""
        return self.delivery != AT_LEAST_ONCE

    def line(self) -> str:
        """`engine: records (where, select), at least once: provenance is off`."""
        changes = f" ({', '.join(self.changes)})" if self.changes else ""
        why = f": {self.reason}" if self.reason else ""
        return f"engine: {self.engine}{changes}, {self.delivery}{why}"


def engine_note(flow: ReplicationFlow, refused: Optional[str] = None) -> Optional[EngineNote]:
    """What a plan says of the engine; `None` where record batches are copied as they are. `refused`: why a flow that
    changes records will not run."""
    change = flow.change
    if change is None:
        return None
    untouched = RecordChange()
    changes = tuple(key for key, name in CHANGE_KEYS.items() if getattr(change, name) != getattr(untouched, name))
    if refused is not None:
        return EngineNote(RECORDS, changes, "will not run", refused)
    if not change.provenance:
        return EngineNote(RECORDS, changes, AT_LEAST_ONCE, "provenance is off")
    exact = flow.delivery == "exactly-once"
    why = "" if exact else f"delivery is {flow.delivery}"
    return EngineNote(RECORDS, changes, "exactly once" if exact else AT_LEAST_ONCE, why)
