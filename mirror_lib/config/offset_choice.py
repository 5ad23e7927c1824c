"""Where in a log: text such as `latest`, a time, a group or offsets in, a frozen choice out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Optional, Tuple

from mirror_lib.config.document import Value
from mirror_lib.config.values import Kind, items
from mirror_lib.facts import TopicPartition

EARLIEST, LATEST, CAUGHT_UP = "earliest", "latest", "caught-up"

_LABEL = re.compile(r"(timestamp|group|offsets)(?:\s*:\s+|\s+)(.+)", re.DOTALL)
_TIME = re.compile(r"\d{4}-\d\d-\d\d.*")
_OFFSET = re.compile(r"([A-Za-z0-9._-]+):(\d{1,9})=(\d{1,18})")
_OFFSETS_LIKE = "orders:0=100, orders:1=250"
_TIME_LIKE = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class OffsetChoice:
    """One of: a `word`, a time in milliseconds since 1970, a consumer group, offsets by topic and partition."""

    word: str = ""
    timestamp: Optional[int] = None
    group: str = ""
    offsets: Tuple[Tuple[TopicPartition, int], ...] = ()


def _start(value: Value) -> Optional[OffsetChoice]:
    choice = _choice(value, (EARLIEST, LATEST))
    if choice is None and ",".join(items(value)):
        raise ValueError(
            f"must be earliest, latest, a time such as {_TIME_LIKE}, `group NAME`, or offsets such as {_OFFSETS_LIKE}"
        )
    return choice


def until(text: str) -> OffsetChoice:
    """What `--until` says. Raises `ValueError` with the end of a sentence."""
    choice = _choice(text, (CAUGHT_UP,))
    if choice is None or choice.group:
        raise ValueError(f"must be caught-up, a time such as {_TIME_LIKE}, or offsets such as {_OFFSETS_LIKE}")
    return choice


def _choice(value: Value, words: Tuple[str, ...]) -> Optional[OffsetChoice]:
    parts = items(value)
    # As it stands where it is a text: a group's name may have commas.
    text = value.strip() if isinstance(value, str) else ", ".join(parts)
    label = _LABEL.fullmatch(text)
    kind, rest = label.groups() if label else ("", text)
    if kind == "group":
        return OffsetChoice(group=rest.strip())
    if not kind and text.lower() in words:
        return OffsetChoice(word=text.lower())
    if kind == "timestamp" or (not kind and _TIME.fullmatch(rest)):
        return OffsetChoice(timestamp=_milliseconds(rest.strip()))
    if kind == "offsets" or any("=" in part for part in parts):
        return OffsetChoice(offsets=_offsets(items(rest)))
    return None


def _milliseconds(text: str) -> int:
    try:
        # Python before 3.11 does not know Z.
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise ValueError(f"has a time that cannot be read; write it like {_TIME_LIKE}") from None
    if moment.tzinfo is None:
        raise ValueError(f"has a time without a zone; write it like {_TIME_LIKE}")
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return int(since.total_seconds() * 1000)


def _offsets(parts: Tuple[str, ...]) -> Tuple[Tuple[TopicPartition, int], ...]:
    found = {}
    for part in parts:
        match = _OFFSET.fullmatch(part)
        if match is None:
            raise ValueError(f"has an offset that is not TOPIC:PARTITION=OFFSET; write them like {_OFFSETS_LIKE}")
        topic, partition, offset = match.groups()
        if (topic, int(partition)) in found:
            raise ValueError(f"names {topic}:{partition} twice")
        found[topic, int(partition)] = int(offset)
    return tuple(found.items())


START_POSITION = Kind("earliest, latest, a time, `group NAME`, or offsets", _start)
