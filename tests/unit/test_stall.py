"""What follows from a commit that waits for Spark, by how long it has waited."""

from __future__ import annotations

import socket
from typing import List

import pytest

from mirror_lib.errors import EXIT_OK, StalledError
from mirror_lib.metrics import FlowMetrics
from mirror_lib.progress import after, status_line
from mirror_lib.replication.report_channel import PORTS, ReportServer
from mirror_lib.replication.tail import (
    GIVE_WAY_SECONDS,
    SMALLER_SECONDS,
    STALL_SECONDS,
    CommitWatch,
    TailLimit,
)


class Commit:
    """One that waits, and what is shown of its flow."""

    def __init__(self) -> None:
        self.shown: List[FlowMetrics] = []
        self.gave_way = 0
        self.watch = CommitWatch("A->B", self.shown.append)

    def look(self, seconds: float) -> None:
        self.watch.check(seconds, self._give_way)

    def _give_way(self) -> None:
        self.gave_way += 1


def test_usual_commit_disturbs_nobody() -> None:
    commit = Commit()
    for seconds in (0.0, 0.3, GIVE_WAY_SECONDS - 0.1):
        commit.look(seconds)
    assert not commit.shown and not commit.gave_way


def test_commit_that_waits_is_shown_and_the_tail_gives_way() -> None:
    commit = Commit()
    commit.look(GIVE_WAY_SECONDS)
    commit.look(GIVE_WAY_SECONDS + 0.2)
    assert commit.gave_way == 2
    (shown,) = commit.shown
    assert (shown.commit_waits_seconds, shown.behind_seconds) == (GIVE_WAY_SECONDS, GIVE_WAY_SECONDS)
    line = status_line(after(shown, None, 20.0))
    assert "copied" not in line and f"has waited {GIVE_WAY_SECONDS} s" in line


def test_commit_that_waits_hides_neither_what_is_stopped_nor_what_is_behind() -> None:
    commit = Commit()
    commit.watch.show(FlowMetrics("A->B", 7, 5, 50, 1.0, 1.0, 1204, 90.0, 3, 2, "copying"))
    commit.look(GIVE_WAY_SECONDS)
    _, shown = commit.shown
    assert (shown.behind_records, shown.behind_seconds, shown.stopped) == (1204, 90.0, 2)
    assert (shown.records, shown.bytes, shown.recovered) == (0, 0, 0)  # they are counted once


def test_commit_that_waits_for_too_long_ends_the_flow() -> None:
    commit = Commit()
    commit.look(STALL_SECONDS - 1)
    with pytest.raises(StalledError) as raised:
        commit.look(STALL_SECONDS)
    assert raised.value.exit_code != EXIT_OK


def test_tail_that_gave_way_is_smaller_for_a_while() -> None:
    limit = TailLimit()
    assert limit.of(3, now=0.0) == 3
    limit.gave_way(2, now=100.0)
    assert (limit.of(3, now=100.0), limit.of(0, now=100.0)) == (1, 0)
    limit.gave_way(1, now=200.0)
    assert limit.of(3, now=200.0 + SMALLER_SECONDS - 1) == 0
    assert limit.of(3, now=200.0 + SMALLER_SECONDS) == 3


def free_range() -> int:
    """The first of two ports that are free."""
    for first in range(20000, 30000, 2):
        taken = []
        for port in (first, first + 1):
            with socket.socket() as one:
                taken.append(one.connect_ex(("127.0.0.1", port)) == 0)
        if not any(taken):
            return first
    raise AssertionError("no port is free")


def test_reports_come_to_the_port_that_is_wanted_or_to_one_after_it() -> None:
    port = free_range()
    with ReportServer("127.0.0.1", "127.0.0.1", 2.0, 600.0, port) as first:
        assert first.address.port == port
        with ReportServer("127.0.0.1", "127.0.0.1", 2.0, 600.0, port) as second:
            assert port < second.address.port < port + PORTS
