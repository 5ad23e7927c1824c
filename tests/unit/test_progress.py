"""What people see of a flow while it runs: rates, time left, the plain status line and when it is due, the screen."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Tuple

import pytest

from mirror_lib.metrics import ENDED, FlowMetrics, TopicMetrics
from mirror_lib.progress import ClusterChecks, FlowProgress, after, is_news, screen_lines, status_line

COPYING = FlowMetrics(
    flow="A->B",
    batch_id=7,
    records=48210,
    bytes=12_300_000,
    seconds=2.4,
    copy_seconds=2.0,
    behind_records=1204,
    behind_seconds=3.14,
    recovered=0,
    stopped=0,
    waiting="copying",
)
QUIET = replace(COPYING, records=0, bytes=0, behind_records=0, behind_seconds=None, waiting="waiting for records")


def flow_of(*cycles: Tuple[float, FlowMetrics]) -> FlowProgress:
    """The progress after these cycles, each with the time at which it ended."""
    progress: Optional[FlowProgress] = None
    for at, metrics in cycles:
        progress = after(metrics, progress, at)
    assert progress is not None
    return progress


def backlog(*lags: int, every: float = 10.0, records: int = 1000) -> FlowProgress:
    """A flow that copies so many records in each cycle and has these lags after them."""
    cycle = replace(COPYING, records=records, bytes=100 * records, seconds=every)
    return flow_of(*((every * (n + 1), replace(cycle, behind_records=lag)) for n, lag in enumerate(lags)))


def lines_at(*cycles: Tuple[float, FlowMetrics]) -> List[float]:
    """The times at which a plain line is printed."""
    progress: Optional[FlowProgress] = None
    shown: Optional[FlowProgress] = None
    found = []
    for at, metrics in cycles:
        progress = after(metrics, progress, at)
        if is_news(progress, shown):
            shown = progress
            found.append(at)
    return found


TROUBLE = replace(COPYING, recovered=1500, stopped=1, behind_seconds=None, target_throttled_seconds=0.52)


@pytest.mark.parametrize(
    ("flow", "line"),
    [
        (flow_of((2.4, COPYING)), "A->B copying · 20,088 records/s, 5.1 MB/s · lag 1,204 records, 3.1 s"),
        (backlog(90_000, 80_000, 70_000),
            "A->B copying · 100 records/s, 10.0 KB/s · lag 70,000 records, 3.1 s · ETA 70 s"),
        (flow_of((2.4, QUIET)), "A->B all committed records copied · 0 records/s"),
        (flow_of((2.4, replace(QUIET, waiting=ENDED))), "A->B ended with an error · 0 records/s"),
        (flow_of((2.4, replace(QUIET, stopped=3))), "A->B 3 partitions stopped · 0 records/s"),
        (flow_of((2.4, replace(QUIET, blocked=1))), "A->B 1 topic blocked · 0 records/s"),
        (flow_of((2.4, TROUBLE)), "A->B copying · 20,088 records/s, 5.1 MB/s · lag 1,204 records · "
            "1 partition stopped · 1,500 records found on the target · throttled by the target's quota for 0.5 s"),
        (flow_of((2.4, replace(COPYING, waiting="rate-limited to 5.0 MB/s"))),
            "A->B copying · 20,088 records/s, 5.1 MB/s · lag 1,204 records, 3.1 s · rate-limited to 5.0 MB/s"),
    ],
    ids=["lag", "a forecast", "caught up", "ended", "stopped", "blocked", "trouble", "a rate"],
)  # fmt: skip
def test_plain_line(flow: FlowProgress, line: str) -> None:
    assert status_line(flow).replace("\u202f", " ").replace("\u2009", " ") == line


def test_rates_are_averages_over_half_a_minute() -> None:
    fast, slow = replace(COPYING, seconds=10.0, records=9000, bytes=0), replace(COPYING, seconds=10.0, records=0)
    assert flow_of((10.0, fast), (20.0, slow), (30.0, slow)).rates(30.0)[0] == 300.0
    done = flow_of((10.0, replace(fast, behind_records=0)))
    assert [done.rates(now)[0] for now in (10.0, 30.0, 41.0)] == [900.0, 300.0, 0.0]
    # A cycle that is longer than the window is averaged over its own time.
    assert flow_of((100.0, replace(fast, seconds=100.0))).rates(100.0)[0] == 90.0
    # The records before a long silence do not count, nor does the silence.
    silent = flow_of((10.0, fast), (600.0, replace(slow, records=300)))
    assert silent.rates(600.0)[0] == 10.0


def test_time_left_is_computed_from_how_fast_the_lag_falls() -> None:
    # 1000 records are copied and 500 come in each ten seconds: the lag falls by 50 a second.
    flow = backlog(20_000, 19_500, 19_000)
    assert flow.seconds_left(30.0) == 19_000 / 50
    assert flow.seconds_left(40.0) == 19_000 / 50 - 10  # it counts down while a cycle runs
    assert backlog(10_000, 12_000, 14_000).seconds_left(30.0) is None
    busy = replace(QUIET, records=1000, seconds=2.0)
    assert flow_of((2.0, busy), (4.0, replace(busy, behind_records=12))).seconds_left(4.0) is None


def test_steady_flow_gets_one_line_a_minute() -> None:
    times = [5.0 * n for n in range(1, 61)]
    # Now and then some records of the last moments are left: that is no lag yet.
    busy = [replace(QUIET, records=2500, seconds=5.0, behind_records=n % 2 * 12) for n in range(60)]
    for cycles in ([QUIET] * 60, busy):
        assert lines_at(*zip(times, cycles)) == [5.0, 65.0, 125.0, 185.0, 245.0]


def test_lag_gets_a_line_every_ten_seconds_and_its_end_one_at_once_and_a_quota_only_one() -> None:
    lagging = [(2.0 * n, replace(COPYING, seconds=2.0, behind_records=10_000_000)) for n in range(1, 13)]
    assert lines_at(*lagging) == [2.0, 12.0, 22.0]
    assert lines_at(*lagging[:2], (6.0, QUIET), (8.0, QUIET)) == [2.0, 6.0]
    throttled = [(2.0 * n, replace(QUIET, target_throttled_seconds=n % 2 * 0.1)) for n in range(1, 30)]
    assert lines_at(*throttled) == [2.0]


@pytest.mark.parametrize(("lines", "topics"), [(24, 10), (10, 4), (7, 1), (6, 0), (3, 0)])
def test_screen_fits_the_terminal(lines: int, topics: int) -> None:
    flow = backlog(3_500_000, 3_000_000, records=500_000)
    lagging = tuple(TopicMetrics(f"topic-{n:02d}", 4, 0, 0, 1000 * n, n % 4, 500 * n) for n in range(15))
    shown = screen_lines({"A->B": replace(flow, metrics=replace(flow.metrics, topics=lagging))}, 30.0, 80, lines)
    assert len(shown) <= lines and sum(each.text.startswith("topic-") for each in shown) == topics


def checked(*checks: Tuple[bool, float, float]) -> List[Tuple[Optional[float], bool]]:
    """What is known of a cluster after each check: whether it was answered, and when it began and ended."""
    state, found = ClusterChecks(), []
    for answered, began, ended in checks:
        state = state.after(answered, began, ended)
        found.append((state.since, state.unreachable))
    return found


def test_cluster_is_unreachable_once_its_checks_have_failed_for_5_seconds() -> None:
    refused = checked((True, 0, 0), (False, 2, 2), (False, 4, 4), (False, 6, 6), (False, 8, 8), (True, 10, 10))
    assert refused == [(None, False), (2, False), (2, False), (2, False), (2, True), (None, False)]
    assert checked((False, 0, 4), (False, 6, 10)) == [(0, False), (0, True)], "checks that time out"
    assert checked((False, 0, 4), (True, 6, 6), (False, 8, 12)) == [(0, False), (None, False), (8, False)]
