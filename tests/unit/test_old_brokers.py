"""Targets that cannot fence a driver: brokers from before Kafka 2.5, which give a producer epoch to any driver that
asks, and services without transactions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mirror_lib.config.loader import load
from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.topics.old_brokers import runnable, settled

EXACT = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))
AT_LEAST_ONCE = replace(EXACT, delivery="at-least-once")

OLD, WITHOUT_TRANSACTIONS = ("InitProducerId",), ("AddPartitionsToTxn", "EndTxn")

YAML = """\
clusters:
  A: {{bootstrap.servers: "a:9092"}}
  B: {{bootstrap.servers: "b:9092"}}
flows:
  A->B: {{topics: [orders]{delivery}}}
state: /tmp/state
"""
MM2 = """\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
{delivery}
"""
CONNECTOR = """\
name = source
connector.class = org.apache.kafka.connect.mirror.MirrorSourceConnector
source.cluster.alias = A
target.cluster.alias = B
source.cluster.bootstrap.servers = a:9092
target.cluster.bootstrap.servers = b:9092
{delivery}
"""


def flow_of(folder: Path, ending: str, text: str, delivery: str) -> ReplicationFlow:
    path = folder / f"mirror.{ending}"
    path.write_text(text.format(delivery=delivery))
    (flow,) = load(str(path)).flows
    return flow


@pytest.mark.parametrize("flow", [EXACT, AT_LEAST_ONCE, replace(EXACT, delivery_may_fall=True)])
def test_flow_runs_as_it_is_where_brokers_are_new_enough(flow: ReplicationFlow) -> None:
    found = settled(flow, missing=())
    assert (found.flow, found.warning, found.refusal) == (flow, "", None)


def test_exact_flow_into_brokers_that_cannot_fence_is_refused_with_the_key_to_set() -> None:
    with pytest.raises(RefusedError) as refused:
        runnable(EXACT, missing=OLD)
    assert refused.value.exit_code == 3
    assert "A->B" in refused.value.message and "delivery: at-least-once" in str(refused.value.hint)


def test_service_without_transactions_is_refused_by_the_names_of_the_requests_that_it_lacks() -> None:
    found = settled(EXACT, WITHOUT_TRANSACTIONS)
    assert found.refusal is not None and found.refusal.code == "MIR-305"
    assert "AddPartitionsToTxn, EndTxn" in found.refusal.message and "2.5" not in found.refusal.message
    warned = settled(AT_LEAST_ONCE, WITHOUT_TRANSACTIONS)
    assert warned.refusal is None and "EndTxn" in warned.warning


def test_flow_that_asks_for_at_least_once_runs_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert runnable(AT_LEAST_ONCE, missing=OLD) == AT_LEAST_ONCE
    assert "A->B" in caplog.text


@pytest.mark.parametrize(("ending", "text"), [("properties", MM2), ("connector.properties", CONNECTOR)])
def test_file_of_mirrormaker_gets_mirrormakers_promise_with_a_warning(tmp_path: Path, ending: str, text: str) -> None:
    flow = flow_of(tmp_path, ending, text, "")
    assert flow.delivery == "exactly-once"
    found = settled(flow, missing=OLD)
    assert (found.flow.delivery, found.refusal) == ("at-least-once", None)
    assert "at-least-once" in found.warning


@pytest.mark.parametrize(
    ("ending", "text", "delivery"),
    [
        pytest.param("yaml", YAML, "", id="YAML, by default"),
        pytest.param("yaml", YAML, ", delivery: exactly-once", id="YAML"),
        pytest.param("properties", MM2, "delivery = exactly-once", id="MirrorMaker 2, of all flows"),
        pytest.param("properties", MM2, "A->B.delivery = exactly-once", id="MirrorMaker 2, of the flow"),
        pytest.param("connector.properties", CONNECTOR, "delivery = exactly-once", id="connector"),
        pytest.param("properties", MM2, "exactly.once.source.support = enabled", id="MirrorMaker 2, by Connect's key"),
        pytest.param("properties", MM2, "B.exactly.once.source.support = enabled", id="MirrorMaker 2, of a cluster"),
        pytest.param("connector.properties", CONNECTOR, "exactly.once.support = required", id="connector, by its key"),
    ],
)
def test_exactly_once_that_was_asked_for_is_never_weakened(
    tmp_path: Path, ending: str, text: str, delivery: str
) -> None:
    flow = flow_of(tmp_path, ending, text, delivery)
    with pytest.raises(RefusedError):
        runnable(flow, missing=OLD)
