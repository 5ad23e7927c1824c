"""Runs in, lines for a terminal out."""

from __future__ import annotations

from typing import List, Sequence

from mirror_lib.text import aligned, grouped, size
from tests.bench.cases import STEADY, WHOLE, Case
from tests.bench.figures import Spread, ratios, spread
from tests.bench.results import Results, Run

NAMES = {
    "mirror": "this mirror",
    "mm2": "MirrorMaker 2",
    "tuned": "MirrorMaker 2, tuned",
    "loop": "Java loop",
    "rows": "engine records",
}
HEAD = ("CASE", "ENGINE", "RECORDS/S", "MB/S", "CPU", "BROKERS", "MEMORY", "RATIO", "FIRST", "LAST", "LAST RATIO")
KEY = (
    "Medians of all rounds; RECORDS/S, MB/S, CPU and BROKERS in steady state, the last two in seconds per million.\n"
    "FIRST and LAST: seconds from the command until the first and the last record are readable.\n"
    "RATIO and LAST RATIO: least, median and most of the rounds' ratios to {base}, in steady state and of LAST."
)


def line_of(run: Run) -> str:
    """One copy, as soon as it is done."""
    figures = run.figures
    return (
        f"{run.case} · round {run.round} · {NAMES[run.engine]}: {grouped(round(figures.steady_rate))} records/s, "
        f"CPU {figures.steady_cpu:.2f} s per million, brokers {figures.steady_broker_cpu:.2f}, "
        f"{size(figures.peak_bytes)}, last record after {figures.last_seconds:.1f} s · equal"
    )


def rate_of(run: Run, judged: str) -> float:
    """Records a second, as a case is judged."""
    return run.figures.steady_rate if judged == STEADY else run.figures.whole_rate


def ratio(results: Results, case: Case, engine: str, judged: str, base: str = "tuned") -> Spread | None:
    """The engine's rate to that of `base`, over the rounds that have both."""
    ours, theirs = (
        {number: rate_of(run, judged) for number, run in results.of(case.name, each).items()}
        for each in (engine, base)
    )
    return spread(ratios(ours, theirs))


def cpu_ratio(results: Results, case: Case, engine: str) -> Spread | None:
    """The engine's CPU seconds for a record to tuned MirrorMaker 2's, steady state."""
    ours, theirs = (
        {number: run.figures.steady_cpu for number, run in results.of(case.name, each).items()}
        for each in (engine, "tuned")
    )
    return spread(ratios(ours, theirs))


def median(runs: Sequence[Run], figure: str) -> float:
    found = spread(getattr(run.figures, figure) for run in runs)
    return found.median if found else 0.0


def rows(results: Results, case: Case, base: str) -> List[Sequence[str]]:
    """A case's rows, an engine each."""
    found: List[Sequence[str]] = []
    for engine, name in NAMES.items():
        runs = list(results.of(case.name, engine).values())
        if runs:
            rate = median(runs, "steady_rate")
            found.append(
                (
                    case.what,
                    name,
                    grouped(round(rate)),
                    f"{rate * runs[0].payload_bytes / runs[0].figures.records / 1e6:.0f}",
                    f"{median(runs, 'steady_cpu'):.2f}",
                    f"{median(runs, 'steady_broker_cpu'):.2f}",
                    size(max(run.figures.peak_bytes for run in runs)),
                    str(ratio(results, case, engine, STEADY, base) or ""),
                    f"{median(runs, 'first_seconds'):.1f}",
                    f"{median(runs, 'last_seconds'):.1f}",
                    str(ratio(results, case, engine, WHOLE, base) or ""),
                )
            )
    return found


def table(results: Results, cases: Sequence[Case], base: str) -> str:
    """All engines of the cases next to `base`."""
    body = [row for case in cases for row in rows(results, case, base)]
    return "\n".join([*aligned([HEAD, *body], right=range(2, 11)), "", KEY.format(base=NAMES[base])])
