"""A second broker for a cluster that has one: the first one's settings, ports and a folder of its own."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Iterator, Mapping

from tests.lab.brokers import KafkaBroker
from tests.lab.ports import free_ports


@contextmanager
def second_broker(
    first: KafkaBroker, folder: Path, other: Mapping[str, str] = MappingProxyType({})
) -> Iterator[KafkaBroker]:
    """Node 2 of the cluster of `first`, which stays its only controller, with `other` properties; killed on the way
    out."""
    port, unused = free_ports(2)
    properties = {
        **first.properties,
        "process.roles": "broker",
        "node.id": "2",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{first.controller_port}",
        **other,
    }
    data = folder / "data"
    data.mkdir(parents=True)
    ids = f"version=1\nnode.id=2\ncluster.id={first.cluster_id}\ndirectory.id=c2Vjb25kLWJyb2tlci1pZA\n"
    (data / "meta.properties").write_text(ids)
    broker = type(first)(
        "second", folder, port, unused, properties, cluster_id=first.cluster_id, classes=first.classes
    )
    try:
        yield broker.start()
    finally:
        broker.kill()
