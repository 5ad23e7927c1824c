"""`python -m tests.bench.page RESULTS`: rewrites docs/project/benchmarks.md from the file of `make bench-mm2`.

The sections from `BY_HAND` on have figures of other benchmarks. They are written by hand, and this module keeps them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import fill
from typing import Iterable, Iterator, Optional, Sequence

from mirror_lib.text import grouped, size
from tests.bench.cases import CASES, STEADY, WHOLE, Case
from tests.bench.figures import Spread, short, spread
from tests.bench.results import Results, Run, loaded
from tests.bench.table import NAMES, cpu_ratio, median, ratio
from tests.lab.checkout import ROOT

PAGE = ROOT / "docs" / "project" / "benchmarks.md"
BY_HAND = "## Latency of a continuous flow"
CPU_TARGET = 0.25
WIDTH = 120
# Facts about the machine whose values need no name.
BARE = ("processor", "memory", "system")

HEAD = """\
# Benchmarks

Compare ratios, not rates: the engines share one machine's cores with both brokers.

```
make bench-mm2                              # all cases; BIG=1 adds 10 GB
make bench-mm2 ROUNDS=1 CASES="far small"   # two cases
python -m tests.bench.page .cache/bench/results.json   # this page down to Latency
```

"""

METHOD = """\

## Method

In each round the engines copy the same topic in turn, each into a fresh remote topic, of 4 partitions by default.
Brokers have the heap and options of Kafka's start scripts. After each copy a Java consumer compares timestamps, keys,
values, headers and order. A difference fails the benchmark.

- **This mirror**: `trigger: availableNow`, `tasks.max: 2`, nothing else tuned.
- **MirrorMaker 2, tuned**: dedicated mode, `tasks.max` 2, fetches of 64 MB and of 8 MB a partition, 5,000 records a
  poll, batches of 128 KB, `linger.ms` 20, the topic's codec.

*Steady* is from 20 % to 80 % of the records, by the target's end offsets. *Whole* is from the command until the last
record is readable. *CPU* is the engine's seconds per million records in steady state. Rates and CPU are medians. Ratios
are to tuned MirrorMaker 2 in the same round: least–median–most.
"""

RESULTS = """\

## Throughput

CPU s: this mirror/MirrorMaker 2. Targets are for the steady ratio unless marked *whole*.

"""

LIMITS = """\

Limits of the rate:

- **CPU of the machine**: most cases. A GB in records of 1 KB takes 1.5 to 2 s in the tasks and 2 to 3 s in the brokers,
  with MirrorMaker 2 9.5 s, with records of 10 KB 3.5 s.
- **Target broker**: lz4 and zstd. It decompresses each batch to check it, which takes half of the machine's CPU.
- **Both brokers**: 1,000 partitions. They use 1.5 of 1.8 busy cores.
- **Re-encoding**: single-record batches. Python joins them, record by record.
- **Round trip**: 50 ms away. A task has one fetch of at most 16 MB in flight to a broker. The delay comes from a proxy
  without limits of bandwidth or TCP windows.
- **Spark's rows**: `select` and the mask, with the engine before 25 November 2026. Java compiles this path during the
  first millions: with 1.6 million records the ratio was 0.74. MirrorMaker 2's `MaskField` cannot mask bytes.
- **Start-up**: 10 MB take 6.7 s from the command, with MirrorMaker 2 7.6 s. It is a fourth of the 10 GB run.
"""

SCALE = """\

## MirrorMaker 2 untuned, and a Java loop

One round. MirrorMaker 2 writes uncompressed batches by default. The loop hands each record of one KafkaConsumer to one
KafkaProducer and stores no positions.

"""


def page(results: Results, by_hand: str) -> str:
    """The whole page: what `results` has, then the sections that are written by hand."""
    measured = [case for case in CASES if results.of(case.name, case.ours)]
    parts = [HEAD, _machine(results), METHOD, RESULTS, *_lines(_throughput(results, measured))]
    parts += [f"\n{_cpu_targets(results, measured)}\n{_memory(results, measured)}\n", LIMITS]
    return "".join([*parts, SCALE, *_lines(_scale(results, measured)), f"\n{by_hand}"])


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
            str(ratio(results, case, case.ours, STEADY) or ""),
            str(ratio(results, case, case.ours, WHOLE) or ""),
            f"{_cpu(ours)}/{_cpu(theirs)}",
            str(_cpu_ratio(results, case) or ""),
            _verdict(results, case),
        )


def _rate(runs: Sequence[Run]) -> str:
    return grouped(int(round(median(runs, "steady_rate"), -2))) if runs else ""


def _cpu(runs: Sequence[Run]) -> str:
    return short(median(runs, "steady_cpu")) if runs else "-"


def _cpu_ratio(results: Results, case: Case) -> Optional[Spread]:
    """Only of cases that a target of CPU is for: whole record batches, long enough for a steady state."""
    return cpu_ratio(results, case, "mirror") if case.fast_path and case.judged == STEADY else None


def _verdict(results: Results, case: Case) -> str:
    found = ratio(results, case, case.ours, case.judged)
    if case.target is None or found is None:
        return ""
    wanted = f"{'' if case.judged == STEADY else '*whole* '}{short(case.target)}"
    return f"{wanted} met" if found.median >= case.target else f"{wanted} **missed**"


def _cpu_targets(results: Results, cases: Sequence[Case]) -> str:
    found = {case.what: each for case in cases for each in [_cpu_ratio(results, case)] if each is not None}
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
                found = ratio(results, case, engine, STEADY)
                yield (case.what, NAMES[engine], _rate(runs), str(found or ""), _cpu(runs))


def _lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    return (f"|{'|'.join(row)}|\n" for row in rows)


def write(results: Results, file: Path = PAGE) -> None:
    """The page with these results, and with its sections that are written by hand."""
    _, mark, after = file.read_text(encoding="utf-8").partition(BY_HAND)
    if not mark:
        raise ValueError(f"{file} has no section '{BY_HAND}'")
    file.write_text(page(results, f"{mark}{after}"), encoding="utf-8")


if __name__ == "__main__":
    write(loaded(Path(sys.argv[1])))
