"""Derives what people see of a flow from its metrics: smoothed rates, time left, the plain status line, and the lines
that fit a terminal. Pure: the caller gives the metrics of each cycle and the time.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, replace
from typing import Collection, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.metrics import COPYING, ENDED, WAITING, FlowMetrics
from mirror_lib.text import DAY, counted, duration, grouped, size

# Rates are averages over this time, or over the last cycle if that was longer.
WINDOW_SECONDS = 30.0
# A flow lags when it has had a backlog for this long, or would need as long to copy it. Less than that is its latency.
LAG_SECONDS = 10.0
# The interval of plain lines for a flow whose condition does not change: while it lags, and otherwise.
LAGGING_LINE_SECONDS, STEADY_LINE_SECONDS = 10.0, 60.0
# A longer time left is not shown.
LONGEST_FORECAST_SECONDS = 100 * DAY
# The most topics on the screen. A flow without a report for this long is shown with the age of its last one.
MOST_TOPICS, OLD_REPORT_SECONDS = 10, 60.0
# A cluster is reported as unreachable when its checks have failed for this long. An election takes less.
OUTAGE_SECONDS = 5.0
# Records of an open transaction may wait behind the last one: the closing lines and `mirror status` name them.
CAUGHT_UP = "all committed records copied"


@dataclass(frozen=True)
class Sample:
    """A cycle that ended `at`, without its topics. The one before the first has a lag that is `guessed`."""

    at: float
    cycle: FlowMetrics
    guessed: bool = False


@dataclass(frozen=True)
class FlowProgress:
    """A flow as of its last cycle: `metrics`. Times are of the caller's clock, in seconds.

    `samples` are of the last `WINDOW_SECONDS`, with the last one before. `greatest_lag` is the greatest since
    `lag_since`, when the flow was last caught up.
    """

    metrics: FlowMetrics
    samples: Tuple[Sample, ...]
    greatest_lag: int = 0
    lag_since: Optional[float] = None

    @property
    def at(self) -> float:
        return self.samples[-1].at

    @property
    def lag(self) -> int:
        return self.metrics.behind_records

    @property
    def lagging(self) -> bool:
        """Whether there is a backlog beyond the records of the last moments."""
        if not self.lag or self.lag_since is None:
            return False
        return self.at - self.lag_since >= LAG_SECONDS or self.lag > LAG_SECONDS * self.rates(self.at)[0]

    @property
    def done(self) -> Optional[float]:
        """The copied part of the backlog, from 0 to 1; `None` without one. The greatest lag is the whole."""
        return 1 - self.lag / self.greatest_lag if self.lagging else None

    @property
    def limit(self) -> str:
        """The rate limit that held it back in the window, if any."""
        recent = (each.cycle.waiting for each in reversed(self.samples) if self.at - each.at < WINDOW_SECONDS)
        return next((waiting for waiting in recent if waiting not in (COPYING, WAITING, ENDED)), "")

    @property
    def condition(self) -> Sequence[object]:
        """Its changes are reported immediately."""
        ended, left_out = self.metrics.waiting == ENDED, _left_out(self.metrics)
        return ended, self.lagging, left_out, self.limit, [side for side, _ in self.throttled]

    @property
    def throttled(self) -> Sequence[Tuple[str, float]]:
        """The sides whose quota throttled the flow in the window, with the seconds."""
        cycles = [each.cycle for each in self.samples[1:]]
        source = sum(each.source_throttled_seconds for each in cycles)
        target = sum(each.target_throttled_seconds for each in cycles)
        return [(side, seconds) for side, seconds in (("source", source), ("target", target)) if seconds > 0]

    def rates(self, now: float) -> Tuple[float, float]:
        """Records and bytes a second. A cycle in progress counts neither with its records nor with its time."""
        end = self.at if self.lag else max(now, self.at)
        start = max(self.samples[0].at, end - max(WINDOW_SECONDS, self.metrics.seconds))
        if end - self.at > WINDOW_SECONDS or end <= start:
            return 0.0, 0.0
        cycles = [each.cycle for each in self.samples[1:]]
        return sum(each.records for each in cycles) / (end - start), sum(each.bytes for each in cycles) / (end - start)

    def seconds_left(self, now: float) -> Optional[float]:
        """The seconds until the backlog is copied, at the rate at which the lag falls; `None` if it does not fall."""
        since = self.at if self.lag_since is None else self.lag_since
        backlog = [each for each in self.samples if each.at >= since]
        if len(backlog) > 2 and backlog[0].guessed:
            del backlog[0]
        if not self.lagging or len(backlog) < 2 or self.at <= backlog[0].at:
            return None
        falls = (backlog[0].cycle.behind_records - self.lag) / (self.at - backlog[0].at)
        if falls <= 0 or self.lag / falls > LONGEST_FORECAST_SECONDS:
            return None
        return max(0.0, self.lag / falls - (now - self.at))


def after(metrics: FlowMetrics, before: Optional[FlowProgress], at: float) -> FlowProgress:
    """The flow's progress after one more cycle, which ended at `at`. Without `before` it is the first cycle, and its
    records count towards the backlog that it found."""
    lag, cycle = metrics.behind_records, replace(metrics, topics=(), next_offsets={})
    if before is None:
        greatest = lag + metrics.records + metrics.recovered if lag else 0
        lag_since = at - max(0.0, metrics.seconds)
        samples: Tuple[Sample, ...] = (Sample(lag_since, replace(cycle, behind_records=greatest), guessed=True),)
    else:
        samples = before.samples
        lag_since, greatest = at if before.lag_since is None else before.lag_since, before.greatest_lag
    old = [each for each in samples if each.at < at - WINDOW_SECONDS]
    kept = (*old[-1:], *samples[len(old) :], Sample(at, cycle))
    return FlowProgress(metrics, kept, max(greatest, lag) if lag else 0, lag_since if lag else None)


@dataclass(frozen=True)
class ClusterChecks:
    """The results of a cluster's checks. `since`: the start of the first of the consecutive failed checks, by the
    caller's clock; `None` after an answer. `unreachable`: they have failed for `OUTAGE_SECONDS`."""

    since: Optional[float] = None
    unreachable: bool = False

    def after(self, answered: bool, began: float, ended: float) -> ClusterChecks:
        if answered:
            return ClusterChecks()
        since = began if self.since is None else self.since
        return ClusterChecks(since, self.unreachable or ended - since >= OUTAGE_SECONDS)


