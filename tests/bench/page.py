"""`python -m tests.bench.page RESULTS`: the lines of docs/project/benchmarks.md that have figures of bench-mm2."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from textwrap import fill
from typing import Callable, Iterable, Iterator, Optional, Sequence

from mirror_lib.text import grouped, size
from tests.bench.cases import CASES, STEADY, Case
from tests.bench.figures import Spread, ratios, short, spread
from tests.bench.results import Results, Run, loaded

NAMES = {
    "mirror": "this mirror",
    "mm2": "MirrorMaker 2",
    "tuned": "MirrorMaker 2, tuned",
    "loop": "Java loop",
    "rows": "engine records",
}
CPU_TARGET = 0.25
WIDTH = 120
# Facts about the machine whose values need no name.
BARE = ("processor", "memory", "system")


def page(results: Results, cases: Sequence[Case] = CASES) -> str:
    """The lines that have figures of these cases, in the page's order."""
    measured = [case for case in cases if results.of(case.name, case.ours)]
    parts = [_machine(results), "\n", *_lines(_throughput(results, measured))]
    parts += [f"\n{_cpu_targets(results, measured)}\n{_memory(results, measured)}\n\n"]
    return "".join([*parts, *_lines(_scale(results, measured))])


def _machine(results: Results) -> str:
    numbers = sorted({len(results.of(case.name, case.ours)) for case in CASES} - {0})
    load = spread(run.load for run in results.runs)
    count = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}" if numbers else "0"
    facts = [value if name in BARE else f"{name} {value}" for name, value in results.machine.items()]
    return fill(f"Machine: {', '.join(facts)}. Rounds: {count}. Load average: {load or '-'}.", WIDTH) + "\n"


def _throughput(results: Results, cases: Sequence[Case]) -> Iterator[Sequence[str]]:
    yield ("case", "records/s", "MirrorMaker 2", "steady ratio", "whole ratio", "CPU s", "CPU ratio", "target at least")
    yield ("---", *["---:"] * 6, "---")
    for case in cases:
        ours, theirs = (list(results.of(case.name, engine).values()) for engine in (case.ours, "tuned"))
        yield (
            case.what,
            _rate(ours),
            _rate(theirs),
            str(_ratio(results, case, case.ours, _steady) or ""),
            str(_ratio(results, case, case.ours, _whole) or ""),
            f"{_cpu(ours)}/{_cpu(theirs)}",
            str(_cpu_ratio(results, case) or ""),
            _verdict(results, case),
        )


def _ratio(results: Results, case: Case, engine: str, figure: Callable[[Run], float]) -> Optional[Spread]:
    """The engine's figure to tuned MirrorMaker 2's, over the rounds that have both."""
    ours, theirs = (
        {number: figure(run) for number, run in results.of(case.name, each).items()} for each in (engine, "tuned")
    )
    return spread(ratios(ours, theirs))


def _steady(run: Run) -> float:
    return run.figures.steady_rate


def _whole(run: Run) -> float:
    return run.figures.whole_rate


def _rate(runs: Sequence[Run]) -> str:
    return grouped(int(round(statistics.median(map(_steady, runs)), -2))) if runs else ""


def _cpu(runs: Sequence[Run]) -> str:
    return short(statistics.median(run.figures.steady_cpu for run in runs)) if runs else "-"


def _cpu_ratio(results: Results, case: Case) -> Optional[Spread]:
    """Only of cases that a target of CPU is for: whole record batches, long enough for a steady state."""
    if not case.fast_path or case.judged != STEADY:
        return None
    return _ratio(results, case, "mirror", lambda run: run.figures.steady_cpu)


def _verdict(results: Results, case: Case) -> str:
    found = _ratio(results, case, case.ours, _steady if case.judged == STEADY else _whole)
    if case.target is None or found is None:
        return ""
    wanted = f"{'' if case.judged == STEADY else '*whole* '}{short(case.target)}"
    return f"{wanted} met" if found.median >= case.target else f"{wanted} **missed**"


def _cpu_targets(results: Results, cases: Sequence[Case]) -> str:
    found = {case.what: each for case in cases for each in [_cpu_ratio(results, case)] if each is not None}
    if not found:
        return ""
    missed = [f"{what} ({each})" for what, each in found.items() if each.median > CPU_TARGET]
    verdict = f"missed by {', '.join(missed)}" if missed else "met"
    others = f", met by the other {len(found) - len(missed)} cases" if missed else ""
    return f"Target for the CPU ratio, at most {short(CPU_TARGET)}: {verdict}{others}."


def _memory(results: Results, cases: Sequence[Case]) -> str:
    """The least and the most of the cases' peaks, of each engine."""
    found = []
    for engine in ("mirror", "rows", "tuned"):
        copies = [results.of(case.name, engine).values() for case in cases]
        peaks = [max(run.figures.peak_bytes for run in runs) for runs in copies if runs]
        if peaks:
            ends = dict.fromkeys((size(min(peaks)), size(max(peaks))))
            found.append(f"{NAMES[engine]} {' to '.join(ends)}")
    return f"Peak memory: {'; '.join(found)}."


def _scale(results: Results, cases: Sequence[Case]) -> Iterator[Sequence[str]]:
    yield ("case", "engine", "records/s", "steady ratio", "CPU s")
    yield ("---", "---", *["---:"] * 3)
    for case in cases:
        for engine in ("mm2", "loop"):
            runs = list(results.of(case.name, engine).values())
            if runs:
                found = _ratio(results, case, engine, _steady)
                yield (case.what, NAMES[engine], _rate(runs), str(found or ""), _cpu(runs))


def _lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    return (f"|{'|'.join(row)}|\n" for row in rows)


if __name__ == "__main__":
    print(page(loaded(Path(sys.argv[1]))))
