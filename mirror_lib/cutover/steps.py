"""The steps of a cut-over, what of an interrupted one still holds, and whether a source is silent. Pure."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.records import CutoverStep
from mirror_lib.text import counted, duration, grouped, some

OVER, BACK = CutoverStep.OVER, CutoverStep.BACK
STARTED, DONE, FAILED = "started", CutoverStep.DONE, CutoverStep.FAILED
SILENCE, COPY, VERIFY, GROUPS, CHECK = "silence", "copy", "verify", "groups", "check"
STEPS: Mapping[str, str] = {
    SILENCE: "wait until nothing is written to the source",
    COPY: "copy the rest",
    VERIFY: "verify the copy",
    GROUPS: "commit the groups' offsets on the target",
    CHECK: "check that the source stayed silent and all of it is copied",
}
STEPS_BACK: Mapping[str, str] = {
    CHECK: "check that the target holds no record that the source lacks",
    GROUPS: "commit the groups' offsets on the source",
}

Ends = Mapping[TopicPartition, int]


def to_resume(rows: Sequence[CutoverStep], direction: str) -> Tuple[str, Dict[str, str]]:
    """The id of the last cut-over in that direction, and the facts of its steps whose last row has the status DONE; a
    new id if that one is complete, or if the last row has the other direction: a way back belongs to the cut-over
    before it."""
    if rows and rows[-1].direction == direction:
        last = rows[-1].cutover_id
        state = {row.step: row for row in rows if row.cutover_id == last}
        done = {step: row.facts for step, row in state.items() if row.status == DONE}
        if CutoverStep.LAST[direction] not in done:
            return last, done
    return uuid.uuid4().hex, {}


def to_undo(rows: Sequence[CutoverStep]) -> List[CutoverStep]:
    """The rows that a way back undoes: of every cut-over since the last way back that came to its end."""
    found: List[CutoverStep] = []
    undone = False
    for row in rows:
        if row.direction == OVER:
            found, undone = [*([] if undone else found), row], False
        undone = undone or (row.direction, row.step, row.status) == (BACK, CutoverStep.LAST[BACK], DONE)
    return found


def to_go(done: Mapping[str, str], ends_now: Ends) -> List[str]:
    """The steps that are still to be made, in order, by the facts of the steps that are done. Where the source's logs
    have other ends than at the step `silence`, what was done after it does not count any more. The step `groups` never
    counts: a group may have read further since."""
    silent = done.get(SILENCE)
    holds = silent is not None and ends_of(silent) == dict(ends_now)
    return list(dropwhile(lambda step: holds and step in done and step != GROUPS, STEPS))


def ends_text(ends: Ends) -> str:
    return json.dumps([[topic, partition, end] for (topic, partition), end in sorted(ends.items())])


def ends_of(facts: str) -> Dict[TopicPartition, int]:
    return {(topic, partition): end for topic, partition, end in json.loads(facts)}


@dataclass(frozen=True)
class Quiet:
    """The state of the source's logs: their ends, the time since which they are unchanged (seconds of a clock), and the
    growth of each topic at the last check that found any."""

    ends: Ends
    since: float
    grew: Mapping[str, int]

    def seen(self, ends: Ends, now: float) -> Quiet:
        grew: Dict[str, int] = {}
        for place, end in ends.items():
            more = end - self.ends.get(place, 0)
            if more or place not in self.ends:
                grew[place[0]] = grew.get(place[0], 0) + more
        return Quiet(ends, now, grew) if grew or ends.keys() != self.ends.keys() else replace(self, ends=ends)

    def lasts(self, now: float) -> float:
        return now - self.since


def not_copied(ends: Ends, starts: Ends, positions: Ends) -> Dict[TopicPartition, int]:
    left = {place: end - max(positions.get(place, 0), starts.get(place, 0)) for place, end in ends.items()}
    return {place: count for place, count in left.items() if count > 0}


def budget_line(lag: int, rate: Optional[float], quiet: float, records: int) -> str:
    """How long producers and consumers will be down: silence, the rest of the copy, verification, groups."""
    if not rate:
        return f"time: {duration(quiet)} of silence, then the copy of {counted(lag, 'offset')} at an unknown rate"
    copy, verify = lag / rate, records / rate
    parts = [
        f"{duration(quiet)} of silence",
        f"{duration(copy)} to copy {counted(lag, 'offset')} at {grouped(round(rate))}/s",
        f"up to {duration(verify)} to verify {counted(records, 'record')}",
        "about 20 s for Spark and the groups",
    ]
    return f"time: about {duration(quiet + copy + verify + 20)}: {', '.join(parts)}"


def places_line(found: Mapping[TopicPartition, int]) -> str:
    """`orders-1 (120 offsets) and 3 more`."""
    return some([f"{topic}-{n} ({counted(count, 'offset')})" for (topic, n), count in sorted(found.items())], 1)


def writers_line(grew: Mapping[str, int], seconds: float) -> str:
    """`orders (1,200 records/s), audit (3 records/s)`: the busiest first."""
    ranked: List[Tuple[str, int]] = sorted(grew.items(), key=lambda each: (-each[1], each[0]))
    return some([f"{topic} ({grouped(max(1, round(count / seconds)))} records/s)" for topic, count in ranked], 5)
