"""Draws the pictures of the pages that are no diagrams of boxes: `python -m tools.docs.pictures` writes docs/pictures.

A test holds the files and what this draws together.
"""

from __future__ import annotations

import re
from html import escape
from typing import Dict, List, Sequence, Tuple

from tests.lab.checkout import ROOT

FOLDER = ROOT / "docs" / "pictures"
FONT = "font-family='Helvetica, Arial, sans-serif'"
INK, GREY, BLUE, GREEN, RED, PALE = "#1f2937", "#6b7280", "#2563eb", "#15803d", "#b91c1c", "#eef2f7"
CELL = 46


def label(
    x: float, y: float, text: str, size: int = 13, colour: str = INK, anchor: str = "start", bold: bool = False
) -> str:
    """A line of text; `x` and `y` are its start on the base line, or what `anchor` says."""
    style = f"font-size='{size}' fill='{colour}' text-anchor='{anchor}'" + (" font-weight='bold'" if bold else "")
    return f"<text x='{x:g}' y='{y:g}' {style}>{escape(text)}</text>"


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str = GREY, dashed: bool = False) -> str:
    """A rectangle by its upper left corner."""
    dash = " stroke-dasharray='4 3'" if dashed else ""
    return f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' fill='{fill}' stroke='{stroke}'{dash}/>"


