"""The ledger's runs of some ranges in, a DataFrame of them out, for as long as it is needed."""

from __future__ import annotations

from array import array
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession

from mirror_lib.ledger.intervals import RUN_BYTES
from mirror_lib.ledger.run_rows import RunRows, run_rows
from mirror_lib.spark.local_rows import local_rows
from mirror_lib.spark.shipped import shipped
from mirror_lib.verify.ranges import CopiedRange

_RUN = (("slot", "int"), ("upstream", "bigint"), ("downstream", "bigint"), ("count", "bigint"))
_NUMBERS = ("upstream", "downstream", "count")
# More of them come from a Python worker, which takes a tenth of a second to begin.
RUNS_IN_A_PLAN = 5_000


@dataclass(frozen=True)
class RunFrame:
    """`rows` (`slot, upstream, downstream, count`): `runs` of them, of `records` together."""

    rows: DataFrame
    runs: int
    records: int


@contextmanager
def run_frame(spark: SparkSession, ranges: Sequence[CopiedRange]) -> Iterator[RunFrame]:
    """The runs of `ranges`, whose indices are their slots. To be used inside; no file is left behind."""
    given = [RunRows({"slot": slot}, _flat(copied)) for slot, copied in enumerate(ranges)]
    runs = sum(len(each.flat) for each in given) // RUN_BYTES
    records = sum(copied.runs.records for copied in ranges)
    if runs <= RUNS_IN_A_PLAN:
        rows = [(n, *run) for n, copied in enumerate(ranges) for run in copied.runs.runs_from(0)]
        yield RunFrame(local_rows(spark, _RUN, rows), runs, records)
        return
    with shipped(spark, given) as held:
        yield RunFrame(run_rows(spark, _RUN, _NUMBERS, held), runs, records)


def _flat(copied: CopiedRange) -> bytes:
    return array("q", chain.from_iterable(copied.runs.runs_from(0))).tobytes()
