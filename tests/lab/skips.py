"""A pytest plugin: in CI, where `CI` is set, a test that is skipped fails, unless ALLOWED lists it.

A green run then shows that the tests ran.
`LONG_SHARD=1/2` runs the first half of the test files, chosen by a hash of their names. The tests of a file stay
together, since they share clusters. Every file is in exactly one shard, on every machine and at every commit, so that K
runs with the shards 1/K to K/K run every test.
"""

from __future__ import annotations

import os
from typing import Any, Generator, List, Tuple
from zlib import crc32

import pytest

# Files whose tests may be skipped in CI, with a word of the reason that is printed then.
ALLOWED = (
    ("tests/compat/test_hdinsight.py", "make compat runs it"),  # six brokers of two old releases need minutes
    # System packages, which pip cannot bring.
    ("tests/integration/test_credentials_that_change.py", "Kerberos library"),
    ("tests/integration/test_report.py", "no Chromium"),
    ("tests/unit/test_monitoring.py", "promtool"),
    # A container may forbid namespaces.
    ("tests/integration/test_crash_brokers.py", "no small disk"),
    ("tests/integration/test_standalone.py", "mount namespace"),
    ("tests/unit/test_run_lock.py", "no PID namespace"),
    ("tests/unit/test_session.py", "pyspark.logger"),  # Spark 4 has it; earlier lines run the file too
)


def judge(report: Any) -> None:
    """Turn the report of a skip that is not on the list into a failure; an expected failure is no skip."""
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    if report.outcome != "skipped" or hasattr(report, "wasxfail") or not in_ci:
        return
    said = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if not any(report.nodeid.startswith(file) and word in said for file, word in ALLOWED):
        way = "install what is missing, or add the file with a reason to ALLOWED in tests/lab/skips.py"
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped: {said}. A run of CI must run it: {way}."


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, None]:
    """Judge the report of each phase of a test, also of `skipif` and of fixtures."""
    judge((yield).get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, None]:
    """Judge the report of each file, which `importorskip` may skip as a whole."""
    judge((yield).get_result())


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
