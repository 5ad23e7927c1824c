"""Reads logs of partitions together with the logs of their copies, again where a leader moves meanwhile."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import Callable, Iterator, Sequence, Tuple, TypeVar

from mirror_lib.config.model import ClusterConfig
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.admin_client import log_client
from mirror_lib.kafka.connection import Disconnected, LogClient, name_of

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
# A source partition and its remote partition.
Pair = Tuple[TopicPartition, TopicPartition]
T = TypeVar("T")


class LogPairs:
    """Clients of both clusters. Reads are repeated `attempts` times over all pairs."""

    def __init__(self, source: LogClient, target: LogClient, attempts: int) -> None:
        self._source, self._target, self._attempts = source, target, attempts

    def find_leaders(self, pairs: Sequence[Pair], deadline: float) -> None:
        self._source.refresh_leaders([source for source, _ in pairs], deadline)
        self._target.refresh_leaders([remote for _, remote in pairs], deadline)

    def read(self, pair: Pair, reading: Callable[[LogClient, LogClient], T]) -> T:
        """Call `reading` with both clients, again after it raised `Disconnected`.

        Raises `Disconnected` when no attempt is left, `ClusterError` when a whole cluster is unavailable."""
        while True:
            try:
                return reading(self._source, self._target)
            except Disconnected as error:
                if not self._attempts:
                    raise
                self._attempts -= 1
                log.warning("%s: %s; %d attempts are left", name_of(pair[0]), error, self._attempts)
            time.sleep(AGAIN_SECONDS)
            self.find_leaders([pair], time.monotonic() + AGAIN_SECONDS)


@contextmanager
def log_pairs(
    source: ClusterConfig, target: ClusterConfig, pairs: Sequence[Pair], attempts: int, seconds: float
) -> Iterator[LogPairs]:
    """Connect to both clusters and find the leaders of `pairs` within `seconds`. Raises `ClusterError`."""
    deadline = time.monotonic() + seconds
    with log_client(source, "consumer", deadline) as here, log_client(target, "consumer", deadline) as there:
        found = LogPairs(here, there, attempts)
        found.find_leaders(pairs, deadline)
        yield found
