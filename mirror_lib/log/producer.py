"""Who appends: the producer id and epoch that a lane's record batches carry (KIP-98). Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Producer:
    """A producer id (int64) and epoch (int16), the same in every batch that a lane appends."""

    producer_id: int
    epoch: int
