"""Partitions with batches to append in, until so much of them is with the target and acknowledged."""

from __future__ import annotations

import time
from typing import Callable, Collection

from mirror_lib.log.append import Appender
from mirror_lib.log.connection import Disconnected, LogClient
from mirror_lib.replicate.partition import PartitionCopy

# How long to wait for an answer before what is in flight is given up, and looked for by whoever fences next.
PATIENCE_SECONDS = 30.0


class Sending:
    """Appends over the connections of one client."""

    def __init__(self, client: LogClient) -> None:
        self._client = client
        self._appender = Appender(client)

    def until(
        self, copies: Collection[PartitionCopy], most_bytes: int, waits: Callable[[], bool] = lambda: False
    ) -> None:
        """Send and receive until no more than `most_bytes` wait to be sent, with 0 until all is acknowledged, and
        while something else `waits`.

        Raises `Disconnected`, and `FencedError` where a lane is lost.
        """
        by_remote = {copy.remote: copy for copy in copies}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            # First of all: what came while somebody waited for another answer would not end the wait below.
            for ack in self._appender.acknowledgements():
                by_remote[ack.remote].acknowledge(ack)
                deadline = time.monotonic() + PATIENCE_SECONDS
            self._appender.pump(list(copies))
            waiting = sum(copy.queued_bytes for copy in copies if copy.stopped is None)
            if waiting <= most_bytes and (most_bytes or self._appender.idle()) and not waits():
                return
            if time.monotonic() > deadline:
                raise Disconnected(f"{self._client.alias}: no answer to what was appended in {PATIENCE_SECONDS:.0f} s")
            self._client.network.poll(100)
