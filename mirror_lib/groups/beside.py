"""Translation inside `mirror run`, for the flows that sync group offsets or write checkpoints in this job: beside the
copy, or right after it.

In a run that ends by itself positions are looked at before the copy too, and while it goes on: those that are ahead of
the mirror then are what it reaches.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import List, Optional, Sequence, Tuple, Type

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.errors import MirrorError
from mirror_lib.groups.job import LEFT, STOP_SECONDS, TranslationRun, Watcher
from mirror_lib.supervisor import await_end


class TranslationBeside:
    """A context for the copy. `errors` tells after its end why translations failed."""

    def __init__(
        self,
        config: MirrorConfig,
        flows: Sequence[ReplicationFlow],
        spark: SparkSession,
        watcher: Watcher,
        stop: threading.Event,
    ) -> None:
        syncing = [flow for flow in flows if flow.translates_beside]
        self._at_the_end = config.trigger == AVAILABLE_NOW
        self._copied = threading.Event()
        self._stop = stop
        self._runs = [
            TranslationRun(config, flow, spark, watcher, stop, self._copied if flow.copied else None)
            for flow in syncing
        ]
        self.errors: List[MirrorError] = []

    def __enter__(self) -> TranslationBeside:
        for run in self._runs:
            run.start()
        # What is seen later may lie beyond what is going to be copied.
        while self._at_the_end and not all([run.looked.wait(0.1) for run in self._runs]) and not self._stop.is_set():
            pass
        return self

    def alone(self) -> Tuple[()]:
        """Where nothing is copied: return when the translations have ended, or the run is told to; in a run that ends
        by itself at once."""
        while not self._at_the_end and not self._stop.wait(0.2):
            if self._runs and all([run.wait(0) for run in self._runs]):
                break
        return ()

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        # Where the copy was to go on for ever it has failed, or was told to end: translation alone is another job.
        if error is not None or not self._at_the_end:
            self._stop.set()
        self._copied.set()
        await_end(self._runs, self._stop, STOP_SECONDS, LEFT)
        self.errors = [run.error for run in self._runs if run.error is not None]
