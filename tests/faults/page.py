"""`python -m tests.faults.page [OUTCOMES.jsonl ...]`: makes `docs/project/guarantees.md` of the outcomes of `make
faults` and `make soak`.

`tests/faults/outcomes.jsonl` has the last outcome of each case and engine; the ones of the named files replace them
there.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from tests.bench.results import this_machine
from tests.faults.cases import CASES, Case
from tests.faults.engines import Mirror, MirrorMaker2, MirrorMaker2ExactlyOnce
from tests.faults.scene import WHOLE_SECONDS
from tests.lab.checkout import ROOT

Found = Mapping[Tuple[str, str], Mapping[str, Any]]

KEPT = ROOT / "tests" / "faults" / "outcomes.jsonl"
PAGE = ROOT / "docs" / "project" / "guarantees.md"
SOAK = "soak"

ENGINES = (Mirror.name, MirrorMaker2.name, MirrorMaker2ExactlyOnce.name)
WRONG = ("lost", "unseen", "doubled", "reordered", "foreign", "changed")

HEAD = """\
# Guarantees

What is promised, and what was found when it was tried. Each line of the tables is a case of `make faults`: a real
replicator between two clusters of three brokers, {rate} records a second written all the while, and faults that fall
while records flow. A case whose fault fell before the first record fails.

```
make faults                                       # this mirror
make faults ENGINES="mirror mm2 mm2-exactly-once" # and MirrorMaker 2, where it can meet the fault
make faults CASES="zombie lines-cut" SEED=7       # some cases, with the seed that a failure printed
make soak HOURS=1                                 # random faults in turn, one replicator all the while
python -m tests.faults.page .cache/faults/outcomes.jsonl
```

## What is promised

- **Each record once**, in the order of its source partition, with its key, value, headers and timestamp, whatever dies,
  freezes, or is cut off: for readers of the target at `read_uncommitted` too, since the copy takes no transactions that
  a reader would have to wait for.
- **No group is led past a record that it has not read.** A translated offset may lie too early, never too late.
- What cannot be kept is said: exit code 3, and an entry in the table `incidents` with topic, partition and offsets
  ([start-and-stop.md](../run/start-and-stop.md)).

Not promised: that all records of one source transaction become visible at once; that a record has the same offset on
both sides (the table `offset_syncs` has the exact map); that records which the source acknowledged and then lost are
known to it; that a copy resumes whose source deletes records (DeleteRecords) within seconds after they were copied,
before the ledger has them, if it is killed at that moment: those partitions are refused; that a run continues after an
InitProducerId request of its own reached the broker seconds after the run had given it up. The broker raises the
epoch, and the run takes that for another driver: it ends with exit code 3. Nothing is lost or doubled, and the next
start resumes. `requests-late` meets it in some runs.

## How a case is judged

A checker that shares no code with the product reads both sides. Every record names itself in its value. In Jepsen's
words: **lost**, a later record of its partition was copied and it was not; **unseen**, nothing after it was copied by
the end either; **doubled**; **reordered**; **foreign**, not committed on the source; **changed**. Records that the
source held once and has lost are not counted: a copy that still has them is exact here. Two readers judge, at
`read_committed` and at `read_uncommitted`; where they agree, one figure stands for both. A group's figure is the number
of records that it would have missed by moving to the target at the worst moment. The seconds in each cell: from the end
of the last fault until a reader has everything that was acknowledged by then. A replicator that was up to date when it
was killed has copied that before it starts again, so this is not the time that a start takes.

MirrorMaker 2 is Kafka's dedicated mode at its defaults, with three replicas and `read_committed`. Its exactly-once
column adds `exactly.once.source.support` and `dedicated.mode.enable.internal.rest`. Without the latter, processes of
one configuration cannot pass tasks to one another.

