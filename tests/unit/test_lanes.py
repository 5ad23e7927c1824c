"""Lanes: a partition's lane follows from names and the lane count alone, and its transactional id says both."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.replicate.lanes import lane_and_count, lane_of, transactional_id, transactional_id_prefix
from tests.lab.checkout import ROOT

NAMES = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789._-", min_size=1, max_size=30)


@given(NAMES, st.integers(0, 10_000), st.integers(1, 64))
def test_every_partition_has_a_lane(topic: str, partition: int, lanes: int) -> None:
    assert 0 <= lane_of(topic, partition, lanes) < lanes


@given(NAMES, st.integers(1, 16), st.integers(1, 64))
def test_partitions_of_one_topic_are_spread_evenly(topic: str, lanes: int, partitions: int) -> None:
    shares = Counter(lane_of(topic, partition, lanes) for partition in range(partitions))
    assert max(shares.values()) - min(shares.get(lane, 0) for lane in range(lanes)) <= 1


def test_lanes_are_the_same_for_every_driver_and_release() -> None:
    # Another answer than an earlier release's would leave that release's lanes unfenced.
    places = [("A.orders", 0), ("A.orders", 1), ("A.payments", 0), ("B.x_y-z", 7)]
    expected = [lane_of(*place, 4) for place in places]
    assert expected == [2, 3, 2, 3]
    code = f"from mirror_lib.replicate.lanes import lane_of; print([lane_of(*p, 4) for p in {places!r}])"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == str(expected)


@given(NAMES, NAMES, NAMES, st.integers(1, 64), st.data())
def test_transactional_id_can_be_read_back(name: str, a: str, b: str, lanes: int, data: st.DataObject) -> None:
    lane = data.draw(st.integers(0, lanes - 1))
    flow = f"{a}->{b}"
    found = transactional_id(name, flow, lane, lanes)
    assert lane_and_count(transactional_id_prefix(name, flow), found) == (lane, lanes)


def test_other_lane_counts_and_mirrors_have_other_transactional_ids() -> None:
    ids = {
        transactional_id(name, flow, 0, lanes) for name in ("m", "n") for flow in ("A->B", "B->A") for lanes in (1, 2)
    }
    assert len(ids) == 8


@pytest.mark.parametrize("other", ["mirror.A->B.x", "mirror.A->B.1of", "mirror.A->B.of2", "mirror.A->B.1of2x"])
def test_transactional_ids_of_others_are_left_alone(other: str) -> None:
    assert lane_and_count(transactional_id_prefix("mirror", "A->B"), other) is None
