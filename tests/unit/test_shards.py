"""Shards of the long tests: each file is in one of them, whole, and K of them are all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from tests.lab.checkout import ROOT
from tests.lab.shards import in_shard, shard_of


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_file_is_in_one_shard_and_none_is_empty(count: int) -> None:
    files = [f"tests/integration/test_{n}.py" for n in range(100)]
    shards = [[file for file in files if in_shard(file, number, count)] for number in range(1, count + 1)]
    assert sorted(file for shard in shards for file in shard) == sorted(files)
    assert min(map(len, shards)) > 100 / count / 3
    assert in_shard("a.py::test_b[c]", 1, count) == in_shard("a.py::test_d", 1, count)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "/2", "-1/2"])
def test_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="give a number and a count"):
        shard_of(text)


def test_runs_of_all_shards_run_every_test_once(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.lab.shards"]\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for n in range(6):
        (tmp_path / f"test_{n}.py").write_text("def test_a(): ...\ndef test_b(): ...\n")

    def collected(shard: str) -> List[str]:
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
        own = {**os.environ, "LONG_SHARD": shard, "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(command, cwd=tmp_path, env=own, stdout=subprocess.PIPE, text=True)
        return [line for line in ran.stdout.splitlines() if "::" in line]

    one, two, every = collected("1/2"), collected("2/2"), collected("")
    assert len(every) == 12 and sorted(one + two) == sorted(every)
    assert 0 < len(one) < 12
