"""Rounds of one case: each engine copies the topic once into a fresh remote topic, in turn; runs out.

A copy that is not equal to its source ends the benchmark.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, List, Mapping, Sequence

from tests.bench.cases import Case
from tests.bench.changes import AS_IT_IS
from tests.bench.digests import Digests, Reader, differences, records
from tests.bench.engines import ENDS, ENGINES, OURS, Copy
from tests.bench.fill import fill
from tests.bench.observer import Observed, RemoteTopic, Watch, observed, records_read, settle
from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import LabError

JUDGED = ("mirror", "rows", "tuned")
SCALE_ROUNDS = 1


@dataclass(frozen=True)
class Run:
    """One copy of a case by an engine. `load`: the machine's load average."""

    case: str
    engine: str
    round: int
    figures: Observed
    load: float


@dataclass
class LogPosition:
    """Where copies are made: two brokers, the address by which the source is far away, a reader, a folder."""

    brokers: Mapping[str, KafkaBroker]
    far_source: str
    reader: Reader
    folder: Path

    @property
    def pids(self) -> Sequence[int]:
        return [broker.pid for broker in self.brokers.values()]


def run_case(
    stand: LogPosition, case: Case, engines: Sequence[str], rounds: int, watcher: Callable[[Run], None]
) -> None:
    """Fill the topic, let every engine copy it `rounds` times, and remove it again."""
    fill(stand.brokers["source"], case)
    expected = {engine: _expected(stand, case, engine) for engine in engines}
    for number in range(1, rounds + 1):
        for engine in in_turn(engines, number):
            watcher(run_one(stand, case, engine, number, expected[engine]))
    stand.brokers["source"].delete_topic(case.name)


def _expected(stand: LogPosition, case: Case, engine: str) -> Digests:
    """What the engine's copy has to be. Raises `LabError` where the source does not hold what it should."""
    rule = AS_IT_IS
    if case.change is not None:
        rule = case.change.rule if engine in OURS else case.change.rule_of_mm2
    expected = stand.reader.digests(stand.brokers["source"], case.name, case.isolation, rule)
    if records(expected) != case.copied:
        raise LabError(f"{case.name}: {records(expected)} records are to be copied, {case.copied} should be")
    return expected


def in_turn(engines: Sequence[str], number: int) -> List[str]:
    """Who copies in this round, in which order. Another one begins each time, since the first may find colder brokers.

    Targets are about two engines; the others only give the scale, so they do not make every round longer.
    """
    taking_part = [engine for engine in engines if engine in JUDGED or number <= SCALE_ROUNDS]
    turn = number % len(taking_part) if taking_part else 0
    return [*taking_part[turn:], *taking_part[:turn]]


def run_one(stand: LogPosition, case: Case, engine: str, number: int, expected: Digests) -> Run:
    """One copy by one engine, checked and removed again."""
    alias = f"{engine}{number}"
    folder = stand.folder / f"{case.name}-{alias}"
    folder.mkdir(parents=True)
    source = stand.far_source if case.far else stand.brokers["source"].bootstrap
    copy = Copy(case, source, stand.brokers, alias, folder)
    remote = RemoteTopic(copy.target, copy.remote_topic, case.partitions)
    settle(stand.pids)
    began = time.monotonic()
    with ENGINES[engine](copy) as process:
        watch = Watch(remote, process, stand.pids)
        watch.until_copied(case.copied, engine in ENDS)
    # Aborted records of the source must not be there for any reader, so the remote topic is read without mercy.
    found = differences(expected, stand.reader.digests(copy.target, copy.remote_topic, "read_uncommitted"))
    if found:
        raise LabError(f"{copy.remote_topic} is not a copy of {case.name}: {found[0]} (logs: {folder})")
    # A rate counts the records that were read, also those that were left out.
    seen = records_read(watch.seen, case.copied, case.records // case.copied)
    figures = observed(began, case.records, seen, watch.used)
    copy.target.delete_topic(copy.remote_topic)
    return Run(case.name, engine, number, figures, os.getloadavg()[0])
