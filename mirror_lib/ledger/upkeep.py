"""When the ledger is made small again: a flow's commit in, a compaction beside the copy out.

A failure never ends the copy: a table that is not merged is slower to read, and as true. The first one is a warning.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Optional, Protocol

from mirror_lib.errors import ConflictError, MirrorError, SparkEndedError
from mirror_lib.ledger.compaction import FILES_TO_MERGE
from mirror_lib.ledger.delta_table import StateTable

log = logging.getLogger(__name__)

# Each commit is a file, and each file costs every reader some milliseconds.
COMMITS_TO_A_LOOK = 100
# With so many the first commit of a life has them merged, however short it is.
OVERDUE_FILES = 500
SECONDS_TO_A_CLEANING = 24 * 3600.0
# How soon a stop is heard.
LOOK_SECONDS = 0.2


def files_to_merge(commits: int) -> Optional[int]:
    """How many files are to be merged after that commit of a life, the first being 1; `None`: no look is taken. Pure.

    Many lives are short. What they begin they have to wait for, so at first they begin only what must be done.
    """
    if commits % COMMITS_TO_A_LOOK != 1:
        return None
    return OVERDUE_FILES if commits == 1 else FILES_TO_MERGE


class Tidied(Protocol):
    """One flow's rows in a table."""

    @property
    def table(self) -> StateTable:
        """The table, whose log is shortened too where the operator asked for it."""

    def tidy(self, enough: int) -> bool:
        """Merge what is worth it, where it is in `enough` files; whether anything was.

        StateError: nothing was done then, and nothing is wrong.
        """


class Upkeep:
    """The upkeep of one flow's rows in one driver's life. Call it from one thread."""

    def __init__(self, flow: str, rows: Tidied) -> None:
        self._flow = flow
        self._rows = rows
        self._commits = 0
        self._cleaned_at: Optional[float] = None
        self._warned = False
        self._thread: Optional[threading.Thread] = None

    def committed(self) -> None:
        """The flow has made a commit: looks now and then whether its rows are worth merging."""
        self._commits += 1
        enough = files_to_merge(self._commits)
        if enough is None or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._look, args=(enough,), name=f"upkeep of {self._flow}", daemon=True)
        self._thread.start()

    def wait(self, seconds: float, ended: Callable[[], bool] = lambda: False) -> None:
        """Let what was begun come to its end, for `seconds` at most, and not where all has `ended`."""
        until = time.monotonic() + seconds
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < until and not ended():
            self._thread.join(LOOK_SECONDS)

    def _look(self, enough: int) -> None:
        try:
            if self._rows.tidy(enough):
                self._clean()
            # A short life leaves the log to the next long one, and to Delta's own retention.
            if enough != OVERDUE_FILES:
                self._rows.table.shorten_log()
        except (ConflictError, SparkEndedError) as error:
            # Another process merged or cut the same rows, or the driver ends. There is a next time.
            log.info("%s: the upkeep of %s did nothing: %s", self._flow, self._rows.table.path, error)
        except MirrorError as error:
            level = logging.INFO if self._warned else logging.WARNING
            self._warned = True
            sentence = "%s: the upkeep of %s failed: %s. The table stays correct; each commit adds a file to read"
            log.log(level, sentence, self._flow, self._rows.table.path, error)

    def _clean(self) -> None:
        now = time.monotonic()
        if self._cleaned_at is None or now - self._cleaned_at > SECONDS_TO_A_CLEANING:
            self._cleaned_at = now
            self._rows.table.drop_replaced_files()
