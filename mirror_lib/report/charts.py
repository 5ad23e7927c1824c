"""Charts over time as inline SVG, drawn by matplotlib: throughput and lag between two signs of life of a run."""

from __future__ import annotations

import io
from datetime import timezone
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from mirror_lib.status.facts import RunStatus, Sign
from mirror_lib.text import DAY, HOUR, counted, duration, grouped, utc

# Periods of charts, the shortest first. The next one is drawn where the history is longer.
PERIODS = ((DAY, "24 hours"), (30 * DAY, "30 days"))
# A chart of more bars joins neighbours.
BARS = 300
# Inches, of 72 units of the SVG each.
SIZE = (5.8, 2.4)
# Texts stay texts. The style of the page decides on fonts and colours.
RC: Any = {"svg.fonttype": "none", "font.size": 11}
SVG = "{http://www.w3.org/2000/svg}"
ElementTree.register_namespace("", SVG[1:-1])

# Between two signs of life of a run.
Interval = Tuple[Sign, Sign]


class Metric(NamedTuple):
    """What a chart shows. `value` is that of neighbouring intervals, `None` where it was not recorded; `shown` formats
    it. A value in seconds gets the unit that fits the axis."""

    title: str
    value: Callable[[Sequence[Interval]], Optional[float]]
    shown: Callable[[float], str]
    seconds: bool = False


class Bar(NamedTuple):
    """A value from `start` to `end` (Unix seconds)."""

    start: float
    end: float
    value: float


def _rate(part: Sequence[Interval]) -> float:
    records = sum(max(0, after.records - before.records) for before, after in part)
    return records / sum(after.at - before.at for before, after in part)


def _lag(part: Sequence[Interval]) -> Optional[float]:
    return max((after.lag_records for _, after in part if after.lag_records is not None), default=None)


def _lag_time(part: Sequence[Interval]) -> Optional[float]:
    return max((after.lag_seconds for _, after in part if after.lag_seconds is not None), default=None)


METRICS = (
    Metric("Throughput, records/s", _rate, lambda value: f"{grouped(round(value))} records/s"),
    Metric("Lag, offsets", _lag, lambda value: counted(round(value), "offset")),
    Metric("Lag", _lag_time, duration, seconds=True),
)


def charts(runs: Sequence[RunStatus], now: float) -> Iterator[Tuple[str, List[Tuple[str, Optional[Markup]]]]]:
    """By period the title and the SVG of each chart, `None` where nothing was recorded."""
    first = min((run.started for run in runs), default=now)
    for number, (seconds, period) in enumerate(PERIODS):
        if number and now - first <= PERIODS[number - 1][0]:
            break
        # A period that is not full begins where the history does.
        begin = max(now - seconds, min(first, now - 60))
        yield period, [_chart(metric, bars(runs, metric, begin), begin, now) for metric in METRICS]


def bars(runs: Sequence[RunStatus], metric: Metric, begin: float) -> List[Bar]:
    """At most BARS, none before `begin`: neighbours become one."""
    pairs = (pair for run in runs for pair in zip(run.signs, run.signs[1:]))
    found = [(before, after) for before, after in pairs if after.at > max(before.at, begin)]
    size = -(-len(found) // BARS) or 1
    parts = [found[place : place + size] for place in range(0, len(found), size)]
    valued = [(part, metric.value(part)) for part in parts]
    return [Bar(max(part[0][0].at, begin), part[-1][1].at, value) for part, value in valued if value is not None]


def _chart(metric: Metric, found: Sequence[Bar], begin: float, end: float) -> Tuple[str, Optional[Markup]]:
    greatest, title, scale = max((each.value for each in found), default=0.0), metric.title, 1
    if metric.seconds:
        units = ((DAY, "days"), (HOUR, "hours"), (60, "minutes"), (1, "seconds"))
        scale, unit = next((each for each in units if greatest >= 2 * each[0]), units[-1])
        title = f"{title}, {unit}"
    if not found:
        return title, None
    with rc_context(RC):
        figure = Figure(SIZE, layout="constrained")
        axes = figure.add_subplot(xlim=(begin / DAY, end / DAY), ylim=(0, greatest / scale * 1.05 or 1))
        # Matplotlib counts days since 1970.
        locator = AutoDateLocator(tz=timezone.utc, minticks=3, maxticks=5)
        axes.xaxis.set_major_locator(locator)
        formatter = ConciseDateFormatter(locator, tz=timezone.utc, show_offset=False)
        formatter.formats[2] = formatter.zero_formats[3] = "%d %b"
        axes.xaxis.set_major_formatter(formatter)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 2.5, 5, 10)))
        axes.yaxis.set_major_formatter(EngFormatter())
        axes.tick_params(length=0, pad=6)
        axes.set_axisbelow(True)
        axes.grid(axis="y", gid="grid", clip_on=False)
        axes.set_frame_on(False)
        thinnest = (end - begin) / BARS
        starts, widths = zip(*((each.start / DAY, max(each.end - each.start, thinnest) / DAY) for each in found))
        drawn = axes.bar(starts, [each.value / scale for each in found], widths, align="edge", clip_on=False)
        for bar, each in zip(drawn, found):
            bar.set_gid(f"{utc(each.start)} to {utc(each.end)}: {metric.shown(each.value)}")
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True)
    return title, _inline(file.getvalue(), title)


def _inline(text: str, label: str) -> Markup:
    """The SVG for a page whose policy forbids styles in elements: they become attributes. The id of a bar becomes its
    title."""
    root = ElementTree.fromstring(text)
    for each in [*root.findall(f"{SVG}metadata"), *root.findall(f"{SVG}defs")]:
        root.remove(each)
    for each in list(root.iter()):
        for pair in filter(None, each.attrib.pop("style", "").split("; ")):
            name, value = pair.split(": ", 1)
            if not name.startswith("font"):
                each.set(name, value)
        called = each.attrib.pop("id", "")
        if called == "grid":
            each.set("class", "grid")
        elif ": " in called:
            each.set("class", "bar")
            ElementTree.SubElement(each, f"{SVG}title").text = called
    view = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib.update({"viewBox": view, "role": "img", "aria-label": label, "class": "plot"})
    return Markup(ElementTree.tostring(root, encoding="unicode"))
