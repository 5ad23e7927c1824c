"""Fixtures of tests that run flows between the two clusters of the suite."""

from __future__ import annotations

import io
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import pytest

from mirror_lib.cli import main
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.one_flow import NewFlow, OneFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# These take longest. Begun last, one of them would keep a single worker busy when the others have nothing left.
FIRST = ("test_verify.py", "test_copy.py", "test_takeover.py", "test_groups_move.py")


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def documents(self) -> List[Dict[str, Any]]:
        """What `--json` printed, a document a line."""
        return [json.loads(line) for line in self.out.splitlines()]


# `topic_name("orders")` gives `orders-1a2b3c4d-1`.
Names = Callable[[str], str]
# `command("status", lab.config, "--json")`; `given` is its standard input.
Command = Callable[..., Done]
Ground = Tuple[KafkaBroker, KafkaBroker, "SparkSession", Path]


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Put the tests of FIRST before all others, each file as a whole."""
    items.sort(key=lambda item: item.path.name not in FIRST)


@pytest.fixture(autouse=True)
def handlers_of_signals() -> Iterator[None]:
    """`mirror run` in this process sets its own, which end with the test."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "state")


@pytest.fixture
def ground(source_cluster: KafkaBroker, target_cluster: KafkaBroker, spark: SparkSession, tmp_path: Path) -> Ground:
    """What a lab stands on: source, target, Spark, and a folder of this test alone."""
    return source_cluster, target_cluster, spark, tmp_path


@pytest.fixture(scope="module")
def shared_ground(
    source_cluster: KafkaBroker,
    target_cluster: KafkaBroker,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Ground:
    """The same for a lab that all tests of a file share."""
    return source_cluster, target_cluster, spark, tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[List[KafkaBroker]]:
    """Two clusters of the file alone, which may kill them, and find there only what it made."""
    # What a killed client left open is aborted within seconds.
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with clusters(["source", "target"], tmp_path_factory.mktemp("pair"), properties) as brokers:
        yield brokers


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """`mirror` with these words in this process, and in the Spark that is there, as in a notebook."""

    def run(*words: object, given: str = "") -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        code = main([str(each) for each in words])
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def new_flow(source_cluster: KafkaBroker, target_cluster: KafkaBroker, topic_name: Names, tmp_path: Path) -> NewFlow:
    """Make the flow of a test between both clusters, or others, whose partitions have so many records each:
    `new_flow("damaged", records=50, target=torn)`. `remote`: its remote topic is there, as for lanes alone."""

    def make(stem: str, records: int = 0, remote: bool = False, **more: Any) -> OneFlow:
        both = {"source": source_cluster, "target": target_cluster}
        flow = OneFlow(topic=topic_name(stem), directory=tmp_path, **{**both, **more})
        if records:
            flow.fill(records)
        if remote:
            flow.create_remote_topic()
        return flow

    return make
