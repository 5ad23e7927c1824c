"""The ledger's rows as maps by partition: of rows in any order, cut into batches anywhere, and as rows come."""

from __future__ import annotations

import random
from array import array
from typing import List, Sequence, Tuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.errors import StateError
from mirror_lib.groups.map import FlowMaps
from mirror_lib.ledger import runs_by_partition as by_partition
from mirror_lib.ledger.intervals import Numbers, PartitionMap
from mirror_lib.ledger.records import PartitionKey
from tests.unit.offset_histories import histories

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


Row = Tuple[int, int, int, int]


def table(rows: Sequence[Row]) -> pa.Table:
    columns = (by_partition.KEY, *by_partition.NUMBERS)
    return pa.table({name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate(columns)})


NUMBER = st.integers(0, 30)


@given(
    st.lists(st.tuples(st.integers(0, 2), NUMBER, NUMBER, st.integers(-1, 5)), max_size=12)
    | st.tuples(histories(), histories()).map(lambda two: [(key, *row) for key in (0, 1) for row in two[key].rows]),
    st.lists(NUMBER, max_size=3).map(sorted),
    st.randoms(use_true_random=False),
)
def test_maps_of_rows_and_of_stretches_joined_one_by_one_are_those_of_the_rows_themselves(
    rows: List[Row], bounds: List[int], chance: random.Random
) -> None:
    chance.shuffle(rows)
    edges = [-1, *bounds, 10**6]
    stretches = [[row for row in rows if start <= row[1] < end] for start, end in zip(edges, edges[1:])]

    found = by_partition.runs_by_key(pa.concat_tables(by_partition.joined(table(each)) for each in stretches))

    wanted = {key: array("q", [number for row in rows if row[0] == key for number in row[1:]]) for key, *_ in rows}
    assert {key: said(flat) for key, flat in found.items()} == {key: said(flat) for key, flat in wanted.items()}


def said(flat: array[int]) -> object:
    try:
        return PartitionMap.of_flat(flat)
    except StateError:
        return "contradiction"
