"""`mirror state check` and `mirror state rebuild`: what they find and refuse, and an exact copy after a rebuild."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirror_lib.cli import main
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, EXIT_REFUSED, EXIT_USAGE, DamagedError
from mirror_lib.ledger.records import MirrorRun
from mirror_lib.ledger.runs import RunTable
from tests.lab.brokers import KafkaBroker
from tests.lab.damage import DAMAGES, cut, cut_at_line_end, damaged, protocol_of_later, without_checksum_files
from tests.lab.one_flow import OneFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLOW = "source->target"
QUICK = "newest commit cut at a line end"
Out = pytest.CaptureFixture[str]


def documents(capsys: Out, *words: str, code: int = EXIT_OK) -> List[Dict[str, Any]]:
    capsys.readouterr()
    assert main([*words, "--json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


def check(flow: OneFlow, capsys: Out, code: int) -> Dict[str, Any]:
    """The document of the tables, by table, with that of the flow under `flow`."""
    tables, *flows = documents(capsys, "state", "check", str(flow.config), code=code)
    found = {each["table"]: each for each in tables["tables"]}
    return {**found, "flow": flows[0] if flows else None}


def rebuild(flow: OneFlow, capsys: Out, *options: str, code: int = EXIT_OK) -> Dict[str, Any]:
    return documents(capsys, "state", "rebuild", str(flow.config), *options, code=code)[-1]


def verified(flow: OneFlow) -> int:
    return main(["verify", str(flow.config)])


def folders(flow: OneFlow) -> List[str]:
    return sorted(path.name for path in flow.state.iterdir() if path.name.startswith("offset_syncs"))


def cut_ledger(flow: OneFlow) -> None:
    cut(0)(flow.state / "offset_syncs")


@pytest.fixture
def flow(
    source_cluster: KafkaBroker, target_cluster: KafkaBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> OneFlow:
    return OneFlow(source_cluster, target_cluster, topic_name("rebuilt"), tmp_path)


@pytest.fixture(scope="module")
def copied(
    both_clusters: List[KafkaBroker], tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> OneFlow:
    """A flow that ran three times; `whole` is a copy of its state."""
    source, target = both_clusters
    flow = OneFlow(source, target, f"damaged-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("copied"))
    for _ in range(3):
        flow.fill(100)
        assert flow.run(spark).error is None
    shutil.copytree(flow.state, flow.directory / "whole")
    return flow


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[] if each == QUICK else pytest.mark.long) for each in DAMAGES]
)
def test_damaged_ledger_is_found_refused_moved_aside_and_made_again(
    copied: OneFlow, spark: SparkSession, capsys: Out, name: str
) -> None:
    shutil.rmtree(copied.state)
    shutil.copytree(copied.directory / "whole", copied.state)
    file = damaged(copied.state / "offset_syncs", name)

    found = check(copied, capsys, EXIT_FAILED)
    assert found["offset_syncs"]["status"] == "damaged" and found["runs"]["status"] == "fine"
    assert [each["kind"] for each in found["offset_syncs"]["faults"]] == list(DAMAGES[name].kinds)
    assert {each["file"] for each in found["offset_syncs"]["faults"]} == {file}
    assert found["flow"]["can_be_rebuilt"] and found["flow"]["records"] >= 300 * copied.partitions
    error = copied.run(spark).error
    assert isinstance(error, DamagedError) and file in error.message

    assert rebuild(copied, capsys) == {"executed": False, "moved": [{"table": "offset_syncs", "moved_to": None}]}
    assert folders(copied) == ["offset_syncs"]
    (moved,) = rebuild(copied, capsys, "--execute")["moved"]
    assert folders(copied) == [moved["moved_to"]]
    lost = check(copied, capsys, EXIT_FAILED)
    assert lost["offset_syncs"]["status"] == "missing" and lost[moved["moved_to"]]["status"] == "moved aside"

    outcome = copied.run(spark)
    assert outcome.error is None and outcome.records == 0
    copied.assert_exact(spark)
    assert verified(copied) == EXIT_OK
    assert check(copied, capsys, EXIT_OK)["offset_syncs"]["status"] == "fine"


@pytest.mark.long
def test_nothing_is_moved_where_nothing_is_damaged_unless_a_table_is_named(
    flow: OneFlow, spark: SparkSession, capsys: Out
) -> None:
    flow.fill(100)
    assert check(flow, capsys, EXIT_OK)["offset_syncs"]["status"] == "missing"  # nothing ran yet
    assert flow.run(spark).error is None
    assert rebuild(flow, capsys, "--execute")["moved"] == []
    assert main(["state", "rebuild", str(flow.config), "--table", "offsets"]) == EXIT_USAGE
    (moved,) = rebuild(flow, capsys, "--execute", "--table", "offset_syncs")["moved"]
    assert folders(flow) == [moved["moved_to"]]
    flow.fill(50)
    assert flow.run(spark).error is None
    flow.assert_exact(spark)


KEYED = {"engine": "records", "partitioner": "key"}
SETTINGS: Dict[str, Dict[str, Any]] = {
    "rows": {"engine": "records"},
    "keyed": KEYED,
    "at least once": {"delivery": "at-least-once"},
    "shared": {"shared.remote.topics": "true"},
}


@pytest.mark.long
@pytest.mark.parametrize("kind", SETTINGS)
def test_rebuild_of_other_flows_makes_an_exact_copy(
    flow: OneFlow, spark: SparkSession, capsys: Out, kind: str
) -> None:
    flow.settings = SETTINGS[kind]
    flow.fill(150)
    assert flow.run(spark).error is None
    flow.fill(50)
    assert flow.run(spark).error is None
    cut_ledger(flow)
    assert check(flow, capsys, EXIT_FAILED)["flow"]["can_be_rebuilt"]
    assert len(rebuild(flow, capsys, "--execute")["moved"]) == 1
    flow.fill(50)
    assert flow.run(spark).error is None
    assert flow.copies() == 250 * flow.partitions
    if kind in ("rows", "keyed"):
        assert flow.false_origins() == []
    else:
        flow.assert_exact(spark)
    assert verified(flow) == EXIT_OK


def expire(broker: KafkaBroker, topic: str, before: Dict[int, int]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    given = [TopicPartition(topic, number, offset) for number, offset in before.items()]
    for future in admin.delete_records(given).values():
        future.result(30)


def nothing(flow: OneFlow) -> None:
    """The settings alone decide."""


def expire_source(flow: OneFlow) -> None:
    expire(flow.source, flow.topic, {0: 40})


def expire_remote(flow: OneFlow) -> None:
    expire(flow.target, flow.remote_topic, dict.fromkeys(range(flow.partitions), -1))


def lose_producers(flow: OneFlow) -> None:
    shutil.rmtree(flow.state / "lane_producers")


def add_record_of_another_writer(flow: OneFlow) -> None:
    """The remote log begins with a record that has no origin."""
    producer = Producer({"bootstrap.servers": flow.target.bootstrap, "log_level": 0})
    producer.produce(flow.remote_topic, b"from elsewhere", partition=0)
    assert producer.flush(30) == 0


ROWS = {"engine": "records"}
REFUSALS: Dict[str, Any] = {
    "provenance off": ({**ROWS, "provenance": "off"}, nothing, "no origins"),
    "latest": ({"consumer.auto.offset.reset": "latest"}, nothing, "latest"),
    "source expired": ({}, expire_source, "expired on the source"),
    "remote log expired": ({}, expire_remote, "expired on the target"),
    "remote log expired, rows": (ROWS, expire_remote, "expired on the target"),
    "keyed, shared": ({**KEYED, "shared.remote.topics": "true"}, nothing, "shared"),
    "shared without producers": ({"shared.remote.topics": "true"}, lose_producers, "shared"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", REFUSALS)
def test_rebuild_is_refused_where_a_run_could_not_find_out_what_was_copied(
    flow: OneFlow, spark: SparkSession, capsys: Out, kind: str
) -> None:
    flow.settings, prepare, code = REFUSALS[kind]
    if kind != "latest":
        flow.fill(100)
    assert flow.run(spark).error is None
    flow.fill(20)
    assert flow.run(spark).error is None
    prepare(flow)
    cut_ledger(flow)
    found = check(flow, capsys, EXIT_FAILED)["flow"]
    reasons = [each for each in (found["refusal"], *(one["refusal"] for one in found["partitions"])) if each]
    assert not found["can_be_rebuilt"] and {each["code"] for each in reasons} == {code}
    assert all(each["way_out"] for each in reasons)
    rebuild(flow, capsys, "--execute", code=EXIT_REFUSED)
    assert folders(flow) == ["offset_syncs"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["provenance off", "remote log expired", "keyed, shared"])
def test_flow_for_which_a_rebuild_is_refused_would_copy_records_again(
    flow: OneFlow, spark: SparkSession, kind: str
) -> None:
    """The negative control of the refusals: without the ledger these flows lose nothing and double records. A lane of a
    shared remote topic mostly gets its old producer id again, so its refusal has no control: only a target that forgot
    the transactional id gives another one."""
    flow.settings, prepare, _ = REFUSALS[kind]
    flow.fill(100)
    assert flow.run(spark).error is None
    before = flow.copies()
    prepare(flow)
    left = flow.copies()
    shutil.rmtree(flow.state / "offset_syncs")
    assert flow.run(spark).error is None
    assert before == 100 * flow.partitions and flow.copies() == left + before


@pytest.mark.long
def test_way_out_of_a_refusal_makes_the_rebuild_possible(flow: OneFlow, spark: SparkSession, capsys: Out) -> None:
    flow.fill(100)
    assert flow.run(spark).error is None
    expire_source(flow)
    cut_ledger(flow)
    rebuild(flow, capsys, "--execute", code=EXIT_REFUSED)
    admin = AdminClient({"bootstrap.servers": flow.target.bootstrap})
    admin.delete_topics([flow.remote_topic])[flow.remote_topic].result(30)
    time.sleep(2)
    assert len(rebuild(flow, capsys, "--execute")["moved"]) == 1
    assert flow.run(spark).error is None
    assert flow.copies() == 100 * flow.partitions - 40 and verified(flow) == EXIT_OK


def test_rebuild_is_refused_beside_a_run(flow: OneFlow, spark: SparkSession, capsys: Out) -> None:
    flow.fill(50)
    assert flow.run(spark).error is None
    cut_ledger(flow)
    RunTable(spark, str(flow.state)).started(MirrorRun("another", FLOW, 1, "exactly-once", "a", "b", "c"))
    assert main(["state", "rebuild", str(flow.config), "--execute"]) == EXIT_REFUSED
    assert folders(flow) == ["offset_syncs"] and "another" in capsys.readouterr().err


@pytest.mark.long
def test_rebuild_of_the_ledger_is_refused_with_a_configuration_that_lacks_a_flow_of_it(
    flow: OneFlow, spark: SparkSession, capsys: Out
) -> None:
    flow.fill(50)
    assert flow.run(spark).error is None
    runs, other = RunTable(spark, str(flow.state)), MirrorRun("r", "C->D", 1, "exactly-once", "a", "b", "c")
    runs.started(other)
    runs.ended(other, outcome="ok", records=0, bytes=0)
    cut_ledger(flow)
    assert main(["state", "rebuild", str(flow.config), "--execute"]) == EXIT_REFUSED
    assert folders(flow) == ["offset_syncs"] and "C->D" in capsys.readouterr().err


@pytest.mark.long
def test_rebuild_is_refused_where_the_table_of_takeovers_was_lost_before(
    flow: OneFlow, spark: SparkSession, capsys: Out
) -> None:
    flow.fill(50)
    assert flow.run(spark).error is None
    cut_ledger(flow)
    (flow.state / "takeovers.damaged-20260101T000000Z").mkdir()
    assert rebuild(flow, capsys, "--execute", code=EXIT_REFUSED)["refusal"]["code"] == "taken over"
    assert folders(flow) == ["offset_syncs"]


@pytest.mark.long
def test_table_of_runs_that_is_damaged_is_moved_aside_once_no_process_writes(
    flow: OneFlow, spark: SparkSession, capsys: Out
) -> None:
    flow.fill(50)
    assert flow.run(spark).error is None
    without_checksum_files(flow.state / "runs")
    cut_at_line_end(-1, 1)(flow.state / "runs")
    assert isinstance(flow.run(spark).error, DamagedError)
    # What the run that was just refused could have written is too young.
    assert main(["state", "rebuild", str(flow.config), "--execute"]) == EXIT_REFUSED
    old = time.time() - 700
    for path in flow.state.glob("*/_delta_log/*"):
        os.utime(path, (old, old))
    (moved,) = rebuild(flow, capsys, "--execute")["moved"]
    assert moved["table"] == "runs" and moved["moved_to"].startswith("runs.damaged-")
    flow.fill(50)
    assert flow.run(spark).error is None
    flow.assert_exact(spark)


@pytest.mark.long
def test_table_of_a_newer_version_or_with_foreign_columns_is_never_moved(
    flow: OneFlow, spark: SparkSession, capsys: Out
) -> None:
    flow.fill(50)
    assert flow.run(spark).error is None
    spark.range(1).write.format("delta").save(str(flow.state / "notes_of_mine"))
    found = check(flow, capsys, EXIT_OK)
    assert found["notes_of_mine"]["status"] == "foreign"
    shutil.rmtree(flow.state / "incidents")
    spark.range(1).write.format("delta").save(str(flow.state / "incidents"))
    assert check(flow, capsys, EXIT_FAILED)["incidents"]["status"] == "foreign"
    shutil.rmtree(flow.state / "incidents")
    protocol_of_later(flow.state / "offset_syncs")
    assert check(flow, capsys, EXIT_FAILED)["offset_syncs"]["status"] == "newer version"
    assert main(["state", "rebuild", str(flow.config), "--execute", "--table", "offset_syncs"]) == EXIT_REFUSED
    assert folders(flow) == ["offset_syncs"]
