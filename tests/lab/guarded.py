"""A real broker with passwords and ACLs, connections to it under different names, and the rows of
docs/deploy/permissions.md as ACLs for the principals that use them."""

from __future__ import annotations

import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Iterator, List

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.brokers import KafkaBroker, free_ports, running
from tests.lab.checkout import ROOT
from tests.lab.secured import acl

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


# What librdkafka needs to log in as `admin`, for `read_topic` and producers.
ADMIN = {
    **{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
    **{"sasl.username": "admin", "sasl.password": "admin-secret"},
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


_ROW = re.compile(r"\| ([^|]+) \| ([AB])(?: or [AB])? \| ([^|]+) \| ([\w, ]*?) ?\|[^|]*\|")
_RESOURCE = re.compile(r"(Topic|Group|Cluster|TransactionalId) `([^`]+)`")


@dataclass(frozen=True)
class Right:
    """One operation of a row."""

    feature: str
    cluster: str
    kind: str
    name: str
    operation: str

    def acl(self, user: str) -> ACL:
        return acl(user, self.operation, self.kind, self.name.rstrip("*"), prefixed=self.name.endswith("*"))


def _table(number: int) -> List[Right]:
    """Every operation of one of the page's tables; `A or B` as A, and the first name where a row has others."""
    text = (ROOT / "docs" / "deploy" / "permissions.md").read_text(encoding="utf-8")
    table = [part for part in text.split("\n\n") if part.startswith("| feature |")][number]
    found = [_ROW.fullmatch(line) for line in table.splitlines()[2:]]
    assert all(found), table
    return [
        Right(row.group(1), row.group(2), kind, name, operation.strip())
        for row in found if row is not None
        for kind, name in _RESOURCE.findall(row.group(3))
        for operation in row.group(4).split(",")
    ]  # fmt: skip


def rights() -> List[Right]:
    return _table(0)


def further_rights() -> List[Right]:
    """Those of the second table, whose features are without backticks."""
    return [replace(each, feature=each.feature.replace("`", "")) for each in _table(1)]


def grant(admin: KafkaAdminClient, acls: List[ACL]) -> None:
    assert admin.create_acls(acls)["failed"] == []


def take(admin: KafkaAdminClient, one: ACL) -> None:
    """Take one away again; it must have been there."""
    same = ACLFilter(one.principal, "*", ACLOperation(one.operation), ACLPermissionType.ALLOW, one.resource_pattern)
    ((_, matched, _),) = admin.delete_acls([same])
    assert len(matched) == 1


def granted(admin: KafkaAdminClient, user: str) -> List[ACL]:
    anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    found, _ = admin.describe_acls(ACLFilter(f"User:{user}", None, ACLOperation.ANY, ACLPermissionType.ANY, anything))
    return list(found)
