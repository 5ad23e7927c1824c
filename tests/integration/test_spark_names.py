"""What Spark's UI, event log and History Server call the mirror's jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Set

from mirror_lib.spark.jobs import named
from tests.integration.conftest import Ground
from tests.lab.one_flow import OneFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jobs(spark: SparkSession) -> Set[str]:
    """Descriptions of all jobs so far."""
    context: Any = spark.sparkContext._jsc
    found = context.sc().statusStore().jobsList(None)
    described = [found.apply(number).description() for number in range(found.size())]
    return {each.get() for each in described if each.isDefined()}


def test_jobs_of_a_run_say_what_they_are_for(ground: Ground, topic_name: Callable[[], str]) -> None:
    source, target, spark, directory = ground
    flow = OneFlow(source, target, topic_name(), directory)
    flow.fill(50)
    assert flow.run(spark).error is None
    assert {"warm-up", "source->target: copy, cycle 1", "source->target: ledger"} <= jobs(spark)


def test_name_ends_with_its_block_and_the_outer_one_may_stay(spark: SparkSession) -> None:
    before = spark.sparkContext.getLocalProperty("spark.job.description")
    with named(spark, "A->B: outer"):
        with named(spark, "inner", again=False):
            assert spark.sparkContext.getLocalProperty("spark.job.description") == "A->B: outer"
        with named(spark, "A->B: inner"):
            spark.range(3).collect()
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "A->B: outer"
    assert spark.sparkContext.getLocalProperty("spark.job.description") == before
    assert "A->B: inner" in jobs(spark)
