"""What is read of a flow at one moment, and what follows: lag, time until deletion, problems, the state. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.codes import INCIDENT_CODES, PREFIX
from mirror_lib.groups.translation import WAYS_OUT
from mirror_lib.ledger.records import (
    DATA_LOST,
    DAY_SECONDS,
    DEAD_SECONDS,
    GROUP_LOST_RECORDS,
    NEWS,
    OFFSETS_SKIPPED,
    PARTITION_STOPPED,
    TOPIC_BLOCKED,
    CutoverStep,
    Incident,
    Verification,
)
from mirror_lib.text import UNPRINTED, counted, duration, some
from mirror_lib.topics.matchless import Matchless
from mirror_lib.transactions import OpenTransaction

Rows = Sequence[Mapping[str, Any]]
RUNNING, DIED = "running", "died"
# Codes of problems that some readers treat apart.
NEVER_RAN, NOT_RUNNING = "never ran", "not running"
RUN_FAILED, RUN_DIED, VERIFICATION = "run failed", "run died", "verify"
TRANSACTIONS = ("hanging transaction", "open transaction")
EQUAL = "equal"
HEALTHY, DEGRADED, UNKNOWN = "healthy", "degraded", "unknown"
# Records that the source deletes sooner than this, before they are copied, are a problem: hours are left to act.
WARN_SECONDS = 24 * 3600.0
# A run with a lag commits to the ledger every `tail.seconds`, by default 30. One that has not for so long is stuck, or
# was killed.
STUCK_SECONDS = 120.0
# A flow that ended with an error and started within so long did so by itself.
AGAIN_SECONDS = 60.0
# The state of a flow has its runs, incidents and verifications of so long.
HISTORY_SECONDS = 30 * DAY_SECONDS
# A lag that fell for less than this says little of how long the rest takes.
FALL_SECONDS = 30.0
# Brokers abort a transaction that lasts longer than `transaction.max.timeout.ms`, 15 minutes by default.
HANGING_SECONDS = 900.0
UNKNOWN_AGE_REMEDY = "its age is unknown: kafka-transactions.sh find-hanging shows whether its producer left it"
HANGING_REMEDY = "end its producer; kafka-transactions.sh abort ends a transaction that its producer left"
# How the outcome of a run that failed begins.
CODE = re.compile(rf"{PREFIX}\d{{3}}\b")
WELL_ENDED = ("ok", "stopped")
# Refusals, and those that end by themselves: another run, and a truncated remote log that the next run fills.
REFUSED, PASSING = f"{PREFIX}3", (f"{PREFIX}301", f"{PREFIX}302", f"{PREFIX}312")


@dataclass(frozen=True)
class PartitionStatus:
    """One source partition. `position` is the next offset to copy, `None` before the first row of the ledger.

    `lag`: offsets from there to the log's end, control records included. `lag_seconds`: age of the next record to copy.
    `deleted`: offsets that retention removed uncopied. `kept_seconds`: how long the source keeps the next record, at
    least; negative if it may delete it at any moment, `None` without a lag or without deletion by time. `copied_at`:
    last commit to the ledger.

    `size_limit`: `retention.bytes` of a partition with a lag. `kept_bytes`: about how much the source can write before
    it deletes the next record by size; `None` if the log's size is unknown. `heartbeats`: a topic of heartbeats.
    """

    topic: str
    remote_topic: str
    partition: int
    log_start: int
    log_end: int
    position: Optional[int]
    copied_at: Optional[float] = None
    lag: int = 0
    lag_seconds: Optional[float] = None
    deleted: int = 0
    kept_seconds: Optional[float] = None
    size_limit: Optional[int] = None
    kept_bytes: Optional[int] = None
    heartbeats: bool = False

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def resumes(self) -> int:
        """The next offset to copy of those that the source still holds."""
        return max(self.log_start, self.position or 0)

    @property
    def full_seconds(self) -> Optional[float]:
        """About how long until the source deletes the next record by size, if it writes on as it did since that record;
        `None` where that is unknown, and while less than half of `size_limit` is left to copy: a lag of a moment says
        little of the rate."""
        if self.size_limit is None or self.kept_bytes is None or self.kept_bytes > self.size_limit / 2:
            return None
        if self.kept_bytes <= 0:
            return 0.0
        written = self.size_limit - self.kept_bytes
        return None if self.lag_seconds is None else self.lag_seconds * self.kept_bytes / written


# The milliseconds after which the source deletes a record of a topic, and the bytes of a partition above which it
# deletes its oldest; `None` where it does not.
Retention = Tuple[Optional[int], Optional[int]]
KEPT_FOR_EVER: Retention = (None, None)


@dataclass(frozen=True)
class Sign:
    """A sign of life of a run `at` (Unix seconds): records and bytes since its start. `lag_records` (offsets) and
    `lag_seconds` are `None` at the start and at the end of a run, and in rows of an earlier release."""

    at: float
    records: int
    bytes: int
    lag_records: Optional[int] = None
    lag_seconds: Optional[float] = None


@dataclass(frozen=True)
class RunStatus:
    """A run as of `at`. `outcome` is `None` while it runs, and if it was killed; `driver`: host and process, if
    recorded. `records_per_second`: between the last two signs of life, or of the whole run. `killed`: its process was
    on this machine, and has ended. `filtered`: as in a cycle, until the last sign of life. `dead_letters`: records
    written to `dead.letter.topic`; `None` without one."""

    DERIVED: ClassVar[Sequence[str]] = ("running",)

    run_id: str
    started: float
    last_sign: float
    at: float
    ended: Optional[float] = None
    outcome: Optional[str] = None
    driver: Optional[str] = None
    records_per_second: Optional[float] = None
    killed: bool = False
    filtered: Optional[int] = None
    dead_letters: Optional[int] = None
    # The first one is of its start, at which nothing was copied yet.
    signs: Tuple[Sign, ...] = field(default=(), metadata=UNPRINTED)

    @property
    def running(self) -> bool:
        """Whether it is under way: no end, not killed, and a sign of life in the last ten minutes."""
        return self.ended is None and not self.killed and self.at - self.last_sign <= DEAD_SECONDS

    @property
    def failed(self) -> bool:
        return self.outcome is not None and self.outcome not in WELL_ENDED

    @property
    def end(self) -> str:
        """Its outcome, RUNNING, or DIED where it has no end and was killed or is silent for ten minutes."""
        if self.ended is not None:
            return self.outcome or "ended"
        return RUNNING if self.running else DIED

    @property
    def seconds(self) -> float:
        return (self.at if self.running else self.last_sign) - self.started


@dataclass(frozen=True)
class IncidentStatus(Incident):
    """An incident, recorded at `at`."""

    DERIVED: ClassVar[Sequence[str]] = ("code",)

    at: float

    @property
    def code(self) -> Optional[str]:
        return INCIDENT_CODES.get(self.kind)


@dataclass(frozen=True)
class GroupStatus:
    """A consumer group that the flow translates. `source_lag`, `target_lag`: offsets left to read, `None` without an
    offset there. `target_markers`: markers in `target_lag`, after the last record. `verdict`: the worst of its
    positions. `moved_at`: last commit by the mirror, if any. `active`: it has consumers on the target."""

    group: str
    positions: int
    verdict: str
    source_lag: Optional[int]
    target_lag: Optional[int]
    moved_at: Optional[float]
    target_markers: int = 0
    active: bool = False


@dataclass(frozen=True)
class VerifyStatus(Verification):
    """A verification, recorded at `at`."""

    at: float


@dataclass(frozen=True)
class CutoverStatus:
    """The last cut-over (`direction`: `over` or `back`). `step`: the last one that began; `complete`: all are done;
    `refused`: the step ended with an error."""

    direction: str
    step: str
    complete: bool
    at: float
    refused: bool = False


@dataclass(frozen=True)
class Problem:
    """Needs the operator: a `code` for scripts, `what` is the fact, `remedy` what to do. `unknown`: because of it the
    flow's health is unknown."""

    code: str
    what: str
    remedy: str
    unknown: bool = False


