"""Targets that cannot fence a driver: brokers from before Kafka 2.5, which give a producer epoch to any driver that
asks, and services without transactions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mirror_lib.errors import RefusedError
from mirror_lib.topics.old_brokers import runnable, settled
from tests.unit.configs import AB, FLOW, IN_YAML, MM2, YAML, read

AT_LEAST_ONCE = replace(AB, delivery="at-least-once")

OLD, WITHOUT_TRANSACTIONS = ("InitProducerId",), ("AddPartitionsToTxn", "EndTxn")

CONNECTOR = """\
name = source
connector.class = org.apache.kafka.connect.mirror.MirrorSourceConnector
source.cluster.alias = A
target.cluster.alias = B
source.cluster.bootstrap.servers = a:9092
target.cluster.bootstrap.servers = b:9092
"""


def test_flow_runs_as_it_is_where_brokers_are_new_enough() -> None:
    for flow in (AB, AT_LEAST_ONCE, replace(AB, delivery_may_fall=True)):
        found = settled(flow, missing=())
        assert (found.flow, found.warning, found.refusal) == (flow, "", None)


def test_exact_flow_is_refused_by_brokers_that_cannot_fence_with_the_key_to_set_and_by_what_a_service_lacks() -> None:
    with pytest.raises(RefusedError) as refused:
        runnable(AB, missing=OLD)
    assert (refused.value.exit_code, refused.value.code) == (3, "MIR-305")
    assert "A->B" in refused.value.message and "delivery: at-least-once" in str(refused.value.hint)
    refusal = settled(AB, WITHOUT_TRANSACTIONS).refusal
    assert refusal is not None and refusal.code == "MIR-305"
    assert "AddPartitionsToTxn, EndTxn" in refusal.message and "2.5" not in refusal.message
    warned = settled(AT_LEAST_ONCE, WITHOUT_TRANSACTIONS)
    assert warned.refusal is None and "EndTxn" in warned.warning


@pytest.mark.parametrize(("name", "text"), [(MM2, FLOW), ("connector.properties", CONNECTOR)])
def test_file_of_mirrormaker_gets_mirrormakers_promise_with_a_warning(tmp_path: Path, name: str, text: str) -> None:
    (flow,) = read(tmp_path, text, name).flows
    assert flow.delivery == "exactly-once"
    found = settled(flow, missing=OLD)
    assert (found.flow.delivery, found.refusal) == ("at-least-once", None)
    assert "at-least-once" in found.warning


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (YAML, IN_YAML),
        (YAML, IN_YAML + "    delivery: exactly-once\n"),
        (MM2, FLOW + "delivery = exactly-once\n"),
        (MM2, FLOW + "A->B.delivery = exactly-once\n"),
        (MM2, FLOW + "exactly.once.source.support = enabled\n"),
        (MM2, FLOW + "B.exactly.once.source.support = enabled\n"),
        ("connector.properties", CONNECTOR + "delivery = exactly-once\n"),
        ("connector.properties", CONNECTOR + "exactly.once.support = required\n"),
    ],
)
def test_exactly_once_that_was_asked_for_is_never_weakened(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(RefusedError):
        runnable(read(tmp_path, text, name).flows[0], missing=OLD)
