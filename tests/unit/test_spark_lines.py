"""What a line of Spark showed: counts from pytest's report, and when it is green."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.spark_lines import CHECKS, Count, Line, counted

REPORT = """<testsuites><testsuite>
<testcase classname="tests.integration.test_copy" name="a"/>
<testcase classname="tests.integration.test_copy" name="b"><failure message="x"/></testcase>
<testcase classname="tests.integration.test_copy" name="c"><skipped message="x"/></testcase>
<testcase classname="tests.integration.test_verify" name="d"/>
<testcase classname="" name="tests.integration.test_changes"><error message="collection failure"/></testcase>
</testsuite></testsuites>"""


def test_each_check_counts_its_own_tests(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    copy = counted(report, CHECKS["copy"])
    assert (copy.passed, copy.skipped, copy.failed) == (1, 1, ["tests.integration.test_copy::b"])
    assert counted(report, CHECKS["verify"]) == Count(1)
    assert len(counted(report, CHECKS["changes"]).failed) == 1
    assert counted(report, CHECKS["groups"]) == Count()


@pytest.mark.parametrize(
    ("line", "green"),
    [
        (Line("3.3", "2026-11-23", checks={"copy": Count(2)}), True),
        (Line("3.3", "2026-11-23", checks={"copy": Count(2), "verify": Count(1, 0, ["x"])}), False),
        (Line("3.3", "2026-11-23", checks={"copy": Count(2), "verify": Count(0, 3)}), False),
        (Line("3.3", "2026-11-23", refused="no Python 3.8", skipped=True), True),
        (Line("3.3", "2026-11-23", refused="no network"), False),
    ],
)
def test_line_is_green_where_every_check_ran_and_passed_or_its_python_is_missing(
    line: Line, green: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    assert line.green is green


def test_line_whose_python_is_missing_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert not Line("3.3", "2026-11-23", refused="no Python 3.8", skipped=True).green
