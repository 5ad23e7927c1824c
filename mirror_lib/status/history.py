"""The history of a flow, by the tables of its state folder: runs with their signs of life, incidents, verifications.
Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from mirror_lib.ledger.records import DAY_SECONDS
from mirror_lib.status.facts import (
    WELL_ENDED,
    IncidentStatus,
    Rows,
    RunStatus,
    VerifyStatus,
    rows_by_run,
    run_of,
)

RUNNING, DIED = "running", "died"
HISTORY_SECONDS = 30 * DAY_SECONDS


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
    """One run of a flow, as of `now` (Unix seconds). `signs` begin with its start, at which nothing was copied yet."""

    signs: Tuple[Sign, ...] = ()
    now: float = 0.0

    @property
    def end(self) -> str:
        """Its outcome, RUNNING, or DIED where it has no end and was killed or is silent for ten minutes."""
        if self.ended is not None:
            return self.outcome or "ended"
        return RUNNING if self.running(self.now) else DIED

    @property
    def seconds(self) -> float:
        return (self.now if self.end == RUNNING else self.last_sign) - self.started

    @property
    def went_well(self) -> bool:
        return self.end in (*WELL_ENDED, RUNNING)


@dataclass(frozen=True)
class FlowHistory:
    """The last thirty days of a flow, each list with the latest entry last; of verifications every one there is. A list
    is `None` where its table could not be read."""

    runs: Optional[Tuple[RunRecord, ...]] = ()
    incidents: Optional[Tuple[IncidentStatus, ...]] = ()
    verifications: Optional[Tuple[VerifyStatus, ...]] = ()


def run_records(rows: Rows, now: float) -> Tuple[RunRecord, ...]:
    """The runs with a sign of life in the last 30 days. A run without a row `started` is left out."""
    recent = [own for own in rows_by_run(rows) if own[-1]["at"] >= now - HISTORY_SECONDS]
    found = [RunRecord(**vars(run_of(own)), signs=_signs(own), now=now) for own in recent]
    return tuple(sorted(found, key=lambda each: each.started))


def _signs(rows: Rows) -> Tuple[Sign, ...]:
    signs = [Sign(rows[0]["at"], 0, 0)]
    for row in rows[1:]:
        records = signs[-1].records if row["records"] is None else row["records"]
        nbytes = signs[-1].bytes if row["bytes"] is None else row["bytes"]
        signs.append(Sign(row["at"], records, nbytes, row["lag_records"], row["lag_seconds"]))
    return tuple(signs)
