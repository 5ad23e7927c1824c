"""A run looks for another tool only where remote records have no rows, and the mirror's own signs never refuse it."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from typing import Callable, Iterator, List

from mirror_lib.config.loader import load
from mirror_lib.control.heartbeats import HeartbeatWriter
from mirror_lib.groups.mm2_format import Heartbeat, encode_heartbeat
from mirror_lib.kafka.admin import clusters_of
from mirror_lib.kafka.compacted_topic import InternalTopic
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.replication.start_rules import Writer
from mirror_lib.takeover.signs import OtherWriter, Tables, other_writer
from tests.integration.conftest import Ground
from tests.lab.flow_lab import FlowLab, values
from tests.lab.meanwhile import meanwhile


def checked(lab: FlowLab, run_is_open: bool = False, fences: bool = False) -> OtherWriter:
    """What a run of the lab's flow finds before it writes."""
    config = load(str(lab.config))
    (flow,) = config.flows
    ledger = OffsetSyncTable(lab.spark, config.state)
    tables = Tables(lambda: (ledger.positions(flow.name), ()), lambda: run_is_open)
    with clusters_of(flow) as (source, target):
        return other_writer(flow, config.flows, source, target, tables, fences)


@contextmanager
def again_and_again(write: Callable[[], object]) -> Iterator[None]:
    def work(stop: threading.Event) -> List[None]:
        while not stop.wait(0.2):
            write()
        return []

    write()
    with meanwhile(work):
        yield


def test_signs_of_another_tool_refuse_and_the_mirrors_own_do_not(ground: Ground) -> None:
    lab = FlowLab(*ground, "signs")
    lab.create("orders")
    lab.write("orders", values(100))
    assert checked(lab) == OtherWriter(), "a first run waits for nothing"
    lab.copy()
    lab.write("orders", values(10))
    assert checked(lab) == OtherWriter(), "nor does a later one"

    shutil.rmtree(lab.directory / "state")
    assert checked(lab).state is Writer.NONE and checked(lab).reason
    (flow,) = load(str(lab.config)).flows
    beats = [HeartbeatWriter(flow, lambda cluster: None, copies) for copies in (False, True)]

    def beat() -> None:
        for each in beats:
            each.beat()

    with again_and_again(beat):
        assert checked(lab).state is Writer.NONE
        lab.copy()
    assert lab.differences("orders") == []

    shutil.rmtree(lab.directory / "state")
    heartbeat = [encode_heartbeat(Heartbeat("source", "target", 1))]
    with InternalTopic(flow.target, "heartbeats", 1) as topic, again_and_again(lambda: topic.append(heartbeat)):
        assert checked(lab).state is Writer.RUNNING
        outcome = lab.run()
        assert outcome.error is not None and outcome.error.code == "MIR-340"
    with again_and_again(lambda: lab.target.write(lab.remote("orders"), b"another tool's")):
        assert checked(lab).state is Writer.RUNNING
        assert checked(lab, run_is_open=True).state is Writer.NONE, "the fence stops what an open run writes"
        assert checked(lab, fences=True).state is Writer.NONE
    for each in beats:
        each.close()
