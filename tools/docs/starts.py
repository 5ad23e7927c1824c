"""Writes docs/project/starts.md from the rules of the copy: `python -m tools.docs.starts > docs/project/starts.md`."""

from __future__ import annotations

from typing import Sequence

from mirror_lib.replication.start_rules import RULES, Action, Rule

_HEAD = """\
# Where a copy starts

At its start a run decides for each partition where the copy resumes. The first row that fits decides; an empty cell
fits everything. A comparison reads both logs record by record. If they differ, the partition stops with the row's code.

- **Ledger:** the rows of the partition. They are *of a deleted remote topic* if the remote topic has another id now.
- **Remote log:** *empty* never held a record, *expired* has lost its first records, or all. A remote topic that several
  flows share counts as empty for a flow without rows.
- **Re-created topics** have other topic ids. Brokers have ids from Kafka 2.8 on. Where one is missing, the run compares
  the last recorded record on both logs, if both have it. If they differ, the topic was re-created.
- **Start:** `start.position`, else `consumer.auto.offset.reset`. The offset metadata of `commit.source.group` counts as
  a row of the ledger.

`mirror plan` ends with 3 where these rules stop a partition, but compares no records.

<!-- Written by `python -m tools.docs.starts` from mirror_lib/replication/start_rules.py, which the copy follows. -->
"""
_COLUMNS = (
    ("rows", "Ledger"),
    ("remote", "Remote log"),
    ("source", "Source log"),
    ("begins", "Start"),
    ("writer", "Other tool"),
)


def page() -> str:
    """The page as Markdown."""
    titles = [title for _, title in _COLUMNS]
    lines = [_row([*titles, "The run", "Reason"]), _row(["---"] * (len(titles) + 2)), *map(_rule, RULES)]
    return "\n".join([_HEAD, *lines, ""])


def _rule(rule: Rule) -> str:
    given = [", ".join(str(value.value) for value in rule.when.get(name, ())) for name, _ in _COLUMNS]
    does = rule.action.value
    if rule.code:
        link = f"[{rule.code}](../fix/codes.md#{rule.code.lower()})"
        does += f" with {link}" if rule.action is Action.STOP else f"; else {link}"
    return _row([*given, does, rule.why])


def _row(cells: Sequence[str]) -> str:
    return f"|{'|'.join(cells)}|"


if __name__ == "__main__":
    print(page(), end="")
