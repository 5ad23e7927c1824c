"""A pytest plugin: in CI, where `CI` is set, a test that is skipped fails, unless ALLOWED lists it with a reason.

A green run then shows that the tests ran. The summary lists every skip that was allowed, and what tests record by
`record_property`.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Generator, List, NamedTuple, Optional

import pytest


class Allowed(NamedTuple):
    """Tests of one file may be skipped in CI for a reason that matches `said`; `why` is for the reader of the list."""

    file: str
    said: str
    why: str


ALLOWED = (
    Allowed("tests/compat/test_hdinsight.py", "make compat runs it", "six brokers of two old releases need minutes"),
    Allowed("tests/integration/test_credentials_that_change.py", "Kerberos library", "a system package, not of pip"),
    Allowed("tests/integration/test_report.py", "no Chromium", "a system package, which pip cannot bring"),
    Allowed("tests/integration/test_crash_brokers.py", "no small disk", "a container may forbid mount namespaces"),
    Allowed("tests/integration/test_standalone.py", "mount namespace", "a container may forbid mount namespaces"),
    Allowed("tests/unit/test_run_lock.py", "no PID namespace", "a container may forbid PID namespaces"),
    Allowed("tests/unit/test_session.py", "pyspark.logger", "Spark 4 has it; earlier lines run the file too"),
    Allowed("tests/unit/test_monitoring.py", "promtool", "a system package of Prometheus, which pip cannot bring"),
)


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def why_allowed(nodeid: str, said: str) -> Optional[str]:
    file = nodeid.partition("::")[0]
    return next((each.why for each in ALLOWED if each.file == file and re.search(each.said, said)), None)


def reason_of(report: Any) -> str:
    longrepr = report.longrepr
    said = str(longrepr[2] if isinstance(longrepr, tuple) else longrepr)
    return said[len("Skipped: ") :] if said.startswith("Skipped: ") else said


def judge(report: Any) -> None:
    """Turn the report of a skip that is not on the list into a failure; an expected failure is no skip."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail") or not in_ci():
        return
    said = reason_of(report)
    if why_allowed(report.nodeid, said) is None:
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


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the skips that were allowed in CI, and the properties that tests recorded."""
    stats: Dict[str, List[Any]] = terminalreporter.stats
    if in_ci():
        for report in stats.get("skipped", []):
            why = why_allowed(report.nodeid, reason_of(report))
            terminalreporter.write_line(f"skipped in CI: {report.nodeid}: {why}")
    for report in [*stats.get("passed", []), *stats.get("failed", [])]:
        for name, value in getattr(report, "user_properties", []):
            terminalreporter.write_line(f"{name}: {value}")
