"""Lanes: a partition's lane follows from names alone, so that every driver writes to it under one transactional id."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.replication.messages import LANES, lane_of, transactional_id
from tests.lab.checkout import ROOT

NAMES = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789._-", min_size=1, max_size=30)


@given(NAMES, st.integers(0, 10_000))
def test_every_partition_has_a_lane(topic: str, partition: int) -> None:
    assert 0 <= lane_of(topic, partition) < LANES


@given(NAMES, st.integers(1, LANES))
def test_partitions_of_one_topic_have_lanes_of_their_own_as_far_as_they_go(topic: str, partitions: int) -> None:
    assert len({lane_of(topic, partition) for partition in range(partitions)}) == partitions


def test_lanes_are_the_same_for_every_driver_and_release() -> None:
    # Another answer than an earlier release's would leave that release's lanes unfenced.
    places = [("A.orders", 0), ("A.orders", 1), ("A.payments", 0), ("B.x_y-z", 7)]
    expected = [lane_of(*place) for place in places]
    assert (LANES, expected) == (64, [22, 23, 2, 7])
    code = f"from mirror_lib.replication.messages import lane_of; print([lane_of(*p) for p in {places!r}])"
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


def test_other_lanes_flows_and_mirrors_have_other_transactional_ids() -> None:
    ids = {
        transactional_id(name, flow, lane) for name in ("m", "n") for flow in ("A->B", "B->A") for lane in range(LANES)
    }
    assert len(ids) == 4 * LANES
