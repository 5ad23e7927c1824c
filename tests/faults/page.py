"""`python -m tests.faults.page [OUTCOMES.jsonl ...]`: writes the outcomes of `make faults` and `make soak` into
`docs/project/guarantees.md`.

`tests/faults/outcomes.jsonl` has the last outcome of each case and engine; the ones of the named files replace them
there.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from textwrap import fill
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from mirror_lib.text import counted, grouped
from tests.faults.cases import CASES, SOAK
from tests.faults.engines import Mirror, MirrorMaker2, MirrorMaker2ExactlyOnce
from tests.faults.scene import Case
from tests.lab.checkout import ROOT

Found = Mapping[Tuple[str, str], Mapping[str, Any]]

KEPT = ROOT / "tests" / "faults" / "outcomes.jsonl"
PAGE = ROOT / "docs" / "project" / "guarantees.md"
WIDTH = 120

ENGINES = (Mirror.name, MirrorMaker2.name, MirrorMaker2ExactlyOnce.name)
WRONG = ("lost", "unseen", "doubled", "reordered", "foreign", "changed")

# The results begin here; what stands before is written by hand, but for the days of the outcomes.
RESULTS = "## Compared with MirrorMaker 2"

# One of the brokers of a cluster, in the name of a fault.
BROKER = re.compile(r"\b(source|target)-\d(, the controller)?")


def page(text: str, found: Found) -> str:
    days = sorted({outcome["day"] for outcome in found.values()})
    first_and_last = " to ".join(dict.fromkeys((days[0], days[-1])))
    head = text[: text.index(RESULTS)]
    lines = [re.sub(r"(?<=\nOutcomes of )\d[^,]*", first_and_last, head) + RESULTS, ""]
    beside = [each for each in CASES.values() if each.mm2 and (each.name, Mirror.name) in found]
    alone = [each for each in CASES.values() if not each.mm2 and (each.name, Mirror.name) in found]
    lines += table(("fault", "this mirror", "MirrorMaker 2", "exactly-once"), beside, ENGINES, found)
    lines += ["", "## Faults of this mirror alone", ""]
    lines += table(("fault", "this mirror"), alone, ENGINES[:1], found)
    lines += soaked(found[SOAK.name, Mirror.name])
    return "\n".join([*lines, ""])


def soaked(outcome: Mapping[str, Any]) -> List[str]:
    faults = Counter(BROKER.sub(r"a \1 broker", strike["what"]) for strike in outcome["strikes"])
    committed, uncommitted = wrong_of(outcome["committed"]), wrong_of(outcome["uncommitted"])
    both = f"{committed} for both readers" if committed == uncommitted else f"{committed}, {uncommitted}"
    return [
        "",
        "## Random faults for an hour",
        "",
        fill(
            f"`make soak SEED={outcome['seed']}`, {outcome['day']}: {outcome['seconds'] / 60:.0f} minutes, "
            f"{outcome['committed']['records']:,} records, {sum(faults.values())} faults of {len(faults)} kinds, "
            f"{outcome['starts']} starts: **{both}**.",
            WIDTH,
        ),
    ]


def table(head: Sequence[str], cases: Sequence[Case], engines: Sequence[str], found: Found) -> List[str]:
    """Rows in the order of the cases, then in one sentence the cases that every engine copied exactly, with seconds."""
    rows: List[str] = []
    exact: List[str] = []
    for each in cases:
        cells = [cell(found.get((each.name, engine))) for engine in engines]
        if all(re.fullmatch(r"exact \(\d+\)", cell) for cell in cells):
            exact.append(f"{each.title} ({', '.join(cell[len('exact (') : -1] for cell in cells)})")
        else:
            rows.append(f"|{each.title}|{'|'.join(cells)}|")
    if rows:
        rows = [f"|{'|'.join(head)}|", f"|{'|'.join('---' for _ in head)}|", *rows, ""]
    return [*rows, fill(f"Exact by each, with seconds: {'; '.join(exact)}.", WIDTH)]


def cell(outcome: Any) -> str:
    if outcome is None:
        return ""
    if "error" in outcome:
        return "copies nothing more" if outcome["error"].startswith("no records reach") else "failed"
    if outcome["refusal"]:
        return str(outcome["refusal"])
    committed, uncommitted = (wrong_of(outcome[each]) for each in ("committed", "uncommitted"))
    found = [committed] if committed == uncommitted else [f"{committed} / {uncommitted}"]
    if outcome["passed_unread"] is not None:
        found.append(f"{outcome['passed_unread'] or 'none'} missed")
    if outcome.get("fenced_itself"):
        found.append(counted(outcome["fenced_itself"], "refusal"))
    seconds = outcome["whole_seconds"]
    return ", ".join([*found, "incomplete"]) if seconds is None else f"{', '.join(found)} ({seconds:.0f})"


def wrong_of(verdict: Mapping[str, int]) -> str:
    """In words, worst first."""
    return " and ".join(f"{grouped(verdict[name])} {name}" for name in WRONG if verdict[name]) or "exact"


def write(files: Sequence[Path]) -> None:
    """Keep what is new in these files, and make the page of all."""
    found: Dict[Tuple[str, str], Mapping[str, Any]] = {}
    for file in [KEPT, *files]:
        for line in file.read_text().splitlines():
            outcome = json.loads(line)
            found[outcome["case"], outcome["engine"]] = outcome
    KEPT.write_text("".join(json.dumps(found[each], sort_keys=True) + "\n" for each in sorted(found)))
    PAGE.write_text(page(PAGE.read_text(), found))


if __name__ == "__main__":
    write([Path(each) for each in sys.argv[1:]])
