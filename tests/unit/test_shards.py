"""Shards of the long tests: each file is in one of them, whole, and K of them are all."""

from __future__ import annotations

import pytest

from tests.lab.shards import in_shard


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_file_is_in_one_shard_and_none_is_empty(count: int) -> None:
    files = [f"tests/integration/test_{n}.py" for n in range(100)]
    shards = [[file for file in files if in_shard(file, number, count)] for number in range(1, count + 1)]
    assert sorted(file for shard in shards for file in shard) == sorted(files)
    assert min(map(len, shards)) > 100 / count / 3
    assert in_shard("a.py::test_b[c]", 1, count) == in_shard("a.py::test_d", 1, count)
