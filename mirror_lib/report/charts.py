"""Charts over time as inline SVG: the rate between two signs of life, and the lag at each sign. Pure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable, List, Sequence, Tuple

from mirror_lib.report.facts import RunRecord
from mirror_lib.report.markup import Markup, join, tag
from mirror_lib.text import counted, duration, grouped

WIDTH, HEIGHT = 420.0, 176.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 18.0, 10.0, 28.0
# A chart of more marks joins neighbours.
MARKS = 300
# Thinner bars could not be seen.
THINNEST = 1.5
DAY = 86400.0
# Periods of charts, the shortest first. The next one is drawn where the history is longer.
PERIODS = ((DAY, "24 hours"), (30 * DAY, "30 days"))

_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200)
_STEPS = (*_SECONDS, *(days * 86400 for days in (1, 2, 5, 7, 10, 20, 50, 100, 200, 500, 1000)))


@dataclass(frozen=True)
class Interval:
    """A value that holds from `start` to `end` (Unix seconds)."""

    start: float
    end: float
    value: float


@dataclass(frozen=True)
class Point:
    """A value at `at` (Unix seconds)."""

    at: float
    value: float


@dataclass(frozen=True)
class Metric:
    """What a chart shows: its title with the unit, how a value is written at the axis and in a tooltip, and the ticks
    of the axis for a greatest value."""

    title: str
    axis: Callable[[float], str]
    tooltip: Callable[[float], str]
    ticks: Callable[[float], List[float]]


def rates(runs: Sequence[RunRecord]) -> List[Interval]:
    return [
        Interval(before.at, after.at, max(0, after.records - before.records) / (after.at - before.at))
        for run in runs
        for before, after in zip(run.signs, run.signs[1:])
        if after.at > before.at
    ]


def lags(runs: Sequence[RunRecord], seconds: bool) -> List[List[Point]]:
    """In offsets or in seconds."""
    found = []
    for run in runs:
        values = [(sign.at, sign.lag_seconds if seconds else sign.lag_records) for sign in run.signs]
        line = [Point(at, float(value)) for at, value in values if value is not None]
        if line:
            found.append(line)
    return found


def charts(runs: Sequence[RunRecord], now: float) -> Markup:
    if not runs:
        return tag("p", "No run in the last 30 days.")
    first = min(run.started for run in runs)
    figures: List[Markup] = []
    for number, (seconds, name) in enumerate(PERIODS):
        if number and now - first <= PERIODS[number - 1][0]:
            break
        # A period that is not full begins where the history does.
        begin = max(now - seconds, min(first, now - 60))
        figures.append(_period(runs, name, begin, now))
    return join(*figures)


def _period(runs: Sequence[RunRecord], name: str, begin: float, now: float) -> Markup:
    inside = [each for each in rates(runs) if each.end > begin]
    clipped = [Interval(max(each.start, begin), each.end, each.value) for each in inside]
    lines = [
        [[point for point in line if point.at >= begin] for line in lags(runs, seconds)] for seconds in (False, True)
    ]
    return tag(
        "div",
        _bars(clipped, RATE, name, begin, now),
        *(_lines([line for line in own if line], metric, name, begin, now) for own, metric in zip(lines, LAGS)),
        cls="charts",
    )


def _bars(found: Sequence[Interval], metric: Metric, period: str, begin: float, now: float) -> Markup:
    if not found:
        text = f"No records were counted in the last {period}. A run counts them every three minutes."
        return _sentence(metric, period, text)
    if len(found) == 1:
        only = found[0]
        text = f"{metric.tooltip(only.value)} from {moment(only.start)} to {moment(only.end)} UTC, the only interval."
        return _sentence(metric, period, text)
    axes = _Axes(metric, begin, now, max(each.value for each in found))
    bars = []
    for each in _joined(found):
        x, y = axes.x(each.start), axes.y(each.value)
        width = max(THINNEST, axes.x(each.end) - x)
        text = f"{moment(each.start)} to {moment(each.end)}: {metric.tooltip(each.value)}"
        height = max(1.0, axes.bottom - y)
        mark = tag("title", text)
        bars.append(tag("rect", mark, x=x, y=axes.bottom - height, width=width, height=height, cls="bar"))
    return _figure(metric, period, axes, bars)


def _lines(lines: Sequence[Sequence[Point]], metric: Metric, period: str, begin: float, now: float) -> Markup:
    points = [point for line in lines for point in line]
    if not points:
        return _sentence(
            metric, period, f"No lag was recorded in the last {period}. A run records it every three minutes."
        )
    if len(points) == 1:
        only = points[0]
        text = f"{metric.tooltip(only.value)} at {moment(only.at)} UTC. A chart needs two signs of life."
        return _sentence(metric, period, text[0].upper() + text[1:])
    axes = _Axes(metric, begin, now, max(point.value for point in points))
    marks: List[Markup] = []
    for line in lines:
        kept = _greatest(line, max(2, MARKS * len(line) // len(points)))
        path = " ".join(
            f"{'L' if number else 'M'}{axes.x(each.at):.1f} {axes.y(each.value):.1f}"
            for number, each in enumerate(kept)
        )
        marks.append(tag("path", d=path, cls="line"))
        for each in kept:
            title = tag("title", f"{moment(each.at)}: {metric.tooltip(each.value)}")
            marks.append(tag("circle", title, cx=axes.x(each.at), cy=axes.y(each.value), r=2, cls="dot"))
    return _figure(metric, period, axes, marks)


def _joined(found: Sequence[Interval]) -> List[Interval]:
    """At most MARKS bars: neighbours become one with their average while a run was under way."""
    size = -(-len(found) // MARKS)
    if size <= 1:
        return list(found)
    parts = [found[n : n + size] for n in range(0, len(found), size)]
    return [
        Interval(
            part[0].start,
            part[-1].end,
            sum(each.value * (each.end - each.start) for each in part) / sum(each.end - each.start for each in part),
        )
        for part in parts
    ]


def _greatest(line: Sequence[Point], most: int) -> List[Point]:
    """At most `most` points: of neighbours the one with the greatest value."""
    size = -(-len(line) // most)
    return [max(line[n : n + size], key=lambda each: each.value) for n in range(0, len(line), size)]


def _sentence(metric: Metric, period: str, text: str) -> Markup:
    return tag("figure", _caption(metric, period), tag("p", text), cls="chart")


def _caption(metric: Metric, period: str) -> Markup:
    return tag("figcaption", metric.title, " ", tag("span", f"last {period}"))


class _Axes:
    """The scales of one chart, and their grid."""

    def __init__(self, metric: Metric, begin: float, end: float, greatest: float) -> None:
        self._metric, self._begin, self._end = metric, begin, end
        self._ticks = metric.ticks(greatest)
        self.bottom = HEIGHT - BOTTOM

    def x(self, at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - self._begin) / max(1e-9, self._end - self._begin)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - TOP) * value / self._ticks[-1]

    def grid(self) -> List[Markup]:
        found = []
        for value in self._ticks:
            y = self.y(value)
            found.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, cls="grid"))
            label = self._metric.axis(value)
            found.append(tag("text", label, x=LEFT - 6, y=y + 4, text_anchor="end"))
        for at, label in time_ticks(self._begin, self._end):
            x = self.x(at)
            found.append(tag("line", x1=x, x2=x, y1=self.bottom, y2=self.bottom + 4, cls="tick"))
            found.append(tag("text", label, x=x, y=self.bottom + 18, text_anchor="middle"))
        return found


def _figure(metric: Metric, period: str, axes: _Axes, marks: Sequence[Markup]) -> Markup:
    label = f"{metric.title}, last {period}"
    svg = tag(
        "svg", *axes.grid(), *marks, viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}", role="img", aria_label=label, cls="plot"
    )
    return tag("figure", _caption(metric, period), svg, cls="chart")


def moment(at: float) -> str:
    """`2026-11-26 08:10:02`, UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))


