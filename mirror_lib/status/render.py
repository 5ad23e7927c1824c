"""The status of flows as lines for people. Pure."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any, Callable, List, Optional, Sequence, Tuple

from mirror_lib.event_lines import event_lines
from mirror_lib.groups.translation import EXACT
from mirror_lib.ledger.records import CutoverStep
from mirror_lib.status.facts import HEALTHY, CutoverStatus, FlowStatus, GroupStatus, VerifyStatus, topics_of, unsized
from mirror_lib.text import NUMBER, Column, counted, duration, grouped, left, moment, one_entry, size, table_lines

# So many topics are listed, those with the greatest lag first; `--all` lists every one.
TOPICS_SHOWN = 20
WAITS_SHOWN = 5
# So many events are listed, the latest first.
EVENTS_SHOWN = 3


def status_lines(
    status: FlowStatus, everything: bool = False, partitions: bool = False, columns: Optional[int] = None
) -> List[str]:
    lines = [f"{status.flow}: {status.state}", *(f"  {name:<9} {text}" for name, text in facts(status, moment))]
    lines += _events(status)
    lines += [line for each in status.problems for line in (f"  ! {one_entry(each.what)}", f"    {each.remedy}")]
    if partitions:
        lines += _table(PARTITION, status.partitions, columns)
    else:
        topics = topics_of(status.partitions)
        shown = topics if everything else topics[:TOPICS_SHOWN]
        lines += _table(TOPIC, shown, columns)
        if len(shown) < len(topics):
            lines.append(f"and {counted(len(topics) - len(shown), 'topic')} with less lag (--all)")
    return lines + _table(GROUP, [replace(each, verdict=each.verdict.split(":")[0]) for each in status.groups], columns)


def _table(table: Sequence[Column], rows: Sequence[Any], columns: Optional[int]) -> List[str]:
    return ["", *table_lines(table, rows, columns)] if rows else []


def facts(status: FlowStatus, moment: Callable[[float], str]) -> List[Tuple[str, str]]:
    """What is true of the flow as a whole, each with its name. `moment` formats times."""
    found = [("run", _run(status, moment))]
    if status.partitions:
        found.append(("lag", lag(status)))
    run = status.run
    if run is not None and run.filtered is not None:
        found.append(("filtered", f"{counted(run.filtered, 'record')} since the start of the run"))
    if run is not None and run.dead_letters is not None:
        number = counted(run.dead_letters, "record")
        found.append(("failed", f"{number} written to the dead-letter topic since the start of the run"))
    found += [("waits", each.sentence(status.at)) for each in status.transactions[:WAITS_SHOWN]]
    if status.kept_seconds is not None:
        found.append(("retention", f"the source keeps all of that for {left(status.kept_seconds)} at least"))
    if status.kept_bytes is not None:
        found.append(("retention", f"by size after about {size(max(0, status.kept_bytes))} more in a partition"))
    if unsized(status.partitions):
        found.append(("retention", unsized(status.partitions)))
    unread = status.verifications is None
    found.append(("verified", "unknown" if unread else _verified(status.verified, moment)))
    if status.cutover is not None:
        found.append(("cut-over", _cutover(status.cutover, moment)))
    return found


def _run(status: FlowStatus, moment: Callable[[float], str]) -> str:
    run = status.run
    if run is None:
        return "unknown" if status.runs is None else "none yet"
    where = "" if run.driver is None else f" on {run.driver}"
    if run.ended is not None:
        return f"ended {moment(run.ended)}{where}: {'with an error' if run.failed else run.outcome}"
    began = "running since" if status.running else "died: started"
    ago = duration(max(0.0, status.at - run.last_sign))
    return f"{began} {moment(run.started)}{where}, last sign of life {ago} ago"


def lag(status: FlowStatus) -> str:
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


def _verified(found: Optional[VerifyStatus], moment: Callable[[float], str]) -> str:
    if found is None:
        return "never"
    counts = f"{counted(found.topics, 'topic')}, {counted(found.records, 'record')}"
    return f"{found.verdict} {moment(found.at)} ({counts}, {found.scope})"


def _cutover(found: CutoverStatus, moment: Callable[[float], str]) -> str:
    if not found.complete:
        return f"{'refused' if found.refused else 'interrupted'} at the step {found.step} {moment(found.at)}"
    place = "to the target" if found.direction == CutoverStep.OVER else "back to the source"
    return f"applications moved {place} {moment(found.at)}"


def _events(status: FlowStatus) -> List[str]:
    """The last events, the latest first; the rows of one commit have one time."""
    if status.incidents is None:
        return ["  events    unknown"]
    found = [
        f"{moment(at)} {line}"
        for at, rows in groupby(reversed(status.incidents), key=lambda each: each.at)
        for line in event_lines(rows)
    ]
    if not found:
        return ["  events    none in 30 days"]
    older = len(found) - EVENTS_SHOWN
    more = [f"            and {counted(older, 'older event')} in 30 days: table events"] if older > 0 else []
    return [*(f"  event     {one_entry(line)}" for line in found[:EVENTS_SHOWN]), *more]


def _target_lag(group: GroupStatus) -> Optional[str]:
    markers = f" ({counted(group.target_markers, 'marker')})" if group.target_markers else ""
    return None if group.target_lag is None else grouped(group.target_lag) + markers


def _share(percent: float) -> str:
    return f"{percent:.1f} %" if percent < 100 else "all"


LAG = (
    Column("Lag", lambda each: each.lag, grouped, "Source offsets after the last offset in the ledger"),
    Column("Lag time", lambda each: each.lag_seconds, duration, "Age of the oldest record that is still to be copied"),
    Column("Kept for", lambda each: each.kept_seconds, left, "How long, at least, the source keeps what is not copied"),
)
TOPIC = (
    Column("Topic", lambda each: each.topic),
    Column("Partitions", lambda each: len(each.partitions), grouped),
    Column("Copied", lambda each: each.copied, _share, "Share of what the source holds"),
    *LAG,
    Column("Worst", lambda each: each.worst.partition if each.lag else None, NUMBER, "Its greatest lag"),
)
PARTITION = (
    Column("Partition", lambda each: each.name),
    Column("Log start", lambda each: each.log_start, grouped),
    Column("Next offset", lambda each: each.position, grouped),
    Column("Log end", lambda each: each.log_end, grouped),
    *LAG,
    Column("Committed", lambda each: each.copied_at, moment, "Last commit to the ledger"),
)
GROUP = (
    Column("Group", lambda each: each.group),
    Column("Positions", lambda each: each.positions, grouped),
    Column("Verdict", lambda each: each.verdict, mark=lambda each: HEALTHY * each.verdict.startswith(EXACT)),
    Column("Source lag", lambda each: each.source_lag, grouped),
    Column("Target lag", _target_lag, NUMBER),
    Column("Committed", lambda each: each.moved_at, moment, "Last offset commit on the target"),
)
