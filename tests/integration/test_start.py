"""Where a copy begins, on real brokers: times, groups, offsets; a re-run never jumps."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence

import pytest

from tests.integration.conftest import Ground, Names
from tests.lab.flow_lab import FlowLab, values
from tests.lab.group_lab import commit

AT_20 = "2023-11-14T22:13:20.020Z"  # the time of record 20 of a lab's topic


@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> FlowLab:
    made = FlowLab(*ground, topic_name("starts"))
    made.create("orders", 2, retention_ms="-1")
    for partition in (0, 1):
        made.write("orders", values(50), partition)
    return made


def copied(lab: FlowLab) -> List[List[Optional[bytes]]]:
    return [lab.remote_values("orders", partition) for partition in (0, 1)]


def all_of(logs: Sequence[Sequence[Optional[bytes]]]) -> List[Optional[bytes]]:
    return sorted((value for log in logs for value in log), key=str)


def test_time_begins_at_its_first_record_and_the_next_run_goes_on_from_there(lab: FlowLab) -> None:
    lab.settings["start.position"] = AT_20
    lab.copy()
    assert copied(lab) == [values(50)[20:]] * 2
    lab.settings["start.position"] = "earliest"
    lab.write("orders", values(5, "later"))
    assert lab.copy().records == 5
    assert copied(lab)[0] == [*values(50)[20:], *values(5, "later")]


@pytest.mark.long
def test_group_says_where_to_begin_and_auto_offset_reset_where_it_says_nothing(lab: FlowLab) -> None:
    topic = f"{lab.name}.orders"
    commit(lab.source, lab.name, topic, 37, 1)
    lab.settings.update({"start.position": f"group {lab.name}", "consumer.auto.offset.reset": "latest"})
    lab.copy()
    assert copied(lab) == [[], values(50)[37:]]


@pytest.mark.long
def test_offset_beyond_the_log_stops_its_partition_with_a_sentence_and_no_other(lab: FlowLab) -> None:
    topic = f"{lab.name}.orders"
    lab.settings["start.position"] = f"{topic}:0=10, {topic}:1=51"
    outcome = lab.run()
    assert outcome.error is not None and outcome.error.exit_code == 3
    assert f"{topic}-1: start.position is at offset 51, and the source's log ends at 50" in str(outcome.error)
    assert copied(lab) == [values(50)[10:], []]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"where": '"true"'}, id="rows"),
        pytest.param({"partitioner": "key"}, id="placed", marks=pytest.mark.long),
    ],
)
def test_rows_begin_where_they_are_told_and_the_next_run_goes_on(lab: FlowLab, settings: Dict[str, str]) -> None:
    topic = f"{lab.name}.orders"
    lab.settings.update({**settings, "start.position": f"{topic}:0=10, {topic}:1=0"})
    lab.copy()
    assert all_of(copied(lab)) == all_of([values(50)[10:], values(50)])
    lab.settings["start.position"] = "latest"
    lab.write("orders", values(5, "later"))
    lab.copy()
    assert all_of(copied(lab)) == all_of([values(50)[10:], values(50), values(5, "later")])