def _arrow(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    ends = f"x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}'"
    return f"<line {ends} stroke='{colour}' stroke-width='2' marker-end='url(#{colour[1:]})'/>"


def svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """The whole picture, with a white ground and heads for arrows."""
    heads = "".join(
        f"<marker id='{colour[1:]}' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' markerHeight='7'"
        f" orient='auto'><path d='M0,0 L10,5 L0,10 z' fill='{colour}'/></marker>"
        for colour in (BLUE, GREEN, RED, GREY)
    )
    size = f"viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
    frame = f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' {FONT}>"
    ground = f"<rect width='{width}' height='{height}' fill='white'/>"
    return "\n".join([frame, f"<title>{escape(title)}</title><defs>{heads}</defs>{ground}", *parts, "</svg>", ""])


def _log(x: float, y: float, cells: Sequence[Tuple[str, str]]) -> List[str]:
    """A log as a row of cells with their offsets below: a record's name, or a marker without one."""
    parts = []
    for offset, (name, fill) in enumerate(cells):
        left = x + offset * CELL
        parts.append(box(left, y, CELL, 34, fill, dashed=not name))
        parts.append(label(left + CELL / 2, y + 22, name, 13, INK, "middle"))
        parts.append(label(left + CELL / 2, y + 50, str(offset), 11, GREY, "middle"))
    return parts


def offset_translation() -> str:
    """A group's offset on both sides of a partition whose logs have different gaps."""
    left, top, bottom = 170, 60, 190
    source = [("r0", PALE), ("r1", PALE), ("r2", PALE), ("", "white"), ("r4", PALE), ("r5", PALE), ("r6", PALE)]
    target = [("", "white"), ("r0", PALE), ("r1", PALE), ("r2", PALE), ("", "white"), ("", "white"), ("r4", PALE)]
    target += [("r5", PALE), ("r6", PALE)]
    at, to = left + 5 * CELL, left + 7 * CELL
    return svg(
        640,
        300,
        "The committed offset 5 of a group on the source is offset 7 on the target: both are before record r5",
        [
            label(16, top + 22, "orders-0 on A", bold=True),
            *_log(left, top, source),
            label(16, bottom + 22, "A.orders-0 on B", bold=True),
            *_log(left, bottom, target),
            _arrow(at, 22, at, top - 3, BLUE),
            label(at - 8, 34, "group billing: committed offset 5, next record r5", 13, BLUE, "end"),
            _arrow(at, top + 56, to, bottom - 3, BLUE),
            label(to + 8, bottom - 12, "offset 7, next record r5", 13, BLUE),
            label(16, 264, "Dashed: offsets without a record. On A the marker of a producer's transaction,", 12, GREY),
            label(16, 282, "on B the markers of the mirror's fences.", 12, GREY),
        ],
    )


def takeover() -> str:
    """The columns of `mirror takeover` on a remote log."""
    left, top = 20, 70
    kept, later, twice = "#dbeafe", "#dcfce7", "#fee2e2"
    names = [(f"r{n}", kept) for n in range(5)]
    names += [("r5", later), ("r6", later), ("r5", twice), ("r6", twice), ("r7", later)]

    def span(first: int, end: int, colour: str, text: str, y: float) -> List[str]:
        a, b = left + first * CELL, left + end * CELL
        line = f"<line x1='{a:g}' y1='{y:g}' x2='{b:g}' y2='{y:g}' stroke='{colour}' stroke-width='3'/>"
        return [line, label((a + b) / 2, y - 7, text, 12, colour, "middle")]

    end = left + len(names) * CELL
    return svg(
        640,
        220,
        "A remote log that MirrorMaker left, with the columns KEPT, UNCOMMITTED, DOUBLED and RESUMES AT",
        [
            label(left, 24, "east.orders-0, as MirrorMaker left it", bold=True),
            *span(0, 5, BLUE, "KEPT: 5, its stored position", 60),
            *span(5, 7, GREEN, "", 60),
            *span(7, 9, RED, "DOUBLED: 2", 60),
            *span(9, 10, GREEN, "", 60),
            *_log(left, top, names),
            label(left, 146, "UNCOMMITTED: 3, the records r5, r6 and r7 after the stored position", 12, GREEN),
            _arrow(end, 150, end, top + 38, GREY),
            label(left, 172, "RESUMES AT: source offset 8, at offset 10 of the remote topic", 12, INK),
            label(left, 194, "MirrorMaker was killed after r6, started again at its stored position,", 12, GREY),
            label(left, 210, "and copied r5 and r6 twice.", 12, GREY),
        ],
    )


def readme_rows() -> List[Tuple[str, int, int, str]]:
    """README's table of records a second: case, this mirror, MirrorMaker 2 tuned, ratio."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]{5,}) \| ([\d,]{5,}) \| ([\d.]+) \|", text, re.MULTILINE)
    return [(re.split(r", steady| \(", name)[0].strip("… "), number(a), number(b), ratio) for name, a, b, ratio in rows]


def number(text: str) -> int:
    """`4,764,000` as a number."""
    return int(text.replace(",", ""))


def throughput() -> str:
    """Bars of README's throughput table, each pair on the scale of its greater one."""
    parts = [label(16, 26, "Records per second, each pair on its own scale", 14, INK, bold=True)]
    rows = readme_rows()
    for place, (name, ours, theirs, ratio) in enumerate(rows):
        y = 46 + place * 52
        parts.append(label(196, y + 24, name, 13, INK, "end"))
        for row, (value, colour) in enumerate(((ours, BLUE), (theirs, "#9ca3af"))):
            width = 300 * value / max(ours, theirs)
            parts.append(box(206, y + row * 19, width, 16, colour, colour))
            parts.append(label(206 + width + 8, y + 13 + row * 19, f"{value:,}", 12, INK))
        parts.append(label(624, y + 24, f"{ratio} x", 13, GREEN if float(ratio) >= 1 else RED, "end", bold=True))
    bottom = 46 + len(rows) * 52 + 8
    legend = [box(206, bottom, 14, 12, BLUE, BLUE), label(226, bottom + 11, "this mirror", 12)]
    legend += [box(316, bottom, 14, 12, "#9ca3af", "#9ca3af"), label(336, bottom + 11, "MirrorMaker 2, tuned", 12)]
    return svg(640, bottom + 28, "Throughput of this mirror and of MirrorMaker 2", [*parts, *legend])


# The width of a character of 12 px: the browser stretches each line to so many of them, whatever font it has.
CHARACTER, LINE = 7.2, 18
# Outputs as the commands print them.
PLAN = """\
primary->backup: what a run would change
copying: 4 tasks · cycles of 10 s · at most 50.0 MB/s · exactly-once, read_committed
topics: 1 to create, 1 to grow, 195 copied as is, 1 cannot be copied, 106 skipped
     TOPIC     REMOTE TOPIC      PARTITIONS  HOW
  +  orders    primary.orders    4           create, replication.factor 1, cleanup.policy=compact
  ~  payments  primary.payments  1 -> 2      grow
     BLOCKED  WHY
  !  bills    collides with existing topic primary_bills: Kafka treats . and _ alike in metric names
     SKIPPED  WHY                           WHICH
         104  no include pattern matches    a, b, c, d, e and 99 more
           2  excluded by `.*\\.replica`     audit.replica, orders.replica
configs: 1 to change in 1 of 196 remote topics, 3 different and kept (--all says why)
     REMOTE TOPIC      CONFIG        FROM       TO        WHY
  ~  primary.payments  retention.ms  604800000  86400000  set on the source topic
acls: none: primary has no authorizer
groups: 12 to translate, 1 skipped
     app, billing, g0, g1, g2 and 7 more
     SKIPPED  WHY                                            WHICH
           1  no committed offset on a topic that is copied  report
internal topics: 1 to create
     WHAT        TOPIC       WHERE      HOW
  +  heartbeats  heartbeats  on backup  written for primary->backup
primary->backup: a run would create 1 topic, grow 1 topic, change 1 config, \
create 1 internal topic; it copies 197 topics; 1 topic cannot be copied"""
RUN = """\
FLOW                   RECORDS/S   BYTES/S   LAG RECORDS    LAG TIME         ETA
primary->backup           20,088    5.1 MB     1,204,000       3.1 s        60 s
  ━━━━━━━━──────────────── 33 %  copying

TOPIC                                LAG RECORDS   WORST PARTITION       ITS LAG
orders                                   903,000                 3       301,000
payments.card                            301,000                 0       301,000"""
GROUPS = """\
GROUP    FROM            OFFSET  TO                      TO OFFSET  PRESENT  RE-READ  VERDICT               ACTION
billing  json.zstd-1       1000  primary.json.zstd-1          1001        -        0  exact                 committed
billing  transactions-0      50  primary.transactions-0         51       51        0  \
exact                 none: already there
billing  transactions-1    1020  primary.transactions-1        652      680       28  would move backwards  none"""


def screen(title: str, text: str, notes: Sequence[Tuple[str, str]]) -> str:
    """An output as a terminal. `notes`: a piece of a line, which gets a frame and a number, and its meaning, which is
    below."""
    rows = text.split("\n")
    width, height = round(CHARACTER * max(map(len, rows))) + 60, LINE * len(rows) + 28
    parts = [f"<rect width='{width}' height='{height}' fill='#111827'/>"]
    for number, row in enumerate(rows):
        style = "font-family='DejaVu Sans Mono, Menlo, Consolas, monospace' font-size='12' fill='#e5e7eb'"
        length = f"textLength='{CHARACTER * len(row):g}' lengthAdjust='spacingAndGlyphs' xml:space='preserve'"
        if row:
            parts.append(f"<text x='16' y='{26 + number * LINE}' {style} {length}>{escape(row)}</text>")
    for count, (piece, means) in enumerate(notes, start=1):
        at, row = next((number, row) for number, row in enumerate(rows) if piece in row)
        x, y = 16 + CHARACTER * row.index(piece), 13 + at * LINE
        parts.append(box(x - 2, y, CHARACTER * len(piece) + 4, LINE, "none", "#fbbf24"))
        parts += _badge(x - 8, y + LINE / 2, count)
        below = height + 24 + 22 * (count - 1)
        parts += [*_badge(24, below - 4, count), label(42, below, means, 13)]
    return svg(max(width, 640), height + 22 * len(notes) + 16, f"{title}, explained", parts)


def _badge(x: float, y: float, number: int) -> List[str]:
    circle = f"<circle cx='{x:g}' cy='{y:g}' r='5.5' fill='#fbbf24'/>"
    return [circle, label(x, y + 3.5, str(number), 9, INK, "middle", bold=True)]


def plan_screen() -> str:
    """What a run would change."""
    return screen(
        "primary->backup: what a run would change",
        PLAN,
        [
            ("copying: 4 tasks", "the flow's choices: tasks.max, batch.max.seconds, max.bytes.per.second, delivery"),
            ("+  orders", "+ is created, ~ is changed, - is deleted; what stays as it is, is counted"),
            ("!  bills", "! cannot be copied: the run copies the others, and ends with exit code 1"),
            ("excluded by `.*\\.replica`", "the rule that skips these topics; mirror plan --topic names its line"),
            ("604800000  86400000", "a config as it is on the remote topic, and as the source has it"),
            ("no committed offset", "why the run does not translate these groups"),
        ],
    )


def run_screen() -> str:
    """The live table of a run."""
    return screen(
        "FLOW                   RECORDS/S",
        RUN,
        [
            ("20,088", "records a second, an average of 30 s"),
            ("1,204,000", "source offsets that are not copied yet"),
            ("3.1 s", "age of the oldest last-copied record among the partitions with lag"),
            ("60 s", "when the backlog is copied, at the rate at which the lag falls"),
            ("33 %", "how much of the greatest lag since the flow was last caught up is copied"),
            ("3       301,000", "the partition with most of this topic's lag, and its lag"),
        ],
    )


def groups_screen() -> str:
    """Where each group would resume."""
    return screen(
        "GROUP    FROM",
        GROUPS,
        [
            ("json.zstd-1       1000", "the group's committed offset on the source"),
            ("primary.json.zstd-1          1001", "the offset on the target before the same next record"),
            ("51       51", "the group already has this offset on the target: nothing to commit"),
            ("28", "the group read 28 offsets further on the target"),
            ("would move backwards", "so the commit is left out; --allow-rewind makes it"),
        ],
    )


def pictures() -> Dict[str, str]:
    """Every picture by its file name."""
    return {
        "groups-plan.svg": groups_screen(),
        "plan.svg": plan_screen(),
        "run.svg": run_screen(),
        "offset-translation.svg": offset_translation(),
        "takeover.svg": takeover(),
        "throughput.svg": throughput(),
    }


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