def time_ticks(begin: float, end: float) -> List[Tuple[float, str]]:
    """At most five round moments (UTC) from `begin` to `end`, with their labels."""
    step = next((each for each in _STEPS if (end - begin) / each <= 4), _STEPS[-1])
    form = "%d %b" if step >= 86400 else ("%H:%M" if step >= 60 else "%H:%M:%S")
    first = -(-begin // step) * step
    moments = [first + number * step for number in range(8) if first + number * step <= end]
    return [(at, time.strftime(form, time.gmtime(at))) for at in moments]


def round_ticks(greatest: float) -> List[float]:
    """From 0 to at least `greatest`, in three to six round steps."""
    if greatest <= 0:
        return [0.0, 1.0]
    scale = 10.0 ** (len(str(int(greatest))) - 1) if greatest >= 1 else 0.1
    step = next(scale * part for part in (0.2, 0.5, 1, 2, 5, 10) if greatest / (scale * part) <= 5)
    return [step * number for number in range(int(-(-greatest // step)) + 1)]


def duration_ticks(greatest: float) -> List[float]:
    """The same for seconds, in steps that a clock has."""
    if greatest <= 5:
        return round_ticks(greatest)
    if greatest > 5 * _STEPS[-1]:
        return [DAY * days for days in round_ticks(greatest / DAY)]
    step = next(each for each in _STEPS if greatest / each <= 5)
    return [float(step * number) for number in range(int(-(-greatest // step)) + 1)]


def short_number(value: float) -> str:
    """`950`, `12 k`, `1.5 M`."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:g}" if value >= 1 or value == 0 else f"{value:.2g}"


def short_duration(seconds: float) -> str:
    """`90 s`, `20 min`, `3 h`, `2 d`."""
    for unit, scale, least in (("d", DAY, DAY), ("h", 3600.0, 3600.0), ("min", 60.0, 120.0)):
        if seconds >= least:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def _rate(value: float) -> str:
    return f"{grouped(round(value))} records/s" if value >= 10 or value == 0 else f"{value:.2g} records/s"


RATE = Metric("Throughput, records/s", short_number, _rate, round_ticks)
LAGS = (
    Metric("Lag, offsets", short_number, lambda value: counted(round(value), "offset"), round_ticks),
    Metric("Lag, time", short_duration, duration, duration_ticks),
)
