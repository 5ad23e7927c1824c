"""`python -m tools.docs.metrics` prints the table of metrics for docs/run/monitoring.md, made of
mirror_lib/exporter.py."""

from __future__ import annotations

from typing import List, Sequence

from mirror_lib.exporter import METRICS

OF_A_FLOW = ("flow", "source", "target")


def table() -> str:
    """The table as Markdown, a row for each metric."""
    rows: List[str] = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    rows += [f"| `{each.name}` | {each.kind} | {_labels(each.labels)} | {each.means} |" for each in METRICS]
    return "\n".join(rows) + "\n"


def _labels(labels: Sequence[str]) -> str:
    """The page says once which labels every metric of a flow has."""
    of_a_flow = tuple(labels[:3]) == OF_A_FLOW
    rest = [f"`{label}`" for label in labels[3 if of_a_flow else 0 :]]
    return ", ".join([*(["of a flow"] if of_a_flow else []), *rest]) or "none"


if __name__ == "__main__":
    print(table(), end="")
