"""The status of flows as lines for people and as JSON for programs. Pure."""

from __future__ import annotations

import time
from dataclasses import asdict
from itertools import groupby
from typing import Dict, List, Optional, Tuple

from mirror_lib.codes import INCIDENT_CODES
from mirror_lib.event_lines import event_lines
from mirror_lib.ledger.records import CutoverStep
from mirror_lib.status.facts import (
    CutoverStatus,
    FlowStatus,
    GroupStatus,
    PartitionStatus,
    RunStatus,
    TopicStatus,
    topics_of,
    unsized,
)
from mirror_lib.text import aligned, counted, duration, grouped, one_entry, size

# So many topics are listed, those with the greatest lag first; `--all` lists every one.
TOPICS_SHOWN = 20
WAITS_SHOWN = 5
# So many events are listed, the latest first.
EVENTS_SHOWN = 3
SCHEMA = 1


def status_lines(
    status: FlowStatus, everything: bool = False, partitions: bool = False, columns: Optional[int] = None
) -> List[str]:
    lines = [f"{status.flow}: {status.state}", f"  run       {_run(status)}"]
    if status.partitions:
        lines.append(f"  lag       {_lag(status)}")
    if status.run is not None and status.run.filtered is not None:
        lines.append(f"  filtered  {counted(status.run.filtered, 'record')} since the start of the run")
    lines += [f"  waits     {each.sentence(status.at)}" for each in status.transactions[:WAITS_SHOWN]]
    if status.kept_seconds is not None:
        lines.append(f"  retention the source keeps all of that for {_left(status.kept_seconds)} at least")
    if status.kept_bytes is not None:
        lines.append(f"  retention by size after about {size(max(0, status.kept_bytes))} more in a partition")
    if unsized(status.partitions):
        lines.append(f"  retention {unsized(status.partitions)}")
    lines.append(f"  verified  {_verified(status)}")
    if status.cutover is not None:
        lines.append(f"  cut-over  {_cutover(status.cutover)}")
    lines += _events(status)
    lines += [line for each in status.problems for line in (f"  ! {one_entry(each.what)}", f"    {each.remedy}")]
    rows = [_PARTITION_HEADER, *map(_partition_row, status.partitions)]
    if not partitions:
        rows = [_TOPIC_HEADER, *map(_topic_row, topics_of(status.partitions))]
    shown = rows if everything or partitions else rows[: TOPICS_SHOWN + 1]
    if len(rows) > 1:
        lines += ["", *aligned(shown, range(1, len(rows[0])), columns)]
    if len(shown) < len(rows):
        lines.append(f"and {counted(len(rows) - len(shown), 'topic')} with less lag (--all)")
    if status.groups:
        lines += ["", *_group_lines(status, columns)]
    return lines


def _run(status: FlowStatus) -> str:
    run = status.run
    if run is None:
        return "none yet"
    where = "" if run.driver is None else f" on {run.driver}"
    if status.running:
        return f"running since {_moment(run.started)}{where}, last sign of life {_ago(status, run.last_sign)}"
    if run.ended is None:
        return f"died: started {_moment(run.started)}{where}, last sign of life {_ago(status, run.last_sign)}"
    return f"ended {_moment(run.ended)}{where}: {'with an error' if run.failed else run.outcome}"


def _lag(status: FlowStatus) -> str:
    if not status.lag:
        return "none"
    parts = [counted(status.lag, "offset")]
    if status.lag_seconds is not None:
        parts.append(f"the oldest record is {duration(status.lag_seconds)} old")
    rate = status.run.records_per_second if status.run is not None and status.running else None
    if rate:
        parts.append(f"{grouped(round(rate))} records/s")
    if status.eta_seconds is not None:
        parts.append(f"about {duration(status.eta_seconds)} to go")
    return " · ".join(parts)


def _verified(status: FlowStatus) -> str:
    found = status.verified
    if found is None:
        return "never"
    counts = f"{counted(found.topics, 'topic')}, {counted(found.records, 'record')}"
    return f"{found.verdict} {_moment(found.at)} ({counts}, {found.scope})"


