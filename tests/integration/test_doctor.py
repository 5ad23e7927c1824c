"""`mirror doctor` on clusters with ACLs: what docs/deploy/permissions.md grants is enough, and each missing permission
is named."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
from kafka.protocol.admin import AlterClientQuotasRequest

from mirror_lib.cli import main
from mirror_lib.facts import NewTopic
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.guarded import GuardedBroker, guarded_cluster, login_config
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
    with KafkaCluster(login_config(broker, "admin")) as cluster:
        admin = cluster._client
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


def set_quota(broker: GuardedBroker, key: str, value: Optional[float]) -> None:
    """The quota of all users without one of their own; `None` removes it."""
    kind = AlterClientQuotasRequest.EntryData
    limit = kind.OpData(key=key, value=value or 0.0, remove=value is None)
    entry = kind(entity=[kind.EntityData(entity_type="user", entity_name=None)], ops=[limit])
    with KafkaCluster(login_config(broker, "admin")) as cluster:
        (answer,) = cluster._exchange([(None, AlterClientQuotasRequest(entries=[entry], validate_only=False))])
    assert not answer.entries[0].error_code, answer


def test_default_quota_of_the_brokers_is_a_warning_and_not_known_where_that_may_not_be_asked(
    brokers: Brokers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def on_target() -> Tuple[str, str]:
        checks = doctor(brokers, tmp_path, capsys)[1]
        (found,) = [each for each in checks if (each["subject"], each["code"]) == ("B", "quotas")]
        return found["level"], found["detail"]

    page = [each for each in rights() if each.cluster == "B"]
    allow(brokers["B"], [each for each in page if each.kind != "Cluster"])
    until(lambda: "cannot read" in on_target()[1])
    allow(brokers["B"], [*page, Right("doctor", "B", "Cluster", "kafka-cluster", "DescribeConfigs")])
    until(lambda: on_target()[0] == "ok" and "cannot read" not in on_target()[1])
    set_quota(brokers["B"], "consumer_byte_rate", 1000.0)  # the mirror is a producer there
    set_quota(brokers["B"], "producer_byte_rate", 1_500_000.0)
    until(lambda: on_target()[0] == "warning")
    assert "1.5 MB/s" in on_target()[1]
    set_quota(brokers["B"], "producer_byte_rate", None)
    until(lambda: on_target()[0] == "ok")


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
