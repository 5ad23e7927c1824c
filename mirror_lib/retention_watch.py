"""Reads once a minute, in the background, how long the source retains records that each flow has not copied yet."""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Dict, Mapping, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import MirrorError
from mirror_lib.facts import TopicPartition

log = logging.getLogger(__name__)

NextOffsets = Mapping[TopicPartition, int]
# Reads from the source for how many seconds it retains the next records of each topic.
ReadRetention = Callable[[ReplicationFlow, NextOffsets], Mapping[str, float]]

# The interval of reads for a flow with lag, and the delay of the first one after its lag began.
READ_SECONDS, WAKE_SECONDS = 60.0, 5.0
# A flow without lag is not read, so its last value ages. After two missed reads it no longer counts.
VALID_SECONDS = 3 * READ_SECONDS
# A read that waits for a cluster does not delay the end of the run.
END_SECONDS = 2.0
# A read fetches a record of each partition. If a flow has more partitions with lag, the first by name are read.
PARTITIONS_READ = 2000


class RetentionWatch:
    """Calls `read` in its own thread during the block. A failed read leaves no value, and is logged."""

    def __init__(self, read: ReadRetention) -> None:
        self._read = read
        self._lock, self._over = threading.Lock(), threading.Event()
        self._lagging: Dict[str, Tuple[ReplicationFlow, NextOffsets]] = {}
        self._tried_at: Dict[str, float] = {}
        self._left: Dict[str, Tuple[float, Mapping[str, float]]] = {}
        self._thread = threading.Thread(target=self._run, name="retention watch", daemon=True)

    def update(self, flow: ReplicationFlow, next_offsets: NextOffsets) -> None:
        """Record the next offset to copy of each source partition with more to copy. Does no I/O."""
        with self._lock:
            self._lagging[flow.name] = (flow, next_offsets)

    def left(self, flow: str) -> Mapping[str, float]:
        """Seconds by source topic, as of the last read. A topic without lag at that time, or without retention, has
        none."""
        with self._lock:
            read_at, found = self._left.get(flow, (0.0, {}))
        return found if time.monotonic() - read_at < VALID_SECONDS else {}

    def __enter__(self) -> RetentionWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        while not self._over.wait(WAKE_SECONDS):
            with self._lock:
                lagging = list(self._lagging.values())
            for flow, next_offsets in lagging:
                tried_at = self._tried_at.get(flow.name)
                due = tried_at is None or time.monotonic() - tried_at >= READ_SECONDS
                if next_offsets and due and not self._over.is_set():
                    self._read_one(flow, next_offsets)
                    self._tried_at[flow.name] = time.monotonic()

    def _read_one(self, flow: ReplicationFlow, next_offsets: NextOffsets) -> None:
        found: Mapping[str, float] = {}
        try:
            found = self._read(flow, dict(sorted(next_offsets.items())[:PARTITIONS_READ]))
        except MirrorError as error:
            log.info("%s: the time to retention is unknown: %s", flow.name, error)
        except Exception as error:  # a failed metric must not end the copy
            log.warning("%s: the time to retention is unknown: %s: %s", flow.name, type(error).__name__, error)
        with self._lock:
            self._left[flow.name] = (time.monotonic(), found)
