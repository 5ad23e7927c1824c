"""The one door to kafka-python outside `log`: questions and orders in, our own frozen answers out."""

from __future__ import annotations

from mirror_lib.cluster.acls import ClusterAcls
from mirror_lib.cluster.groups import ClusterGroups
from mirror_lib.cluster.topics import ClusterTopics


class KafkaCluster(ClusterTopics, ClusterGroups, ClusterAcls):
    """A `Cluster`, a `GroupCluster` and an `AclCluster` that ask real brokers. Connecting happens on construction.

    Use it as a context manager. Raises ClusterError where no broker answers, here and in every method.
    """

    def __enter__(self) -> KafkaCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
