"""`make bench-mm2`: this mirror and a tuned MirrorMaker 2 copy the same topics in turn.

ROUNDS=5, CASES="bytes100 far", ENGINES="mirror tuned", BIG=1. In each round each engine copies the topic once into a
fresh remote topic, in turn.

The observer is the same for every engine: it polls the target's end offsets, looks into /proc, and makes figures of
both. Steady state is from 20 % to 80 % of the records, so it knows no start-up and no end. Whether a copy is one: both
topics are read by Java's own consumer, which shares no code with what copied. A copy that is not equal to its source
ends the benchmark.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from numpy import interp

from mirror_lib.text import aligned, grouped, size
from tests.bench.cases import AS_IT_IS, CASES, Case, chosen, fill
from tests.bench.engines import BROKER_JVM, CLASSES, COMPARED, COMPARED_CHANGING, ENGINES, OURS, Copy
from tests.lab.brokers import JARS, KafkaBroker, child, free_ports, java_command, running
from tests.lab.checkout import CACHE, LabError, ended
from tests.lab.far_proxy import far, two_listeners
from tests.lab.java_class import compiled
from tests.lab.processes import SessionMeter, cpu_of

PATIENCE_SECONDS = 120.0
OFFSETS_EVERY = 0.025
# A look at a thousand partitions is work for the broker too.
MANY, OFFSETS_OF_MANY_EVERY = 100, 0.2
PROCESSES_EVERY = 0.2
FROM, UNTIL = 0.2, 0.8


class Seen(NamedTuple):
    """At `at`: the records that are readable on the target. Times are seconds on one clock."""

    at: float
    records: float


class Used(NamedTuple):
    """At `at`: CPU seconds so far of the copying processes and of the brokers, memory of the former right now."""

    at: float
    cpu: float
    broker_cpu: float
    resident_bytes: int


@dataclass(frozen=True)
class Observed:
    """One copy of `records` records. Seconds count from the command; `CPU` is seconds per million records.

    `steady_` is between 20 % and 80 % of the records, `whole_` from the command until the last one is readable.
    """

    records: int
    last_seconds: float
    steady_rate: float
    steady_cpu: float
    steady_broker_cpu: float
    peak_bytes: int


def observed(began: float, case: Case, seen: Sequence[Seen], used: Sequence[Used]) -> Observed:
    """The figures of one copy that began at `began`, whose last sample holds all records.

    A rate counts the records that were read, also those that were left out. What a log has above the copied records in
    the end are markers, which came first.
    """
    records, markers = case.records, seen[-1].records - case.copied
    samples = [Seen(each.at, max(0.0, each.records - markers) * (records // case.copied)) for each in seen]
    at_last = next(sample for sample in samples if sample.records >= records).at
    start = next(sample for sample in samples if sample.records >= FROM * records)
    end = next(sample for sample in samples if sample.records >= UNTIL * records)
    millions = (end.records - start.records) / 1e6
    cpu, broker_cpu = (_between(used, column, start.at, end.at) for column in ("cpu", "broker_cpu"))
    return Observed(
        records=records,
        last_seconds=at_last - began,
        steady_rate=(end.records - start.records) / (end.at - start.at) if end.at > start.at else 0.0,
        steady_cpu=cpu / millions if millions else 0.0,
        steady_broker_cpu=broker_cpu / millions if millions else 0.0,
        peak_bytes=max((each.resident_bytes for each in used), default=0),
    )


def _between(used: Sequence[Used], column: str, start: float, end: float) -> float:
    before, after = interp([start, end], [each.at for each in used], [getattr(each, column) for each in used])
    return float(after - before)


class Watch:
    """One copy under way: `process` leads the session of what copies, `brokers` are the brokers' process ids."""

    def __init__(self, copy: Copy, process: Any, brokers: Sequence[int]) -> None:
        self._topic, self._partitions = copy.remote_topic, copy.case.partitions
        self._admin, self._process, self._brokers = copy.target.admin(), process, brokers
        self._there = False
        self._meter = SessionMeter(process.pid)
        self._patient_until = time.monotonic() + PATIENCE_SECONDS
        self._pause = OFFSETS_OF_MANY_EVERY if self._partitions > MANY else OFFSETS_EVERY
        self.seen: List[Seen] = []
        self.used: List[Used] = []

    def until_copied(self, records: int, ends: bool) -> None:
        """Look until so many records are there, markers included, and a process that `ends` has ended. Raises
        `LabError` where the copy stands still or fails."""
        end, code = 0, None
        while end < records or (ends and code is None):
            code, end = self._process.poll(), self._look()
            found = f"{self._topic}: {end} of {records} records"
            if code or (code == 0 and end < records):
                raise LabError(f"{found}, and the copying process ended with exit code {code}")
            if time.monotonic() > self._patient_until:
                raise LabError(f"{found}, and no more are coming, or the copying process does not end")
            time.sleep(self._pause)

    def _look(self) -> int:
        end = self._end()
        now = time.monotonic()
        if not self.seen or end > self.seen[-1].records:
            self._patient_until = now + PATIENCE_SECONDS
        self.seen.append(Seen(now, end))
        if not self.used or now - self.used[-1].at >= PROCESSES_EVERY:
            usage = self._meter.look()
            self.used.append(Used(usage.at, usage.cpu_seconds, cpu_of(self._brokers), usage.resident_bytes))
        return end

    def _end(self) -> int:
        """The end offsets of all partitions added up, markers included; 0 while the topic is not there."""
        if not self._there:
            found = self._admin.list_topics(timeout=10).topics.get(self._topic)
            if found is None or len(found.partitions) != self._partitions:
                return 0
            self._there = True
        latest: Any = OffsetSpec.latest  # it has no types
        asked = {TopicPartition(self._topic, number): latest() for number in range(self._partitions)}
        try:
            return sum(future.result().offset for future in self._admin.list_offsets(asked).values())
        except KafkaException:
            return 0  # it has no leader yet


