"""The clusters of a mirror as boxes and its flows as arrows, in inline SVG. Pure.

A cluster is to the right of the clusters that flow into it. A flow that leads back to the left, as in active/active, is
under the flow that leads to the right. A flow past a column of clusters bends around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Set, Tuple

from mirror_lib.report.markup import Markup, shown, tag

BOX_WIDTH, BOX_HEIGHT = 150.0, 54.0
COLUMN, ROW = 430.0, 96.0
MARGIN = 14.0
# So far from the middle of two boxes each of two opposite arrows runs.
APART = 14.0
BEND = 84.0
LONGEST = 15


@dataclass(frozen=True)
class Arrow:
    """One flow: its ends, its state as a CSS class and as text, and what its lag is."""

    source: str
    target: str
    state: str
    text: str


Place = Tuple[float, float]


def picture(arrows: Sequence[Arrow]) -> Optional[Markup]:
    if not arrows:
        return None
    columns = columns_of([(each.source, each.target) for each in arrows])
    places = _places(columns)
    pairs = {(each.source, each.target) for each in arrows}
    bends = [0, 0]
    drawn: List[Markup] = []
    for each in arrows:
        ends = (each.source, each.target)
        distance = columns[each.target] - columns[each.source]
        if abs(distance) == 1:
            drawn.append(_straight(each, places, (ends[1], ends[0]) in pairs, distance))
        else:
            side = 0 if distance > 0 else 1
            bends[side] += 1
            drawn.append(_bent(each, places, bends[side] * BEND * (-1 if side == 0 else 1)))
    lowest = max(y for _, y in places.values()) + BOX_HEIGHT
    above, below = (MARGIN + count * BEND * 0.75 + (20 if count else 0) for count in bends)
    width = max(x for x, _ in places.values()) + BOX_WIDTH + 2 * MARGIN
    height = lowest + above + below
    boxes = [_box(name, place) for name, place in places.items()]
    label = f"Clusters and flows: {', '.join(f'{each.source} to {each.target}' for each in arrows)}"
    view = f"{-MARGIN:.0f} {-above:.0f} {width:.0f} {height:.0f}"
    options = {"viewBox": view, "width": f"{width:.0f}", "height": f"{height:.0f}"}
    svg = tag("svg", _heads(), *drawn, *boxes, role="img", aria_label=label, cls="picture", **options)
    return tag("div", svg, cls="scroll")


def columns_of(flows: Sequence[Tuple[str, str]]) -> Dict[str, int]:
    """The column of each cluster, from 0. Of flows that close a circle the later ones lead back."""
    names = list(dict.fromkeys(name for flow in flows for name in flow))
    after: Dict[str, Set[str]] = {name: set() for name in names}
    for source, target in flows:
        if not _reaches(after, target, source):
            after[source].add(target)
    columns = dict.fromkeys(names, 0)
    for _ in names:
        for source in names:
            for target in after[source]:
                columns[target] = max(columns[target], columns[source] + 1)
    return columns


def _reaches(after: Dict[str, Set[str]], start: str, end: str) -> bool:
    waiting, seen = [start], set()
    while waiting:
        name = waiting.pop()
        if name == end:
            return True
        if name not in seen:
            seen.add(name)
            waiting += after[name]
    return False


def _places(columns: Dict[str, int]) -> Dict[str, Place]:
    """The upper left corner of each box. Columns are centred."""
    rows: Dict[int, List[str]] = {}
    for name, column in columns.items():
        rows.setdefault(column, []).append(name)
    tallest = max(map(len, rows.values()))
    return {
        name: (column * COLUMN, ((tallest - len(own)) / 2 + number) * ROW)
        for column, own in rows.items()
        for number, name in enumerate(own)
    }


def _straight(arrow: Arrow, places: Dict[str, Place], paired: bool, distance: int) -> Markup:
    """Between neighbouring columns. With a flow in the other direction the one that leads back is the lower one."""
    (x1, y1), (x2, y2) = places[arrow.source], places[arrow.target]
    shift = 0.0 if not paired else (-APART if distance > 0 else APART)
    start = (x1 + BOX_WIDTH if distance > 0 else x1, y1 + BOX_HEIGHT / 2 + shift)
    end = (x2 if distance > 0 else x2 + BOX_WIDTH, y2 + BOX_HEIGHT / 2 + shift)
    path = f"M{start[0]:.1f} {start[1]:.1f} L{end[0]:.1f} {end[1]:.1f}"
    if start[1] == end[1]:
        lower = paired and distance < 0
        return _arrow(arrow, path, (start[0] + (end[0] - start[0]) * 0.44, start[1] + (18.0 if lower else -8.0)))
    # Near the source, where several arrows into one cluster are still apart, and on the side that the line leaves.
    x, y = (first + (last - first) * 0.3 for first, last in zip(start, end))
    return _arrow(arrow, path, (x + 6, y + (-4.0 if (end[1] > start[1]) == (distance > 0) else 16.0)), "start")


def _bent(arrow: Arrow, places: Dict[str, Place], bend: float) -> Markup:
    """Over the boxes between (to the right), or under them (to the left)."""
    (x1, y1), (x2, y2) = places[arrow.source], places[arrow.target]
    edge = 0.0 if bend < 0 else BOX_HEIGHT
    start, end = (x1 + BOX_WIDTH / 2, y1 + edge), (x2 + BOX_WIDTH / 2, y2 + edge)
    outer = (min if bend < 0 else max)(y for _, y in places.values()) + edge + bend
    points = (*start, start[0], outer, end[0], outer, *end)
    path = "M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}".format(*points)
    middle = (start[1] + end[1] + 6 * outer) / 8
    return _arrow(arrow, path, ((start[0] + end[0]) / 2, middle + (18.0 if bend > 0 else -8.0)))


def _arrow(arrow: Arrow, path: str, at: Place, anchor: str = "middle") -> Markup:
    title = tag("title", f"{arrow.source}->{arrow.target}: {arrow.text}")
    line = tag("path", d=path, cls=f"flow {arrow.state}", marker_end=f"url(#head-{arrow.state})")
    text = tag("text", arrow.text, x=at[0], y=at[1], text_anchor=anchor, cls=f"label {arrow.state}")
    return tag("g", title, line, text)


def _heads() -> Markup:
    marks = [
        tag(
            "marker",
            tag("path", d="M0 0 L9 4.5 L0 9 z"),
            id=f"head-{state}",
            cls=f"head {state}",
            markerWidth=9,
            markerHeight=9,
            refX=9,
            refY=4.5,
            orient="auto",
            markerUnits="userSpaceOnUse",
        )
        for state in ("healthy", "degraded", "unknown")
    ]
    return tag("defs", *marks)


def _box(name: str, place: Place) -> Markup:
    text = shown(name)
    short = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    x, y = place
    return tag(
        "g",
        tag("title", name),
        tag("rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx=8, cls="cluster"),
        tag("text", short, x=x + BOX_WIDTH / 2, y=y + BOX_HEIGHT / 2 + 5, text_anchor="middle", cls="cluster-name"),
    )
