"""The rows of the compatibility matrix."""

from __future__ import annotations

import os
from typing import List, NamedTuple, Tuple

from tests.lab.checkout import LabError

Side = Tuple[str, int]
"""A release, and in how many brokers."""


class Row(NamedTuple):
    """A source and a target."""

    source: Side
    target: Side

    def __str__(self) -> str:
        return f"{self.source[0]}->{self.target[0]}"


def _row(source: str, target: str, source_brokers: int = 1, target_brokers: int = 1) -> Row:
    return Row((source, source_brokers), (target, target_brokers))


# Each release is a source once and a target once. Three brokers mean replication factor 3 and min ISR 2.
ROWS = (
    _row("2.4.1", "3.2.0"),
    _row("2.8.2", "3.6.2"),
    _row("3.2.0", "2.4.1"),
    _row("3.6.2", "4.3.1", target_brokers=3),
    _row("3.9.1", "2.8.2", source_brokers=3, target_brokers=3),
    _row("4.0.0", "3.9.1"),
    _row("4.3.1", "4.0.0"),
)
QUICK = "2.8.2->3.6.2"
# The file of HDInsight's document, in test_hdinsight.py.
HDINSIGHT = "hdinsight"


def is_asked_for(name: str) -> bool:
    """Whether COMPAT_ROWS names this, or all."""
    asked = [each.strip() for each in os.environ.get("COMPAT_ROWS", "").split(",")]
    return name in asked or "all" in asked


def chosen_rows() -> List[Row]:
    """What COMPAT_ROWS names (`all`, or `2.4.1->3.2.0,4.3.1->4.0.0`), else the quick row. Raises `LabError`."""
    asked = os.environ.get("COMPAT_ROWS", QUICK)
    by_name = {str(row): row for row in ROWS}
    names = list(by_name) if asked == "all" else [name.strip() for name in asked.split(",")]
    names = [name for name in names if name != HDINSIGHT]
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise LabError(f"COMPAT_ROWS names {unknown[0]}, which is no row: take some of {', '.join(by_name)}, or all")
    return [by_name[name] for name in names]
