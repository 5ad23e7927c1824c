"""One pass over a flow's groups: a translation and what is due in, a report for the operator out."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Dict, List, Optional, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.groups.decisions import verdict_counts
from mirror_lib.groups.translator import FlowTranslation, Outcome
from mirror_lib.groups.verdicts import TranslationRules
from mirror_lib.text import counted, grouped


@dataclass(frozen=True)
class PassReport:
    """One pass: positions decided on, offsets committed and refused on the target, records told to MirrorMaker.

    `untold`: a sentence for each group that could not be looked at.
    """

    flow: str
    run_id: str
    positions: int
    committed: int
    refused: int
    checkpoints: int
    offset_syncs: int
    seconds: float
    verdicts: Dict[str, int] = field(default_factory=dict)
    untold: Tuple[str, ...] = ()


def one_pass(
    translation: FlowTranslation, flow: ReplicationFlow, *, commit: bool = True, checkpoints: bool = True
) -> PassReport:
    """Look, decide, move and tell, as far as the flow has these switched on and they are due."""
    began = time.monotonic()
    rules = TranslationRules(simple_groups=flow.groups_simple)
    found = translation.look()
    decisions = translation.decide(found, rules)
    outcomes: List[Outcome] = []
    if commit and flow.sync_group_offsets_interval is not None:
        outcomes = translation.execute(decisions)
    told = 0
    if checkpoints and flow.emit_checkpoints_interval is not None:
        told = translation.emit_checkpoints(decisions)
    syncs = translation.emit_offset_syncs() if flow.emit_offset_syncs else 0
    done = [outcome.done for outcome in outcomes]
    return PassReport(
        flow.name,
        translation.run_id,
        len(decisions),
        done.count("committed"),
        sum(word.startswith("refused") for word in done),
        told,
        syncs,
        time.monotonic() - began,
        verdict_counts(decisions),
        tuple(translation.untold(found)),
    )


def is_news(report: PassReport, told: Optional[PassReport]) -> bool:
    """Whether `report` says something that `told`, the last one shown, did not: a pass a second is not to be read."""
    written = report.committed + report.refused + report.checkpoints + report.offset_syncs
    return told is None or written > 0 or report.verdicts != told.verdicts


def remember(translation: FlowTranslation, flow: ReplicationFlow) -> None:
    """Only look: positions that are ahead of the mirror now can be translated when it has come that far."""
    translation.decide(translation.look(), TranslationRules(simple_groups=flow.groups_simple))


def pass_line(report: PassReport) -> str:
    """`A->B groups · 12 positions: 11 exact, 1 held · 3 committed · 4 checkpoints · 0.2 s`."""
    listed = ", ".join(f"{count} {word}" for word, count in sorted(report.verdicts.items()))
    parts = [f"{report.flow} groups", counted(report.positions, "position") + (f": {listed}" if listed else "")]
    done = ((report.committed, "committed"), (report.refused, "refused"), (len(report.untold), "not told"))
    told = ((report.checkpoints, "checkpoint"), (report.offset_syncs, "offset sync"))
    parts += [f"{grouped(count)} {word}" for count, word in done if count]
    parts += [counted(count, noun) for count, noun in told if count]
    return " · ".join([*parts, f"{report.seconds:.1f} s"])


def pass_json(report: PassReport) -> Dict[str, object]:
    """The report as a JSON document."""
    return {**asdict(report), "seconds": round(report.seconds, 3)}
