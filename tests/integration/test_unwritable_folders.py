"""A state folder or a working directory that cannot be written: named before anything is written to the target."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mirror_lib.cli import main
from mirror_lib.config.loader import load
from mirror_lib.errors import EXIT_OK, EXIT_REFUSED, StateError
from mirror_lib.replication.query import start_query
from tests.lab.one_flow import NewFlow, OneFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("unwritable")


# Root may write any folder but one of a file system that refuses: below /proc only Spark's attempt shows it.
@pytest.mark.parametrize("state", ["FILE/state", "/proc/mirror/state"])
def test_run_is_refused_before_it_writes_to_the_target(
    flow: OneFlow, spark: SparkSession, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    (flow.directory / "file").write_text("")
    flow.state_address = state.replace("FILE", str(flow.directory / "file"))
    assert main(["run", str(flow.config), "--once"]) == EXIT_REFUSED
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert flow.state_address in error
    assert not flow.has_remote_topic()


def test_plan_names_the_state_folder_and_ends_as_the_run_would(
    flow: OneFlow, capsys: pytest.CaptureFixture[str]
) -> None:
    (flow.directory / "file").write_text("")
    flow.state_address = str(flow.directory / "file" / "state")
    assert main(["plan", str(flow.config), "--json"]) == EXIT_REFUSED
    document = json.loads(capsys.readouterr().out)
    assert flow.state_address in document["refusal"] and document["changes"], "the plan is shown all the same"
    flow.state_address = ""
    assert main(["plan", str(flow.config)]) == EXIT_OK
    assert not flow.state.exists()


@pytest.mark.long
def test_folder_that_no_checkpoint_can_be_made_in_is_named(spark: SparkSession, flow: OneFlow) -> None:
    (mirrored,) = load(str(flow.config)).flows
    # Not even root can make a folder there.
    with pytest.raises(StateError, match=r"checkpoint in /proc/nothing: .*mkdir.* \(`state` must be a folder"):
        start_query(spark, mirrored, "/proc/nothing", "1 second", lambda *_: None)
