"""A state folder or a working directory that cannot be written: named before anything is written to the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror_lib.errors import EXIT_OK, EXIT_REFUSED
from tests.integration.conftest import Command
from tests.lab.one_flow import NewFlow, OneFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("unwritable")


# Root may write any folder but one of a file system that refuses: below /proc only Spark's attempt shows it.
@pytest.mark.parametrize("state", ["FILE/state", "/proc/mirror/state"])
def test_run_is_refused_before_it_writes_to_the_target(
    flow: OneFlow, spark: SparkSession, command: Command, state: str
) -> None:
    (flow.directory / "file").write_text("")
    flow.state_address = state.replace("FILE", str(flow.directory / "file"))
    refused = command("run", flow.config, "--once")
    (error,) = [line for line in refused.err.splitlines() if "error: " in line]
    assert refused.code == EXIT_REFUSED and flow.state_address in error
    assert not flow.has_remote_topic()


def test_plan_names_the_state_folder_and_ends_as_the_run_would(flow: OneFlow, command: Command) -> None:
    (flow.directory / "file").write_text("")
    flow.state_address = str(flow.directory / "file" / "state")
    planned = command("plan", flow.config, "--json")
    (document,) = planned.documents
    assert planned.code == EXIT_REFUSED and flow.state_address in document["refusal"]
    assert document["changes"], "the plan is shown all the same"
    flow.state_address = ""
    assert command("plan", flow.config).code == EXIT_OK
    assert not flow.state.exists()
