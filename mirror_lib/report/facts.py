"""What `mirror report` shows: the status of each flow, its history, and its configuration without secrets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from mirror_lib.status.facts import (
    WELL_ENDED,
    FlowStatus,
    IncidentStatus,
    Rows,
    RunStatus,
    VerifyStatus,
    rows_by_run,
    run_of,
)

RUNS_SHOWN = 50

RUNNING, DIED = "running", "died"


@dataclass(frozen=True)
class Sign:
    """A row of the table `runs` with progress: records and bytes since the start of the run at `at` (Unix seconds).

    `lag_records` (offsets) and `lag_seconds` are `None` at the start and at the end of a run, and in rows of an earlier
    release.
    """

    at: float
    records: int
    bytes: int
    lag_records: Optional[int] = None
    lag_seconds: Optional[float] = None


@dataclass(frozen=True)
class RunRecord(RunStatus):
    """One run of a flow. `signs` begin with its start, at which nothing was copied yet."""

    signs: Tuple[Sign, ...] = ()

    @property
    def records(self) -> int:
        return self.signs[-1].records

    @property
    def bytes(self) -> int:
        return self.signs[-1].bytes

    def end(self, now: float) -> str:
        """Its outcome, RUNNING, or DIED where it has no end and was killed or is silent for ten minutes."""
        if self.ended is not None:
            return self.outcome or "ended"
        return RUNNING if self.running(now) else DIED

    def went_well(self, now: float) -> bool:
        return self.end(now) in (*WELL_ENDED, RUNNING)


@dataclass(frozen=True)
class VerificationRecord(VerifyStatus):
    """One row of the table `verifications`. `differing` counts the topics that differ."""

    differing: int = 0


@dataclass(frozen=True)
class FlowHistory:
    """The last thirty days of a flow, each list with the latest entry last; of verifications every one there is.

    A list is `None` where its table could not be read; `unread` has the sentences.
    """

    runs: Optional[Tuple[RunRecord, ...]] = ()
    incidents: Optional[Tuple[IncidentStatus, ...]] = ()
    verifications: Optional[Tuple[VerificationRecord, ...]] = ()
    unread: Tuple[str, ...] = ()


@dataclass(frozen=True)
class ClusterFacts:
    """What a page may show of a cluster's configuration."""

    alias: str
    bootstrap_servers: str
    security_protocol: str


@dataclass(frozen=True)
class SettingValue:
    """A setting that has another value than its default. `place` is `file:line`, empty where the file does not have
    the key."""

    name: str
    value: str
    default: str
    place: str = ""


@dataclass(frozen=True)
class FlowReport:
    """One flow."""

    status: FlowStatus
    history: FlowHistory
    source: ClusterFacts
    target: ClusterFacts
    settings: Tuple[SettingValue, ...] = ()


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file, and the SHA-256 of its content in hexadecimal digits."""

    path: str
    sha256: str


@dataclass(frozen=True)
class MirrorReport:
    """The whole page. `made_at` is Unix seconds, `state` the folder of the tables."""

    name: str
    made_at: float
    version: str
    state: str
    trigger: str
    flows: Tuple[FlowReport, ...]
    files: Tuple[ConfigFile, ...]


def run_records(rows: Rows, since: float) -> Tuple[RunRecord, ...]:
    """The runs with a sign of life after `since`. A run without a row `started` is left out."""
    found = [RunRecord(**vars(run_of(own)), signs=_signs(own)) for own in rows_by_run(rows) if own[-1]["at"] >= since]
    return tuple(sorted(found, key=lambda each: each.started))


def _signs(rows: Rows) -> Tuple[Sign, ...]:
    signs = [Sign(rows[0]["at"], 0, 0)]
    for row in rows[1:]:
        records = signs[-1].records if row["records"] is None else row["records"]
        nbytes = signs[-1].bytes if row["bytes"] is None else row["bytes"]
        signs.append(Sign(row["at"], records, nbytes, row["lag_records"], row["lag_seconds"]))
    return tuple(signs)
