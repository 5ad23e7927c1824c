"""What follows from permissions and settings that were read: levels, the ACL or setting that is missing by name."""

from __future__ import annotations

from typing import FrozenSet, Optional

import pytest

from mirror_lib.doctor.checks import BLOCKING, OK, WARNING, collisions, missing_operations

READ = frozenset({"READ", "DESCRIBE"})


@pytest.mark.parametrize(
    ("granted", "level", "said"),
    [
        (READ | {"ALTER_CONFIGS"}, OK, "granted on 1 topic"),
        (frozenset({"ALL"}), OK, "granted on 1 topic"),
        (READ, BLOCKING, "DescribeConfigs is not granted on 1 of 1 topics: orders"),
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


def test_remote_topic_of_two_flows_blocks_the_flow_that_does_not_share() -> None:
    both = {"C: orders": ["A->C", "B->C"], "C: audit": ["A->C"]}
    assert [each.subject for each in collisions(both, frozenset())] == ["A->C"]
    assert [each.subject for each in collisions(both, frozenset({"A->C"}))] == ["B->C"]
    assert list(collisions(both, frozenset({"A->C", "B->C"}))) == []
