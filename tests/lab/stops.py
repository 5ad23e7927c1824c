"""Why partitions stopped, as tests read it; and the negative control of positions."""

from __future__ import annotations

from typing import Union

from mirror_lib.errors import FencedError
from mirror_lib.kafka.connection import Disconnected
from mirror_lib.kafka.producer import Acknowledgement
from mirror_lib.replication.messages import PartitionReport, Stop
from mirror_lib.replication.partition import PartitionCopy, RemotePartition


def stop_of(part: Union[PartitionReport, RemotePartition]) -> Stop:
    """Why a partition stopped; without a reason if it has not."""
    return part.stopped or Stop("")


class Drained(PartitionCopy):
    """Forgets a batch whose answer is an error, as the product once did."""

    def acknowledge(self, ack: Acknowledgement) -> None:
        try:
            super().acknowledge(ack)
        except (FencedError, Disconnected):
            self._in_flight.popleft()
            self._pass_gap()
            raise
