"""The topics that are copied, each with the target that issue and page hold it to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

from tests.bench.changes import FILTER, FILTER_BY_HEADER, FILTER_BYTES_FIRST, MASK, SELECT_ALL, Change
from tests.lab.checkout import LabError

PARTITIONS = 4
# How often a target is measured: in steady state, or from the command until the last record is readable.
STEADY, WHOLE = "steady", "from the command"


@dataclass(frozen=True)
class Case:
    """A topic to fill and copy: `records` of `value_bytes` each.

    `hot`: the share of the first partition. `batch_records`: at most so many in a batch of the source, 0 for Kafka's
    own way. `aborted`: one transaction in so many, 0 for no transactions. `far`: the source is 50 ms away.
    `target`: how many times tuned MirrorMaker 2's rate ours is to be, `judged` so. `big`: only when asked for.
    `change`: what the engine `records` does to the records.
    """

    name: str
    what: str
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
    judged: str = STEADY
    fast_path: bool = True
    change: Optional[Change] = None

    @property
    def isolation(self) -> str:
        """What every engine reads with: the records of aborted transactions belong to no copy."""
        return "read_committed" if self.aborted else "read_uncommitted"

    @property
    def ours(self) -> str:
        """The engine that the target is about."""
        return "mirror" if self.change is None else "rows"

    @property
    def is_filtered(self) -> bool:
        """Whether a part of the records is left out."""
        return self.change is not None and self.change.one_in > 1

    @property
    def copied(self) -> int:
        """How many of the records are to be on the target."""
        return self.records if self.change is None else self.records // self.change.one_in


# So many records that the fastest engine copies for about ten seconds: Java has compiled by then what it will compile.
CASES: Tuple[Case, ...] = (
    Case("bytes100", "100 B", 14_000_000, 100, 4.0),
    Case("bytes1000", "1 KB", 4_000_000, 1000, 2.0),
    Case("bytes10000", "10 KB", 400_000, 10_000, 1.5),
    Case("json.lz4", "1 KB JSON, lz4", 5_000_000, 1000, 3.0, codec="lz4"),
    Case("json.zstd", "1 KB JSON, zstd", 5_000_000, 1000, 4.0, codec="zstd"),
    Case("single", "100 B, single-record batches", 1_000_000, 100, 1.0, batch_records=1, fast_path=False),
    Case("partitions1000", "1 KB, 1,000 partitions", 2_000_000, 1000, partitions=1000),
    Case("hot", "1 KB, 90 % in one partition", 4_000_000, 1000, hot=0.9),
    Case("headers", "300 B, keys, headers", 6_000_000, 300, keys_and_headers=True),
    Case("transactions", "300 B, transactions, 10 % aborted", 6_000_000, 300, 3.0, aborted=10),
    Case("far", "1 KB, 50 ms away", 3_000_000, 1000, 2.0, far=True),
    Case("select", "1 KB, select: *", 5_000_000, 1000, 1.0, fast_path=False, change=SELECT_ALL),
    Case("filter", "1 KB JSON, 10 % kept", 5_000_000, 1000, 1.0, fast_path=False, change=FILTER),
    Case("filter.bytes", "10 % kept, bytes first", 5_000_000, 1000, 1.0, fast_path=False, change=FILTER_BYTES_FIRST),
    Case("filter.header", "10 % kept, by a header", 5_000_000, 1000, 1.0, fast_path=False, change=FILTER_BY_HEADER),
    Case("mask", "1 KB JSON, masked", 5_000_000, 1000, 1.0, fast_path=False, change=MASK),
    Case("small", "10 MB", 10_000, 1000, 1.0, judged=WHOLE),
    Case("backlog", "10 GB", 10_000_000, 1000, 2.0, judged=WHOLE, big=True),
)


def chosen(names: Sequence[str], big: bool) -> Tuple[Case, ...]:
    """The cases of these names; without names all of them, the big ones only if asked for."""
    unknown = sorted(set(names) - {case.name for case in CASES})
    if unknown:
        raise LabError(f"there is no case {unknown[0]}: choose from {', '.join(case.name for case in CASES)}")
    return tuple(case for case in CASES if case.name in names or (not names and (big or not case.big)))
