"""What Spark's UI, event log and History Server call the mirror's jobs, and what its Java makes of patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Set

import pytest

from mirror_lib.spark.jobs import named
from mirror_lib.topics.filters import first_match
from tests.integration.conftest import Ground
from tests.lab.one_flow import OneFlow
from tests.unit.pattern_cases import ALIKE

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


@pytest.mark.parametrize("pattern", [*ALIKE, "a|b"])
def test_pattern_that_the_mirror_takes_means_the_same_to_java(spark: SparkSession, pattern: str) -> None:
    java: Any = spark.sparkContext._jvm
    names = ["orders", "sales.eu", "abc.v12", "aa", "aaa", "Orders", "a", "b", "a{b}", "^a", "]a", "a&b", "&", "test"]
    wanted = [name for name in names if first_match([pattern], name)]
    assert [name for name in names if java.java.util.regex.Pattern.matches(pattern, name)] == wanted


@pytest.mark.parametrize("pattern", ["(?P<team>a)", "a{,3}", "{team}", "(?a)a", "(?#note)a", r"\U00000061", "[a[b]"])
def test_java_refuses_what_the_mirror_refuses(spark: SparkSession, pattern: str) -> None:
    java: Any = spark.sparkContext._jvm
    with pytest.raises(Exception, match="near index"):  # PatternSyntaxException, which Spark 3.4 and later convert
        java.java.util.regex.Pattern.compile(pattern)
