"""How long brokers kept a client waiting: what overlaps counts once, what is still to come not yet."""

from __future__ import annotations

import time

import pytest
from kafka.future import Future

from mirror_lib.kafka.connection import LogClient, Network
from mirror_lib.kafka.wire import Throttle


def test_waits_that_overlap_are_counted_once() -> None:
    throttle = Throttle()
    throttle.reported(10.0, 2.0)
    throttle.reported(11.0, 3.0)
    throttle.reported(12.0, 0.5)
    throttle.reported(20.0, 1.0)
    assert throttle.taken(30.0) == pytest.approx(5.0)


def test_wait_that_goes_on_counts_as_far_as_it_has_come_and_each_second_is_told_once() -> None:
    throttle = Throttle()
    throttle.reported(10.0, 4.0)
    assert (throttle.left(11.0), throttle.taken(11.0)) == (3.0, 1.0)
    assert (throttle.left(13.0), throttle.taken(13.0)) == (1.0, 2.0)
    assert (throttle.left(15.0), throttle.taken(15.0), throttle.taken(16.0)) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize("reported", ["before", "meanwhile"])
def test_time_of_silence_that_brokers_ask_for_is_none_of_a_requests_own(reported: str) -> None:
    network = Network()
    client = LogClient(network, "source", {"bootstrap_servers": "127.0.0.1:1"})
    throttle, answer, now = client._manager.throttle, Future(), time.monotonic()
    if reported == "before":
        throttle.reported(now, 0.5)
    else:
        network.call_at(now + 0.1, lambda: throttle.reported(time.monotonic(), 0.4))
    network.call_at(now + 0.6, lambda: answer.success("there"))
    client.wait(answer, 300)
    assert answer.is_done
    client.close()
    network.close()
