"""Draws the panels of conf/monitoring/dashboard.json with what a Prometheus answers, as docs/pictures/dashboard.svg:
`python -m tools.docs.dashboard http://localhost:9090 MINUTES`. Grafana draws them in its own way."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Dict, List, Sequence, Tuple
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.lab.checkout import ROOT
from tools.docs.pictures import BLUE, FOLDER, GREEN, GREY, INK, RED, box, label, svg

COLOURS = (BLUE, GREEN, "#d97706", RED, "#7c3aed", "#0891b2")
NAMED = {"green": GREEN, "orange": "#d97706", "red": RED}
# Of a column and a row of Grafana's grid.
WIDTH, HEIGHT = 46, 22
UNITS = {"short": "", "s": " s", "cps": "/s", "Bps": " B/s", "percentunit": ""}
# Label values, then the points as seconds and value.
Series = Tuple[Dict[str, str], List[Tuple[float, float]]]


def series(prometheus: str, query: str, seconds: float) -> List[Series]:
    """What the query gave over the last `seconds`."""
    written = query.replace("$flow", ".*").replace("$__rate_interval", "20s")
    until = time.time()
    asked = {"query": written, "start": until - seconds, "end": until, "step": max(2, round(seconds / 120))}
    with urlopen(f"{prometheus}/api/v1/query_range?{urlencode(asked)}") as answer:
        found = json.load(answer)["data"]["result"]
    return [(each["metric"], [(at, float(value)) for at, value in each["values"] if value != "NaN"]) for each in found]


def short(value: float, unit: str) -> str:
    """A number of a panel with its unit."""
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and unit != "s":
            return f"{value / size:.3g} {prefix}{UNITS[unit].strip()}".rstrip()
    return f"{value:.3g}{UNITS[unit]}"


def panel(each: Dict[str, Any], prometheus: str, seconds: float) -> List[str]:
    """One panel at its place in the grid."""
    at, defaults = each["gridPos"], each["fieldConfig"]["defaults"]
    x, y, width, height = at["x"] * WIDTH, at["y"] * HEIGHT, at["w"] * WIDTH - 8, at["h"] * HEIGHT - 8
    found = [
        (named(target["legendFormat"], labels), points)
        for target in each["targets"]
        for labels, points in series(prometheus, target["expr"], seconds)
    ]
    parts = [box(x, y, width, height, "white", "#d1d5db"), label(x + 8, y + 18, each["title"], 12, INK, bold=True)]
    if each["type"] == "stat":
        last = found[0][1][-1][1] if found and found[0][1] else None
        steps = [step for step in defaults["thresholds"]["steps"] if (step["value"] or 0) <= (last or 0)]
        shown = defaults.get("noValue", "no data") if last is None else short(last, defaults["unit"])
        return [*parts, label(x + width / 2, y + 58, shown, 22, NAMED[steps[-1]["color"]], "middle", bold=True)]
    if each["type"] in ("table", "state-timeline"):
        rows = [f"{name}   {short(points[-1][1], 'short')}" for name, points in found if points]
        return [*parts, *(label(x + 12, y + 40 + 18 * n, row, 11) for n, row in enumerate(rows[:8]))]
    return [*parts, *lines(found, x, y, width, height, defaults["unit"], seconds)]


def named(legend: str, labels: Dict[str, str]) -> str:
    """A legend such as `{{flow}} {{topic}}` with the labels of a series; for a table the topic as well."""
    text = legend if "{{" in legend else " ".join([*(labels[name] for name in ("topic",) if name in labels), legend])
    for name, value in labels.items():
        text = text.replace("{{" + name + "}}", value)
    return text


def lines(
    found: Sequence[Tuple[str, Sequence[Tuple[float, float]]]],
    x: float,
    y: float,
    width: float,
    height: float,
    unit: str,
    seconds: float,
) -> List[str]:
    """A chart of all series with the greatest value at its top and a legend below."""
    most = max((value for _, points in found for _, value in points), default=0.0) or 1.0
    left, top, wide, high, began = x + 60, y + 32, width - 72, height - 66, time.time() - seconds
    parts = [box(left, top, wide, high, "#f9fafb", "#e5e7eb")]
    for place, value in ((top + 10, short(most, unit)), (top + high, "0")):
        parts.append(label(left - 6, place, value, 10, GREY, "end"))
    columns = 3 if wide > 400 else 1
    for number, (name, points) in enumerate(found[:6]):
        colour = COLOURS[number]
        places = ((left + wide * (at - began) / seconds, top + high - high * value / most) for at, value in points)
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='1.5'/>")
        row, column = divmod(number, columns)
        parts.append(label(left + column * wide / columns, top + high + 14 + 11 * row, name[:40], 10, colour))
    return parts


def main() -> None:
    """Write the picture."""
    prometheus, seconds = sys.argv[1], 60 * float(sys.argv[2])
    panels = json.loads((ROOT / "conf/monitoring/dashboard.json").read_text(encoding="utf-8"))["panels"]
    parts = [part for each in panels for part in panel(each, prometheus, seconds)]
    bottom = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels)
    drawn = svg(24 * WIDTH, bottom * HEIGHT, "The panels of the dashboard with the data of a run", parts)
    (FOLDER / "dashboard.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