def settle(brokers: Sequence[int], seconds: float = 15.0) -> None:
    """Wait until the brokers have nothing left to do of what was before, a while at most."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = cpu_of(brokers)
        time.sleep(0.4)
        if cpu_of(brokers) - before < 0.04:
            return


# Partition to "COUNT:DIGEST", for partitions that have records.
Digests = Dict[int, str]


class Reader:
    """A Java process that waits to be asked; it uses nothing meanwhile."""

    def __enter__(self) -> Reader:
        command = [java_command(), "-XX:+UseSerialGC", "-Xmx512m", "-cp", f"{CLASSES}:{JARS}/*", "Digest"]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = child(command, text=True, **streams)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def digests(self, broker: KafkaBroker, topic: str, isolation: str, rule: str = AS_IT_IS) -> Digests:
        """Every record from the first to the present end, in order, as `rule` changes it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{broker.bootstrap} {topic} {isolation} {rule}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if answer.startswith("error") or self._process.poll() is not None:
            raise LabError(f"{topic} could not be read: {answer[:300]}")
        pairs = (word.split(":", 1) for word in answer.split())  # `0:3:ab 2:1:cd`
        return {int(partition): rest for partition, rest in pairs}


def records(digests: Digests) -> int:
    return sum(int(each.split(":")[0]) for each in digests.values())


@dataclass(frozen=True)
class Run:
    """One copy of a case by an engine."""

    case: str
    engine: str
    round: int
    figures: Observed


@dataclass
class Stand:
    """Where copies are made: two brokers, the address by which the source is far away, a reader, a folder."""

    brokers: Mapping[str, KafkaBroker]
    far_source: str
    reader: Reader
    folder: Path

    @property
    def pids(self) -> Sequence[int]:
        return [broker.pid for broker in self.brokers.values()]


def run_case(stand: Stand, case: Case, engines: Sequence[str], rounds: int, watcher: Callable[[Run], None]) -> None:
    """Fill the topic, let every engine copy it `rounds` times, and remove it again."""
    fill(stand.brokers["source"], case)
    expected = {engine: _expected(stand, case, engine) for engine in engines}
    for number in range(1, rounds + 1):
        for engine in in_turn(engines, number):
            watcher(run_one(stand, case, engine, number, expected[engine]))
    stand.brokers["source"].delete_topic(case.name)


