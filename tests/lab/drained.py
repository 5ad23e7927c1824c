"""The negative control of positions: a partition that passes a batch that the target has not accepted."""

from __future__ import annotations

from mirror_lib.errors import FencedError
from mirror_lib.kafka.connection import Disconnected
from mirror_lib.kafka.producer import Acknowledgement
from mirror_lib.replication.partition import PartitionCopy


class Drained(PartitionCopy):
    """Forgets a batch whose answer is an error, as the product once did."""

    def acknowledge(self, ack: Acknowledgement) -> None:
        try:
            super().acknowledge(ack)
        except (FencedError, Disconnected):
            self._in_flight.popleft()
            self._pass_gap()
            raise
