"""`make bench-mm2`: this mirror, MirrorMaker 2 at its defaults and tuned, and a Java loop copy the same topics in turn.

ROUNDS=5, CASES="bytes100 far", ENGINES="mirror tuned", BIG=1. Every copy is compared with its source; one that is not
equal ends the benchmark.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

from mirror_lib.text import aligned, grouped, size
from tests.bench.cases import CASES, Case, chosen
from tests.bench.digests import Reader
from tests.bench.engines import BROKER_JVM, CLASSES, COMPARED, COMPARED_CHANGING, ENGINES
from tests.bench.observer import Observed
from tests.bench.rounds import LogPosition, Run, run_case
from tests.lab.brokers import KafkaBroker, running
from tests.lab.checkout import CACHE, LabError, ended
from tests.lab.far_proxy import far, two_listeners
from tests.lab.java_class import compiled
from tests.lab.ports import free_ports

ONE_WAY_MS = 25
WARM_UP = Case("warm.up", 500_000, 200)
# Removed topics must not fill the disk while others are measured.
PROPERTIES = {"log.segment.delete.delay.ms": "1000"}
NAMES = {
    "mirror": "this mirror",
    "mm2": "MirrorMaker 2",
    "tuned": "MirrorMaker 2, tuned",
    "loop": "Java loop",
    "rows": "engine records",
}
Figures = Dict[int, Observed]


def run() -> int:
    """Every chosen case; a table of all is printed at the end."""
    cases = chosen(os.environ.get("CASES", "").split(), bool(os.environ.get("BIG")))
    engines = os.environ.get("ENGINES", "").split()
    unknown = sorted(set(engines) - set(ENGINES))
    if unknown:
        raise LabError(f"there is no engine {unknown[0]}: choose from {', '.join(ENGINES)}")
    for program in ("CopyLoop", "Digest"):  # so that none is compiled while it is measured
        compiled(program, CLASSES, "bench")
    runs: List[Run] = []

    def measured(run: Run) -> None:
        print(line_of(run), flush=True)
        runs.append(run)

    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder, stand(Path(folder)) as here:
        run_case(here, WARM_UP, ["loop"], 1, lambda _: None)
        for case in cases:
            run_case(here, case, taking_part(case, engines), int(os.environ.get("ROUNDS") or 5), measured)
    print("\n" + "\n".join(aligned(table(runs), right=set(range(2, 7)))))
    return 0


def taking_part(case: Case, asked: Sequence[str]) -> Sequence[str]:
    """The ones of the engines asked for, or of all that are compared, that can do the case."""
    can = COMPARED if case.change is None else COMPARED_CHANGING
    return [engine for engine in asked if case.change is None or engine in can] if asked else can


def table(runs: Sequence[Run]) -> List[Tuple[str, ...]]:
    """Medians of each case and engine. Ratios are to tuned MirrorMaker 2 in the same round: least, median, most."""
    rows: List[Tuple[str, ...]] = [("CASE", "ENGINE", "RECORDS/S", "STEADY RATIO", "WHOLE RATIO", "CPU S", "CPU RATIO")]
    targets = {case.name: f"{'whole ' * case.whole}{case.target}" for case in CASES if case.target is not None}
    for case, engine in dict.fromkeys((run.case, run.engine) for run in runs):
        own, tuned = (
            {run.round: run.figures for run in runs if (run.case, run.engine) == (case, each)}
            for each in (engine, "tuned")
        )

        def ratio(figure: Callable[[Observed], float], own: Figures = own, tuned: Figures = tuned) -> str:
            found = sorted(figure(own[n]) / figure(tuned[n]) for n in own if n in tuned and figure(tuned[n]))
            ends = (found[0], statistics.median(found), found[-1]) if found else ()
            return "–".join(dict.fromkeys(f"{each:.2g}" for each in ends))

        cpu = statistics.median(each.steady_cpu for each in own.values())
        rate = grouped(round(statistics.median(each.steady_rate for each in own.values())))
        ratios = [ratio(lambda e: e.steady_rate), ratio(lambda e: e.whole_rate), ratio(lambda e: e.steady_cpu)]
        rows.append((case, NAMES[engine], rate, ratios[0], ratios[1], f"{cpu:.2g}", ratios[2]))
    return [(*row, "TARGET" if row is rows[0] else targets.get(row[0], "")) for row in rows]


def line_of(run: Run) -> str:
    figures = run.figures
    return (
        f"{run.case} · round {run.round} · {NAMES[run.engine]}: {grouped(round(figures.steady_rate))} records/s, "
        f"CPU {figures.steady_cpu:.2f} s per million, brokers {figures.steady_broker_cpu:.2f}, "
        f"{size(figures.peak_bytes)}, last record after {figures.last_seconds:.1f} s · equal"
    )


@contextmanager
def stand(folder: Path) -> Iterator[LogPosition]:
    """Two brokers as Kafka's scripts start them, the source with a second listener behind a proxy that delays."""
    near, source_controller, behind, proxy, target, target_controller = free_ports(6)
    properties = ({**PROPERTIES, **two_listeners(near, behind, proxy, source_controller)}, PROPERTIES)
    ports = ((near, source_controller), (target, target_controller))
    brokers = {
        name: KafkaBroker(name, folder / name, *own, properties=more, java_options=BROKER_JVM)
        for name, own, more in zip(("source", "target"), ports, properties)
    }
    with running(*brokers.values()), Reader() as reader, far(proxy, behind, ONE_WAY_MS):
        yield LogPosition(brokers, f"127.0.0.1:{proxy}", reader, folder)


if __name__ == "__main__":
    ended("bench-mm2", run)
