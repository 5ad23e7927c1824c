"""`mirror doctor` on clusters with ACLs: what docs/deploy/permissions.md grants is enough, and each missing permission
is named."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from mirror_lib.cli import main
from mirror_lib.facts import NewTopic
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.guarded import GuardedBroker, admin_of, guarded_cluster, login_config
from tests.lab.one_flow import until
from tests.lab.rights_page import Right, grant, granted, rights, take

Brokers = Dict[str, GuardedBroker]
CONFIG = """\
clusters: {clusters}
flows:
  A->B:
    topics: [orders]
    groups: [billing]
    replication.factor: 1
    sync.group.offsets.enabled: true
    emit.checkpoints.enabled: false
state: {state}
"""


@pytest.fixture(scope="module")
def brokers(lab_directory: Path) -> Iterator[Brokers]:
    with ExitStack() as stack:
        found = {name: stack.enter_context(guarded_cluster(lab_directory)) for name in "AB"}
        with KafkaCluster(login_config(found["A"], "admin")) as admin:
            admin.create_topics([NewTopic("orders", 2, 1), NewTopic("secret", 1, 1)])
        yield found


def doctor(brokers: Brokers, folder: Path, capsys: pytest.CaptureFixture[str]) -> Tuple[int, List[Dict[str, Any]]]:
    clusters = {each: login_config(broker, "mirror").client_properties("consumer") for each, broker in brokers.items()}
    path = folder / "mirror.yaml"
    path.write_text(CONFIG.format(clusters=json.dumps(clusters), state=folder / "state"))
    capsys.readouterr()
    code = main(["doctor", str(path), "--no-spark", "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def allow(broker: GuardedBroker, wanted: List[Right]) -> None:
    """Grant these to the mirror and nothing else."""
    with admin_of(broker) as admin:
        for old in granted(admin, "mirror"):
            take(admin, old)
        grant(admin, list({repr(each): each.acl("mirror") for each in wanted}.values()))


@pytest.mark.parametrize(
    ("cluster", "name", "operation", "code", "said"),
    [
        ("A", "orders", "Read", "topics", "copies no topic"),
        ("B", "A.*", "Create", "create-topic", "cannot be created"),
        ("B", "mirror.A->B.*", "Write", "acl-transactional-id", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ],
)
def test_missing_permission_is_named_and_the_rights_of_the_page_are_enough(
    brokers: Brokers, tmp_path: Path, capsys: pytest.CaptureFixture[str], cluster: str, name: str, operation: str,
    code: str, said: str,
) -> None:  # fmt: skip
    page = [each for each in rights() if not each.feature.startswith(("`sync.topic.acls", "heartbeats"))]
    for each in "AB":
        allow(brokers[each], [right for right in page if right.cluster == each])
    until(lambda: doctor(brokers, tmp_path, capsys)[0] == 0)
    missing = [each for each in page if (each.cluster, each.name, each.operation) != (cluster, name, operation)]
    assert len(missing) == len(page) - 1
    allow(brokers[cluster], [right for right in missing if right.cluster == cluster])

    def reported() -> bool:
        checks = doctor(brokers, tmp_path, capsys)[1]
        return any(each["code"] == code and each["level"] != "ok" and said in each["detail"] for each in checks)

    until(reported)


def test_cluster_that_does_not_answer_and_a_listener_that_is_not_reached_block(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mirror.yaml"
    clusters = {"A": {"bootstrap.servers": "127.0.0.1:9"}, "B": {"bootstrap.servers": "127.0.0.1:10"}}
    path.write_text(CONFIG.format(clusters=json.dumps(clusters), state=tmp_path / "state"))
    assert main(["doctor", str(path), "--no-spark", "--json"]) == 1
    checks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["subject"], each["code"], each["level"]) for each in checks[1:]] == [
        ("A", "login", "blocking"),
        ("B", "login", "blocking"),
    ]
    assert all("cannot reach" in each["detail"] and each["remedy"] for each in checks[1:])
