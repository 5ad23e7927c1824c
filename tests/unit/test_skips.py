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

def run(folder: Path, text: str, *options: str) -> str:
    """What pytest with the plugin alone prints in CI of a file with this text."""
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.lab.skips"]\n')
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(text)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={**os.environ, "CI": "true", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ran.returncode
    return ran.stdout.replace("\n", " ")


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_skip_fails_a_run_of_ci_and_says_what_to_do(tmp_path: Path, options: Sequence[str]) -> None:
    said = run(tmp_path, TESTS, *options)
    assert "1 failed, 1 passed, 1 xfailed, 2 errors" in said
    for reason in ("no library here", "no disk here", "no broker here"):
        assert f"was skipped: {reason}. A run of CI must run it" in said


def test_file_that_is_skipped_as_a_whole_fails_a_run_of_ci(tmp_path: Path) -> None:
    whole = 'import pytest\npytest.importorskip("no_such_module", reason="no module here")\n'
    assert "no module here. A run of CI must run it" in run(tmp_path, whole)


def test_only_the_listed_file_may_skip_and_only_for_its_reason() -> None:
    assert [each.file for each in ALLOWED if not (ROOT / each.file).is_file()] == []
    (file, reason, why), *_ = ALLOWED
    assert why_allowed(f"{file}::test_a", f"because {reason}") == why
    assert why_allowed(f"{file}::test_a", "no time today") is None
    assert why_allowed("tests/unit/test_batch.py::test_a", reason) is None
