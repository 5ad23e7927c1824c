"""A flow under a rate limit, on real brokers."""

from __future__ import annotations

import threading
from typing import List, Optional

import pytest

from mirror_lib.metrics import FlowMetrics
from tests.integration.conftest import Ground, Names
from tests.lab.flow_lab import FlowLab, run_config

# Record batches of less than 20 KB; no answer can bring less than one of them.
BATCH = {"batch_size": 16_000, "linger_ms": 50}
LARGEST_BATCH = 20_000


@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> FlowLab:
    made = FlowLab(*ground, topic_name("bounds"), {"batch.max.seconds": 2})
    made.create("orders", retention_ms="-1")
    return made


def kilobytes(count: int) -> List[Optional[bytes]]:
    return [b"%06d" % number + b"x" * 994 for number in range(count)]


def test_flow_fetches_no_more_a_second_than_it_may_and_says_so(lab: FlowLab) -> None:
    rate = 60_000  # far below what a busy machine brings
    lab.write("orders", kilobytes(250), **BATCH)
    lab.settings["max.bytes.per.second"] = "60 KB"
    lab.copy()
    passes = [each for each in lab.seen if each.records]
    assert all(each.bytes <= rate * (each.seconds + 1) + LARGEST_BATCH for each in passes), passes
    # What one pass saves up or fetches too much counts for the next.
    assert sum(each.bytes for each in passes) <= rate * (sum(each.seconds for each in lab.seen) + 1) + LARGEST_BATCH
    assert "rate-limited to 60.0 KB/s" in {each.waiting for each in passes}
    assert lab.differences("orders") == []


@pytest.mark.long
def test_every_partition_of_a_backlog_gets_its_turn_though_a_cycle_reaches_few_of_them(lab: FlowLab) -> None:
    lab.create("wide", 8)
    # Record batches of 50 KB: a cycle copies about two.
    for _ in range(8):
        for number in range(8):
            lab.write("wide", [b"x" * 50_000], number)
    lab.settings.update({"max.bytes.per.second": "100 KB", "tasks.max": 1, "batch.max.seconds": 1})
    stop = threading.Event()

    def watch(snapshot: FlowMetrics) -> None:
        lab.seen.append(snapshot)
        if sum(each.records for each in lab.seen) >= 16:
            stop.set()

    (outcome,) = run_config(lab.config, lab.spark, watch, stop)
    assert outcome.error is None
    ends = {place: end for place, end in lab.remote_ends().items() if "wide" in place[0]}
    assert sum(each.records for each in lab.seen) < 40 and len(ends) == 8
    copied = [len(log) for log in lab.read_remote("wide").values()]
    assert len(copied) == 8 and min(copied) > 0, copied
