"""`python -m tools.docs.metrics` prints the table of metrics for docs/run/monitoring.md, made of
mirror_lib/exporter.py."""

from __future__ import annotations

from typing import List

from mirror_lib.exporter import METRICS


def table() -> str:
    """The table as Markdown, a row for each metric."""
    rows: List[str] = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.means} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(table(), end="")
