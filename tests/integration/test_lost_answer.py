"""A coordinator that dies behind its answer to a lane that fences again: is the lane another client's now?"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import pytest
from kafka.protocol.producer import InitProducerIdRequest

from mirror_lib.errors import FencedError
from mirror_lib.kafka.connection import Disconnected, LogClient, Network
from mirror_lib.kafka.fencing import AnswerLost, Lane, fence, refresh
from tests.integration.conftest import Names
from tests.lab.brokers import KafkaBroker, clusters

pytestmark = pytest.mark.long

LANE = "lane of one"


class Cut(LogClient):
    """A client whose line is cut behind the first new epoch that the coordinator gives out."""

    meanwhile: Optional[Callable[[], object]] = None

    def exchange(self, requests: Sequence[Tuple[Optional[int], Any]]) -> List[Any]:
        answers = super().exchange(requests)
        given = [isinstance(request, InitProducerIdRequest) for _, request in requests]
        if self.meanwhile is None or not given or not all(given) or any(answer.error_code for answer in answers):
            return answers
        happens, self.meanwhile = self.meanwhile, None
        happens()
        return [Disconnected("the line is cut") for _ in requests]


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


def epoch(lane: Lane) -> int:
    assert lane.held is not None
    return lane.held.epoch


def soon() -> float:
    return time.monotonic() + 60


def test_lane_that_lost_an_answer_goes_on_unless_its_coordinator_died_or_another_client_took_it_over(
    target: KafkaBroker, client: Cut, topic_name: Names
) -> None:
    free = Lane(LANE, {target.create_topic(topic_name("lost"), 1): [0]})
    lane = replace(free, held=fence(client, [free], soon())[LANE])
    client.meanwhile = lambda: None
    renewed = replace(lane, held=refresh(client, [lane], soon())[LANE])
    assert epoch(renewed) == epoch(lane) + 1
    lane = renewed
    client.meanwhile = lambda: again(target)
    with pytest.raises(AnswerLost):
        refresh(client, [lane], soon())
    # A request without an epoch takes the lane.
    assert fence(client, [free], soon())[LANE].epoch > epoch(lane)
    with pytest.raises(FencedError):
        refresh(client, [lane], soon())
