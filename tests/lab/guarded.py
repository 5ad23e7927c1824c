"""A real broker with passwords and ACLs, and connections to it under different names."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator

from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.brokers import KafkaBroker, running
from tests.lab.ports import free_ports

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PLAIN_LOGIN = (
    f'{PLAIN_MODULE} required username="admin" password="admin-secret" '
    'user_admin="admin-secret" user_mirror="mirror-secret";'
)
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": PLAIN_LOGIN,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}


class GuardedBroker(KafkaBroker):
    """`admin` may do everything, `mirror` only what a test grants."""

    def answers(self) -> bool:
        try:
            with login(self, "admin", answer_seconds=2) as cluster:
                return cluster.cluster_id() == self.cluster_id
        except ClusterError:
            return False


@contextmanager
def guarded_cluster(directory: Path) -> Iterator[GuardedBroker]:
    """One such broker, in a folder of its own below `directory`, killed on the way out."""
    port, controller_port = free_ports(2)
    # Two files of tests may ask for one in the same folder: what the first left is of another cluster.
    own = Path(tempfile.mkdtemp(prefix="guarded-", dir=directory))
    with running(GuardedBroker("guarded", own, port, controller_port, PROPERTIES)) as (broker,):
        yield broker


def login(broker: KafkaBroker, user: str, answer_seconds: float = 60) -> KafkaCluster:
    return KafkaCluster(login_config(broker, user), answer_seconds)


def login_config(broker: KafkaBroker, user: str) -> ClusterConfig:
    jaas = f'{PLAIN_MODULE} required username="{user}" password="{user}-secret";'
    secured = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    return ClusterConfig("guarded", {"bootstrap.servers": broker.bootstrap, **secured})


def client_settings(user: str) -> Dict[str, str]:
    """What librdkafka needs to log in as `user`, for `read_topic` and producers."""
    secured = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    return {**secured, "sasl.username": user, "sasl.password": f"{user}-secret"}


def admin_of(broker: KafkaBroker) -> KafkaAdminClient:
    """The library's client, logged in as `admin`; close it, or use it as a context manager."""
    return KafkaAdminClient(
        bootstrap_servers=broker.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN",
        sasl_plain_username="admin", sasl_plain_password="admin-secret",
    )  # fmt: skip


def allow(broker: GuardedBroker, name: str, operation: ACLOperation, kind: ResourceType = ResourceType.TOPIC) -> None:
    """Grant `mirror` one operation on one topic or group."""
    pattern = ResourcePattern(kind, name)
    with admin_of(broker) as client:
        granted = client.create_acls([ACL("User:mirror", "*", operation, ACLPermissionType.ALLOW, pattern)])
    assert granted["failed"] == []
