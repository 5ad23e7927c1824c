"""YARN and HDFS of Hadoop's own jars: client and cluster mode, over kills, with the state on HDFS."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

from mirror_lib.errors import EXIT_FAILED, EXIT_OK
from tests.clusters.running import DYNAMIC, WAIT_SECONDS, continuous, goes_on
from tests.integration.conftest import Ground
from tests.lab.brokers import KafkaBroker
from tests.lab.one_flow import OneFlow, until
from tests.lab.secured import SecuredBroker, acl, secured_cluster
from tests.lab.submitted import submit
from tests.lab.yarn import SMALL, Yarn, application_of, packed_environment, yarn

STOPPED = 143


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with yarn(tmp_path_factory.mktemp("hadoop")) as started:
        yield started


@pytest.fixture(scope="module")
def archive(cluster: Yarn) -> str:
    """The executors' and the driver's Python, on HDFS."""
    return f"{cluster.upload(packed_environment())}#env"


@pytest.fixture
def flow(cluster: Yarn, ground: Ground, topic_name: Callable[[], str]) -> OneFlow:
    source, target, _, directory = ground
    return flow_between(cluster, source, target, topic_name(), directory)


def flow_between(cluster: Yarn, source: KafkaBroker, target: KafkaBroker, topic: str, directory: Path) -> OneFlow:
    return OneFlow(source, target, topic, directory, state_address=f"{cluster.hdfs}/mirror/{topic}")


def options(archive: str, mode: str) -> List[str]:
    return [*SMALL, "--archives", archive, "--deploy-mode", mode]


def test_cluster_mode_continues_after_a_killed_executor_and_a_killed_application(
    cluster: Yarn, archive: str, flow: OneFlow, ground: Ground
) -> None:
    where = options(archive, "cluster")
    with continuous(flow, ground, *where, **cluster.environment) as job:
        os.kill(cluster.executors()[0], signal.SIGKILL)
        goes_on(flow, job)
        cluster.kill_application(application_of(flow.directory / "continuous.log"))
        assert job.wait(60) == EXIT_FAILED
        assert "Failed to add file" not in cluster.logs()


@pytest.mark.parametrize(("mode", "code"), [("client", EXIT_OK), ("cluster", STOPPED)])
def test_run_continues_after_a_killed_executor_and_a_signal_to_the_submitter_ends_it(
    cluster: Yarn, archive: str, flow: OneFlow, ground: Ground, mode: str, code: int
) -> None:
    where = [*options(archive, mode), *DYNAMIC]
    with continuous(flow, ground, *where, **cluster.environment) as job:
        os.kill(cluster.executors()[0], signal.SIGKILL)
        goes_on(flow, job)
        job.send_signal(signal.SIGTERM)
        assert job.wait(120) == code
        until(lambda: not cluster.drivers() and not cluster.executors())


def test_cluster_mode_continues_on_the_node_that_is_left(
    ground: Ground, topic_name: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Executors are so large that each node has room for one, and none for another next to the driver."""
    with yarn(tmp_path_factory.mktemp("hadoop")) as cluster:
        source, target, _, directory = ground
        flow = flow_between(cluster, source, target, topic_name(), directory)
        where = options(f"{cluster.upload(packed_environment())}#env", "cluster")
        where += ["--conf", "spark.executor.memory=1536m"]
        with continuous(flow, ground, *where, **cluster.environment) as job:
            until(lambda: len(cluster.executors()) == 2, WAIT_SECONDS)
            cluster.lose_a_node()
            until(lambda: len(cluster.executors()) == 1, WAIT_SECONDS)
            goes_on(flow, job)
            assert len(cluster.executors()) == 1
            job.send_signal(signal.SIGTERM)
            assert job.wait(60) == STOPPED


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredBroker]:
    with secured_cluster(tmp_path / "secured") as broker:
        yield broker


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_key_stores_and_secrets_are_found_by_name_where_they_are_shipped(
    cluster: Yarn, secured: SecuredBroker, ground: Ground, topic_name: Callable[[], str], mode: str
) -> None:
    """The configuration names them without a folder. The archive is a file of the submitter here."""
    flow = flow_between(cluster, ground[0], secured, topic_name(), ground[3])
    flow.fill(200)
    rights = [acl("CN=mirror", "All", kind, "*") for kind in ("Topic", "Group", "TransactionalId")]
    secured.acl_admin().create_acls([*rights, acl("CN=mirror", "All", "Cluster", "kafka-cluster")])
    login, secrets, lines = secured.tls("JKS"), [], []
    for name, value in login.items():
        hidden = name.endswith("password")
        secrets += [f"{name}={value}"] if hidden else []
        lines.append(f'    {name}: "{f"${{file:secrets.properties:{name}}}" if hidden else Path(value).name}"')
    config = flow.config
    plain = f'  target: {{bootstrap.servers: "{secured.bootstrap}"}}'
    assert plain in config.read_text()
    config.write_text(config.read_text().replace(plain, "\n".join(["  target:", *lines])))
    (flow.directory / "secrets.properties").write_text("\n".join(secrets))
    stores = [shutil.copy(login[f"ssl.{kind}.location"], flow.directory) for kind in ("truststore", "keystore")]
    files = ["--files", ",".join([*map(str, stores), str(flow.directory / "secrets.properties")])]
    where = [*options(f"{packed_environment()}#env", mode), *files]
    ended = submit(flow.directory, *where, config=config, **cluster.environment)
    assert ended.code == EXIT_OK, ended.text
    flow.assert_exact(ground[2])
