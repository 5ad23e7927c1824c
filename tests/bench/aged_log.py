"""A Delta table with a young log in; the same table out, with what so many commits leave in its folders.

Only for what a commit costs: what lies before the newest checkpoint has names and ages as Delta would leave them, and
no meaning.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

COMMITS_TO_A_CHECKPOINT = 100
DAY = 24 * 3600.0


def age(table: Path, version: int, kept: int) -> None:
    """Let the log of `table`, which ends in a checkpoint, end in `version`, with the `kept` commits before it.

    They are spread over the last day, so that no clean-up takes them away. Each has left a file that was merged since.
    """
    log = table / "_delta_log"
    last = json.loads((log / "_last_checkpoint").read_text())
    young = _named(last["version"])
    commit, checksum = (young.with_suffix(suffix) for suffix in (".json", ".crc"))
    checkpoint = young.with_suffix(".checkpoint.parquet")
    for before in range(kept, -1, -1):
        named = _named(version - before)
        at = time.time() - 0.9 * DAY * before / kept
        _left(log / commit, log / named.with_suffix(".json"), at)
        _left(log / checksum, log / named.with_suffix(".crc"), at)
        if (version - before) % COMMITS_TO_A_CHECKPOINT == 0:
            _left(log / checkpoint, log / named.with_suffix(".checkpoint.parquet"), at)
        (table / f"part-00000-{version - before:08d}-0000-4000-8000-000000000000-c000.snappy.parquet").touch()
    for number in range(last["version"] + 1):
        for path in [*log.glob(f"{_named(number)}.*"), *log.glob(f".{_named(number)}.*")]:
            path.unlink()
    (log / "._last_checkpoint.crc").unlink()
    (log / "_last_checkpoint").write_text(json.dumps({"version": version, "size": last["size"]}))


def _named(version: int) -> Path:
    return Path(f"{version:020d}")


def _left(like: Path, path: Path, at: float) -> None:
    shutil.copyfile(like, path)
    os.utime(path, (at, at))
