"""What the next pass goes on with behind markers that the driver wrote, or could not write."""

from __future__ import annotations

from typing import Optional, Tuple

import pytest

from mirror_lib.records.ready import behind_markers
from mirror_lib.replicate.lanes import PartitionReport, lane_of

REMOTE = ("A.orders", 0)
LANE = lane_of(*REMOTE)


def stands(
    number: int = 0, sequence: Optional[int] = 7, renewed: bool = True, end: int = 101, aged: bool = True
) -> Tuple[Optional[int], int]:
    """Sequence and downstream offset of a partition that stood at 100 before its lane was to be fenced again."""
    part = PartitionReport("orders", "A.orders", number, 50, 100, sequence, -1)
    lanes = {LANE: [REMOTE] if aged else []}
    found = behind_markers(part, lanes, [LANE] if renewed else [], {REMOTE: end})
    return found.sequence, found.downstream_offset


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        pytest.param(stands(), (0, 101), id="marked"),
        pytest.param(stands(end=102), (None, 100), id="more-than-a-marker"),
        pytest.param(stands(end=100), (None, 100), id="marker-not-shown-yet"),
        pytest.param(stands(renewed=False), (None, 100), id="connection-lost"),
        pytest.param(stands(aged=False), (0, 100), id="lane-renewed-for-another-partition"),
        pytest.param(stands(number=1), (7, 100), id="other-lane"),
        pytest.param(stands(sequence=None), (None, 100), id="not-known-before"),
    ],
)
def test_partition_goes_on_behind_its_marker_or_is_looked_at_again(
    found: Tuple[Optional[int], int], wanted: Tuple[Optional[int], int]
) -> None:
    assert found == wanted
