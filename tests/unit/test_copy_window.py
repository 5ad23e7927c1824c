"""When a flow may copy: windows by the wall clock of a zone, over midnight and the nights in which clocks change."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Callable

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.values import ALWAYS, WINDOWS, ZONE, Opening, opening
from mirror_lib.replication.copy_hours import CopyHours

# 2026-11-22 is a Sunday.
FLOW = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))


def at(text: str) -> float:
    """`2026-11-22 21:59` UTC, in seconds since 1970."""
    return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=timezone.utc).timestamp()


def state(windows: str, now: str, zone: str = "UTC") -> Opening:
    return opening(WINDOWS.parse(windows), ZONE.parse(zone), at(now))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "is_open", "until"),
    [
        ("2026-11-22 21:59", False, "2026-11-22 22:00"),
        ("2026-11-22 22:00", True, "2026-11-23 06:00"),
        ("2026-11-23 05:59", True, "2026-11-23 06:00"),
        ("2026-11-23 06:00", False, "2026-11-23 22:00"),
    ],
)
def test_window_over_midnight(now: str, is_open: bool, until: str) -> None:
    assert state("22:00-06:00", now) == Opening(is_open, at(until))


@pytest.mark.parametrize(
    ("now", "is_open", "until"),
    [
        ("2026-11-20 23:00", True, "2026-11-21 06:00"),  # Friday night, until Saturday morning
        ("2026-11-21 06:00", False, "2026-11-23 22:00"),
        ("2026-11-23 05:00", False, "2026-11-23 22:00"),  # what opened on Sunday evening would have been another day's
    ],
)
def test_day_is_that_of_the_opening(now: str, is_open: bool, until: str) -> None:
    assert state("Mon-Fri 22:00-06:00", now) == Opening(is_open, at(until))


def test_windows_that_touch_are_one() -> None:
    both = "Sat 00:00-24:00, Sun 00:00-12:00"
    assert state(both, "2026-11-21 03:00") == Opening(True, at("2026-11-22 12:00"))


def test_days_may_go_over_the_end_of_the_week() -> None:
    assert state("Sat-Mon 10:00-11:00", "2026-11-23 10:30").is_open
    assert not state("Sat-Mon 10:00-11:00", "2026-11-24 10:30").is_open


@pytest.mark.parametrize("windows", ["", "00:00-24:00", "06:00-18:00, 18:00-06:00"])
def test_window_that_is_never_shut_is_none(windows: str) -> None:
    assert state(windows, "2026-11-22 12:00") == ALWAYS


def test_offset_says_whose_clock_it_is() -> None:
    assert state("22:00-06:00", "2026-11-22 20:30", "+02:00") == Opening(True, at("2026-11-23 04:00"))
    assert not state("22:00-06:00", "2026-11-22 20:30", "-02:00").is_open


@pytest.mark.skipif(sys.version_info < (3, 9), reason="names of zones need zoneinfo")
def test_named_zone_keeps_the_wall_clock_when_clocks_change() -> None:
    assert state("22:00-06:00", "2026-03-28 22:00", "Europe/Berlin").until == at("2026-03-29 04:00")
    assert state("22:00-06:00", "2026-10-24 22:00", "Europe/Berlin").until == at("2026-10-25 05:00")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("22-06", "must be a list of windows"),
        ("25:00-06:00", "a time after 24:00"),
        ("22:00-06:60", "a time after 24:00"),
        ("06:00-06:00", "without length"),
        ("Mon-Dom 22:00-06:00", "an unknown day"),
    ],
)
def test_window_that_is_none_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        WINDOWS.parse(text)


@pytest.mark.parametrize("text", ["Berlin", "+15:00", "../etc/passwd", "01:00"])
def test_zone_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\+01:00|\+14:00"):
        ZONE.parse(text)


def hours(windows: str, clock: Callable[[], float], stop: threading.Event) -> CopyHours:
    parsed = WINDOWS.parse(windows)
    return CopyHours(replace(FLOW, copy_window=parsed), stop, clock)  # type: ignore[arg-type]


def test_flow_without_a_window_never_waits_and_ends_only_by_the_stop() -> None:
    stop = threading.Event()
    always = hours("", lambda: at("2026-11-22 12:00"), stop)
    assert always.wait() and not always.is_set()
    stop.set()
    assert always.is_set()


def test_flow_ends_when_its_window_closes() -> None:
    moments = iter([at("2026-11-22 05:59"), at("2026-11-22 06:00")])
    night = hours("22:00-06:00", lambda: next(moments), threading.Event())
    assert [night.is_set(), night.is_set()] == [False, True]


def test_wait_outside_a_window_ends_when_it_opens() -> None:
    moments = iter([at("2026-11-22 21:59") + 59.99 + n / 1000 for n in range(1000)])
    assert hours("22:00-06:00", lambda: next(moments), threading.Event()).wait()


def test_wait_outside_a_window_ends_by_the_stop_and_says_when_it_would_go_on(caplog: pytest.LogCaptureFixture) -> None:
    stop = threading.Event()
    closed = hours("Mon-Fri 22:00-06:00", lambda: at("2026-11-22 12:00"), stop)
    waits = threading.Timer(0.2, stop.set)
    waits.start()
    assert not closed.wait()
    assert [record.getMessage() for record in caplog.records] == [
        "A->B: the copy window is closed; the flow resumes at Mon 23 Nov 22:00 (UTC)"
    ]


def test_moments_are_not_moved_by_the_machine_s_own_zone() -> None:
    here = datetime.now(timezone.utc)
    opens = f"{here:%H:%M}-{here + timedelta(hours=2):%H:%M}"
    assert opening(WINDOWS.parse(opens), ZONE.parse("UTC"), here.timestamp()).is_open  # type: ignore[arg-type]
