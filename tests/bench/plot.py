"""A curve as an SVG picture: `python -m tests.bench.plot CHART.json`. CHART.json has the fields of a `Chart`.

No library is needed for a frame, some lines and some words.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

Point = Tuple[float, float]

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
TICKS = 5
FONT = 'font-family="sans-serif" font-size="12"'


@dataclass(frozen=True)
class Chart:
    """`name` is of its file, `growth-NAME.svg`; `x` and `y` name the axes; `text` says how it was measured."""

    name: str
    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[Point]]
    text: str = ""

    @property
    def file(self) -> str:
        return f"growth-{self.name}.svg"


def chart_of(document: Mapping[str, Any]) -> Chart:
    """A chart from its JSON document: the fields of `Chart`, points as pairs."""
    series = {label: [(float(x), float(y)) for x, y in points] for label, points in document["series"].items()}
    return Chart(**{**document, "series": series})


def ticks(most: float) -> List[float]:
    """Round numbers from 0 to at least `most`."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / (TICKS - 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    return [step * number for number in range(math.ceil(most / step * 0.999) + 1)]


def svg(chart: Chart) -> str:
    """The picture. Both axes begin at 0, so that what looks flat is flat."""
    points = [point for each in chart.series.values() for point in each]
    across, up = ticks(max(x for x, _ in points)), ticks(max(y for _, y in points))

    def place(x: float, y: float) -> Tuple[float, float]:
        return (
            LEFT + x / across[-1] * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - y / up[-1] * (HEIGHT - TOP - BOTTOM),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 20, chart.title, "middle", 'font-size="14"'),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, chart.x, "middle"),
        _text(LEFT, TOP - 8, chart.y, "start"),
    ]
    for tick in up:
        x, y = place(0, tick)
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(_text(x - 6, y + 4, _number(tick), "end"))
    for tick in across:
        x, y = place(tick, 0)
        parts.append(_text(x, y + 18, _number(tick), "middle"))
    for number, (label, line) in enumerate(chart.series.items()):
        parts += _line([place(*point) for point in sorted(line)], label, number)
    return "\n".join([*parts, "</svg>", ""])


def _line(points: Sequence[Point], label: str, number: int) -> List[str]:
    colour, y = COLOURS[number % len(COLOURS)], TOP + 8 + 18 * number
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    legend = [
        f'<rect x="{LEFT + 12}" y="{y - 9}" width="10" height="10" fill="{colour}"/>',
        _text(LEFT + 28, y, label, "start"),
    ]
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots, *legend]


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def _number(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def loaded(file: Path) -> Chart:
    """A chart's file."""
    document: Dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return chart_of(document)


if __name__ == "__main__":
    sys.stdout.write(svg(loaded(Path(sys.argv[1]))))