@dataclass(frozen=True)
class Outage:
    """A cluster (`side`: `source` or `target`) does not answer, or answers again after `seconds`."""

    flow: str
    side: str
    since: float
    seconds: Optional[float] = None


def outage_line(outage: Outage) -> str:
    """`A->B source unreachable since 14:03:11`, and later `A->B source back after 80 s`."""
    over = outage.seconds
    words = _unreachable(outage) if over is None else f"{outage.side} back after {duration(over)}"
    return f"{outage.flow} {words}"


def _unreachable(outage: Outage) -> str:
    return f"{outage.side} unreachable since {time.strftime('%H:%M:%S', time.localtime(outage.since))}"


def status_line(progress: FlowProgress) -> str:
    """`A->B copying · 20,088 records/s, 5.1 MB/s · lag 1,204 records, 3.1 s · ETA 45 s`."""
    metrics, left = progress.metrics, progress.seconds_left(progress.at)
    records, nbytes = progress.rates(progress.at)
    rates = f"{per_second(records)} records/s" + (f", {size(nbytes)}/s" if nbytes >= 1 else "")
    parts = [f"{metrics.flow} {_activity(progress)}", rates]
    if metrics.behind_records:
        age = "" if metrics.behind_seconds is None else f", {duration(metrics.behind_seconds)}"
        parts.append(f"lag {counted(metrics.behind_records, 'record')}{age}")
    if left is not None:
        parts.append(f"ETA {duration(left)}")
    parts += _left_out_too(progress)
    if metrics.recovered:
        parts.append(f"{counted(metrics.recovered, 'record')} found on the target")
    return " · ".join([*parts, *_hindrances(progress)])


def is_news(progress: FlowProgress, shown: Optional[FlowProgress]) -> bool:
    """Whether the flow's plain line is due, after the one of `shown`: at once if its condition changed, else by
    time."""
    if shown is None or progress.condition != shown.condition or progress.metrics.recovered:
        return True
    seconds = LAGGING_LINE_SECONDS if progress.lagging else STEADY_LINE_SECONDS
    return progress.at - shown.at >= seconds


def per_second(rate: float) -> str:
    """Records a second: a fraction only where it is small."""
    return grouped(round(rate)) if rate >= 10 or rate == 0 else f"{rate:.1f}"


def _activity(progress: FlowProgress) -> str:
    metrics = progress.metrics
    if metrics.waiting == ENDED:
        return ENDED
    if progress.lag:
        return COPYING
    # The records missing from stopped partitions and blocked topics are not counted.
    return " · ".join(_left_out(metrics)) or CAUGHT_UP


def _left_out(metrics: FlowMetrics) -> List[str]:
    stopped = [f"{counted(metrics.stopped, 'partition')} stopped"] if metrics.stopped else []
    return [*stopped, f"{counted(metrics.blocked, 'topic')} blocked"] if metrics.blocked else stopped


def _left_out_too(progress: FlowProgress) -> List[str]:
    return _left_out(progress.metrics) if _activity(progress) == COPYING else []


def _hindrances(progress: FlowProgress) -> List[str]:
    found = [f"throttled by the {side}'s quota for {seconds:.1f} s" for side, seconds in progress.throttled]
    return [*found, progress.limit] if progress.limit else found


