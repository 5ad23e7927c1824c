"""When a flow may copy: `Mon-Fri 22:00-06:00` and a time zone from a file in; open or closed at a moment, and until
when, out. Pure. Errors are `ValueError`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import FrozenSet, List, Optional, Tuple

from mirror_lib.config.document import Value
from mirror_lib.config.values import Kind, items, one

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EVERY_DAY = frozenset(range(7))
_WINDOW = re.compile(r"(?:(?P<days>[a-z]{3}(?:-[a-z]{3})?)\s+)?(?P<opens>\d\d?:\d\d)\s*-\s*(?P<closes>\d\d?:\d\d)")
_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")
_DAY = timedelta(days=1)
# A week and what may reach into it from both sides.
_DAYS_AROUND = 9
_FORM = "must be a list of windows such as 22:00-06:00 or Mon-Fri 20:00-24:00"


@dataclass(frozen=True)
class Zone:
    """A time zone under the name that it has in the file."""

    name: str
    zone: tzinfo = field(compare=False)


UTC = Zone("UTC", timezone.utc)


@dataclass(frozen=True)
class Window:
    """Open from `opens` to `closes`, in minutes after midnight, on `days` (0 is Monday), counted by when it opens.

    One that closes at or before it opens does so on the next day.
    """

    opens: int
    closes: int
    days: FrozenSet[int] = _EVERY_DAY

    def __str__(self) -> str:
        """As it is written in a file."""
        times = "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in (self.opens, self.closes))
        if self.days == _EVERY_DAY:
            return times
        first = next(day for day in self.days if (day - 1) % 7 not in self.days)
        ends = dict.fromkeys(_DAYS[day % 7].capitalize() for day in (first, first + len(self.days) - 1))
        return f"{'-'.join(ends)} {times}"

    def on(self, day: date, zone: tzinfo) -> Optional[Tuple[float, float]]:
        """From when to when it is open, if it opens on `day`; seconds since 1970."""
        if day.weekday() not in self.days:
            return None
        last = day if self.closes > self.opens else day + _DAY
        return _moment(day, self.opens, zone), _moment(last, self.closes, zone)


@dataclass(frozen=True)
class Opening:
    """Whether a flow may copy, and until when that stays so (seconds since 1970); `None` where it never changes."""

    is_open: bool
    until: Optional[float] = None


ALWAYS = Opening(True)


def opening(windows: Tuple[Window, ...], zone: Zone, now: float) -> Opening:
    """What the windows say of the moment `now`, in seconds since 1970; without a window it is always open."""
    if not windows:
        return ALWAYS
    spans = _spans(windows, zone.zone, now)
    for opens, closes in spans:
        if opens <= now < closes:
            reaches_on = closes - now > (_DAYS_AROUND - 2) * _DAY.total_seconds()
            return ALWAYS if reaches_on else Opening(True, closes)
    return Opening(False, min(opens for opens, _ in spans if opens > now))


def _spans(windows: Tuple[Window, ...], zone: tzinfo, now: float) -> List[Tuple[float, float]]:
    """When it is open in the days around `now`; what touches is one span."""
    today = datetime.fromtimestamp(now, zone).date()
    days = [today + n * _DAY for n in range(-_DAYS_AROUND, _DAYS_AROUND + 1)]
    found = sorted(span for window in windows for span in (window.on(day, zone) for day in days) if span is not None)
    joined: List[Tuple[float, float]] = []
    for opens, closes in found:
        if joined and opens <= joined[-1][1]:
            opens, closes = joined[-1][0], max(closes, joined.pop()[1])
        joined.append((opens, closes))
    return joined


def _moment(day: date, minute: int, zone: tzinfo) -> float:
    # By the clock on the wall, so in the night when clocks change a window may be an hour longer or shorter.
    midnight = datetime(day.year, day.month, day.day)
    return (midnight + timedelta(minutes=minute)).replace(tzinfo=zone).timestamp()


def _windows(value: Value) -> Tuple[Window, ...]:
    return tuple(_window(item) for item in items(value))


def _window(text: str) -> Window:
    match = _WINDOW.fullmatch(text.lower())
    if match is None:
        raise ValueError(_FORM)
    opens, closes = _minutes(match.group("opens")), _minutes(match.group("closes"))
    if opens == closes or opens == 24 * 60:
        raise ValueError("has a window without length; for the whole day write 00:00-24:00")
    return Window(opens, closes, _days(match.group("days")))


def _minutes(text: str) -> int:
    hours, minutes = map(int, text.split(":"))
    if minutes > 59 or hours * 60 + minutes > 24 * 60:
        raise ValueError("has a time that no clock shows; the last one is 24:00")
    return hours * 60 + minutes


def _days(text: Optional[str]) -> FrozenSet[int]:
    if text is None:
        return _EVERY_DAY
    first, _, last = text.partition("-")
    if first not in _DAYS or (last or first) not in _DAYS:
        raise ValueError("has a day that is none of Mon, Tue, Wed, Thu, Fri, Sat, Sun")
    begin = _DAYS.index(first)
    return frozenset((begin + n) % 7 for n in range((_DAYS.index(last or first) - begin) % 7 + 1))


def _zone(value: Value) -> Zone:
    name = one(value)
    if name.upper() == "UTC":
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes = offset.groups()
        if int(hours) > 14 or int(minutes) > 59:
            raise ValueError("has an offset that no zone has; the last one is +14:00")
        length = timedelta(hours=int(hours), minutes=int(minutes))
        return Zone(name, timezone(length if sign == "+" else -length))
    return Zone(name, _named(name))


def _named(name: str) -> tzinfo:
    try:
        from zoneinfo import ZoneInfo
    except ImportError:
        raise ValueError("must be UTC or an offset such as +01:00: names of zones need Python 3.9") from None
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise ValueError("must be UTC, an offset such as +01:00, or a zone that this machine knows") from None


WINDOWS = Kind("list of windows", _windows)
ZONE = Kind("time zone", _zone)
