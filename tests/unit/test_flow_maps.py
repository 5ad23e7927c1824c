"""The ledger's rows as maps by partition, while rows continue coming."""

from __future__ import annotations

from array import array

from mirror_lib.groups.map import FlowMaps
from mirror_lib.ledger.intervals import Numbers, PartitionMap
from mirror_lib.ledger.records import PartitionKey

KEY = PartitionKey("u1", "u2", "orders", 0)


OLD = PartitionKey("old", "u2", "orders", 0)
OTHER = PartitionKey("u1", "u2", "orders", 1)


def row(upstream: int, downstream: int, count: int) -> Numbers:
    return array("q", (upstream, downstream, count))


def test_rows_that_come_later_are_in_the_map_whether_it_was_asked_for_before_or_not() -> None:
    given = {KEY: array("q", [0, 50, 100])}
    asked, unasked = FlowMaps(given), FlowMaps(given)
    assert asked.of(KEY) == PartitionMap.of([(0, 50, 100)])
    for maps in (asked, unasked):
        for each in (row(100, 150, 5), row(110, 155, 5), row(100, 150, 5)):
            maps.add(KEY, each)
        assert maps.of(KEY) == PartitionMap.of([(0, 50, 105), (110, 155, 5)])
    assert given == {KEY: array("q", [0, 50, 100])}


def test_partition_that_was_unknown_is_known_with_its_first_row() -> None:
    maps = FlowMaps({})
    assert maps.of(KEY) == "nothing of this partition is copied yet"
    maps.add(OLD, row(0, 0, 1))
    assert maps.of(KEY) == "the topic was re-created and nothing of it is copied yet"
    maps.add(KEY, row(0, 0, 1))
    assert maps.of(KEY) == PartitionMap.of([(0, 0, 1)])


def test_row_of_a_partition_that_is_not_known_may_be_a_take_overs() -> None:
    maps = FlowMaps({KEY: array("q", [0, 50, 100])})
    assert (maps.is_new(KEY), maps.is_new(OTHER)) == (False, True)
    maps.now_incomplete({OTHER})
    maps.add(OTHER, row(80, 20, 5))
    assert not maps.is_new(OTHER)
    found = maps.of(OTHER)
    assert isinstance(found, PartitionMap) and found.older


def test_rows_before_the_end_of_a_map_have_the_ledger_read_again_once() -> None:
    read, back = {KEY: array("q", [0, 50, 100])}, {KEY: row(99, 150, 0)}
    maps = FlowMaps(read)
    assert maps.must_be_reread(back)
    assert maps.must_be_reread({OTHER: row(0, 0, 1), KEY: row(100, 150, 5) + row(99, 150, 0)})
    for key, numbers in ((KEY, row(100, 151, 0)), (KEY, row(0, 50, 100)), (OTHER, row(0, 0, 0))):
        assert not maps.must_be_reread({key: numbers})
    # A read that was asked for may be from before the remote log was truncated.
    for first in (back, {KEY: row(100, 150, 5)}, {}):
        again = FlowMaps(read, asked_for=True)
        assert not again.must_be_reread(first) and again.must_be_reread(back)


def test_row_that_contradicts_a_map_asks_for_a_fresh_ledger() -> None:
    maps = FlowMaps({KEY: array("q", [0, 50, 100])})
    maps.of(KEY)
    maps.add(KEY, row(90, 20, 5))
    assert not maps.contradicted
    assert "contradicts itself on orders-0" in str(maps.of(KEY))
    assert maps.contradicted
    maps.add(KEY, row(100, 150, 5))
    assert "contradicts itself on orders-0" in str(maps.of(KEY))
