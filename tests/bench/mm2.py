"""`make bench-mm2`: this mirror, MirrorMaker 2 at its defaults and tuned, and a Java loop copy the same topics in turn.

ROUNDS=5, CASES="bytes100 far", ENGINES="mirror tuned", BIG=1. Every copy is compared with its source; one that is not
equal ends the benchmark. Runs go to RESULTS (.cache/bench/results.json); a case that is measured again replaces itself.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Sequence

from mirror_lib.text import grouped, size
from tests.bench.cases import Case, chosen
from tests.bench.digests import Reader
from tests.bench.engines import BROKER_JVM, COMPARED, COMPARED_CHANGING, ENGINES, compiled
from tests.bench.page import NAMES, page
from tests.bench.results import FILE, Results, Run, loaded, save, this_machine
from tests.bench.rounds import LogPosition, run_case
from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import CACHE, LabError
from tests.lab.far_proxy import far, two_listeners
from tests.lab.ports import free_ports

ONE_WAY_MS = 25
WARM_UP = Case("warm.up", "", 500_000, 200)
# Removed topics must not fill the disk while others are measured.
PROPERTIES = {"log.segment.delete.delay.ms": "1000"}


def run() -> int:
    """Every chosen case; what the page says of them is printed at the end."""
    cases = chosen(os.environ.get("CASES", "").split(), bool(os.environ.get("BIG")))
    engines = os.environ.get("ENGINES", "").split()
    unknown = sorted(set(engines) - set(ENGINES))
    if unknown:
        raise LabError(f"there is no engine {unknown[0]}: choose from {', '.join(ENGINES)}")
    file = Path(os.environ.get("RESULTS") or FILE)
    compiled()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder, stand(Path(folder)) as here:
        run_case(here, WARM_UP, ["loop"], 1, lambda _: None)
        for case in cases:
            measure(here, case, taking_part(case, engines), int(os.environ.get("ROUNDS") or 5), file)
    print(f"\n{page(loaded(file), cases)}\n{file}")
    return 0


def taking_part(case: Case, asked: Sequence[str]) -> Sequence[str]:
    """The ones of the engines asked for, or of all that are compared, that can do the case."""
    can = COMPARED if case.change is None else COMPARED_CHANGING
    return [engine for engine in asked if case.change is None or engine in can] if asked else can


def measure(here: LogPosition, case: Case, engines: Sequence[str], rounds: int, file: Path) -> None:
    """One case; its runs take the place of those that the file has of it."""
    results = loaded(file).without(case.name, engines)
    found = [Results({**results.machine, **this_machine()}, results.runs)]

    def noted(run: Run) -> None:
        print(line_of(run), flush=True)
        found[0] = found[0].with_run(run)

    run_case(here, case, engines, rounds, noted)
    save(found[0], file)


def line_of(run: Run) -> str:
    """One copy, as soon as it is done."""
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
    try:
        for broker in brokers.values():
            broker.start()
        with Reader() as reader, far(proxy, behind, ONE_WAY_MS):
            yield LogPosition(brokers, f"127.0.0.1:{proxy}", reader, folder)
    finally:
        for broker in brokers.values():
            broker.kill()


if __name__ == "__main__":
    try:
        sys.exit(run())
    except LabError as error:
        print(f"bench-mm2: {error}", file=sys.stderr)
        sys.exit(1)
