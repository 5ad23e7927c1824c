"""Reads once a minute, in the background, how long the source retains records that each flow has not copied yet."""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Dict, Generator, Mapping, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import MirrorError
from mirror_lib.facts import TopicPartition
from mirror_lib.threads import Repeating

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


class RetentionWatch(Repeating):
    """Calls `read` in its own thread while it runs. A failed read leaves no value, and is logged."""

    def __init__(self, read: ReadRetention) -> None:
        super().__init__("retention watch", self._reads())
        self._read = read
        self._lock = threading.Lock()
        self._lagging: Dict[str, Tuple[ReplicationFlow, NextOffsets]] = {}
        self._left: Dict[str, Tuple[float, Mapping[str, float]]] = {}

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

    def _reads(self) -> Generator[float, None, None]:
        while True:
            yield WAKE_SECONDS
            with self._lock:
                lagging = list(self._lagging.values())
            for flow, next_offsets in lagging:
                read = self._left.get(flow.name)
                if next_offsets and (read is None or time.monotonic() - read[0] >= READ_SECONDS):
                    yield 0.0  # the run may have ended
                    self._read_one(flow, next_offsets)

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
