"""`mirror cutover` on real clusters: producers and consumers move and come back, and nothing is lost or read twice."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import ContextManager, List, Optional

import pytest

from mirror_lib.ledger.event_tables import EventTable
from tests.integration.conftest import Command, Done, Ground, Names
from tests.lab.brokers import KafkaBroker
from tests.lab.crash import CrashPoint, mirror
from tests.lab.flow_lab import FlowLab, values
from tests.lab.group_lab import commit, member, offsets, read_on
from tests.lab.meanwhile import meanwhile
from tests.lab.one_flow import until

ONLY = ["--execute", "--flow", "source->target"]
QUICK = [*ONLY, "--quiet-seconds", "2"]
TABLE = "mirror_lib.ledger.event_tables:EventTable.add_cutover_step"


class CutoverLab(FlowLab):
    """A flow that is cut over and back by the command."""

    command: Command

    def over(self, *options: str) -> Done:
        return self.command("cutover", "run", self.config, *QUICK, *options)

    def back(self, *options: str) -> Done:
        return self.command("cutover", "back", self.config, *ONLY, *options)

    def create_heartbeats(self) -> str:
        """A topic on the source with the heartbeats of another cluster of the file, which has the lab's name."""
        self.flows, self.other_names = (*self.flows, f"{self.name}->source"), {self.name: self.target}
        return self.create("heartbeats")


@pytest.fixture
def lab(ground: Ground, topic_name: Names, command: Command) -> CutoverLab:
    made = CutoverLab(*ground, topic_name("cutover"))
    made.command, made.settings["groups"] = command, [f"{made.name}.*"]
    return made


def group_of(lab: CutoverLab) -> str:
    return f"{lab.name}.billing"


def read(broker: KafkaBroker, group: str, topic: str, count: int) -> List[Optional[bytes]]:
    """So many records from where the group is on; the reader is a member, commits and leaves the group."""
    return [record.value for record in read_on(broker, group, [topic], count)[topic, 0]]


def producing(
    broker: KafkaBroker, topic: str, seconds: float = math.inf, **options: object
) -> ContextManager[List[bytes]]:
    """A producer that writes for so long, or as long as the block runs; what it sent is there afterwards."""

    def produce(stop: threading.Event) -> List[bytes]:
        own = broker.producer(**options)
        sent: List[bytes] = []
        until = time.monotonic() + seconds
        while not stop.wait(0.02) and time.monotonic() < until:
            sent.append(b"live %d" % len(sent))
            own.produce(topic, sent[-1], partition=0)
            own.flush(10)
        return sent

    return meanwhile(produce)


def steps(lab: CutoverLab, direction: str = "over") -> List[str]:
    rows = EventTable(lab.spark, str(lab.directory / "state")).cutover_steps("source->target")
    return [f"{row.step} {row.status}" for row in rows if row.direction == direction]


def test_producer_and_consumer_move_to_the_target_and_back_without_a_record_lost_or_read_twice(lab: CutoverLab) -> None:
    topic, group = lab.create("orders"), group_of(lab)
    lab.write("orders", values(100))
    lab.copy()
    seen, sink = read(lab.source, group, topic, 40), f"connect {lab.name}"
    commit(lab.source, sink, topic, 10)  # the file leaves this group out
    with member(lab.source, sink, topic), member(lab.target, group, lab.remote("orders")):
        plan = lab.command("cutover", "plan", lab.config)
        assert plan.code == 1 and f"left out by groups.exclude or groups, {sink}" in plan.out
        assert f"group {group} on {topic}-0" in plan.out and lab.over().code == 3 and steps(lab)[-1] == "groups failed"
    with producing(lab.source, topic, 4.0) as sent:
        assert lab.over().code == 0
    wanted = [*values(100), *sent]
    assert len(sent) > 50 and steps(lab)[-1] == "check done"

    remote = lab.remote("orders")
    seen += read(lab.target, group, remote, 30)
    assert seen == wanted[:70]
    assert lab.back().code == 0
    seen += read(lab.source, group, topic, len(wanted) - 70)
    assert seen == wanted
    both = ("started", "done")
    assert steps(lab, "back") == [f"{step} {each}" for step in ("check", "groups") for each in both]


def test_flow_whose_changes_cannot_be_computed_again_is_refused_before_the_first_step(lab: CutoverLab) -> None:
    lab.create("orders")
    lab.settings["select"] = "'*, string(rand()) as value'"
    lab.copy()
    refused = lab.over()
    assert (refused.code, "MIR-350" in refused.err, steps(lab)) == (3, True, [])


@pytest.mark.long
def test_heartbeats_of_another_flow_neither_hold_up_a_cutover_nor_count_after_it(lab: CutoverLab) -> None:
    lab.create("orders")
    lab.write("orders", values(10))
    lab.copy()
    heartbeats = lab.create_heartbeats()
    lab.target.create_topic(heartbeats, 1)
    with producing(lab.source, heartbeats):
        assert lab.over().code == 0
        lab.trigger = "1 second"
        status = lab.command("status", lab.config, "--flow", "source->target", "--json")
    found = status.documents[-1]
    assert status.code == 0 and (found["state"], found["cutover"]["complete"]) == ("healthy", True)
    lab.write_to(lab.target, heartbeats, values(10))
    assert lab.back().code == 0


