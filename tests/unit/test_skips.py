"""A run of CI is green only where its tests ran: a skip fails it unless the list allows it with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Sequence

import pytest

from tests.lab.checkout import ROOT
from tests.lab.skips import ALLOWED, why_allowed

TESTS = """
import pytest

@pytest.mark.skipif(True, reason="no library here")
def test_by_mark(): ...

def test_by_call():
    pytest.skip("no disk here")

@pytest.fixture
def missing():
    pytest.skip("no broker here")

def test_by_fixture(missing): ...

@pytest.mark.xfail
def test_expected_failure():
    assert False

def test_that_runs(): ...
"""
LISTED = 'import pytest\npytestmark = pytest.mark.skipif(True, reason="make compat runs it")\ndef test_a(): ...\n'
WHOLE = 'import pytest\npytest.importorskip("no_such_module", reason="no module here")\ndef test_a(): ...\n'


def run(folder: Path, ci: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """pytest with the plugin alone, over files in a folder of its own."""
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.lab.skips"]\n')
    (folder / "pytest.ini").write_text("[pytest]\n")
    own = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_skip_fails_a_run_of_ci_and_says_what_to_do(tmp_path: Path, options: Sequence[str]) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    ran = run(tmp_path, "true", options=options)
    assert ran.returncode == 1, ran.stdout
    assert "1 failed, 1 passed, 1 xfailed, 2 errors" in ran.stdout
    for said in ("no library here", "no disk here", "no broker here"):
        assert f"was skipped: {said}. A run of CI must run it" in ran.stdout.replace("\n", " ")


def test_file_that_is_skipped_as_a_whole_fails_a_run_of_ci(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(WHOLE)
    assert run(tmp_path, "").returncode == 5
    ran = run(tmp_path, "1")
    assert ran.returncode == 2 and "no module here. A run of CI must run it" in ran.stdout


def test_listed_skip_is_allowed_and_shown_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "tests" / "compat" / "test_hdinsight.py"
    file.parent.mkdir(parents=True)
    file.write_text(LISTED)
    ran = run(tmp_path, "true")
    assert ran.returncode == 0, ran.stdout
    assert f"skipped in CI: tests/compat/test_hdinsight.py::test_a: {ALLOWED[0].why}" in ran.stdout
    # The same file for another reason, and the same reason in another file.
    file.write_text(LISTED.replace("make compat runs it", "no time today"))
    assert run(tmp_path, "true").returncode == 1
    file.write_text(LISTED)
    file.rename(file.with_name("test_other.py"))
    assert run(tmp_path, "true").returncode == 1


def test_list_names_files_that_are_there_and_says_why() -> None:
    assert [each.file for each in ALLOWED if not (ROOT / each.file).is_file()] == []
    assert all(each.why and each.said for each in ALLOWED)
    assert why_allowed("tests/unit/test_batch.py::test_a", "make compat runs it") is None
