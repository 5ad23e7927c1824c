"""What a comparison makes of records that compaction took, on frames as the logs give them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple, Sequence, cast

import pytest

from mirror_lib.facts import OffsetRange
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.spark.jobs import local_rows
from mirror_lib.verify.comparison import compare
from mirror_lib.verify.digests import DigestReader, Slice
from mirror_lib.verify.ranges import Bounds, CopiedPartition, CopiedRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = [
    ("slot", "int"),
    ("offset", "bigint"),
    ("digest", "string"),
    ("key_digest", "string"),
    ("tombstone", "boolean"),
    ("bytes", "bigint"),
]


class Held(NamedTuple):
    """A record that a log holds."""

    offset: int
    digest: str
    key: str
    tombstone: bool = False


class Log:
    """One partition's, as a `DigestReader` reads it."""

    def __init__(self, spark: SparkSession, records: Sequence[Held]) -> None:
        self._spark = spark
        self._records = records

    def digests(self, slices: Sequence[Slice]) -> DataFrame:
        (part,) = slices
        read = [each for each in self._records if part.from_offset <= each.offset < part.until_offset]
        rows = [(part.slot, each.offset, each.digest, each.key, each.tombstone, 10) for each in read]
        return local_rows(self._spark, COLUMNS, rows)


@pytest.mark.parametrize(("deleted", "differing", "compacted"), [(True, 0, 2), (False, 2, 0)])
def test_key_that_was_deleted_and_cleaned_on_the_target_is_not_lost_where_the_source_has_it_again(
    spark: SparkSession, deleted: bool, differing: int, compacted: int
) -> None:
    """The source's next record of the key is not copied yet. The control: its last copied one was no tombstone."""
    source = [Held(0, "was", "k"), Held(1, "gone", "k", deleted), Held(2, "x", "other"), Held(3, "is again", "k")]
    ends = OffsetRange(0, 4), OffsetRange(0, 3)
    known = CopiedPartition("orders", "A.orders", 0, array("q"), *ends, source_compacted=True, remote_compacted=True)
    copied = CopiedRange(known, PartitionMap.of([(0, 0, 3)]), Bounds(0, 0, 3, 4), Bounds(0, 0, 3, 3))
    logs = (Log(spark, source), Log(spark, [Held(2, "x", "other")]))
    found = compare(spark, cast(DigestReader, logs[0]), cast(DigestReader, logs[1]), {0: copied})[0]
    assert (found.records, found.differing, found.compacted) == (1, differing, compacted)
