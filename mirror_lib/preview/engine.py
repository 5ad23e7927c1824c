"""A flow and what Spark said of its change in, which engine copies it and with which guarantee out. Pure."""

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
        """`engine: records (where, select), at least once: uuid() gives another value each time it is asked`."""
        changes = f" ({', '.join(self.changes)})" if self.changes else ""
        why = f": {self.reason}" if self.reason else ""
        return f"engine: {self.engine}{changes}, {self.delivery}{why}"


def engine_note(
    flow: ReplicationFlow, repeatable: bool, reason: str, refused: Optional[str] = None
) -> Optional[EngineNote]:
    """What a plan says of the engine; `None` where record batches are copied as they are. `refused`: the setting for
    which a flow that places records anew does not run."""
    if flow.change is None:
        return None
    untouched = RecordChange()
    changes = [key for key, name in CHANGE_KEYS.items() if getattr(flow.change, name) != getattr(untouched, name)]
    if refused is not None:
        why = f"a flow that places records anew cannot have {refused}"
        return EngineNote(RECORDS, tuple(changes), "will not run", why)
    exact = repeatable and flow.delivery == "exactly-once"
    why = reason or ("" if exact else f"delivery is {flow.delivery}")
    return EngineNote(RECORDS, tuple(changes), "exactly once" if exact else AT_LEAST_ONCE, why)
