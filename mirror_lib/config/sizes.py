"""Sizes in bytes, alone or for topics by pattern: text from a file in, numbers out. Errors are `ValueError`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

from mirror_lib.config.document import Value
from mirror_lib.config.values import PATTERNS, Kind, items, one

NONE = "none"
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-z]*)", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}


@dataclass(frozen=True)
class TopicRate:
    """All topics whose whole name matches `pattern` may take `bytes_per_second` together."""

    pattern: str
    bytes_per_second: int

    def covers(self, topic: str) -> bool:
        """Whether it is for this topic."""
        return re.fullmatch(self.pattern, topic) is not None


def rate_of(rates: Sequence[TopicRate], topic: str) -> Optional[int]:
    """The number of the first bound that is for the topic, `None` where there is none."""
    return next((number for number, each in enumerate(rates) if each.covers(topic)), None)


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match.group(2).lower())
    if match is None or unit is None:
        raise ValueError("must be a number of bytes, with a unit or without: 5000000, 5 MB, 512 KiB")
    size = round(float(match.group(1)) * unit)
    if size < 1:
        raise ValueError("must be at least one byte; write none where there is no bound")
    return size


def _optional_size(value: Value) -> Optional[int]:
    text = one(value)
    return None if text.lower() == NONE else _size(text)


def _topic_rates(value: Value) -> Tuple[TopicRate, ...]:
    found = []
    for item in items(value):
        pattern, equals, size = (part.strip() for part in item.rpartition("="))
        if not equals or not pattern:
            raise ValueError("must be a list of PATTERN=SIZE, for example logs-.*=5MB")
        PATTERNS.parse((pattern,))
        found.append(TopicRate(pattern, _size(size)))
    return tuple(found)


SIZE = Kind("bytes or none", _optional_size)
TOPIC_RATES = Kind("list of pattern=bytes", _topic_rates)
