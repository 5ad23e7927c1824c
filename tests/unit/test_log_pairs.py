"""Reads of two logs are repeated while a leader moves, as often as all pairs together may."""

from __future__ import annotations

from typing import Any, Iterator, List, cast

import pytest

from mirror_lib.kafka import log_pairs
from mirror_lib.kafka.connection import Disconnected, LogClient
from mirror_lib.kafka.log_pairs import LogPairs

PAIR = (("orders", 0), ("A.orders", 0))


class Client:
    def __init__(self) -> None:
        self.asked: List[Any] = []

    def refresh_leaders(self, partitions: Any, deadline: float) -> None:
        self.asked += partitions


def test_read_is_repeated_with_new_leaders_and_fails_when_no_attempt_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pairs, "AGAIN_SECONDS", 0.0)
    here, there = Client(), Client()
    logs = LogPairs(cast(LogClient, here), cast(LogClient, there), 3)
    outcomes: Iterator[Any] = iter([Disconnected("moved"), "first", *map(Disconnected, "abc")])

    def reading(source: Any, target: Any) -> str:
        assert source is here and target is there
        outcome = next(outcomes)
        if isinstance(outcome, Disconnected):
            raise outcome
        return cast(str, outcome)

    assert logs.read(PAIR, reading) == "first"
    assert (here.asked, there.asked) == ([PAIR[0]], [PAIR[1]])
    with pytest.raises(Disconnected, match="c"):
        logs.read(PAIR, reading)
