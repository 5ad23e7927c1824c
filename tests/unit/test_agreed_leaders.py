"""Who leads a partition is what all brokers together say, whatever one says that was cut off from the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List

from mirror_lib.kafka.offsets import agreed_leaders

AT = ("orders", 0)


def says(leader: int, epoch: int, topic_id: str = "an id") -> List[Any]:
    """Of one broker."""
    partition = SimpleNamespace(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return [SimpleNamespace(name="orders", topic_id=topic_id, partitions=[partition])]


def test_broker_that_still_takes_itself_for_the_leader_is_outvoted_by_one_that_knows_a_later_epoch() -> None:
    assert agreed_leaders([says(1, 5), says(2, 6), says(1, 5)]) == {AT: 2}
    assert agreed_leaders([says(2, 6), says(2, 6)]) == {AT: 2}


def test_partition_on_which_the_word_is_not_clear_is_left_out() -> None:
    assert agreed_leaders([says(1, 5), says(-1, 6)]) == {}
    assert agreed_leaders([says(1, 5, "an id"), says(2, 0, "another")]) == {}
    assert agreed_leaders([says(1, -1), says(2, -1)]) == {}
    assert agreed_leaders([says(1, -1), says(1, -1)]) == {AT: 1}
    assert agreed_leaders([[], says(1, 5)]) == {AT: 1}
