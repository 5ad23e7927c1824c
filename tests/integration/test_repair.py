"""`mirror repair`: a position that passes records is found and removed where that loses nothing; a right one stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List

import pytest

from mirror_lib.cli import main
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow
from tests.lab.brokers import KafkaBroker
from tests.lab.one_flow import OneFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLOW = "source->target"


@pytest.fixture
def flow(
    source_cluster: KafkaBroker, target_cluster: KafkaBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> OneFlow:
    return OneFlow(source_cluster, target_cluster, topic_name("repair"), tmp_path, partitions=1)


def downstream_end(flow: OneFlow, spark: SparkSession) -> int:
    (at,) = OffsetSyncTable(spark, str(flow.state)).positions(FLOW).values()
    return at.downstream_offset


def add_position(flow: OneFlow, spark: SparkSession, upstream_offset: int, downstream_offset: int) -> None:
    """As a driver would that takes a batch for copied that was refused."""
    table = OffsetSyncTable(spark, str(flow.state))
    (key,) = table.positions(FLOW)
    names = (key.source_topic, flow.remote_topic, key.partition, key.source_topic_id, key.remote_topic_id)
    row = LedgerRow(*names, upstream_offset, downstream_offset, 0)
    table.append(FLOW, [row], run_id="fenced", append_number=upstream_offset, query_id="", batch_id=-1)


def repaired(flow: OneFlow, capsys: pytest.CaptureFixture[str], *options: str) -> List[Dict[str, Any]]:
    capsys.readouterr()
    main(["repair", str(flow.config), "--json", *options])
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    found: List[Dict[str, Any]] = document["positions"]
    return found


def test_position_after_records_that_were_not_copied_is_removed_and_they_are_copied(
    flow: OneFlow, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    flow.fill(300)
    flow.run(spark)
    flow.fill(100)
    add_position(flow, spark, 360, downstream_end(flow, spark))
    (found,) = repaired(flow, capsys)
    assert (found["verdict"], found["copied_until"], found["upstream_offset"]) == ("wrong", 300, 360)
    repaired(flow, capsys, "--execute")
    assert repaired(flow, capsys) == []
    flow.run(spark)
    flow.assert_exact(spark)


def test_position_that_later_records_followed_is_reported_as_a_loss(
    flow: OneFlow, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    flow.fill(300)
    flow.run(spark)
    flow.fill(100)
    add_position(flow, spark, 360, downstream_end(flow, spark))
    flow.run(spark)
    assert flow.differences()  # the control: the position does lose records
    (found,) = repaired(flow, capsys, "--execute")
    assert found["verdict"] == "records lost"
    assert main(["repair", str(flow.config)]) == 1


def test_position_that_another_row_contradicts_is_removed(
    flow: OneFlow, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    flow.fill(300)
    flow.run(spark)
    at = downstream_end(flow, spark)
    flow.fill(100)
    flow.run(spark)
    add_position(flow, spark, 360, at)
    (found,) = repaired(flow, capsys, "--execute")
    assert found["verdict"] == "wrong"
    flow.assert_exact(spark)


def test_right_ledger_has_nothing_to_repair(
    flow: OneFlow, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    flow.fill(300)
    flow.run(spark)
    assert repaired(flow, capsys, "--execute") == []
    assert main(["repair", str(flow.config)]) == 0
    flow.assert_exact(spark)
