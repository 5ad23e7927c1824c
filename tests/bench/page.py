"""docs/project/benchmarks.md from what was measured: `python -m tests.bench.page RESULTS [CHART.json|SECTION.md ...]`.

RESULTS is the file of `make bench-mm2`. `tests.bench.plot` makes the picture of a chart.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

from mirror_lib.text import grouped, size
from tests.bench.bounds import BOUNDS
from tests.bench.cases import CASES, STEADY, WHOLE, Case
from tests.bench.figures import Spread, short, spread
from tests.bench.plot import Chart
from tests.bench.plot import loaded as loaded_chart
from tests.bench.results import Results, loaded
from tests.bench.table import NAMES, cpu_ratio, median, ratio

CPU_TARGET = 0.25

HEAD_OF_CASE = (
    *("engine", "records/s", "MB/s", "CPU", "brokers' CPU", "busy cores", "memory", "ratio", "first", "last"),
    "ratio of last",
)
HEAD = """\
# Benchmarks

This mirror and MirrorMaker 2 on one machine, in the same runs. Read the ratios: brokers and engines share its cores.

```
make bench-mm2                              # all cases; BIG=1 copies 10 GB too
make bench-mm2 ROUNDS=1 CASES="far small"   # some; they replace themselves in .cache/bench/results.json
python -m tests.bench.page .cache/bench/results.json > docs/project/benchmarks.md
```

"""

METHOD = """\

## How it is measured

Two brokers, started with the heap and the options of Kafka's own scripts. A topic is filled once; then, in every
round, each engine copies it into a fresh remote topic, one after the other, beginning with another one each time.
MirrorMaker 2 at its defaults and the Java loop give the scale, in the first round.
Topics have 4 partitions where nothing else is said. After each copy Java's own consumer reads both topics:
timestamps, keys, values, headers and order must be equal in every partition, or the benchmark fails.

- **this mirror**: `./spark-submit.sh jobs/mirror.py mirror.yaml`, `trigger: availableNow`, `tasks.max: 2`, nothing else
  tuned.
- **MirrorMaker 2**: dedicated mode at its defaults, heap of its start script.
- **MirrorMaker 2, tuned**: `tasks.max` 2, fetches of 64 MB and 8 MB a partition, 5,000 records a poll, batches of
  128 KB, `linger.ms` 20, the topic's own codec, so that the target keeps it. At its defaults it writes
  uncompressed.
- **Java loop**: one KafkaConsumer that hands each record to one KafkaProducer. It keeps no positions at all.
- **engine records**: this mirror with `select`, `where` or another change, through Spark's rows; not tuned either. The
  reader makes the same change of the source. MirrorMaker's transforms see a value as bytes. In the cases with filters
  that look into JSON it drops records by a header that says the same (`Filter` with `HasHeaderKey`): equal results for
  less work. In the case with a filter by a header the work is the same. In the case with the mask it copies records as
  they are, since `MaskField` wants a struct or a map. Rates count the records that were read.

*Steady state* is from 20 % to 80 % of the records, as an outside observer sees the target's end offsets grow.
*First* and *last* are seconds from the command until the first and the last record are readable. *CPU* is seconds
per million records in steady state: of all processes of the engine (Spark's JVM and all Python processes), and
apart of both brokers. *Busy cores* are what both use of the machine in steady state. *Memory* is the peak of what
these processes hold, shared pages counted in each. Ratios are to tuned MirrorMaker 2 in the same round: least –
median – most of the rounds. Spark's and MirrorMaker's JVMs are new in every round, and the source's delay is that
of a proxy without a limit of bandwidth or of TCP windows, which is kind to small socket buffers.
"""


def page(results: Results, charts: Sequence[Chart] = (), sections: Sequence[str] = ()) -> str:
    """The whole page."""
    measured = [case for case in CASES if results.of(case.name, case.ours)]
    parts = [HEAD, *(f"- {name}: {value}\n" for name, value in results.machine.items()), _rounds(results), "\n"]
    parts += ["## Targets and what was reached\n\n", *_lines(_targets(results, measured)), METHOD]
    parts += ["\n## Case by case\n", *(text for case in measured for text in _case(results, case))]
    if charts:
        parts.append("\n## How cost grows\n")
        parts += [f"\n![{chart.title}](../pictures/{chart.file})\n\n{chart.text}\n" for chart in charts]
    return "".join([*parts, *(f"\n{section}" for section in sections)])


def _rounds(results: Results) -> str:
    numbers = sorted({len(results.of(case.name, case.ours)) for case in CASES} - {0})
    load = spread(run.load for run in results.runs)
    count = f"{numbers[0]}" if len(set(numbers)) == 1 else f"{numbers[0]} to {numbers[-1]}" if numbers else "0"
    return f"- rounds: {count}; load average {load or '-'}\n"


def _targets(results: Results, cases: Sequence[Case]) -> Iterator[Sequence[str]]:
    yield ("case", "judged", "target", "reached", "", "CPU for a record, target ≤ 0.25", "")
    yield ("---",) * 7
    for case in cases:
        found = ratio(results, case, case.ours, case.judged)
        wanted = "" if case.target is None else f"≥ {short(case.target)}"
        cpu = cpu_ratio(results, case, "mirror") if case.fast_path and case.judged == STEADY else None
        yield (
            case.what,
            case.judged,
            wanted,
            str(found or ""),
            "" if case.target is None else _met(found, at_least=case.target),
            str(cpu or ""),
            _met(cpu, at_most=CPU_TARGET),
        )


def _met(found: Optional[Spread], at_least: float = 0.0, at_most: float = float("inf")) -> str:
    if found is None:
        return ""
    return "met" if at_least <= found.median <= at_most else "missed"


def _case(results: Results, case: Case) -> List[str]:
    rows: List[Sequence[str]] = [HEAD_OF_CASE, ("---", *["---:"] * 10)]
    for engine, name in NAMES.items():
        runs = list(results.of(case.name, engine).values())
        if runs:
            rate = median(runs, "steady_rate")
            per_record = runs[0].payload_bytes / runs[0].figures.records
            rows.append(
                (
                    name,
                    grouped(int(round(rate, -2))),
                    f"{rate * per_record / 1e6:.0f}",
                    short(median(runs, "steady_cpu")),
                    short(median(runs, "steady_broker_cpu")),
                    f"{rate / 1e6 * (median(runs, 'steady_cpu') + median(runs, 'steady_broker_cpu')):.1f}",
                    size(max(run.figures.peak_bytes for run in runs)),
                    str(ratio(results, case, engine, STEADY) or ""),
                    f"{median(runs, 'first_seconds'):.1f} s",
                    f"{median(runs, 'last_seconds'):.1f} s",
                    str(ratio(results, case, engine, WHOLE) or ""),
                )
            )
    bound = BOUNDS.get(case.name)
    text = f"\n{case.what}, {grouped(case.records)} records.\n\n"
    return [f"\n### {case.name}\n", text, *_lines(rows), f"\nWhat bounds it: {bound}\n" if bound else ""]


def _lines(rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Iterator[str]:
    return (f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    files = [Path(each) for each in sys.argv[2:]]
    shown = [loaded_chart(file) for file in files if file.suffix == ".json"]
    more = [file.read_text(encoding="utf-8") for file in files if file.suffix == ".md"]
    sys.stdout.write(page(loaded(Path(sys.argv[1])), shown, more))
