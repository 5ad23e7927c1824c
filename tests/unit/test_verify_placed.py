"""What is known of flows that place records anew before both logs are read."""

from __future__ import annotations

from mirror_lib.facts import OffsetRange
from mirror_lib.verify.placed import Whole


def test_where_a_log_lost_its_beginning_nothing_is_called_equal_or_lost() -> None:
    whole = OffsetRange(0, 9)
    remote = {("there", 0): whole, ("other", 0): OffsetRange(3, 9)}
    assert not Whole({("orders", 0): whole}, remote).expired(["orders"], "there")
    assert Whole({("orders", 0): whole}, remote).expired(["orders"], "other")
    assert Whole({("orders", 0): OffsetRange(1, 9)}, remote).expired(["orders"], "there")
