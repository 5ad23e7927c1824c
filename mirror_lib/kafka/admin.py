"""The one door to kafka-python outside `log`: questions and orders in, our own frozen answers out."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.kafka.acls import ClusterAcls
from mirror_lib.kafka.groups import ClusterGroups
from mirror_lib.kafka.topics import ClusterTopics


class KafkaCluster(ClusterTopics, ClusterGroups, ClusterAcls):
    """A `Cluster`, a `GroupCluster` and an `AclCluster` that ask real brokers. Connecting happens on construction.

    Use it as a context manager. Raises ClusterError where no broker answers, here and in every method.
    """

    def __enter__(self) -> KafkaCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def clusters_of(flow: ReplicationFlow) -> Iterator[Tuple[KafkaCluster, KafkaCluster]]:
    """Source and target of a flow, connected, each as patient as its `admin.timeout.ms` says."""
    patience = flow.admin_timeout
    with KafkaCluster(flow.source, patience) as source, KafkaCluster(flow.target, patience) as target:
        yield source, target