@pytest.mark.long
def test_source_that_is_written_to_holds_up_the_cutover_and_such_a_target_the_way_back(lab: CutoverLab) -> None:
    topic, group = lab.create("orders"), group_of(lab)
    lab.write("orders", values(10))
    lab.copy()
    read(lab.source, group, topic, 5)
    refused = lab.back()
    assert refused.code == 3 and "there was no cut-over" in refused.err
    assert lab.over("--wait-seconds", "1").code == 2  # less than --quiet-seconds
    with producing(lab.source, topic, enable_idempotence=True):
        plan, failed = lab.command("cutover", "plan", lab.config, "--json"), lab.over("--wait-seconds", "3")
    (gate,) = [each for each in plan.documents[0]["gates"] if each["code"] == "producers"]
    assert (plan.code, gate["level"]) == (1, "blocking")
    assert f"still written: {topic}" in gate["detail"] and "producer id " in gate["detail"]
    assert failed.code == 3 and f"not silent after 3 s: {topic}" in failed.err
    assert steps(lab) == ["silence started", "silence failed"]
    assert lab.over().code == 0 and lab.command("cutover", "plan", lab.config).code == 0
    lab.write_to(lab.target, lab.remote("orders"), values(3, "new"))
    assert lab.over().code == 3  # called again, and it does not come to its end
    refused = lab.back()
    assert refused.code == 3 and f"{lab.remote('orders')}-0 (3 offsets)" in refused.err
    assert offsets(lab.source, group, topic) == {0: 5}


@pytest.mark.long
def test_way_back_counts_no_markers_and_takes_a_group_without_membership_that_did_not_move_meanwhile(
    lab: CutoverLab,
) -> None:
    topic, group = lab.create("orders"), group_of(lab)
    remote = lab.remote("orders")
    lab.settings["tasks.max"] = 1
    lab.create_heartbeats()
    lab.write("orders", values(10))
    commit(lab.source, group, topic, 5)
    assert lab.over().code == 0
    before = lab.remote_ends()[remote, 0]
    lab.trigger = "1 second"

    def marked() -> bool:
        lab.write("heartbeats", values(1))
        return lab.remote_ends()[remote, 0] > before

    with mirror("run", lab.config, "--flow", "source->target"):  # a heartbeat makes it set the marker of its fence
        until(marked)
    lab.trigger = "availableNow"
    commit(lab.target, group, remote, 8)
    assert lab.back().code == 0
    assert offsets(lab.source, group, topic) == {0: 7}  # the remote log begins with a marker

    # It moved on the source after the cut-over: its consumer may run there.
    assert lab.over("--leave-groups").code == 0
    commit(lab.source, group, topic, 6)
    commit(lab.target, group, remote, 9)
    refused = lab.back()
    assert refused.code == 3
    assert "MIR-335" in refused.err and " on source" in refused.err and "groups.simple: include" in refused.err
    assert offsets(lab.source, group, topic) == {0: 6}
    lab.settings["groups.simple"] = "include"
    assert lab.back().code == 0
    assert offsets(lab.source, group, topic) == {0: 8}


@pytest.mark.long
def test_records_written_to_the_targets_own_topic_of_that_name_forbid_the_way_back_without_a_flow_back(
    lab: CutoverLab,
) -> None:
    topic, group = lab.create("orders"), group_of(lab)
    lab.write("orders", values(10))
    read(lab.source, group, topic, 5)
    assert lab.over().code == 0
    lab.target.create_topic(topic, 1)
    lab.write_to(lab.target, topic, values(3, "new"))
    refused = lab.back()
    assert refused.code == 3 and f"{topic}-0 (3 offsets)" in refused.err
    lab.flows = ("source->target", "target->source")
    assert lab.back().code == 0
    assert offsets(lab.source, group, topic) == {0: 5}


# The table gets two rows a step. The last two die as the last step begins, one of them with a record after the silence.
@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "when", "again"),
    [
        (2, "before", ["silence"]),
        (4, "before", ["copy"]),
        (6, "before", ["verify"]),
        (8, "before", ["groups"]),
        (8, "after", ["groups"]),
        (10, "before", ["groups"]),
        (10, "before", ["silence", "late"]),
    ],
)
def test_cutover_that_was_killed_goes_on_with_the_step_that_is_not_recorded_as_done(
    lab: CutoverLab, tmp_path: Path, call: int, when: str, again: List[str]
) -> None:
    topic, group = lab.create("orders"), group_of(lab)
    lab.write("orders", values(100))
    read(lab.source, group, topic, 40)
    point = CrashPoint(TABLE, when, call, token=tmp_path / "token")
    with mirror("cutover", "run", lab.config, *QUICK, crash=point) as dying:
        assert dying.wait() == -9, dying.output
    late = [each.encode() for each in again[1:]]
    lab.write("orders", late)
    read(lab.source, group, topic, 10)  # its consumers were started again, and stopped
    before = len(steps(lab))
    assert lab.over().code == 0
    assert steps(lab)[before] == f"{again[0]} started" and steps(lab)[-1] == "check done"
    assert read(lab.target, group, lab.remote("orders"), 50 + len(late)) == [*values(100)[50:], *late]
