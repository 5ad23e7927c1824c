"""`mirror doctor` on clusters with ACLs: what docs/deploy/permissions.md grants is enough, and each missing permission
is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror_lib.facts import NewTopic
from tests.integration.conftest import Command, Done
from tests.lab.flow_lab import Servers, small_config
from tests.lab.guarded import admin_of, guarded_cluster, login, login_config
from tests.lab.one_flow import until
from tests.lab.rights_page import grant, rights, take

FLOW = {
    **{"topics": "[orders]", "groups": "[billing]"},
    **{"sync.group.offsets.enabled": "true", "emit.checkpoints.enabled": "false"},
}
MISSING = [
    ("orders", "Read", "topics", "copies no topic"),
    ("A.*", "Create", "create-topic", "cannot be created"),
    ("mirror.A->B.*", "Write", "acl-transactional-id", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
]


class Doctor:
    """`mirror doctor` about `A->B`."""

    def __init__(self, folder: Path, command: Command, servers: Servers) -> None:
        self.command = command
        self.path = small_config(folder, "mirror", servers, FLOW, flows=["A->B"], state=folder / "state")

    def checks(self) -> Done:
        return self.command("doctor", self.path, "--no-spark", "--json")

    def reports(self, code: str, said: str) -> bool:
        found = [each for each in self.checks().documents if each["code"] == code and each["level"] != "ok"]
        return any(said in each["detail"] for each in found)


def test_missing_permission_is_named_and_the_rights_of_the_page_are_enough(tmp_path: Path, command: Command) -> None:
    """One broker stands for both clusters: the remote topics have names of their own."""
    page = [each for each in rights() if not each.feature.startswith(("`sync.topic.acls", "heartbeats"))]
    acls = {(each.name, each.operation): each.acl("mirror") for each in page}
    with guarded_cluster(tmp_path) as broker, login(broker, "admin") as connection, admin_of(broker) as admin:
        connection.create_topics([NewTopic("orders", 2, 1), NewTopic("secret", 1, 1)])
        properties = login_config(broker, "mirror").properties
        doctor = Doctor(tmp_path, command, {"A": properties, "B": properties})
        grant(admin, list({repr(each.acl("mirror")): each.acl("mirror") for each in page}.values()))
        until(lambda: doctor.checks().code == 0)
        for name, operation, code, said in MISSING:
            take(admin, acls[name, operation])
            until(lambda code=code, said=said: doctor.reports(code, said))  # type: ignore[misc]
            grant(admin, [acls[name, operation]])


def test_cluster_that_does_not_answer_blocks(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirror_lib.doctor.cluster_checks.ANSWER_SECONDS", 2.0)
    done = Doctor(tmp_path, command, {"A": "127.0.0.1:9", "B": "127.0.0.1:10"}).checks()
    checks = done.documents
    assert done.code == 1
    assert [(each["subject"], each["code"], each["level"]) for each in checks[1:]] == [
        ("A", "login", "blocking"),
        ("B", "login", "blocking"),
    ]
    assert all("cannot reach" in each["detail"] and each["remedy"] for each in checks[1:])
