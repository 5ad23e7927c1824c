"""Brokers without topic ids, from before Kafka 2.8: a re-created topic is seen by its records."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, Tuple

import pytest
from pyspark.sql import SparkSession

from tests.lab.one_flow import OneFlow, until
from tests.lab.releases import ReleaseCluster, releases

pytestmark = pytest.mark.long

Sites = Tuple[ReleaseCluster, ReleaseCluster]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """A source without topic ids, and a target that has some."""
    with releases(tmp_path_factory.mktemp("ids"), source=("2.4.1", 1), target=("3.2.0", 1)) as (source, target):
        yield source, target


@pytest.mark.parametrize("spared", [0, 1])
def test_re_created_topic_is_refused_as_a_whole(
    sites: Sites, spark: SparkSession, tmp_path: Path, spared: int
) -> None:
    """`spared`: as many partitions have no record, so that the ledger has none to compare."""
    flow = OneFlow(*sites, f"recreated-{spared}", tmp_path, partitions=2)
    flow.fill(300)
    assert flow.run(spark).error is None
    recreate(flow, 2 + spared)
    flow.first_timestamp += 1_000_000
    flow.fill(900)
    copied = flow.copies()
    for _ in range(2):
        error = flow.run(spark).error
        assert error is not None and error.code == "MIR-316"
        assert flow.copies() == copied
    flow.settings["on.data.loss"] = "continue"
    assert flow.run(spark).error is None
    flow.fill(50)
    assert flow.run(spark).error is None
    assert flow.copies() == copied + (2 + spared) * 950


def test_topic_that_is_the_same_goes_on_over_gaps_in_its_log(sites: Sites, spark: SparkSession, tmp_path: Path) -> None:
    flow = OneFlow(*sites, "kept", tmp_path, partitions=2)
    for _ in range(3):
        flow.fill(100)
        assert flow.run(spark).error is None
    flow.assert_exact(spark)


def recreate(flow: OneFlow, partitions: int) -> None:
    flow.source.delete_topic(flow.topic)
    flow.partitions, flow.written = partitions, 0
    until(lambda: created(flow), what="the deletion to end")


def created(flow: OneFlow) -> bool:
    """The old broker still deletes the log's folder for a moment."""
    try:
        flow.source.create_topic(flow.topic, flow.partitions, retention_ms="-1")
    except Exception:
        return False
    return True