def _expected(stand: Stand, case: Case, engine: str) -> Digests:
    """What the engine's copy has to be. Raises `LabError` where the source does not hold what it should."""
    rule = AS_IT_IS
    if case.change is not None:
        rule = case.change.rule if engine in OURS else case.change.rule_of_mm2
    expected = stand.reader.digests(stand.brokers["source"], case.name, case.isolation, rule)
    if records(expected) != case.copied:
        raise LabError(f"{case.name}: {records(expected)} records are to be copied, {case.copied} should be")
    return expected


def in_turn(engines: Sequence[str], number: int) -> List[str]:
    """The order of this round. Another engine begins each time, since the first may find colder brokers."""
    turn = number % len(engines) if engines else 0
    return [*engines[turn:], *engines[:turn]]


def run_one(stand: Stand, case: Case, engine: str, number: int, expected: Digests) -> Run:
    """One copy by one engine, checked and removed again."""
    alias = f"{engine}{number}"
    folder = stand.folder / f"{case.name}-{alias}"
    folder.mkdir(parents=True)
    source = stand.far_source if case.far else stand.brokers["source"].bootstrap
    copy = Copy(case, source, stand.brokers, alias, folder)
    settle(stand.pids)
    began = time.monotonic()
    with ENGINES[engine](copy) as process:
        watch = Watch(copy, process, stand.pids)
        watch.until_copied(case.copied, engine in OURS)
    # Aborted records of the source must not be there for any reader, so the remote topic is read without mercy.
    found = stand.reader.digests(copy.target, copy.remote_topic, "read_uncommitted")
    if found != expected:
        raise LabError(f"{copy.remote_topic} is not a copy of {case.name}: {found}, not {expected} (logs: {folder})")
    figures = observed(began, case, watch.seen, watch.used)
    copy.target.delete_topic(copy.remote_topic)
    return Run(case.name, engine, number, figures)


ONE_WAY_MS = 25
WARM_UP = Case("warm.up", 500_000, 200)
# Removed topics must not fill the disk while others are measured.
PROPERTIES = {"log.segment.delete.delay.ms": "1000"}
NAMES = {"mirror": "this mirror", "tuned": "MirrorMaker 2, tuned", "rows": "engine records"}
Figures = Dict[int, Observed]


def run() -> int:
    """Every chosen case; a table of all is printed at the end."""
    cases = chosen(os.environ.get("CASES", "").split(), bool(os.environ.get("BIG")))
    engines = os.environ.get("ENGINES", "").split()
    assert set(engines) <= set(ENGINES), f"choose from {', '.join(ENGINES)}"
    compiled("Digest", CLASSES, "bench")
    runs: List[Run] = []

    def measured(run: Run) -> None:
        figures = run.figures
        print(
            f"{run.case} · round {run.round} · {NAMES[run.engine]}: {grouped(round(figures.steady_rate))} records/s, "
            f"CPU {figures.steady_cpu:.2f} s per million, brokers {figures.steady_broker_cpu:.2f}, "
            f"{size(figures.peak_bytes)}, last record after {figures.last_seconds:.1f} s · equal",
            flush=True,
        )
        runs.append(run)

    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder, stand(Path(folder)) as here:
        run_case(here, WARM_UP, ["tuned"], 1, lambda _: None)
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
        ratios = [ratio(lambda e: e.steady_rate), ratio(lambda e: e.records / e.last_seconds)]
        rows.append((case, NAMES[engine], rate, *ratios, f"{cpu:.2g}", ratio(lambda e: e.steady_cpu)))
    return [(*row, "TARGET" if row is rows[0] else targets.get(row[0], "")) for row in rows]


@contextmanager
def stand(folder: Path) -> Iterator[Stand]:
    """Two brokers as Kafka's scripts start them, the source with a second listener behind a proxy that delays."""
    near, source_controller, behind, proxy, target, target_controller = free_ports(6)
    properties = ({**PROPERTIES, **two_listeners(near, behind, proxy, source_controller)}, PROPERTIES)
    ports = ((near, source_controller), (target, target_controller))
    brokers = {
        name: KafkaBroker(name, folder / name, *own, properties=more, java_options=BROKER_JVM)
        for name, own, more in zip(("source", "target"), ports, properties)
    }
    with running(*brokers.values()), Reader() as reader, far(proxy, behind, ONE_WAY_MS):
        yield Stand(brokers, f"127.0.0.1:{proxy}", reader, folder)


if __name__ == "__main__":
    ended("bench-mm2", run)