Outcomes of {days}. Other tests ran on the machine at the same time, so the seconds are upper bounds.
"""


PLANTED = """\
Each row is planted by a test (`make test TESTS=tests/integration/test_verify.py`): a copy of ten records with one
defect, or with what an exact copy may have as well."""


def page(found: Found, machine: Mapping[str, str]) -> str:
    """The whole page."""
    from tests.faults.load import PER_SECOND

    days = sorted({outcome["day"] for outcome in found.values()})
    lines = [HEAD.format(rate=PER_SECOND, days=" to ".join(dict.fromkeys((days[0], days[-1]))))]
    beside = [each for each in CASES.values() if each.mm2 and (each.name, Mirror.name) in found]
    alone = [each for each in CASES.values() if not each.mm2 and (each.name, Mirror.name) in found]
    lines += ["## Compared with MirrorMaker 2", ""]
    lines += table(("fault", "this mirror", "MirrorMaker 2", "MirrorMaker 2, exactly-once"), beside, ENGINES, found)
    lines += ["", "## Faults that this mirror alone can meet", ""]
    lines += table(("fault", "this mirror"), alone, ENGINES[:1], found)
    missing = [each.title for each in CASES.values() if (each.name, Mirror.name) not in found]
    if missing:
        lines += ["", "Cases that `make faults` has and that have no result here yet:", ""]
        lines += [f"- {title}" for title in missing]
    lines += soaked(found.get((SOAK, Mirror.name)))
    lines += ["", "## What `mirror verify` finds", "", PLANTED, ""]
    lines += verdicts()
    lines += ["", "## The machine", "", *(f"- {name}: {value}" for name, value in machine.items()), ""]
    return "\n".join(lines)


def soaked(outcome: Optional[Mapping[str, Any]]) -> List[str]:
    """What `make soak` found; nothing where it did not run."""
    if outcome is None:
        return []
    faults = Counter(strike["what"] for strike in outcome["strikes"])
    committed, uncommitted = wrong_of(outcome["committed"]), wrong_of(outcome["uncommitted"])
    both = f"{committed} for both readers" if committed == uncommitted else f"{committed}, {uncommitted}"
    return [
        "",
        "## Faults at random for an hour",
        "",
        f"`make soak SEED={outcome['seed']}`, {outcome['day']}: {outcome['seconds'] / 60:.0f} minutes, "
        f"{outcome['committed']['records']:,} records, {sum(faults.values())} faults, {outcome['starts']} starts: "
        f"**{both}**.",
        "",
        "| fault | times |",
        "| --- | --- |",
        *(f"| {what} | {count} |" for what, count in sorted(faults.items(), key=lambda each: (-each[1], each[0]))),
    ]


def verdicts() -> List[str]:
    """A row for each defect that `tests/integration/test_verify.py` plants."""
    from tests.integration.test_verify import CASES as PLANTED_CASES

    rows = ["| planted in the copy | verdict |", "| --- | --- |"]
    for name, planted in PLANTED_CASES.items():
        found = f"differs: {planted.expected[0]}" if planted.expected is not None else "equal"
        rows.append(f"| {name.replace('-', ' ')} | {found} |")
    return rows


def table(head: Sequence[str], cases: Sequence[Case], engines: Sequence[str], found: Found) -> List[str]:
    """Rows in the order of the cases."""
    rows = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    for each in cases:
        cells = [cell(found.get((each.name, engine))) for engine in engines]
        rows.append(f"| {each.title} | {' | '.join(cells)} |")
    return rows


def cell(outcome: Any) -> str:
    """What one replicator did under one fault."""
    if outcome is None:
        return ""
    if "error" in outcome:
        return "copies nothing more" if outcome["error"].startswith("no records reach") else "failed"
    if outcome["refusal"]:
        return str(outcome["refusal"])
    committed, uncommitted = (wrong_of(outcome[each]) for each in ("committed", "uncommitted"))
    found = [committed] if committed == uncommitted else [f"{committed}; at `read_uncommitted` {uncommitted}"]
    if outcome["passed_unread"] is not None:
        found.append(f"group: {outcome['passed_unread'] or 'none'} missed")
    if outcome.get("fenced_itself"):
        found.append(f"ended {outcome['fenced_itself']} times with exit code 3, resumed by the next start")
    seconds = outcome["whole_seconds"]
    found.append(f"not whole after {WHOLE_SECONDS / 60:.0f} min" if seconds is None else f"{seconds:.0f} s")
    return " · ".join(found)


def wrong_of(verdict: Mapping[str, int]) -> str:
    """In words, worst first."""
    return ", ".join(f"{verdict[name]} {name}" for name in WRONG if verdict[name]) or "exact"


def loaded(files: Sequence[Path]) -> Found:
    """The last outcome of each case and engine in these files."""
    found: Dict[Tuple[str, str], Mapping[str, Any]] = {}
    for file in files:
        for line in file.read_text().splitlines():
            outcome = json.loads(line)
            found[outcome["case"], outcome["engine"]] = outcome
    return found


def write(files: Sequence[Path]) -> None:
    """Keep what is new in these files, and make the page of all."""
    found = loaded([KEPT, *files])
    KEPT.write_text("".join(json.dumps(found[each], sort_keys=True) + "\n" for each in sorted(found)))
    PAGE.write_text(page(found, this_machine()))


if __name__ == "__main__":
    write([Path(each) for each in sys.argv[1:]])
