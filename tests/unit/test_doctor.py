"""What follows from permissions and settings that were read: levels, the ACL or setting that is missing by name."""

from __future__ import annotations

from typing import FrozenSet, List, Optional, Tuple

import pytest

from mirror_lib.doctor.checks import (
    BLOCKING,
    OK,
    WARNING,
    Check,
    collisions,
    durability,
    missing_operations,
    time_of_copy,
    timestamps,
)

READ = frozenset({"READ", "DESCRIBE"})


def found(checks: List[Check]) -> List[Tuple[str, str]]:
    return [(each.level, each.code) for each in checks]


@pytest.mark.parametrize(
    ("granted", "level", "said"),
    [
        (READ | {"DESCRIBE_CONFIGS"}, OK, "granted on 1 topic"),
        (READ | {"ALTER_CONFIGS"}, OK, "granted on 1 topic"),
        (frozenset({"ALL"}), OK, "granted on 1 topic"),
        (READ, BLOCKING, "DescribeConfigs is not granted on 1 of 1 topics: orders"),
        (frozenset({"DESCRIBE_CONFIGS"}), BLOCKING, "Read is not granted on 1 of 1 topics: orders"),
        (None, WARNING, "do not report"),
    ],
)
def test_missing_operation_is_named_with_the_command_that_grants_it(
    granted: Optional[FrozenSet[str]], level: str, said: str
) -> None:
    (check,) = missing_operations("A->B", "topic", {"orders": ("READ", "DESCRIBE_CONFIGS")}, {"orders": granted})
    assert check.level == level and said in check.detail
    if level == BLOCKING:
        operation = check.detail.split()[0]
        assert f"kafka-acls --add --allow-principal PRINCIPAL --operation {operation} --topic orders" == check.remedy


def test_topic_that_may_not_be_described_lacks_every_operation() -> None:
    wanted = {"orders": ("READ",), "audit": ("READ",)}
    (check,) = missing_operations("A->B", "topic", wanted, {"orders": READ})
    assert check.detail == "Read is not granted on 1 of 2 topics: audit"
    assert list(missing_operations("A->B", "topic", {}, {})) == []


def test_settings_that_lose_acknowledged_records_are_warned_of() -> None:
    good = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    assert found(list(durability("B", {"t": good}, 3))) == [(OK, "durability")]
    single = {"t": {**good, "min.insync.replicas": "1"}}
    assert found(list(durability("B", single, 3))) == [(WARNING, "min-insync-replicas")]
    assert found(list(durability("B", single, 1))) == [(OK, "durability")]
    unclean = {"t": {**good, "unclean.leader.election.enable": "true"}}
    assert found(list(durability("B", unclean, 3))) == [(WARNING, "unclean-election")]
    stamped = {"t": {"message.timestamp.type": "LogAppendTime"}, "u": {"message.timestamp.type": "CreateTime"}}
    assert found(list(timestamps("B", stamped))) == [(WARNING, "timestamps")]


def test_remote_topic_of_two_flows_blocks_the_flow_that_does_not_share() -> None:
    both = {"C: orders": ["A->C", "B->C"], "C: audit": ["A->C"]}
    assert [each.subject for each in collisions(both, frozenset())] == ["A->C"]
    assert [each.subject for each in collisions(both, frozenset({"A->C"}))] == ["B->C"]
    assert list(collisions(both, frozenset({"A->C", "B->C"}))) == []


@pytest.mark.parametrize(
    ("nbytes", "bound", "kept", "expected"),
    [
        (None, None, None, []),
        (10**9, None, None, [(OK, "backlog")]),
        (10**9, 10**6, 10 * 86_400.0, [(OK, "backlog"), (OK, "retention")]),
        (10**12, 10**6, 2 * 86_400.0, [(OK, "backlog"), (WARNING, "retention")]),
        (None, None, 3600.0, [(WARNING, "retention")]),
        (None, None, -5.0, [(WARNING, "retention")]),
    ],
)
def test_retention_against_the_time_of_the_copy(
    nbytes: Optional[int], bound: Optional[int], kept: Optional[float], expected: List[Tuple[str, str]]
) -> None:
    assert found(list(time_of_copy("A->B", nbytes, bound, kept, "orders-0"))) == expected
