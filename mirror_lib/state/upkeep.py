"""When the ledger is made small again: a commit of a flow in, now and then a compaction beside the copy.

Whatever goes wrong with it is told and left: a ledger that is not merged is slower, and as true.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Optional

from pyspark.sql import SparkSession

from mirror_lib.errors import MirrorError
from mirror_lib.state.compaction import FILES_TO_MERGE, LedgerCompaction

log = logging.getLogger(__name__)

# Each commit is a file, and each file costs every reader some milliseconds.
COMMITS_TO_A_LOOK = 100
# With so many the first commit of a life has them merged, however short it is.
OVERDUE_FILES = 500
SECONDS_TO_A_CLEANING = 24 * 3600.0


def files_to_merge(commits: int) -> Optional[int]:
    """How many files are to be merged after that commit of a life, the first being 1; `None`: no look is taken. Pure.

    Many lives are short. What they begin they have to wait for, so at first they begin only what must be done.
    """
    if commits % COMMITS_TO_A_LOOK != 1:
        return None
    return OVERDUE_FILES if commits == 1 else FILES_TO_MERGE


class LedgerUpkeep:
    """The upkeep of one flow's rows in one driver's life. Call it from one thread."""

    def __init__(self, spark: SparkSession, state: str, flow: str) -> None:
        self._flow = flow
        self._compaction = LedgerCompaction(spark, state, flow)
        self._commits = 0
        self._cleaned_at: Optional[float] = None
        self._thread: Optional[threading.Thread] = None

    def committed(self) -> None:
        """The flow has made a commit: looks now and then whether its rows are worth merging."""
        self._commits += 1
        enough = files_to_merge(self._commits)
        if enough is None or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._look, args=(enough,), name=f"upkeep of {self._flow}", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Let what was begun come to its end, for `seconds` at most."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _look(self, enough: int) -> None:
        try:
            found = self._compaction.due(enough)
            if found is not None:
                self._compaction.merge(found)
                self._clean()
        except MirrorError as error:
            # Another process merged or cut the same rows, or the driver ends. There is a next time.
            log.info("%s: the ledger was not merged: %s", self._flow, error)

    def _clean(self) -> None:
        now = time.monotonic()
        if self._cleaned_at is None or now - self._cleaned_at > SECONDS_TO_A_CLEANING:
            self._cleaned_at = now
            self._compaction.drop_replaced_files()
