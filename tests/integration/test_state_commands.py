"""`mirror state check`, and the steps after a damage: an exact copy by a run without the table."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List

import pytest

from mirror_lib.cli import main
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, DamagedError
from tests.lab.brokers import KafkaBroker
from tests.lab.damage import DAMAGES, cut, damaged, protocol_of_later
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
    """What is printed of each table."""
    (found,) = documents(capsys, "state", "check", str(flow.config), code=code)
    return {each["table"]: each for each in found["tables"]}


def verified(flow: OneFlow) -> int:
    return main(["verify", str(flow.config)])


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
def test_damaged_ledger_is_found_and_a_run_without_it_makes_an_exact_copy(
    copied: OneFlow, spark: SparkSession, capsys: Out, name: str
) -> None:
    shutil.rmtree(copied.state)
    shutil.copytree(copied.directory / "whole", copied.state)
    file = damaged(copied.state / "offset_syncs", name)

    found = check(copied, capsys, EXIT_FAILED)
    assert found["offset_syncs"]["status"] == "damaged" and found["runs"]["status"] == "fine"
    assert [each["kind"] for each in found["offset_syncs"]["faults"]] == list(DAMAGES[name].kinds)
    assert {each["file"] for each in found["offset_syncs"]["faults"]} == {file}
    error = copied.run(spark).error
    assert isinstance(error, DamagedError) and error.code == "MIR-320" and file in error.message

    # What the storage's own tool does.
    aside = copied.state / "offset_syncs.damaged"
    (copied.state / "offset_syncs").rename(aside)
    lost = check(copied, capsys, EXIT_FAILED)
    assert lost["offset_syncs"]["status"] == "missing" and lost[aside.name]["status"] == "foreign"

    outcome = copied.run(spark)
    assert outcome.error is None and outcome.records == 0
    copied.assert_exact(spark)
    assert verified(copied) == EXIT_OK
    assert check(copied, capsys, EXIT_OK)["offset_syncs"]["status"] == "fine"


ROWS = {"engine": "records"}
KEYED = {**ROWS, "partitioner": "key"}
SETTINGS: Dict[str, Dict[str, Any]] = {"rows": ROWS, "keyed": KEYED, "at least once": {"delivery": "at-least-once"}}


@pytest.mark.long
@pytest.mark.parametrize("kind", SETTINGS)
def test_run_of_another_flow_without_its_state_folder_makes_an_exact_copy(
    flow: OneFlow, spark: SparkSession, kind: str
) -> None:
    flow.settings = SETTINGS[kind]
    flow.fill(150)
    assert flow.run(spark).error is None
    flow.fill(50)
    assert flow.run(spark).error is None
    cut(0)(flow.state / "offset_syncs")
    assert isinstance(flow.run(spark).error, DamagedError)
    flow.state.rename(flow.directory / "aside")
    flow.fill(50)
    assert flow.run(spark).error is None
    assert flow.copies() == 250 * flow.partitions
    if kind in ("rows", "keyed"):
        assert flow.false_origins() == []
    else:
        flow.assert_exact(spark)
    assert verified(flow) == EXIT_OK


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [{**ROWS, "provenance": "off"}, {**KEYED, "shared.remote.topics": "true"}],
    ids=["provenance off", "keyed, shared"],
)
def test_flow_that_needs_a_backup_of_its_ledger_copies_records_again_without_it(
    flow: OneFlow, spark: SparkSession, settings: Dict[str, Any]
) -> None:
    """Why the page excepts these flows: nothing on the remote topic shows what they copied. A batch lane of a shared
    remote topic mostly gets its old producer id again, so it has no control: only a target that forgot the
    transactional id gives another one."""
    flow.settings = settings
    flow.fill(100)
    assert flow.run(spark).error is None
    shutil.rmtree(flow.state / "offset_syncs")
    assert flow.run(spark).error is None
    assert flow.copies() == 2 * 100 * flow.partitions


@pytest.mark.long
def test_table_of_a_newer_version_or_with_foreign_columns_is_not_called_damaged(
    flow: OneFlow, spark: SparkSession, capsys: Out
) -> None:
    flow.fill(50)
    assert flow.run(spark).error is None
    spark.range(1).write.format("delta").save(str(flow.state / "notes_of_mine"))
    found = check(flow, capsys, EXIT_OK)
    assert found["notes_of_mine"]["status"] == "foreign"
    spark.range(1).write.format("delta").save(str(flow.state / "incidents"))
    assert check(flow, capsys, EXIT_FAILED)["incidents"]["status"] == "foreign"
    shutil.rmtree(flow.state / "incidents")
    protocol_of_later(flow.state / "offset_syncs")
    assert check(flow, capsys, EXIT_FAILED)["offset_syncs"]["status"] == "newer version"
