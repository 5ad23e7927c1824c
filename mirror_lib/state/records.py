"""The rows the Delta tables hold. Pure: their schemas are written beside them as Spark DDL."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OffsetSync:
    """`record_count` records from `upstream_offset` on lie at `downstream_offset` on, with no gap on either side.

    A count of 0 is a position: everything before `upstream_offset` that exists downstream lies before
    `downstream_offset`. `partition` is the same on both sides.
    """

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    record_count: int


@dataclass(frozen=True)
class Incident:
    """Something an operator must be able to look up later: data that was lost, skipped, healed or copied again.

    `kind` is one of `data lost`, `offsets skipped`, `remote log healed`, `topic recreated`, `partition stopped`.
    Offsets are upstream, end exclusive; -1 where a bound is not known.
    """

    kind: str
    topic: str
    partition: int
    from_offset: int
    until_offset: int
    reason: str
