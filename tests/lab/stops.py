"""Why partitions stopped, as tests read it."""

from __future__ import annotations

from typing import Union

from mirror_lib.replication.messages import PartitionReport, Stop
from mirror_lib.replication.partition import RemotePartition


def stop_of(part: Union[PartitionReport, RemotePartition]) -> Stop:
    """Why a partition stopped; without a reason if it has not."""
    return part.stopped or Stop("")
