"""A question about many partitions at once has the same answer as a question about each."""

from __future__ import annotations

import time
from typing import Any, Dict, Iterator, Optional

import pytest

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import LogClient, Network
from mirror_lib.kafka.fetcher import (
    LAST_EPOCH,
    NO_EPOCH,
    READ_UNCOMMITTED,
    SESSION_FROM_PARTITIONS,
    Asked,
    Fetched,
    FetchSession,
    fetch_request,
    fetched,
    log_ends,
)
from mirror_lib.replication.copier import copy_lanes
from tests.integration.conftest import Names
from tests.lab.brokers import KafkaBroker
from tests.lab.one_flow import NewFlow, until
from tests.lab.one_lane import next_plan, task_plans

pytestmark = pytest.mark.long


@pytest.fixture
def client(source_cluster: KafkaBroker) -> Iterator[LogClient]:
    network = Network()
    client = LogClient(network, "source", {"bootstrap_servers": source_cluster.bootstrap})
    client.connect(time.monotonic() + 30)
    yield client
    client.close()
    network.close()


class Asking:
    """Fetches from one broker within a session, as long as the broker remembers it."""

    def __init__(self, client: LogClient, node: int) -> None:
        self._client, self._node = client, node
        self._session = FetchSession()
        self.asked = Asked()

    def __call__(self, wanted: Dict[TopicPartition, int]) -> Optional[Dict[TopicPartition, Fetched]]:
        """What is said of each partition that is spoken of; None where the session was forgotten."""
        self.asked = self._session.ask(wanted, {*self._session.known, *wanted})
        answer = self.send(self.asked)
        known = self._session.answered(self.asked, answer.error_code, answer.session_id)
        return fetched(answer, READ_UNCOMMITTED) if known else None

    def send(self, asked: Asked) -> Any:
        request = fetch_request({}, READ_UNCOMMITTED, 1_000_000, 1_000_000, 0, asked)
        return self._client.call(self._node, request)


def test_a_session_names_and_tells_only_what_is_new_and_starts_again_when_it_is_forgotten(
    source_cluster: KafkaBroker, topic_name: Names, client: LogClient
) -> None:
    count = SESSION_FROM_PARTITIONS + 1
    topic = source_cluster.create_topic(topic_name("session"), count)
    wanted = {(topic, number): 0 for number in range(count)}
    client.refresh_leaders(wanted, time.monotonic() + 30)
    node = client.leader((topic, 0))
    assert node is not None
    ask = Asking(client, node)
    until(lambda: log_ends(client, wanted) == wanted)  # the broker knows by now that it leads them
    assert set(ask(wanted) or {}) == set(wanted)
    source_cluster.write(topic, b"v", partition=3)
    assert set(ask(wanted) or {}) == {(topic, 3)}
    wanted[(topic, 3)] = 1
    del wanted[(topic, 4)]
    source_cluster.write(topic, b"v", partition=4)
    assert ask(wanted) == {}
    assert (ask.asked.positions, ask.asked.forgotten) == ({(topic, 3): 1}, ((topic, 4),))

    ask.send(Asked(ask.asked.session_id, NO_EPOCH))  # which ends the session
    assert ask(wanted) is None
    assert set(ask(wanted) or {}) == set(wanted)


def test_after_its_last_epoch_a_session_goes_on_with_the_first() -> None:
    session, wanted = FetchSession(), {("orders", number): 0 for number in range(SESSION_FROM_PARTITIONS)}
    assert session.answered(session.ask(wanted, wanted), 0, session_id=7)
    assert session.answered(session.ask(wanted, wanted)._replace(epoch=LAST_EPOCH), 0, session_id=7)
    assert session.ask(wanted, wanted) == Asked(7, 1, {}, ())


def test_a_lane_of_many_partitions_copies_them_all_and_goes_on(new_flow: NewFlow) -> None:
    flow = new_flow("many", partitions=100)
    flow.create_remote_topic()
    flow.fill(20)
    (plan,) = task_plans(flow)
    report = copy_lanes(plan, 0)
    flow.fill(10)
    again = copy_lanes(next_plan(plan, report, flow.written), 0)
    assert (report.records, again.records) == (100 * 20, 100 * 10)
    assert flow.differences() == []
