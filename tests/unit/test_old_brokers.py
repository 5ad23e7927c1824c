"""Targets from before Kafka 2.5, whose brokers give a producer epoch to anybody who asks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.replicate.old_brokers import check_brokers

EXACT = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))
AT_LEAST_ONCE = replace(EXACT, delivery="at-least-once")


def test_exact_flow_into_brokers_that_cannot_keep_two_drivers_apart_is_refused() -> None:
    with pytest.raises(RefusedError, match="A->B: the brokers of B are older than Kafka"):
        check_brokers(EXACT, guards_epochs=False)


def test_flow_without_a_fence_is_warned_of_old_brokers_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    check_brokers(AT_LEAST_ONCE, guards_epochs=False)
    assert "A->B: the brokers of B are older than Kafka 2.5" in caplog.text


def test_nothing_is_said_of_brokers_that_are_new_enough(caplog: pytest.LogCaptureFixture) -> None:
    for flow in (EXACT, AT_LEAST_ONCE):
        check_brokers(flow, guards_epochs=True)
    assert not caplog.text
