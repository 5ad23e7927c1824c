"""A coordinator that dies behind its answer to a lane that fences again: is the lane somebody else's now?"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Callable, Iterator, Optional

import pytest
from kafka.protocol.producer import InitProducerIdRequest
from mirror_lib.records.ready import made_ready, marked_again

from mirror_lib.errors import FencedError
from mirror_lib.log.batch import Producer
from mirror_lib.log.connection import Disconnected, Future, LogClient, Network
from mirror_lib.log.fence import fence, init_producer
from mirror_lib.log.refresh import AnswerLost, HeldLane, refresh
from mirror_lib.log.tail import glances
from mirror_lib.replicate.lanes import PartitionReport, PartitionTask, TaskPlan, lane_of
from tests.lab.brokers import KafkaBroker, clusters

LANE = "lane of one"
# No broker has this id: what is sent to it gets no answer.
NOBODY = 99


class Cut(LogClient):
    """A client whose line is cut behind the first new epoch that the coordinator gives out."""

    meanwhile: Optional[Callable[[], object]] = None

    def send(self, node: Optional[int], request: Any) -> Future:
        found = super().send(node, request)
        if self.meanwhile is None or not isinstance(request, InitProducerIdRequest):
            return found
        self.wait(found, 30_000)
        if found.value.error_code:
            return found
        happens, self.meanwhile = self.meanwhile, None
        happens()
        return super().send(NOBODY, request)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with clusters(["target-that-restarts"], tmp_path_factory.mktemp("target")) as (broker,):
        yield broker


@pytest.fixture
def client(target: KafkaBroker) -> Iterator[Cut]:
    network = Network()
    client = Cut(network, "target", {"bootstrap_servers": target.bootstrap})
    client.connect(time.monotonic() + 30)
    yield client
    client.close()
    network.close()


def again(target: KafkaBroker) -> None:
    target.kill()
    target.restart()


def held(client: Cut, topic: str) -> HeldLane:
    partitions = {topic: [0]}
    return HeldLane(LANE, fence(client, LANE, partitions, soon()), partitions)


def soon() -> float:
    return time.monotonic() + 60


def test_lane_whose_coordinator_died_behind_its_answer_is_not_said_to_be_taken_over(
    target: KafkaBroker, client: Cut, topic_name: Callable[[str], str]
) -> None:
    lane = held(client, target.create_topic(topic_name("lost"), 1))
    client.meanwhile = lambda: again(target)
    with pytest.raises(AnswerLost):
        refresh(client, [lane], soon())
    # Whoever names no epoch has the lane.
    assert fence(client, LANE, lane.partitions, soon()).epoch > lane.producer.epoch


def test_lane_that_only_lost_an_answer_goes_on(
    target: KafkaBroker, client: Cut, topic_name: Callable[[str], str]
) -> None:
    lane = held(client, target.create_topic(topic_name("lost"), 1))
    client.meanwhile = lambda: None
    assert refresh(client, [lane], soon()) == {LANE: Producer(lane.producer.producer_id, lane.producer.epoch + 1)}


def test_lane_that_was_taken_over_is_told_so(
    target: KafkaBroker, client: Cut, topic_name: Callable[[str], str]
) -> None:
    lane = held(client, target.create_topic(topic_name("lost"), 1))
    init_producer(client, LANE, soon())
    with pytest.raises(FencedError):
        refresh(client, [lane], soon())


def pass_of_rows(target: KafkaBroker, topic: str) -> TaskPlan:
    """One into the first partition of an empty topic."""
    task = PartitionTask(topic, topic, 0, 0, 0, 0, None, 1_000_000)
    lanes, options = {lane_of(topic, 0): topic}, {"bootstrap_servers": target.bootstrap}
    return TaskPlan(0, "A->B", lanes, {}, (task,), "A", "B", {}, options, confirmed_at=time.time())


def test_pass_of_rows_takes_the_lanes_of_a_lost_answer_over_anew(
    target: KafkaBroker, topic_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = target.create_topic(topic_name("lost"), 1)
    lane, plan = lane_of(topic, 0), pass_of_rows(target, topic)
    (task,) = plan.tasks
    ready = made_ready(plan).plan
    whole = PartitionReport(topic, topic, 0, 1, ready.tasks[0].downstream_offset, 0, 1)

    def cut(*given: Any) -> Cut:
        client = Cut(*given)
        client.meanwhile = lambda: again(target)
        return client

    with monkeypatch.context() as patched:
        patched.setattr("mirror_lib.records.ready.LogClient", cut)
        marked = marked_again(ready, [whole], [(topic, 0)])
    behind = replace(task, downstream_offset=marked.reports[0].downstream_offset, sequence=marked.reports[0].sequence)
    goes_on = made_ready(replace(plan, producers=marked.producers, tasks=(behind,)))
    assert goes_on.plan.producers[lane].epoch > ready.producers[lane].epoch


def test_line_that_breaks_behind_a_fence_is_no_takeover(
    target: KafkaBroker, topic_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = target.create_topic(topic_name("broken"), 1)
    lane, plan = lane_of(topic, 0), pass_of_rows(target, topic)
    held_by_the_driver = made_ready(plan).plan.producers
    breaks = [Disconnected("the line is cut")]

    def looked_behind(*given: Any) -> Any:
        if breaks:
            raise breaks.pop()
        return glances(*given)

    monkeypatch.setattr("mirror_lib.records.ready.glances", looked_behind)
    goes_on = made_ready(replace(plan, producers=held_by_the_driver))
    assert not breaks
    assert goes_on.plan.producers[lane].epoch > held_by_the_driver[lane].epoch
