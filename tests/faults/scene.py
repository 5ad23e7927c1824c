"""One case at work: load on the source, a replicator, readers, and faults that fall where records flow."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import AbstractSet, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.errors import EXIT_REFUSED
from tests.faults.checker import Id, Verdict, id_of, ids_on, judge, passed_unread
from tests.faults.cluster import Cluster
from tests.faults.engines import Engine
from tests.faults.load import PER_SECOND, Background, Follower, Group, Load
from tests.lab.readers import read_topic

PARTITIONS = 6
# So many records must have reached a reader of the target since the last fault before the next one falls.
BETWEEN_FAULTS = 300
START_SECONDS = 240.0
WHOLE_SECONDS = 240.0
# The load continues for so long after the last fault, so that a copy that stopped for good is found.
AFTERWARDS_SECONDS = 5.0


# Settings of flows that change records, and which records they copy, by record and source offset.
FLOWS: Dict[str, Dict[str, Any]] = {
    "": {},
    "where": {"where": "partition % 2 = 0 or offset % 3 <> 0"},
    "keyed": {"partitioner": 4},
    "no fence": {"delivery": "at-least-once"},
    "no origins": {"where": "true", "provenance": "off"},
}
WANTED: Dict[str, Callable[[Id, int], bool]] = {"where": lambda each, offset: each[0] % 2 == 0 or offset % 3 != 0}
Act = Callable[["Scene"], None]


@dataclass(frozen=True)
class Strike:
    """One fault: what was done when so many records were acknowledged on the source, and seen on the target."""

    what: str
    written: int
    copied: int


@dataclass(frozen=True)
class Outcome:
    """What a case found. `whole_seconds`: from the end of the last fault until a reader of the target had all that was
    acknowledged by then; `None` if that did not come in four minutes. `passed_unread` is `None` without a group."""

    case: str
    engine: str
    seed: int
    strikes: List[Strike]
    happened: Mapping[str, int]
    committed: Verdict
    uncommitted: Verdict
    whole_seconds: Optional[float]
    passed_unread: Optional[int]
    starts: int
    exit_code: Optional[int]
    seconds: float
    refusal: str
    ended_by_itself: bool
    gone: int
    fenced_itself: int

    @property
    def exact(self) -> bool:
        """Both readers have everything once, and no group would miss anything."""
        return self.committed.exact and self.uncommitted.exact and not self.passed_unread

    def __str__(self) -> str:
        happened = ", ".join(f"{what} {count} times" for what, count in sorted(self.happened.items()))
        parts = [
            f"{self.case}, {self.engine}, seed {self.seed}: read_committed {self.committed}",
            f"read_uncommitted {self.uncommitted}",
            *([f"{self.passed_unread} records passed unread"] if self.passed_unread is not None else []),
            f"whole after {self.whole_seconds} s, {len(self.strikes)} faults, {self.starts} starts, {self.seconds} s",
            *([happened] if happened else []),
        ]
        return "; ".join(parts)


@dataclass(frozen=True)
class Case:
    """A fault by name.

    `title` is its row in the table. `mm2`: MirrorMaker 2 can meet it too. `quick`: `make test-long` runs it. `cleaned`:
    the source deletes records meanwhile, so only those that are there in the end must be on the target. `flow` is one
    of FLOWS.
    """

    name: str
    title: str
    act: Act
    mm2: bool = True
    quick: bool = False
    transactional: bool = False
    group: bool = False
    cleaned: bool = False
    flow: str = ""
    topic: Mapping[str, str] = field(default_factory=dict)
    spark_options: Sequence[str] = ()
    small_disk: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    # The nodes that the source topic lies on: by default all three.
    replicas: Sequence[int] = ()
    # The remote topic, where it is there before the first record, on these nodes.
    remote: Mapping[str, str] = field(default_factory=dict)
    remote_replicas: Sequence[int] = ()
    acks: str = "all"
    # What is written each second. Over hours the judge holds every record in memory.
    per_second: int = PER_SECOND
    # A late InitProducerId of this mirror's own, or a process that was frozen amid its fences, may end a run with exit
    # code 3; the next start must resume.
    fences_itself: bool = False


@dataclass
class Scene:
    """What a case acts on."""

    case: Case
    source: Cluster
    target: Cluster
    engine: Engine
    load: Load
    seed: int
    group: Optional[Group] = None
    # What the replicator said and did, where that is right and no exact copy.
    refusal: str = ""
    strikes: List[Strike] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.wanted = WANTED.get(self.case.flow)
        self.follower = Follower(self.target, self.engine.remote_topic)
        self.ended_by_itself = False
        self.fenced_itself = 0
        self._healed: Optional[Tuple[float, AbstractSet[Id]]] = None
        self._before = self._happened()

    def flowing(self) -> None:
        """Return when records arrive on the target that were written after this call."""
        now, deadline = self.load.next_numbers(), time.monotonic() + START_SECONDS
        while self.follower.past(now) < BETWEEN_FAULTS or not now:
            now = now or self.load.next_numbers()
            self.check()
            if not self.engine.running and not self.started_again():
                raise AssertionError(f"{self.engine.name} has ended by itself:\n{self.tail_of_log()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no records reach the target:\n{self.tail_of_log()}")
            time.sleep(0.1)

    def started_again(self) -> bool:
        """Start again a run that a fence of its own ended, as a scheduler does, where the case may bring that about."""
        ended = self.case.fences_itself and self.engine.processes[-1].poll() == EXIT_REFUSED
        if ended:
            self.fenced_itself += 1
            self.engine.start()
        return ended

    def still(self) -> None:
        """Return when a reader of the target has got nothing new for two seconds."""
        seen, since = len(self.follower.seen), time.monotonic()
        while time.monotonic() < since + 2:
            if len(self.follower.seen) != seen:
                seen, since = len(self.follower.seen), time.monotonic()
            time.sleep(0.1)

    def check(self) -> None:
        """AssertionError where one of those that write and read has failed."""
        for each in self._people():
            each.check()

    def _people(self) -> Sequence[Background]:
        return [self.load, self.follower, *([] if self.group is None else [self.group])]

    def strike(self, what: str) -> None:
        """Wait until records flow, and note that the fault which follows falls now."""
        self.flowing()
        self.strikes.append(Strike(what, len(self.load.acked), len(self.follower.seen)))

    def sleep(self, least: float, most: float) -> None:
        time.sleep(self.random.uniform(least, most))

    def heal(self) -> None:
        """Both clusters are whole again, and a replicator copies that has not refused to."""
        for cluster in (self.source, self.target):
            cluster.heal()
        if not self.engine.running and not self.refusal and not self.started_again():
            self.ended_by_itself = True
            self.engine.start()

    def healed(self) -> None:
        """The last fault has ended: what is acknowledged by now is waited for."""
        self._healed = time.monotonic(), self.owed()

    def tail_of_log(self) -> str:
        return "" if not self.engine.log.exists() else self.engine.log.read_text(errors="replace")[-1500:]

    def play(self) -> Outcome:
        began = time.monotonic()
        for each in self._people():
            each.begin()
        self.engine.start()
        try:
            try:
                self.case.act(self)
                if self._healed is None:
                    self.healed()
            finally:  # the clusters are the next case's too
                self.heal()
            assert self._healed is not None
            healed_at, owed = self._healed
            whole = time.monotonic() - healed_at if self._all_seen(owed, healed_at + WHOLE_SECONDS) else None
            time.sleep(AFTERWARDS_SECONDS)
            self.check()
            self.load.stop()
            self._all_seen(self.owed(), time.monotonic() + WHOLE_SECONDS)
            if self.group is not None:
                self.group.stop()
            code = self.engine.stop()
        finally:
            self.engine.end()
            for each in self._people():
                each.give_up()
        return self._judged(whole, code, time.monotonic() - began)

    def _all_seen(self, owed: AbstractSet[Id], deadline: float) -> bool:
        """Whether a reader of the target gets them in time. Less is owed where the source deletes records meanwhile."""
        while not owed <= self.follower.seen:
            if self.refusal or time.monotonic() > deadline:
                return False
            owed = owed & self.owed() if self.case.cleaned else owed
            time.sleep(0.1)
        return True

    def on_target(self) -> AbstractSet[Id]:
        """What the target holds at this moment, whatever a reader of it has seen before."""
        return ids_on(read_topic(self.target, self.engine.remote_topic))

    def owed(self) -> AbstractSet[Id]:
        """What is acknowledged by now and must be on the target in the end."""
        acked = frozenset(self.load.acked)
        wanted = self.wanted
        if wanted is None and not self.case.cleaned:
            return acked
        return acked & {
            each
            for log in read_topic(self.source, self.load.topic, "read_committed").values()
            for offset, record in log.items()
            if (each := id_of(record)) is not None and (wanted is None or wanted(each, offset))
        }

    def _judged(self, whole: Optional[float], code: Optional[int], seconds: float) -> Outcome:
        source = read_topic(self.source, self.load.topic, "read_committed")
        gone = self.load.acked - ids_on(source)
        assert self.case.cleaned or not gone, f"the source lost {len(gone)} records that it had acknowledged"
        found: Dict[str, Verdict] = {}
        for isolation in ("read_committed", "read_uncommitted"):
            remote = read_topic(self.target, self.engine.remote_topic, isolation)
            found[isolation] = judge(source, remote, self.case.flow != "keyed", self.wanted, gone)
        return Outcome(
            case=self.case.name,
            engine=self.engine.name,
            seed=self.seed,
            strikes=self.strikes,
            happened=dict(self._happened() - self._before),
            committed=found["read_committed"],
            uncommitted=found["read_uncommitted"],
            whole_seconds=None if whole is None else round(whole, 1),
            passed_unread=None if self.group is None else passed_unread(source, remote, self.group.samples),
            starts=len(self.engine.processes),
            exit_code=code,
            seconds=round(seconds, 1),
            refusal=self.refusal,
            ended_by_itself=self.ended_by_itself,
            gone=len(gone),
            fenced_itself=self.fenced_itself,
        )

    def _happened(self) -> Counter[str]:
        sides = (self.source, self.target)
        return Counter({f"{side.name}: {what}": n for side in sides for what, n in side.happened().items()})
