"""A pytest plugin: `LONG_SHARD=1/2` runs the first half of the test files, chosen by a hash of their names.

The tests of a file stay together, since they share clusters. Every file is in exactly one shard, on every machine and
at every commit, so that K runs with the shards 1/K to K/K run every test.
"""

from __future__ import annotations

import os
from typing import Any, List, Tuple
from zlib import crc32

import pytest


def shard_of(text: str) -> Tuple[int, int]:
    """`2/3` as (2, 3). UsageError for anything else, and for a number outside 1 to the count."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"LONG_SHARD is {text!r}: give a number and a count, such as 1/2")
    return int(number), int(count)


def in_shard(nodeid: str, number: int, count: int) -> bool:
    return crc32(nodeid.partition("::")[0].encode("utf-8")) % count == number - 1


def pytest_collection_modifyitems(config: pytest.Config, items: List[Any]) -> None:
    wanted = os.environ.get("LONG_SHARD")
    if not wanted:
        return
    number, count = shard_of(wanted)
    left_out = [item for item in items if not in_shard(item.nodeid, number, count)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if in_shard(item.nodeid, number, count)]


def pytest_report_header() -> List[str]:
    wanted = os.environ.get("LONG_SHARD")
    return [f"shard of the test files: {wanted}"] if wanted else []
