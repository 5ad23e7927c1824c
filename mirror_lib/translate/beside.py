"""Translation inside `mirror run`, for the flows that sync group offsets: beside the copy, or right after it.

In a run that ends by itself positions are looked at before the copy too: those that are ahead of the mirror now are
what it reaches while it copies.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import List, Optional, Sequence, Type

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import MirrorError
from mirror_lib.replicate.query import AVAILABLE_NOW
from mirror_lib.translate.job import TranslationRun, Watcher


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
        syncing = [flow for flow in flows if flow.sync_group_offsets_interval is not None]
        self._at_the_end = config.trigger == AVAILABLE_NOW
        self._copied = threading.Event()
        self._stop = stop
        self._runs = [TranslationRun(config, flow, spark, watcher, stop, self._copied) for flow in syncing]
        self.errors: List[MirrorError] = []

    def __enter__(self) -> TranslationBeside:
        for run in self._runs:
            run.start()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if error is not None:
            self._stop.set()
        self._copied.set()
        while not all([run.wait(0.1) for run in self._runs]):
            pass
        self.errors = [run.error for run in self._runs if run.error is not None]
