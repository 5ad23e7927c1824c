"""Millions of rows are reduced to those that count as a plain loop over them would do it."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, List, Tuple

import pyarrow as pa
import pytest

from mirror_lib.ledger.records import PartitionKey
from mirror_lib.ledger.reductions import MOVE_COLUMNS, POSITION_COLUMNS, last_moves, last_positions
from mirror_lib.ledger.tables import partition_key

AT = datetime(2026, 11, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("seed", range(5))
def test_last_moves_are_the_last_of_each_position(seed: int) -> None:
    choose = random.Random(seed)
    rows: List[Dict[str, Any]] = []
    for number in range(300):
        place = ("B", choose.choice(["billing", "audit"]), "orders", number % 3, choose.choice(["commit", "rollback"]))
        at = AT + timedelta(seconds=choose.randrange(300))
        offsets = (choose.choice([None, 7]), number, choose.randrange(99))
        rows.append(dict(zip(MOVE_COLUMNS, (*place, "exact", at, number, *offsets))))

    def numbers(found: List[Dict[str, Any]]) -> List[int]:
        return sorted(row["append_number"] for row in found)

    in_order = sorted(rows, key=lambda row: (row["at"], row["append_number"]))
    last = {tuple(row[name] for name in MOVE_COLUMNS[:5]): row for row in in_order}
    found = last_moves(pa.Table.from_pylist(rows))
    assert numbers(found) == numbers(list(last.values())) and all(row in rows for row in found)


@pytest.mark.parametrize("seed", range(5))
def test_copy_resumes_at_the_end_of_the_row_that_ends_last_downstream_and_was_written_last(seed: int) -> None:
    choose = random.Random(seed)
    rows: List[Dict[str, Any]] = []
    for _ in range(200):
        key = ("source-id", choose.choice(["remote-id", "new-id"]), "orders", choose.randrange(3))
        offsets = (choose.randrange(5), choose.randrange(5), choose.randrange(5))
        at = AT + timedelta(seconds=choose.randrange(3))
        other_side, until = (None, None) if choose.randrange(4) else choose.choice([(7, None), (-1, 900)])
        rows.append(dict(zip(POSITION_COLUMNS, (*key, *offsets, at, other_side, until))))
    expected: Dict[PartitionKey, Tuple[int, datetime, int]] = {}
    for row in rows:
        if row["remote_partition"] is None and row["upstream_until"] is None:
            key_of = partition_key(row)
            count = row["record_count"]
            end = (row["downstream_offset"] + count, row["committed_at"], row["upstream_offset"] + count)
            expected[key_of] = max(end, expected.get(key_of, end))
    found = last_positions(pa.Table.from_pylist(rows))
    assert found == {key: (upstream, downstream, at) for key, (downstream, at, upstream) in expected.items()}
    assert last_positions(pa.Table.from_pylist(rows).slice(0, 0)) == {}
