"""Where a copy begins and where it ends, on real brokers: times, groups, offsets; a re-run never jumps."""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, Optional, Sequence

import pytest

from mirror_lib.config.loader import load
from mirror_lib.config.values import until
from mirror_lib.copy_job import FlowOutcome, run_flows
from tests.integration.conftest import Ground
from tests.lab.flow_lab import FlowLab, values
from tests.lab.group_lab import commit
from tests.lab.one_flow import until as wait_until

AT_20 = "2023-11-14T22:13:20.020Z"  # the time of record 20 of a lab's topic


@pytest.fixture
def lab(ground: Ground, topic_name: Callable[[str], str]) -> FlowLab:
    made = FlowLab(*ground, topic_name("starts"))
    made.create("orders", 2, retention_ms="-1")
    for partition in (0, 1):
        made.write("orders", values(50), partition)
    return made


def run_until(lab: FlowLab, end: str) -> FlowOutcome:
    config = load(str(lab.config))
    stop = threading.Event()
    (outcome,) = run_flows(config, config.flows, lab.spark, lab.seen.append, stop, until(end))
    return outcome


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


def test_end_cuts_between_two_records_of_a_batch_and_the_next_run_goes_on(lab: FlowLab) -> None:
    topic = f"{lab.name}.orders"
    outcome = run_until(lab, f"{topic}:0=7, {topic}:1=0, elsewhere:0=5")
    assert "--until names elsewhere-0, which this flow does not copy" in str(outcome.error)
    assert outcome.records == 7
    assert copied(lab) == [values(50)[:7], []]
    assert run_until(lab, AT_20).error is None
    assert copied(lab) == [values(50)[:20]] * 2
    lab.copy()
    assert lab.differences("orders") == []


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"where": '"true"'}, id="rows"),
        pytest.param({"partitioner": "key"}, id="placed", marks=pytest.mark.long),
    ],
)
def test_rows_begin_and_end_where_they_are_told_and_the_next_run_goes_on(
    lab: FlowLab, settings: Dict[str, str]
) -> None:
    topic = f"{lab.name}.orders"
    lab.settings.update({**settings, "start.position": f"{topic}:0=10, {topic}:1=0"})
    outcome = run_until(lab, f"{topic}:0=17, {topic}:1=0, elsewhere:0=5")
    assert "--until names elsewhere-0, which this flow does not copy" in str(outcome.error)
    assert all_of(copied(lab)) == all_of([values(50)[10:17]])
    lab.settings["start.position"] = "latest"
    assert run_until(lab, AT_20).error is None
    assert all_of(copied(lab)) == all_of([values(50)[10:20], values(50)[:20]])
    lab.write("orders", values(5, "later"))
    lab.copy()
    assert all_of(copied(lab)) == all_of([values(50)[10:], values(50), values(5, "later")])


@pytest.mark.long
def test_end_that_is_not_there_yet_is_waited_for_and_nothing_after_it_is_copied(lab: FlowLab) -> None:
    topic = f"{lab.name}.orders"
    outcomes: List[FlowOutcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(run_until(lab, f"{topic}:1=60")))
    thread.start()
    wait_until(lambda: copied(lab) == [values(50)] * 2)
    assert thread.is_alive()
    lab.write("orders", values(40, "more"), 1)
    thread.join(60)
    assert [each.error for each in outcomes] == [None]
    assert copied(lab)[1] == [*values(50), *values(10, "more")]


@pytest.mark.long
def test_time_that_has_not_come_ends_the_run_when_it_comes(lab: FlowLab) -> None:
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 6))
    outcomes: List[FlowOutcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(run_until(lab, soon)))
    thread.start()
    wait_until(lambda: copied(lab) == [values(50)] * 2)
    lab.write("orders", values(5, "meanwhile"))
    thread.join(60)
    assert [each.error for each in outcomes] == [None]
    assert lab.differences("orders") == []
