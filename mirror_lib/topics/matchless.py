"""A flow and the names of its source's topics in; what of its `topics` matches none, and what was meant, out. Pure."""

from __future__ import annotations

from typing import Collection, List

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.refusals import nearest
from mirror_lib.config.values import is_entry_point
from mirror_lib.topics.filters import first_match

# One or two letters of a name.
ALIKE = 0.75
TOLD = 5


def matchless_patterns(flow: ReplicationFlow, names: Collection[str]) -> List[str]:
    """The names and patterns that match no topic: perhaps misspelt."""
    if is_entry_point(flow.topic_filter):
        return []
    return [pattern for pattern in flow.topics if not any(first_match([pattern], name) for name in names)]


def matchless_words(flow: ReplicationFlow, names: Collection[str]) -> str:
    """`no topic of primary matches "salse" (did you mean sales?)`; empty where each of them matches one."""
    found = matchless_patterns(flow, names)
    told = [_word(pattern, names) for pattern in found[:TOLD]]
    if len(found) > TOLD:
        told.append(f"{len(found) - TOLD} more")
    return f"no topic of {flow.source.alias} matches {', '.join(told)}" if told else ""


def _word(pattern: str, names: Collection[str]) -> str:
    like = nearest(pattern, names, ALIKE)
    return f"`{pattern}`" if like is None else f"`{pattern}` (did you mean {like}?)"
