"""Rows of many partitions in any order, cut into batches anywhere: joined by key they make the map that they made."""

from __future__ import annotations

import random
from array import array
from typing import List, Sequence, Tuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.errors import StateError
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.ledger.runs_by_partition import KEY, NUMBERS, joined, runs_by_key
from tests.unit.offset_histories import histories

Row = Tuple[int, int, int, int]


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.table({name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate((KEY, *NUMBERS))})


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

    found = runs_by_key(pa.concat_tables(joined(table(each)) for each in stretches))

    wanted = {key: array("q", [number for row in rows if row[0] == key for number in row[1:]]) for key, *_ in rows}
    assert {key: said(flat) for key, flat in found.items()} == {key: said(flat) for key, flat in wanted.items()}


def said(flat: array[int]) -> object:
    try:
        return PartitionMap.of_flat(flat)
    except StateError:
        return "contradiction"
