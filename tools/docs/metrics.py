"""`python -m tools.docs.metrics` prints the table of metrics for docs/run/monitoring.md, made of
mirror_lib/exporter.py."""

from __future__ import annotations

from typing import List

from mirror_lib.exporter import METRICS

OF_A_FLOW = ("flow", "source", "target")


def table() -> str:
    """The table as Markdown, a row for each metric. The page says once which labels every metric of a flow has."""
    rows: List[str] = ["|metric|meaning|", "|---|---|"]
    for each in METRICS:
        names = [each.name, *(label for label in each.labels if label not in OF_A_FLOW)]
        rows.append(f"|{', '.join(f'`{name}`' for name in names)}|{each.means}|")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(table(), end="")
