"""What an explanation is made of, and how it is shown: steps in, lines or a JSON document out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from mirror_lib.columns import aligned
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.topics.filters import first_match

ALWAYS = "always"
DEFAULT = "default"


@dataclass(frozen=True)
class Step:
    """One rule and what it says. `place` is `file:line` of its key, DEFAULT, or ALWAYS for a rule without a key.

    `tried` are the patterns that were held against the name, in order; only the last of them can match, and does where
    `matched`. `stops` is the reason that it gives where it decides against; no rule is asked after that.
    """

    rule: str
    place: str
    says: str
    tried: Tuple[str, ...] = ()
    matched: bool = False
    stops: Optional[str] = None


@dataclass(frozen=True)
class Explanation:
    """Why `subject`, a topic or a group of the flow, is taken or not. `verdict` is a phrase; `steps` are in order."""

    flow: str
    subject: str
    name: str
    exists: Optional[bool]
    taken: bool
    verdict: str
    steps: Tuple[Step, ...]

    @property
    def decided_by(self) -> Optional[Step]:
        """The step that decided against; `None` where nothing did."""
        return next((step for step in self.steps if step.stops is not None), None)


def place_of(flow: ReplicationFlow, key: str) -> str:
    """`file:line` of the setting, or DEFAULT where the file does not have it."""
    return flow.places.get(key, DEFAULT)


def pattern_step(flow: ReplicationFlow, key: str, patterns: Sequence[str], name: str) -> Step:
    """The patterns of `key` held against `name` up to the first that matches; decides nothing yet."""
    matching = first_match(patterns, name)
    if matching is None:
        says = "no pattern matches" if patterns else "the list is empty"
        return Step(key, place_of(flow, key), says, tuple(patterns))
    tried = tuple(patterns[: list(patterns).index(matching) + 1])
    return Step(key, place_of(flow, key), f"`{matching}` matches", tried, matched=True)


def explanation_lines(found: Explanation) -> List[str]:
    """The rules in order as an aligned table, the patterns that were tried below theirs; the verdict last."""
    rows: List[Tuple[str, str, str]] = [("RULE", "SAYS", "WHERE")]
    for step in found.steps:
        rows.append((step.rule, step.says, step.place))
        for number, pattern in enumerate(step.tried, start=1):
            matches = step.matched and number == len(step.tried)
            rows.append(("", f"  {'matches' if matches else 'no     '}  `{pattern}`", ""))
    decided_by = found.decided_by
    by = "" if decided_by is None or decided_by.place == ALWAYS else f" ({decided_by.rule}, {decided_by.place})"
    head = f"{found.flow}, {found.subject} {found.name}"
    return [head, *("  " + line for line in aligned(rows)), f"verdict: {found.verdict}{by}"]


def explanation_json(found: Explanation) -> Dict[str, object]:
    """The same for programs. `exists` is `null` where its cluster was not reached."""
    decided_by = found.decided_by
    return {
        "flow": found.flow,
        found.subject: found.name,
        "exists": found.exists,
        "taken": found.taken,
        "verdict": found.verdict,
        "decided_by": decided_by and decided_by.rule,
        "place": decided_by and decided_by.place,
        "steps": [_step(each) for each in found.steps],
    }


def _step(step: Step) -> Dict[str, object]:
    last = len(step.tried)
    return {
        "rule": step.rule,
        "place": step.place,
        "says": step.says,
        "tried": [
            {"pattern": pattern, "matches": step.matched and number == last}
            for number, pattern in enumerate(step.tried, start=1)
        ],
        "stops": step.stops is not None,
    }
