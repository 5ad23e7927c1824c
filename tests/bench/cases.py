"""The topics that are copied, each with the target that the page holds it to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

from tests.bench.changes import FILTER, FILTER_BY_HEADER, FILTER_BYTES_FIRST, MASK, SELECT_ALL, Change
from tests.lab.checkout import LabError

PARTITIONS = 4


@dataclass(frozen=True)
class Case:
    """A topic to fill and copy: `records` of `value_bytes` each.

    `hot`: the share of the first partition. `batch_records`: at most so many in a batch of the source, 0 for Kafka's
    own way. `aborted`: one transaction in so many, 0 for no transactions. `far`: the source is 50 ms away.
    `target`: how many times tuned MirrorMaker 2's rate ours is to be, in steady state, or from the command if `whole`.
    `big`: only when asked for.
    `change`: what the engine `records` does to the records.
    """

    name: str
    records: int
    value_bytes: int
    target: Optional[float] = None
    codec: str = "none"
    partitions: int = PARTITIONS
    hot: float = 0.0
    batch_records: int = 0
    keys_and_headers: bool = False
    aborted: int = 0
    far: bool = False
    big: bool = False
    whole: bool = False
    change: Optional[Change] = None

    @property
    def isolation(self) -> str:
        """What every engine reads with: the records of aborted transactions belong to no copy."""
        return "read_committed" if self.aborted else "read_uncommitted"

    @property
    def is_filtered(self) -> bool:
        return self.change is not None and self.change.one_in > 1

    @property
    def copied(self) -> int:
        return self.records if self.change is None else self.records // self.change.one_in


# So many records that the fastest engine copies for about ten seconds: Java has compiled by then what it will compile.
CASES: Tuple[Case, ...] = (
    Case("bytes100", 14_000_000, 100, 4.0),
    Case("bytes1000", 4_000_000, 1000, 2.0),
    Case("bytes10000", 400_000, 10_000, 1.5),
    Case("json.lz4", 5_000_000, 1000, 3.0, codec="lz4"),
    Case("json.zstd", 5_000_000, 1000, 4.0, codec="zstd"),
    Case("single", 1_000_000, 100, 1.0, batch_records=1),
    Case("partitions1000", 2_000_000, 1000, partitions=1000),
    Case("hot", 4_000_000, 1000, hot=0.9),
    Case("headers", 6_000_000, 300, keys_and_headers=True),
    Case("transactions", 6_000_000, 300, 3.0, aborted=10),
    Case("far", 3_000_000, 1000, 2.0, far=True),
    Case("select", 5_000_000, 1000, 1.0, change=SELECT_ALL),
    Case("filter", 5_000_000, 1000, 1.0, change=FILTER),
    Case("filter.bytes", 5_000_000, 1000, 1.0, change=FILTER_BYTES_FIRST),
    Case("filter.header", 5_000_000, 1000, 1.0, change=FILTER_BY_HEADER),
    Case("mask", 5_000_000, 1000, 1.0, change=MASK),
    Case("small", 10_000, 1000, 1.0, whole=True),
    Case("backlog", 10_000_000, 1000, 2.0, whole=True, big=True),
)


def chosen(names: Sequence[str], big: bool) -> Tuple[Case, ...]:
    """The cases of these names; without names all of them, the big ones only if asked for."""
    unknown = sorted(set(names) - {case.name for case in CASES})
    if unknown:
        raise LabError(f"there is no case {unknown[0]}: choose from {', '.join(case.name for case in CASES)}")
    return tuple(case for case in CASES if case.name in names or (not names and (big or not case.big)))
