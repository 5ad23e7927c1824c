"""Which local state folders a command finds unwritable without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Dict

import pytest

from mirror_lib.errors import EXIT_REFUSED
from mirror_lib.ledger.table_reader import local_folder, local_refusal

HADOOP = {"HADOOP_CONF_DIR": "/etc/hadoop"}


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_folder_below_a_file_is_refused_and_the_file_named(tmp_path: Path, prefix: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for state in (file, file / "state", file / "more" / "state"):
        refused = local_refusal(f"{prefix}{state}", {})
        assert refused is not None and refused.exit_code == EXIT_REFUSED
        assert f"{prefix}{state}" in str(refused) and f"{file} is a file" in str(refused)


def test_folder_that_can_be_created_is_not_refused_and_not_created(tmp_path: Path) -> None:
    assert local_refusal(str(tmp_path / "new" / "state"), {}) is None
    assert local_refusal(f"file:{tmp_path}", {}) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("state", "environ"),
    [("s3a://bucket/state", {}), ("hdfs:///state", {}), ("FILE", HADOOP), ("FILE", {"PYSPARK_GATEWAY_PORT": "1"})],
)
def test_folder_that_may_be_elsewhere_is_not_judged(tmp_path: Path, state: str, environ: Dict[str, str]) -> None:
    (tmp_path / "file").write_text("")
    assert local_refusal(state.replace("FILE", str(tmp_path / "file")), environ) is None
    assert local_folder(state, environ) is None


def test_relative_folder_is_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_folder("./mirror-state", {}) == str(tmp_path / "mirror-state")
    assert local_folder("file:/data/state", {}) == "/data/state"
