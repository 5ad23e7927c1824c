"""Reads mm2_tests.txt: which test answers which of MirrorMaker 2's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import List, Tuple

LIST = Path(__file__).with_suffix(".txt")
# NUMBER CLASS TEST TEST ...: what of it
_HEAD = re.compile(r"(?P<number>\d+) (?P<class>\w+) (?P<tests>[\w* ]+)(?:: (?P<part>.+))?")


@dataclass(frozen=True)
class Answer:
    """A behaviour that MirrorMaker's tests `tests` of the class `of` ask for, in `part` where they ask for several.

    `number` groups them as the page does. `ours` are `FILE::TEST` below tests/; `differs` is a phrase: what is not as
    there, or why there is no test. One of both is always given. The test `*` is all that a class inherits.
    """

    number: int
    of: str
    tests: Tuple[str, ...]
    part: str
    ours: Tuple[str, ...]
    differs: str


def answers() -> List[Answer]:
    """All rows, in their order. ValueError for a row that cannot be read."""
    text = LIST.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    starts = [number for number, line in enumerate(lines) if not line.startswith(" ")]
    return [_answer(lines[start:end]) for start, end in zip(starts, [*starts[1:], len(lines)])]


def _answer(lines: List[str]) -> Answer:
    head, below = _HEAD.fullmatch(lines[0]), [line.strip() for line in lines[1:]]
    if head is None or not below:
        raise ValueError(f"{LIST.name}: {lines[0]}")
    ours = tuple(line for line in below if not line.startswith("! "))
    differs = "; ".join(line[2:] for line in below if line.startswith("! "))
    return Answer(int(head["number"]), head["class"], tuple(head["tests"].split()), head["part"] or "", ours, differs)
