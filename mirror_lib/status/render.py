"""The status of flows as lines for people and as JSON for programs. Pure."""

from __future__ import annotations

import time
from dataclasses import asdict
from itertools import groupby
from typing import Dict, List, Optional, Sequence, Tuple

from mirror_lib.codes import INCIDENT_CODES
from mirror_lib.event_lines import event_lines
from mirror_lib.ledger.records import CutoverStep
from mirror_lib.status.facts import CutoverStatus, FlowStatus, GroupStatus, PartitionStatus, RunStatus, unsized
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
    rows = _partition_rows(status.partitions) if partitions else _topic_rows(status.partitions)
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


def _topic_rows(partitions: Sequence[PartitionStatus]) -> List[Tuple[str, ...]]:
    by_topic: Dict[str, List[PartitionStatus]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(each)
    ranked = sorted(by_topic.items(), key=lambda item: (-sum(each.lag for each in item[1]), item[0]))
    return [_TOPIC_HEADER, *(_topic_row(topic, own) for topic, own in ranked)]


def _topic_row(topic: str, own: Sequence[PartitionStatus]) -> Tuple[str, ...]:
    lag = sum(each.lag for each in own)
    worst = max(own, key=lambda each: (each.lag, -each.partition))
    return (
        topic,
        str(len(own)),
        _share(own),
        grouped(lag),
        _longest([each.lag_seconds for each in own]),
        _shortest([each.kept_seconds for each in own]),
        str(worst.partition) if lag else "-",
    )


def _share(own: Sequence[PartitionStatus]) -> str:
    """How much of what the source holds is copied; never 100 % while there is a lag."""
    held = sum(each.log_end - each.log_start for each in own)
    left = sum(each.lag for each in own)
    if not left:
        return "all"
    return f"{min(99.9, 100 * (held - left) / held):.1f} %"


def _longest(values: Sequence[Optional[float]]) -> str:
    known = [value for value in values if value is not None]
    return duration(max(known)) if known else "-"


def _shortest(values: Sequence[Optional[float]]) -> str:
    known = [value for value in values if value is not None]
    return _left(min(known)) if known else "-"


def _left(seconds: float) -> str:
    return duration(seconds) if seconds > 0 else "0 s"


def _partition_rows(partitions: Sequence[PartitionStatus]) -> List[Tuple[str, ...]]:
    rows = [
        (
            f"{each.topic}-{each.partition}",
            grouped(each.log_start),
            "-" if each.position is None else grouped(each.position),
            grouped(each.log_end),
            grouped(each.lag),
            _longest([each.lag_seconds]),
            _shortest([each.kept_seconds]),
            "-" if each.copied_at is None else _moment(each.copied_at),
        )
        for each in partitions
    ]
    return [_PARTITION_HEADER, *rows]


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
