"""A pytest plugin: the two clusters of the suite, one pair for all workers of pytest-xdist.

The controller starts the pair once it knows that tests may ask for it, and owns it: the brokers outlive any worker, and
end with the run or with the controller's process, however it ends. No test stops, kills or pauses one of the pair. Each
gives its topics, groups and mirrors names of its own, because tests of other workers run beside it.
"""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, Iterator, List, Sequence

import pytest

from tests.lab.brokers import KafkaBroker, clusters, planned, start_together
from tests.lab.checkout import LabError

NAMES = ("source", "target")


def _folder(run: str) -> Path:
    return Path(tempfile.gettempdir()) / f"mirror-clusters-{run}"


def _end(brokers: Sequence[KafkaBroker], folder: Path) -> None:
    for broker in brokers:
        broker.kill()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Sequence[str]) -> None:
    """In the controller, before the first test: start the pair, unless an earlier worker brought that about."""
    folder = _folder(node.workerinput["testrunuid"])
    if folder.exists() or not any(each.startswith("tests/integration/") for each in ids):
        return
    brokers: List[KafkaBroker] = []
    folder.mkdir(mode=0o700)
    node.config.add_cleanup(lambda: _end(brokers, folder))
    brokers += start_together(planned(NAMES, folder))
    said = [(each.name, str(each.directory), each.port, each.controller_port, each.cluster_id) for each in brokers]
    (folder / "clusters.json").write_text(json.dumps(said))


class SharedBroker(KafkaBroker):
    """One of the pair, as a worker knows it: its process is the controller's."""

    def _end(self, how: signal.Signals) -> None:
        raise LabError(f"tests of other workers use broker {self.name} too: start one of the test's own to end it")


@pytest.fixture(scope="session")
def both_clusters(request: pytest.FixtureRequest, lab_directory: Path) -> Iterator[List[KafkaBroker]]:
    """Source and target: the run's, or without workers, a pair that this process starts."""
    run = getattr(request.config, "workerinput", {}).get("testrunuid", "")
    if run and (said := _folder(run) / "clusters.json").exists():
        both = json.loads(said.read_text())
        yield [SharedBroker(name, Path(at), one, two, cluster_id=own) for name, at, one, two, own in both]
    else:
        with clusters(NAMES, lab_directory) as brokers:
            yield brokers
