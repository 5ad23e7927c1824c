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
# A job that ends leaves the merge to the next one, unless so many files have come together.
OVERDUE_FILES = 500
SECONDS_TO_A_CLEANING = 24 * 3600.0


class LedgerUpkeep:
    """The upkeep of one flow's rows in one driver's life. Call it from one thread."""

    def __init__(self, spark: SparkSession, state: str, flow: str) -> None:
        self._flow = flow
        self._compaction = LedgerCompaction(spark, state, flow)
        self._commits = 0
        self._cleaned_at: Optional[float] = None
        self._overdue = False
        self._thread: Optional[threading.Thread] = None

    def committed(self) -> None:
        """The flow has made a commit. Looks after the first of a life, since many lives are short, and now and then."""
        self._commits += 1
        busy = self._thread is not None and self._thread.is_alive()
        if self._commits % COMMITS_TO_A_LOOK != 1 or busy:
            return
        self._thread = threading.Thread(target=self._look, name=f"upkeep of {self._flow}", daemon=True)
        self._thread.start()

    def rest(self, seconds: float) -> None:
        """The run is over. Who runs for seconds would cut each merge off: one that is overdue is waited for.

        For `seconds` at most. Any other is left to a run that lasts longer.
        """
        if self._thread is not None and self._overdue:
            self._thread.join(seconds)

    def _look(self) -> None:
        try:
            files = self._compaction.file_count()
            self._overdue = files >= OVERDUE_FILES
            found = self._compaction.choice() if files >= FILES_TO_MERGE else None
            if found is not None and found.files >= FILES_TO_MERGE:
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
