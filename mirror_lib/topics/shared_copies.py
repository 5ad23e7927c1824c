"""Topics to copy in, the same with what those of one remote topic, and those of one source topic, must agree on, out.

Only `rename` brings topics together, or gives one several remote topics. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Dict, Iterable, List, Optional, Sequence, Tuple

from mirror_lib.facts import NewTopic

if TYPE_CHECKING:
    from mirror_lib.topics.plan import CopiedTopic, SkippedTopic


def agreed(copied: Sequence[CopiedTopic]) -> Tuple[CopiedTopic, ...]:
    """Remote topics that several topics are copied into are created once, as the first of them by name wants it, and as
    wide as the widest needs it."""
    by_remote: Dict[str, List[CopiedTopic]] = {}
    for each in copied:
        by_remote.setdefault(each.remote_topic, []).append(each)
    return tuple(_as_one(each, by_remote[each.remote_topic]) for each in copied)


def _as_one(topic: CopiedTopic, together: Sequence[CopiedTopic]) -> CopiedTopic:
    if len(together) == 1:
        return topic
    grow_to = max((each.grow_to for each in together if each.grow_to is not None), default=None)
    keyed = [each.keyed_over for each in together if each.keyed_over is not None]
    create = _created(each.create for each in together)
    notes = tuple(dict.fromkeys((*topic.notes, _note(topic, together))))
    return replace(topic, create=create, grow_to=grow_to, keyed_over=max(keyed, default=None), notes=notes)


def _created(topics: Iterable[Optional[NewTopic]]) -> Optional[NewTopic]:
    new = [topic for topic in topics if topic is not None]
    return replace(new[0], partitions=max(topic.partitions for topic in new)) if new else None


def _note(topic: CopiedTopic, together: Sequence[CopiedTopic]) -> str:
    others = [each.source.name for each in together if each.source.name != topic.source.name]
    return f"{topic.remote_topic} also gets the records of {', '.join(others)}"


def whole_or_not(
    copied: Sequence[CopiedTopic], skipped: Sequence[SkippedTopic]
) -> Tuple[Tuple[CopiedTopic, ...], Tuple[SkippedTopic, ...]]:
    """A topic with one remote topic that cannot be written goes to none: what the others get it would lack for ever."""
    blocked = {each.name for each in skipped}
    first = {each.name: each for each in reversed(skipped)}
    return tuple(each for each in copied if each.source.name not in blocked), tuple(first.values())
