"""Keys go where Kafka's Java producer would send them: its own test's vectors, and properties of the placement."""

from __future__ import annotations

from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.murmur2 import murmur2, partition_of_key


# From Kafka's UtilsTest.testMurmur2, which has them as signed integers.
@pytest.mark.parametrize(
    "text, hashed",
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(text: str, hashed: int) -> None:
    assert murmur2(text.encode()) == hashed & 0xFFFFFFFF


@given(st.one_of(st.none(), st.binary(max_size=40)), st.integers(0, 999), st.integers(1, 999))
def test_a_record_has_one_place_of_those_there_are(key: Optional[bytes], partition: int, count: int) -> None:
    assert 0 <= partition_of_key(key, partition, count) < count
    assert key is None or partition_of_key(key, partition, count) == partition_of_key(key, 0, count)


def test_records_without_a_key_keep_together_by_where_they_came_from() -> None:
    assert [partition_of_key(None, partition, 4) for partition in (0, 3, 4, 9)] == [0, 3, 0, 1]
