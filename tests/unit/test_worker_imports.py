"""What a Python worker keeps of archives between two tasks."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from typing import List
from zipimport import zipimporter

import pytest

from mirror_lib.replication.stage import forget_archives


def archives_of(folder: Path) -> List[str]:
    cache = sys.path_importer_cache
    return [path for path in cache if path.startswith(str(folder)) and isinstance(cache[path], zipimporter)]


def test_archive_is_not_read_again_between_tasks_and_the_rest_of_it_can_still_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "given.zip", "w") as archive:
        archive.writestr("given_to_workers/__init__.py", "")
        archive.writestr("given_to_workers/first.py", "what = 'first'")
        archive.writestr("given_to_workers/later.py", "what = 'later'")
    monkeypatch.syspath_prepend(str(tmp_path / "given.zip"))
    assert importlib.import_module("given_to_workers.first").what == "first"
    assert archives_of(tmp_path)  # which Python reads again when it is asked to forget what it knows
    forget_archives()
    assert not archives_of(tmp_path)
    importlib.invalidate_caches()
    assert importlib.import_module("given_to_workers.later").what == "later"
    for name in [name for name in sys.modules if name.startswith("given_to_workers")]:
        monkeypatch.delitem(sys.modules, name)