def _cutover(found: CutoverStatus) -> str:
    if not found.complete:
        return f"{'refused' if found.refused else 'interrupted'} at the step {found.step} {_moment(found.at)}"
    place = "to the target" if found.direction == CutoverStep.OVER else "back to the source"
    return f"applications moved {place} {_moment(found.at)}"


def _events(status: FlowStatus) -> List[str]:
    """The last events, the latest first; the rows of one commit have one time."""
    found = [
        f"{_moment(at)} {line}"
        for at, rows in groupby(reversed(status.incidents), key=lambda each: each.at)
        for line in event_lines(rows)
    ]
    if not found:
        return ["  events    none in 7 days"]
    older = len(found) - EVENTS_SHOWN
    more = [f"            and {counted(older, 'older event')} in 7 days: table incidents"] if older > 0 else []
    return [*(f"  event     {one_entry(line)}" for line in found[:EVENTS_SHOWN]), *more]


_TOPIC_HEADER = ("TOPIC", "PARTITIONS", "COPIED", "LAG", "LAG TIME", "KEPT FOR", "WORST")
_PARTITION_HEADER = ("PARTITION", "LOG START", "NEXT OFFSET", "LOG END", "LAG", "LAG TIME", "KEPT FOR", "COMMITTED")


def _topic_row(topic: TopicStatus) -> Tuple[str, ...]:
    return (
        *(topic.topic, str(len(topic.partitions)), topic.copied_words, grouped(topic.lag)),
        *(_age(topic.lag_seconds), _left(topic.kept_seconds), str(topic.worst.partition) if topic.lag else "-"),
    )


def _partition_row(each: PartitionStatus) -> Tuple[str, ...]:
    return (
        *(f"{each.topic}-{each.partition}", grouped(each.log_start), _number(each.position), grouped(each.log_end)),
        *(grouped(each.lag), _age(each.lag_seconds), _left(each.kept_seconds), _moment(each.copied_at)),
    )


def _age(seconds: Optional[float]) -> str:
    return "-" if seconds is None else duration(seconds)


def _left(seconds: Optional[float]) -> str:
    return "-" if seconds is None else duration(seconds) if seconds > 0 else "0 s"


def _group_lines(status: FlowStatus, columns: Optional[int]) -> List[str]:
    header = ("GROUP", "POSITIONS", "VERDICT", "SOURCE LAG", "TARGET LAG", "COMMITTED")
    rows = [
        (
            *(each.group, str(each.positions), each.verdict.split(":")[0]),
            *(_number(each.source_lag), _target_lag(each), _moment(each.moved_at)),
        )
        for each in status.groups
    ]
    return aligned([header, *rows], {1, 3, 4}, columns)


def _target_lag(group: GroupStatus) -> str:
    markers = f" ({counted(group.target_markers, 'marker')})" if group.target_markers else ""
    return _number(group.target_lag) + markers


def _number(value: Optional[int]) -> str:
    return "-" if value is None else grouped(value)


def _moment(at: Optional[float]) -> str:
    if at is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _ago(status: FlowStatus, at: float) -> str:
    return f"{duration(max(0.0, status.at - at))} ago"


def status_json(status: FlowStatus) -> Dict[str, object]:
    """Times are Unix seconds; `schema` is the version of this document."""
    run: Optional[RunStatus] = status.run
    return {
        "schema": SCHEMA,
        **asdict(status),
        "run": None if run is None else {**asdict(run), "running": status.running},
        "state": status.state,
        "lag": status.lag,
        "lag_seconds": status.lag_seconds,
        "kept_seconds": status.kept_seconds,
        "kept_bytes": status.kept_bytes,
        "eta_seconds": status.eta_seconds,
        "incidents": [{**asdict(each), "code": INCIDENT_CODES.get(each.kind)} for each in status.incidents],
        "problems": [asdict(each) for each in status.problems],
        "blocked": [{"topic": topic, "reason": reason} for topic, reason in status.blocked],
    }
