"""Tasks that fail for good: what went wrong on the executor is what the operator reads, and what the runs tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, List

import pytest

from tests.lab.crash import mirror
from tests.lab.one_flow import NewFlow, OneFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

HOUSE = """\
from pyspark.sql import functions as F


@F.udf("binary")
def looked_up(value):
    raise LookupError("no such customer")


def customers(rows):
    return rows.withColumn("value", looked_up("value"))
"""


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("failed", records=50)


def errors(flow: OneFlow) -> List[str]:
    """What a run that fails prints at its end."""
    with mirror("run", flow.config) as run:
        assert run.wait() == 1, run.output
    # Java writes to the same stream, perhaps without ending its line.
    found = [re.search(r"error: MIR-\d+: (source->target.*)", line) for line in run.output.splitlines()]
    return [each.group(1) for each in found if each]


def outcomes(flow: OneFlow, spark: SparkSession) -> List[str]:
    """How the runs of the flow ended, by its table, without the codes of the errors."""
    runs = spark.read.format("delta").load(str(flow.state / "runs")).where("kind = 'ended'").orderBy("at")
    found = [re.fullmatch(r"MIR-\d{3}: (.*)", row["outcome"], re.DOTALL) for row in runs.collect()]
    return [each.group(1) for each in found if each]


@pytest.mark.parametrize("placing", [False, True], ids=["partitions are kept", "repartitioned"])
def test_function_that_raises_on_an_executor_is_told_by_what_it_raised(
    flow: OneFlow, spark: SparkSession, placing: bool
) -> None:
    (flow.directory / "house_of_failures.py").write_text(HOUSE)
    flow.settings["transform"] = "house_of_failures:customers"
    if placing:
        flow.settings["partitioner"] = "key"
    reported = "source->target: LookupError: no such customer (the executors' logs have the trace)"
    assert errors(flow) == [reported]
    assert outcomes(flow, spark) == [reported]
