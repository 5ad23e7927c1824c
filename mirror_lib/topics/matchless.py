"""Finds the entries of `topics` and `groups` that match nothing on the source, perhaps by a typing error.

An entry with a character of regexes other than the dot is a pattern, and may wait for later topics. Every other entry
is a name, which selects one topic or group. The alternatives of `orders|pay.*` count as entries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Collection, List, Sequence, Tuple

from mirror_lib.config.document import nearest
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.values import is_entry_point
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.topics.filters import first_match

# An alternative of a pattern without groups and sets, in which a `|` may be escaped.
_ALTERNATIVE = re.compile(r"(?:\\.|[^|\\])+")
_PATTERN_CHARACTERS = frozenset("\\^$|?*+()[]{}")
# One or two characters of a name.
ALIKE = 0.75
ENTRIES_SHOWN = 5


@dataclass(frozen=True)
class Matchless:
    """The entries of a list, `topics` or `groups` (`key`), that match nothing: a `sentence`, and the list's `place`."""

    key: str
    place: str
    sentence: str


def is_name(entry: str) -> bool:
    return not _PATTERN_CHARACTERS.intersection(entry)


def matchless_patterns(flow: ReplicationFlow, topics: Collection[str]) -> List[str]:
    return [] if is_entry_point(flow.topic_filter) else _matchless(flow.topics, topics)


def matchless_groups(flow: ReplicationFlow, groups: Collection[str]) -> List[str]:
    return [] if is_entry_point(flow.group_filter) else list(filter(is_name, _matchless(flow.groups, groups)))


def selected_in_vain(flow: ReplicationFlow, source: KafkaCluster, *, names_only: bool = False) -> Tuple[Matchless, ...]:
    """What the flow selects and the source lacks. With `names_only` patterns of topics do not count; those of groups
    never do. Groups count only if every broker lists its own. Raises `ClusterError`."""
    topics = source.topics()
    found = matchless_patterns(flow, topics)
    lists: List[Tuple[str, List[str], Collection[str]]] = [
        ("topics", list(filter(is_name, found)) if names_only else found, topics)
    ]
    if flow.translates_in_run and any(map(is_name, _alternatives(flow.groups))):
        groups = source.group_names()
        lists += [] if source.unlisted_brokers() else [("groups", matchless_groups(flow, groups), groups)]
    return tuple(
        Matchless(key, flow.places.get(key, ""), matchless_words(flow, key, entries, names))
        for key, entries, names in lists
        if entries
    )


def matchless_words(flow: ReplicationFlow, key: str, entries: Sequence[str], names: Collection[str]) -> str:
    """`no topic of primary matches "salse" (did you mean sales?)`; `entries` of the list `key` match no name."""
    reported = [with_nearest(entry, names) for entry in entries[:ENTRIES_SHOWN]]
    if len(entries) > ENTRIES_SHOWN:
        reported.append(f"{len(entries) - ENTRIES_SHOWN} more")
    return f"no {key[:-1]} of {flow.source.alias} matches {', '.join(reported)}"


def _matchless(entries: Sequence[str], names: Collection[str]) -> List[str]:
    return [entry for entry in _alternatives(entries) if not any(first_match([entry], name) for name in names)]


def _alternatives(entries: Sequence[str]) -> List[str]:
    split = ([entry] if {"(", "["}.intersection(entry) else _ALTERNATIVE.findall(entry) for entry in entries)
    return [each for found in split for each in found]


def with_nearest(entry: str, names: Collection[str]) -> str:
    """The entry, with the name that it resembles: "`salse` (did you mean sales?)"."""
    like = nearest(entry, names, ALIKE)
    return f"`{entry}`" if like is None else f"`{entry}` (did you mean {like}?)"
