"""The preflight's decisions: which masters it concerns, what a machine reaches, what becomes of the findings."""

from __future__ import annotations

import pickle
import socket

import pytest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import EXIT_REFUSED
from mirror_lib.kafka.reach import Access, unreachable
from mirror_lib.preflight import probe
from mirror_lib.preflight.executors import _python_failure, on_cluster, refusals
from mirror_lib.preflight.probe import Finding, examine
from tests.lab.ports import free_ports


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]"])
def test_local_master_has_no_executors_of_its_own(master: str) -> None:
    assert not on_cluster(master)


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "spark://a:7077", "yarn", "k8s://https://a"])
def test_other_masters_have(master: str) -> None:
    assert on_cluster(master)


def test_address_that_takes_no_connection_is_found_and_one_that_does_is_not() -> None:
    (closed,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = ("127.0.0.1", server.getsockname()[1])
        found = unreachable([there, ("127.0.0.1", closed), there])
    assert [address for address, _ in found] == [("127.0.0.1", closed)]


def test_each_reason_is_one_refusal_whatever_the_number_of_tasks_that_met_it() -> None:
    lacking = Finding("a", "/usr/bin/python3", ("kafka", "cramjam"))
    away = Finding("b", "/usr/bin/python3", (), ("cannot reach the broker x:9092 of B: timed out",))
    found = refusals([lacking, lacking, away, away, Finding("c", "/usr/bin/python3")])
    assert [error.exit_code for error in found] == [EXIT_REFUSED] * 2
    assert "kafka, cramjam" in str(found[0]) and "x:9092" in str(found[1])
    assert refusals([Finding("c", "/usr/bin/python3")]) == []


def test_worker_that_does_not_come_up_is_refused_with_the_error_of_its_trace() -> None:
    trace = "Traceback (most recent call last):\n  File x\nImportError: cannot import name 'NotRequired'\n"
    raised = f"Job aborted\nError from python worker:\n  {trace}PYTHONPATH was:\n  /a:/b\nEOFException"
    assert "ImportError: cannot import name 'NotRequired'" in str(_python_failure(RuntimeError(raised)))


def test_package_that_cannot_be_imported_is_found_before_any_broker_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PACKAGES", ("json", "no_such_package"))
    found = examine(b"no pickle")
    assert (found.missing, found.refusals) == (("no_such_package",), ())


def test_cluster_without_a_broker_is_a_finding_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror_lib.kafka.reach.LOGIN_SECONDS", 1.0)
    (port,) = free_ports(1)
    access = Access(ClusterConfig("A", {"bootstrap.servers": f"127.0.0.1:{port}"}), "producer")
    found = examine(pickle.dumps((access,)))
    assert found.missing == () and len(found.refusals) == 1
