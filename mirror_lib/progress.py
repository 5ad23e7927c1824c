"""What an operator sees while a flow runs: one frozen snapshot a pass, and the faces it is shown with."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Dict, List, Mapping, Optional

from mirror_lib.facts import TopicPartition

HOUR, DAY = 3600, 86400


@dataclass(frozen=True)
class ProgressSnapshot:
    """One pass of a flow: `seconds` in all, `copy_seconds` of them in the slowest lane.

    `behind_records` are upstream offsets still to go through, `behind_seconds` is the age of the last record copied of
    the partition that is farthest back among those with more to copy, where it is known. `waiting` says what it waits
    for, or what it is doing. For so many seconds the brokers of the source or the target throttled the mirror by their
    quotas. `commit_waits_seconds` is how long the ledger's commit has waited for Spark, where that is unusual: what
    is behind is then unknown, and `behind_seconds` is at least as long.
    """

    flow: str
    batch_id: int
    records: int
    bytes: int
    seconds: float
    copy_seconds: float
    behind_records: int
    behind_seconds: Optional[float]
    recovered: int
    stopped: int
    waiting: str
    source_throttled_seconds: float = 0.0
    target_throttled_seconds: float = 0.0
    commit_waits_seconds: float = 0.0

    @property
    def records_per_second(self) -> float:
        """Records copied a second in this pass."""
        return self.records / self.seconds if self.seconds > 0 else 0.0


def farthest_back(left: Mapping[TopicPartition, int], times: Mapping[TopicPartition, int]) -> Optional[float]:
    """The age in seconds of the last record copied of the partition that is farthest back among those with more to
    copy, `None` where nothing tells it. Both by source partition: `left` are upstream offsets still to go through,
    `times` those of the last records copied (ms)."""
    behind = [times[each] for each, count in left.items() if count and times.get(each, -1) > 0]
    return max(0.0, time.time() - min(behind) / 1000) if behind else None


def status_line(snapshot: ProgressSnapshot) -> str:
    """`A->B batch 7 · 48 210 records, 12.3 MB in 2.4 s (20 087/s) · behind 1 204 records, 3.1 s · copying`."""
    parts = [
        f"{snapshot.flow} {f'batch {snapshot.batch_id}' if snapshot.batch_id >= 0 else 'own pass'}",
        f"{counted(snapshot.records, 'record')}, {size(snapshot.bytes)} in {snapshot.seconds:.1f} s "
        f"({grouped(round(snapshot.records_per_second))}/s)",
        *_behind(snapshot),
    ]
    if snapshot.recovered:
        parts.append(f"{counted(snapshot.recovered, 'record')} found from an interrupted attempt")
    for side in ("source", "target"):
        seconds = snapshot.source_throttled_seconds if side == "source" else snapshot.target_throttled_seconds
        if seconds:
            parts.append(f"throttled by the {side}'s quota for {seconds:.1f} s")
    if snapshot.stopped:
        parts.append(f"{counted(snapshot.stopped, 'partition')} stopped")
    return " · ".join([*parts, snapshot.waiting])


def is_news(snapshot: ProgressSnapshot, told: Optional[ProgressSnapshot]) -> bool:
    """Whether its line says what `told`, the flow's last one shown, did not: that nothing happens is said once."""
    return told is None or not (_idle(snapshot) and _idle(told)) or snapshot.waiting != told.waiting


def _idle(snapshot: ProgressSnapshot) -> bool:
    throttled = snapshot.source_throttled_seconds + snapshot.target_throttled_seconds
    waits = throttled + snapshot.commit_waits_seconds
    return not (snapshot.records + snapshot.behind_records + snapshot.recovered + snapshot.stopped + waits)


def snapshot_json(snapshot: ProgressSnapshot) -> Dict[str, object]:
    """The snapshot as a JSON document, with the rate."""
    return {**asdict(snapshot), "records_per_second": round(snapshot.records_per_second, 1)}


def _behind(snapshot: ProgressSnapshot) -> List[str]:
    if snapshot.commit_waits_seconds:
        return [f"the ledger's commit has waited {duration(snapshot.commit_waits_seconds)}"]
    if not snapshot.behind_records:
        # What partitions that are stopped do not get, nothing counts.
        return [] if snapshot.stopped else ["caught up"]
    age = "" if snapshot.behind_seconds is None else f", {duration(snapshot.behind_seconds)}"
    return [f"behind {counted(snapshot.behind_records, 'record')}{age}"]


def grouped(number: int) -> str:
    """Digits in groups of three, with a thin gap that terminals and log collectors both keep."""
    return f"{number:,}".replace(",", " ")


def counted(number: int, noun: str) -> str:
    """`1 partition`, `1 204 partitions`: a number with its noun, whose plural ends in s."""
    return f"{grouped(number)} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds with a unit: `3.1 s`, from some hours on `5.2 h`, from some days on `12.5 days`."""
    if seconds < 2 * HOUR:
        return f"{seconds:.1f} s"
    return f"{seconds / HOUR:.1f} h" if seconds < 2 * DAY else f"{seconds / DAY:.1f} days"


def size(nbytes: float) -> str:
    """Bytes with a unit: `512 B`, `12.3 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"
