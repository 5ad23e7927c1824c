"""Draws README's table of records a second: `python -m tools.docs.throughput > docs/pictures/throughput.svg`."""

from __future__ import annotations

import re
from html import escape
from typing import List, Tuple

from tests.lab.checkout import ROOT

INK, BLUE, PALE, GREEN, RED = "#1f2937", "#2563eb", "#9ca3af", "#15803d", "#b91c1c"
LEFT, LONGEST, ROW = 206, 300, 52


def label(x: float, y: float, text: str, colour: str = INK, size: int = 12, style: str = "") -> str:
    return f"<text x='{x:g}' y='{y:g}' font-size='{size}' fill='{colour}' {style}>{escape(text)}</text>"


def bar(y: float, width: float, height: int, colour: str, left: float = LEFT) -> str:
    return f"<rect x='{left:g}' y='{y:g}' width='{width:g}' height='{height}' fill='{colour}'/>"


def readme_rows() -> List[Tuple[str, int, int, str]]:
    """README's table: case, this mirror, MirrorMaker 2 tuned, ratio."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]{5,}) \| ([\d,]{5,}) \| ([\d.]+) \|", text.replace("… ", ""), re.MULTILINE)
    return [
        (re.split(r", steady| \(", name)[0].strip(), int(ours.replace(",", "")), int(theirs.replace(",", "")), ratio)
        for name, ours, theirs, ratio in rows
    ]


def throughput() -> str:
    """Each pair of bars is on the scale of its greater one."""
    rows, bold = readme_rows(), "font-weight='bold'"
    parts = [label(16, 26, "Records per second, each pair on its own scale", size=14, style=bold)]
    for place, (name, ours, theirs, ratio) in enumerate(rows):
        y = 46 + place * ROW
        parts.append(label(LEFT - 10, y + 24, name, size=13, style="text-anchor='end'"))
        for row, (value, colour) in enumerate(((ours, BLUE), (theirs, PALE))):
            width = LONGEST * value / max(ours, theirs)
            parts.append(bar(y + row * 19, width, 16, colour))
            parts.append(label(LEFT + width + 8, y + 13 + row * 19, f"{value:,}"))
        colour = GREEN if float(ratio) >= 1 else RED
        parts.append(label(624, y + 24, f"{ratio} x", colour, 13, f"text-anchor='end' {bold}"))
    bottom = 46 + len(rows) * ROW + 8
    for left, colour, engine in ((LEFT, BLUE, "this mirror"), (LEFT + 110, PALE, "MirrorMaker 2, tuned")):
        parts += [bar(bottom, 14, 12, colour, left), label(left + 20, bottom + 11, engine)]
    size = f"viewBox='0 0 640 {bottom + 28}' width='640' height='{bottom + 28}' role='img'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} font-family='Helvetica, Arial, sans-serif'>"
    title = "<title>Throughput of this mirror and of MirrorMaker 2</title>"
    return "\n".join([head, title, "<rect width='640' height='100%' fill='white'/>", *parts, "</svg>"])


if __name__ == "__main__":
    print(throughput())
