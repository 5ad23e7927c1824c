"""A standalone Spark cluster: the README's command on a fresh one, and what the preflight refuses before a copy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Iterator, List

import pytest

from mirror_lib.errors import EXIT_REFUSED
from tests.integration.conftest import Ground
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.standalone import SMALL, Standalone, standalone
from tests.lab.submitted import submit

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone"), workers=2) as started:
        yield started


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("standalone")


def options(cluster: Standalone) -> List[str]:
    return ["--master", cluster.master, *SMALL]


def assert_untouched(flow: OneFlow) -> None:
    assert not flow.has_remote_topic()
    assert not list(flow.state.glob("*")) and not list(flow.state.glob(".preflight*"))


def test_command_of_the_readme_copies_on_a_fresh_cluster(cluster: Standalone, flow: OneFlow, ground: Ground) -> None:
    flow.fill()
    ended = submit(flow.directory, *options(cluster), config=flow.config)
    assert ended.code == 0, ended.text
    flow.assert_exact(ground[2])
    assert not list(flow.state.glob(".preflight*"))
    assert "on 4 slots" in ended.text  # of two workers with two cores, counted once they were there


@pytest.mark.parametrize("there", [False, True], ids=["no such program", "no packages"])
def test_executors_python_that_cannot_copy_is_refused_before_a_topic_is_created(
    cluster: Standalone, flow: OneFlow, tmp_path: Path, there: bool
) -> None:
    flow.fill(10)
    python = str(tmp_path / "bare" / "bin" / "python")
    if there:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    ended = submit(flow.directory, *options(cluster), config=flow.config, PYSPARK_PYTHON=python)
    assert ended.code == EXIT_REFUSED, ended.text
    assert "PYSPARK_PYTHON" in ended.text and python in ended.text
    assert_untouched(flow)


def elsewhere(script: Path, change: str, command: str) -> str:
    """A program that runs `command` where `change` was made to the files that it sees, and to no other client's."""
    if subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this user may not have a mount namespace of its own")
    script.write_text(f'#!/bin/sh\nexec unshare -m sh -c \'{change} && exec {command} "$@"\' sh "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_broker_that_only_the_driver_reaches_is_refused(cluster: Standalone, flow: OneFlow, tmp_path: Path) -> None:
    flow.fill(10)
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.99 localhost\n")
    python = elsewhere(tmp_path / "python", f"mount --bind {hosts} /etc/hosts", sys.executable)
    config = flow.config
    config.write_text(config.read_text().replace(flow.target.bootstrap, f"localhost:{flow.target.port}"))
    ended = submit(flow.directory, *options(cluster), config=config, PYSPARK_PYTHON=python)
    assert ended.code == EXIT_REFUSED, ended.text
    assert "cannot use the cluster target" in ended.text
    assert "cannot use the cluster source" not in ended.text
    assert_untouched(flow)


def test_state_on_a_disk_of_one_machine_is_refused(tmp_path: Path, flow: OneFlow) -> None:
    flow.fill(10)
    flow.state.mkdir()
    other = elsewhere(tmp_path / "machine", f"mount -t tmpfs none {flow.state}", "env")
    with standalone(tmp_path / "standalone", workers=0) as cluster:
        cluster.start_worker([other])
        ended = submit(flow.directory, *options(cluster), config=flow.config)
    assert ended.code == EXIT_REFUSED, ended.text
    assert str(flow.state) in ended.text
    assert_untouched(flow)
