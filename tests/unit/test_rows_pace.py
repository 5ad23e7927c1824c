"""How many offsets a micro-batch of rows may have under the flow's rate, and how long the next one waits."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from mirror_lib.rows.mirror import (
    BATCH_SECONDS,
    BYTES,
    FEWEST_OFFSETS,
    GROWTH,
    LARGEST_RECORD,
    MOST_OFFSETS,
    RESIZE,
    RowQuota,
)
from tests.lab.flows import flow_of

RATE = 1024 * 1024


class Paced:
    """A flow's quota, and a clock that only sleeping moves."""

    def __init__(self, **settings: Any) -> None:
        self.now = 1000.0
        self.pace = RowQuota(flow_of(**settings), lambda: self.now)
        self.slept = 0.0
        self.offsets = self.pace.offsets

    def sleep(self, seconds: float) -> None:
        seconds = max(seconds, 1e-6)  # no sleep is shorter
        self.now += seconds
        self.slept += seconds

    def batch(self, offsets: int, nbytes: Optional[int] = None, seconds: float = 1.0) -> None:
        """A micro-batch went well, in which Spark counted so many bytes."""
        observed: Any = None if nbytes is None else SimpleNamespace(get={BYTES: nbytes})
        self.pace._observed = observed
        self.pace.pay(offsets, seconds)


def test_micro_batch_has_some_seconds_of_the_rate_and_grows_by_steps() -> None:
    # First so small that the largest records fit the rate, then by the size of the last ones.
    assert Paced(max_bytes_per_second=10 * RATE).offsets() == 10 * BATCH_SECONDS * RATE // LARGEST_RECORD == 50
    assert Paced(max_bytes_per_second=1).offsets() == 1
    paced = Paced(max_bytes_per_second=RATE)
    for count, size in ((1000, 512), (10_000, 2048)):
        paced.batch(count, count * size)
        assert paced.offsets() == BATCH_SECONDS * RATE // size
    paced.batch(MOST_OFFSETS, 0)
    assert paced.offsets() == MOST_OFFSETS
    growing = Paced(max_bytes_per_second=100 * RATE)
    growing.batch(5, 5 * 50)
    assert growing.offsets() == 5 * GROWTH and not growing.pace.resize(50) and growing.pace.resize(5)
    growing.batch(5 * GROWTH, 5 * GROWTH * 50)
    assert growing.offsets() == 5 * GROWTH * GROWTH


def test_micro_batches_shrink_where_they_take_too_long_and_grow_again_where_full_ones_are_quick() -> None:
    paced = Paced(batch_max_seconds=10.0)
    paced.batch(900_000, seconds=10.0 * RESIZE)
    assert paced.offsets() == MOST_OFFSETS
    paced.batch(100_000, seconds=100.0)
    assert paced.offsets() == 10_000
    paced.batch(1_000, seconds=0.1)  # it says nothing of a full one
    assert paced.offsets() == 10_000
    paced.batch(10_000, seconds=1.0)
    assert paced.offsets() == 100_000 and paced.pace.resize(10_000)
    paced.batch(10, seconds=100.0)
    assert paced.offsets() == FEWEST_OFFSETS


def test_what_was_read_is_paid_for_before_the_next_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    paced = Paced(max_bytes_per_second=RATE)
    monkeypatch.setattr("mirror_lib.rows.mirror.time", SimpleNamespace(sleep=paced.sleep))
    paced.batch(1000, int(4 * RATE))
    paced.pace.wait(threading.Event())
    assert paced.slept == pytest.approx(4.0, abs=1e-3)
    assert paced.pace.word(1.0) == "rate-limited to 1.0 MB/s"
    paced.pace.wait(threading.Event())
    assert paced.slept == pytest.approx(4.0, abs=1e-3) and paced.pace.word(1.0) is None
    # What was read for some seconds is paid for out of all of them.
    paced.now += 4
    paced.batch(1000, 5 * RATE)
    paced.pace.wait(threading.Event())
    assert paced.slept == pytest.approx(5.0, abs=1e-2)


def test_stop_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    paced, stop = Paced(max_bytes_per_second=1), threading.Event()
    paced.batch(1000, 1 << 30)

    def sleep(seconds: float) -> None:
        paced.sleep(seconds)
        stop.set()

    monkeypatch.setattr("mirror_lib.rows.mirror.time", SimpleNamespace(sleep=sleep))
    paced.pace.wait(stop)
    assert 0 < paced.slept <= 0.5