class Partitions:
    """What `partitions` come to together."""

    partitions: Tuple[PartitionStatus, ...]

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.partitions)

    @property
    def lag_seconds(self) -> Optional[float]:
        """The age of the oldest record that is still to be copied, where it is known."""
        return max((each.lag_seconds for each in self.partitions if each.lag_seconds is not None), default=None)

    @property
    def kept_seconds(self) -> Optional[float]:
        """How long at least the source keeps all that is still to be copied."""
        return min((each.kept_seconds for each in self.partitions if each.kept_seconds is not None), default=None)


@dataclass(frozen=True)
class TopicStatus(Partitions):
    """One source topic."""

    topic: str
    partitions: Tuple[PartitionStatus, ...]

    @property
    def copied(self) -> float:
        """How much of what the source holds is copied, in percent; never 100 while there is a lag."""
        held = sum(each.log_end - each.log_start for each in self.partitions)
        return min(99.9, 100 * (held - self.lag) / held) if self.lag else 100.0

    @property
    def worst(self) -> PartitionStatus:
        return max(self.partitions, key=lambda each: (each.lag, -each.partition))


def topics_of(partitions: Sequence[PartitionStatus]) -> List[TopicStatus]:
    """The greatest lag first."""
    by_topic: Dict[str, List[PartitionStatus]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(each)
    found = (TopicStatus(topic, tuple(own)) for topic, own in by_topic.items())
    return sorted(found, key=lambda each: (-each.lag, each.topic))


@dataclass(frozen=True)
class FlowStatus(Partitions):
    """One flow at `at`. `continuous`: its runs copy until they are stopped. `run`: the last one that started.
    `blocked`: topics that cannot be copied, with the reason. `leaderless`: source partitions without a leader, which
    are not in `partitions`. `unread`: what could not be read. `matchless`: names that the source lacks. `incidents` of
    the last 30 days, the latest last; `None` if unreadable."""

    DERIVED: ClassVar[Sequence[str]] = (
        *("state", "lag", "lag_seconds", "kept_seconds", "kept_bytes", "eta_seconds", "problems", "verified"),
    )

    flow: str
    at: float
    continuous: bool
    partitions: Tuple[PartitionStatus, ...] = ()
    run: Optional[RunStatus] = None
    incidents: Optional[Tuple[IncidentStatus, ...]] = ()
    groups: Tuple[GroupStatus, ...] = ()
    blocked: Mapping[str, str] = field(default_factory=dict)
    unread: Tuple[str, ...] = ()
    transactions: Tuple[OpenTransaction, ...] = ()
    cutover: Optional[CutoverStatus] = None
    leaderless: Tuple[str, ...] = ()
    matchless: Tuple[Matchless, ...] = ()
    # As `incidents`; verifications are all that there are.
    runs: Optional[Tuple[RunStatus, ...]] = field(default=(), metadata=UNPRINTED)
    verifications: Optional[Tuple[VerifyStatus, ...]] = field(default=(), metadata=UNPRINTED)

    @property
    def verified(self) -> Optional[VerifyStatus]:
        """The last verification."""
        return self.verifications[-1] if self.verifications else None

    @property
    def losses(self) -> Tuple[IncidentStatus, ...]:
        """The incidents without news."""
        return tuple(each for each in self.incidents or () if each.kind not in NEWS)

    @property
    def kept_bytes(self) -> Optional[int]:
        """About how much the source can write to a partition before it deletes by size what is still to be copied."""
        return min((each.kept_bytes for each in self.partitions if each.kept_bytes is not None), default=None)

    @property
    def running(self) -> bool:
        return self.run is not None and self.run.running

    @property
    def cut_over(self) -> bool:
        """Whether applications moved to the target, and no run copied anything from the source since."""
        last = self.cutover
        if last is None or not last.complete or last.direction != CutoverStep.OVER:
            return False
        return self.run is None or self.run.started <= last.at

    @property
    def eta_seconds(self) -> Optional[float]:
        """When the lag will be copied, as fast as it has fallen since a sign of life; `None` where it has not fallen,
        without a run, and before its first sign of life."""
        signs = self.run.signs if self.run is not None and self.running else ()
        since = next((each for each in reversed(signs) if self.at - each.at >= FALL_SECONDS), None)
        if since is None or since.lag_records is None or not 0 < self.lag < since.lag_records:
            return None
        return self.lag * (self.at - since.at) / (since.lag_records - self.lag)

    @property
    def problems(self) -> Tuple[Problem, ...]:
        """The worst first."""
        unread = [Problem("unreadable", sentence, "fix this, then ask again", True) for sentence in self.unread]
        return (*unread, *_of_the_run(self), *of_the_data(self), *_of_groups(self), *_of_verification(self))

    @property
    def state(self) -> str:
        """HEALTHY, DEGRADED, or UNKNOWN where a cluster or the state folder could not be read, or nothing ever ran."""
        problems = self.problems
        if any(each.unknown for each in problems):
            return UNKNOWN
        return DEGRADED if problems else HEALTHY


def partition_status(
    at: PartitionStatus, next_ms: Optional[int], retention: Retention, now: float, nbytes: Optional[int]
) -> PartitionStatus:
    """`at` with what follows from it. `next_ms`: timestamp of the next record to copy, where there is one. The source
    deletes a segment by time once its latest record is as old as the retention, so no earlier than this record is. By
    size it deletes a segment once the segments after it hold `retention.bytes`. `nbytes`: size of the log. How much of
    it is still to be copied is estimated, as if its records were of one size."""
    lag = max(0, at.log_end - at.resumes)
    age = max(0.0, now - next_ms / 1000) if lag and next_ms is not None and next_ms > 0 else None
    ms, most_bytes = retention
    kept = ms / 1000 - age if ms is not None and age is not None else None
    limit = most_bytes if lag else None
    kept_bytes = None
    if limit is not None and nbytes is not None:
        kept_bytes = round(limit - nbytes * lag / (at.log_end - at.log_start))
    deleted = 0 if at.position is None else max(0, min(at.log_start, at.log_end) - at.position)
    return replace(
        at, lag=lag, lag_seconds=age, deleted=deleted, kept_seconds=kept, size_limit=limit, kept_bytes=kept_bytes
    )


def runs_of(rows: Rows, now: float) -> Tuple[RunStatus, ...]:
    """In the order of their starts. A run without a row `started` is left out."""
    by_run: Dict[str, List[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["at"]):
        by_run.setdefault(row["run_id"], []).append(row)
    found = [_run(own, now) for own in by_run.values() if own[0]["kind"] == "started"]
    return tuple(sorted(found, key=lambda each: each.started))


def _run(own: Rows, now: float) -> RunStatus:
    """`own`: the rows of the run."""
    first, ended = own[0], next((row for row in own if row["kind"] == "ended"), None)
    signs = [Sign(first["at"], 0, 0)]
    for row in own[1:]:
        records = signs[-1].records if row["records"] is None else row["records"]
        nbytes = signs[-1].bytes if row["bytes"] is None else row["bytes"]
        signs.append(Sign(row["at"], records, nbytes, row["lag_records"], row["lag_seconds"]))
    before, last = signs[-2:][0], signs[-1]
    return RunStatus(
        *(first["run_id"], first["at"], last.at, now),
        None if ended is None else ended["at"],
        None if ended is None else str(ended["outcome"]),
        _latest(own, "driver"),
        (last.records - before.records) / (last.at - before.at) if last.at > before.at else None,
        filtered=_latest(own, "filtered"),
        dead_letters=_latest(own, "dead_letters"),
        signs=tuple(signs),
    )


def _latest(rows: Rows, name: str) -> Any:
    return next((row[name] for row in rows[::-1] if row.get(name) is not None), None)


def cutover_status(rows: Rows) -> Optional[CutoverStatus]:
    """By the last of the rows."""
    ordered = sorted(rows, key=lambda row: row["at"])
    # A way back that was refused at its first step has changed nothing. Each try has two rows.
    at_once = (CutoverStep.BACK, CutoverStep.FIRST_BACK, CutoverStep.FAILED)
    while ordered and tuple(ordered[-1][name] for name in ("direction", "step", "status")) == at_once:
        ordered = ordered[:-2]
    if not ordered:
        return None
    last = ordered[-1]
    direction, step = last["direction"], last["step"]
    complete = last["status"] == CutoverStep.DONE and step == CutoverStep.LAST.get(direction)
    return CutoverStatus(direction, step, complete, last["at"], last["status"] == CutoverStep.FAILED)


def _of_the_run(flow: FlowStatus) -> List[Problem]:
    run, start_again = flow.run, "start it again: the next run resumes exactly"
    if run is None:
        return [] if flow.unread else [Problem(NEVER_RAN, "the flow never ran", "mirror run CONFIG", True)]
    if run.failed:
        code = CODE.match(run.outcome or "")
        remedy = start_again if code is None else _after(code.group(), start_again)
        return [Problem(RUN_FAILED, f"the last run ended with an error: {run.outcome}", remedy)]
    if flow.running:
        return _of_progress(flow, run, start_again)
    if run.killed:
        what = f"the last run, {run.driver}, was killed: it has no end, and this machine has no such process"
        return [Problem(RUN_DIED, what, start_again)]
    if run.ended is None:
        ago = duration(flow.at - run.last_sign)
        return [Problem("run died", f"the last run has no end, and its last sign of life is {ago} old", start_again)]
    if flow.cut_over:
        return _of_the_cutover(flow)
    if flow.continuous and flow.lag:
        ago = duration(flow.at - run.ended)
        return [Problem(NOT_RUNNING, f"the flow has not run for {ago}, and has a lag", start_again)]
    return []


def _after(code: str, start_again: str) -> str:
    """What to do after a run that ended with `code`: a refusal repeats until its cause is removed."""
    if code.startswith(REFUSED) and code not in PASSING:
        return f"mirror help {code}; without its remedy the next run is refused again"
    return f"mirror help {code}; then {start_again}"


def _of_the_cutover(flow: FlowStatus) -> List[Problem]:
    """Heartbeats that other flows write to the source do not count."""
    written = [each for each in flow.partitions if each.lag and not each.heartbeats]
    if not written:
        return []
    total = counted(sum(each.lag for each in written), "offset")
    what = f"the source was written to after the cut-over: {total} not copied, the first of {written[0].name}"
    return [Problem("written after cut-over", what, "stop these producers, then mirror cutover run CONFIG --execute")]


def _of_progress(flow: FlowStatus, run: RunStatus, start_again: str) -> List[Problem]:
    committed = max((each.copied_at for each in flow.partitions if each.copied_at is not None), default=0.0)
    # A flow that starts again after an error has a run for each attempt.
    began = run.started
    for each in reversed([each for each in flow.runs or () if each.started < began]):
        if not each.failed or began - each.last_sign > AGAIN_SECONDS:
            break
        began = each.started
    still = flow.at - max(committed, began)
    waits = flow.lag_seconds is not None and flow.lag_seconds > STUCK_SECONDS
    if not (waits and still > STUCK_SECONDS):
        return []
    what = f"the run has a lag and has committed nothing to the ledger for {duration(still)}"
    return [Problem("no progress", what, f"check its process; if it is dead, {start_again}")]


def of_the_data(flow: FlowStatus) -> List[Problem]:
    found = []
    deleted = [each for each in flow.partitions if each.deleted]
    if deleted:
        total = counted(sum(each.deleted for each in deleted), "offset")
        what = f"the source deleted {total} before they were copied, the first of {deleted[0].name}"
        found.append(Problem("deleted before copied", what, f"see on.data.loss; {keep_records(deleted[0].topic)}"))
    found += retention_problems(flow.partitions)
    for open_one in flow.transactions:
        # A record's timestamp is its producer's choice: it may show that a transaction is old, and proves nothing.
        code, remedy, since = TRANSACTIONS[0], HANGING_REMEDY, open_one.started
        if since is None:
            code, remedy, since = TRANSACTIONS[1], UNKNOWN_AGE_REMEDY, open_one.at
        if since is not None and flow.at - since >= HANGING_SECONDS:
            found.append(Problem(code, open_one.sentence(flow.at), remedy))
    if flow.leaderless:
        what = f"no leader: {some(flow.leaderless)}; records there are not copied, and their number is unknown"
        found.append(Problem("no leader", what, "start the brokers that have their replicas"))
    for lacking in () if flow.cut_over else flow.matchless:
        noun, place = lacking.key[:-1], f" ({lacking.place})" if lacking.place else ""
        remedy = f"correct `{lacking.key}`{place}, create the {noun}, or grant Describe on it"
        found.append(Problem(f"no such {noun}", lacking.sentence, remedy))
    for topic, reason in flow.blocked.items():
        found.append(Problem(TOPIC_BLOCKED, f"{topic} cannot be copied: {reason}", "mirror plan CONFIG"))
    since = flow.run.started if flow.run is not None else 0.0
    stopped = {(each.topic, each.partition): each for each in flow.losses if each.kind == PARTITION_STOPPED}
    explained = flow.run.outcome or "" if flow.run is not None else ""
    for each in stopped.values():
        if each.at >= since and each.reason not in explained:
            what = f"{each.topic}-{each.partition} stopped: {each.reason}"
            found.append(Problem(PARTITION_STOPPED, what, f"mirror help {INCIDENT_CODES[PARTITION_STOPPED]}"))
    lost = [each for each in flow.losses if each.kind in (DATA_LOST, OFFSETS_SKIPPED, GROUP_LOST_RECORDS)]
    recent = [each for each in lost if flow.at - each.at < WARN_SECONDS]
    if recent:
        last = max(recent, key=lambda each: each.at)
        what = f"{counted(len(recent), 'incident')} in 24 h, the last: {last.kind}, {last.topic}-{last.partition}"
        remedy = f"mirror help {INCIDENT_CODES[last.kind]}; the table events has the offsets"
        found.append(Problem(DATA_LOST, f"{what}: {last.reason}", remedy))
    return found


def keep_records(topic: str) -> str:
    """The command by which a source topic keeps its records until they are copied. Any other value than -1 may be lower
    than the one that the topic has."""
    return f"kafka-configs.sh --bootstrap-server SOURCE --alter --topic {topic} --add-config retention.ms=-1"


def retention_problems(partitions: Sequence[PartitionStatus]) -> List[Problem]:
    """Of the next `WARN_SECONDS`: by time, and by size."""
    found = []
    by_time = [(each.kept_seconds, each) for each in partitions if each.kept_seconds is not None]
    by_size = [(each.full_seconds, each) for each in partitions if each.full_seconds is not None]
    raise_bytes = "raise retention.bytes of these topics on the source, or copy faster"
    for how, ranked in (("", by_time), (" by size,", by_size)):
        soon = sorted((each for each in ranked if each[0] < WARN_SECONDS), key=lambda each: each[0])
        if soon:
            left, first = soon[0]
            remedy = raise_bytes if how else f"keep them: {keep_records(first.topic)}"
            about = "in about" if how else "in"
            when = f"{about} {duration(left)}" if left > 0 else "at any moment"
            places = some([each.name for _, each in soon], 1)
            what = f"the source may delete records of {places}{how} {when}, before they are copied"
            found.append(Problem("retention", what, remedy))
    return found


def unsized(partitions: Sequence[PartitionStatus]) -> str:
    """A sentence where retention by size cannot be compared with the lag; empty for no such topic."""
    topics = sorted({each.topic for each in partitions if each.size_limit is not None and each.kept_bytes is None})
    if not topics:
        return ""
    return f"the source also deletes by size (retention.bytes) from {some(topics, 1)}, and the log's size is unknown"


def _of_groups(flow: FlowStatus) -> List[Problem]:
    """Groups that the mirror does not move by itself. After a cut-over their consumers work on the target."""
    found = []
    for verdict, way_out in WAYS_OUT.items():
        names = [each.group for each in flow.groups if each.verdict == verdict]
        if names and not flow.cut_over:
            what = f"{counted(len(names), 'group')} not moved, {some(names, 3)}: {verdict}"
            found.append(Problem("group not moved", what, way_out))
    return found


def _of_verification(flow: FlowStatus) -> List[Problem]:
    verified = flow.verified
    if verified is None or verified.verdict == EQUAL:
        return []
    why = f": {verified.first_difference}" if verified.first_difference else ""
    remedy = "do what docs/run/verify.md says of a verification that fails; mirror verify CONFIG compares again"
    return [Problem(VERIFICATION, f"the last verification found: {verified.verdict}{why}", remedy)]