# The styles of a line on the screen.
PLAIN, HEADING, FAINT, ALARM = "", "heading", "faint", "alarm"
FLOW_COLUMNS = ("FLOW", "RECORDS/S", "BYTES/S", "LAG RECORDS", "LAG TIME", "ETA")
TOPIC_COLUMNS = ("TOPIC", "LAG RECORDS", "WORST PARTITION", "ITS LAG")
# Widths of all columns but the first, which gets the rest of the line.
_FLOW_WIDTHS, _TOPIC_WIDTHS = (9, 9, 13, 11, 11), (13, 17, 13)
BAR_WIDTH = 24
FULL, EMPTY = "\u2501", "\u2500"


@dataclass(frozen=True)
class Line:
    """A line of the screen."""

    text: str
    style: str = PLAIN


def screen_lines(
    known: Mapping[str, Optional[FlowProgress]],
    now: float,
    columns: int,
    lines: int,
    outages: Collection[Outage] = (),
    over: bool = False,
) -> Sequence[Line]:
    """The lines of a terminal of the given size for flows by name; a flow without a cycle yet is `None`. Each flow has
    two lines, followed by the topics that lag most. If the terminal is too low, the flows that lag most come first.
    `outages` are those that have not ended. `over`: the run has ended, and waits for no record."""
    room = max(1, (lines - 2) // 2)
    names = list(known)
    if len(names) > room:
        names = sorted(names, key=lambda name: _urgency(known[name]), reverse=True)[:room]
    found = [Line(_row(FLOW_COLUMNS, _FLOW_WIDTHS, columns), HEADING)]
    for name in names:
        away = [_unreachable(each) for each in outages if each.flow == name]
        found += _flow_lines(name, known[name], now, columns, " · ".join(away), over)
    found += _more(len(known) - len(names), "flow")
    topics = [(name, each) for name, progress in known.items() if progress for each in progress.metrics.topics]
    topics = [(name, each) for name, each in topics if each.behind_records]
    # A blank line, the heading, and the count of omitted topics take three lines.
    free = min(MOST_TOPICS, lines - len(found) - 3)
    if not topics or free < 1:
        return found
    worst = heapq.nsmallest(free, topics, key=lambda each: (-each[1].behind_records, each[0], each[1].topic))
    found += [Line(""), Line(_row(TOPIC_COLUMNS, _TOPIC_WIDTHS, columns), HEADING)]
    for name, topic in worst:
        title = topic.topic if len(known) == 1 else f"{topic.topic} ({name})"
        numbers = (grouped(topic.behind_records), str(topic.worst_partition), grouped(topic.worst_records))
        found.append(Line(_row((title, *numbers), _TOPIC_WIDTHS, columns)))
    return [*found, *_more(len(topics) - len(worst), "topic")]


def _flow_lines(
    name: str, progress: Optional[FlowProgress], now: float, columns: int, away: str, over: bool
) -> List[Line]:
    if progress is None:
        first = Line(_cut(f"  {away}", columns), ALARM) if away else Line("  starting", FAINT)
        return [Line(_row((name, "", "", "", "", ""), _FLOW_WIDTHS, columns)), first]
    metrics, left = progress.metrics, progress.seconds_left(now)
    records, nbytes = progress.rates(now)
    age = duration(metrics.behind_seconds) if metrics.behind_seconds is not None and progress.lag else ""
    rates = (per_second(records), size(nbytes))
    cells = (name, *rates, grouped(progress.lag), age, "" if left is None else duration(left))
    alarm = _left_out(metrics) or metrics.waiting == ENDED or away
    state = _cut(f"  {_bar(progress.done)}{away or _state(progress, now, over)}", columns)
    return [Line(_row(cells, _FLOW_WIDTHS, columns)), Line(state, ALARM if alarm else FAINT)]


def _state(progress: FlowProgress, now: float, over: bool) -> str:
    activity = _activity(progress)
    if activity == CAUGHT_UP and not (over or progress.rates(now)[0]):
        activity = WAITING
    words = [activity, *_left_out_too(progress), *_hindrances(progress)]
    if now - progress.at > OLD_REPORT_SECONDS:
        words.append(f"last report {duration(now - progress.at)} ago")
    return " · ".join(words)


def _bar(done: Optional[float]) -> str:
    if done is None:
        return ""
    full = int(done * BAR_WIDTH)
    return f"{FULL * full}{EMPTY * (BAR_WIDTH - full)} {int(done * 100):2d} %  "


def _row(cells: Sequence[str], widths: Sequence[int], columns: int) -> str:
    first = max(8, columns - sum(widths) - len(widths))
    return _cut(" ".join([_cut(cells[0], first).ljust(first), *map(str.rjust, cells[1:], widths)]), columns)


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else f"{text[: columns - 1]}\u2026"


def _more(count: int, noun: str) -> List[Line]:
    return [Line(f"and {grouped(count)} more {noun}{'' if count == 1 else 's'}", FAINT)] if count > 0 else []


def _urgency(progress: Optional[FlowProgress]) -> Tuple[int, int]:
    return (progress.metrics.stopped + progress.metrics.blocked, progress.lag) if progress else (0, 0)
