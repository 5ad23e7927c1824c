"""Formats the settings of a flow's copy in one line: tasks, cycle length, limits."""

from __future__ import annotations

from typing import Optional

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.text import counted, size

COPIES_NOTHING = "copies nothing: copy.enabled is false"


def terms(flow: ReplicationFlow, slots: Optional[int] = None, repeatable: bool = True) -> str:
    """One line; `slots` is how many tasks Spark runs at a time, where that is known. `repeatable`: whether the flow
    makes the same of the same records each time, without which it is at least once."""
    if not flow.copied:
        return COPIES_NOTHING
    rate = flow.max_bytes_per_second
    tasks = counted(flow.tasks_max, "task")
    parts = [
        tasks if slots is None else f"{tasks} on {counted(slots, 'slot')}",
        f"cycles of {flow.batch_max_seconds:g} s",
        "no rate limit" if rate is None else f"at most {size(rate)}/s",
        f"{flow.delivery if repeatable else 'at-least-once'}, {flow.isolation_level}",
    ]
    return " · ".join(parts)
