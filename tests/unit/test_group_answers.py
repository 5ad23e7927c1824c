"""Answers of group coordinators: which groups count, which errors block a read, and what an answer holds."""

from __future__ import annotations

from itertools import product
from typing import Any, List, Optional

import pytest
from kafka.errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    KafkaError,
)
from kafka.protocol.admin import DescribeGroupsResponse, ListGroupsResponse
from kafka.protocol.consumer import OffsetFetchResponse

from mirror_lib.facts import CommittedOffset, ConsumerGroup, GroupMember
from mirror_lib.kafka.connection import Disconnected
from mirror_lib.kafka.groups import (
    blocking_error,
    committed,
    described,
    is_consumer_group,
)

AWAY, DENIED = CoordinatorNotAvailableError(), GroupAuthorizationFailedError()
SILENT, LOCKED_OUT = Disconnected("B: no answer"), Disconnected("B: a wrong password")
LOCKED_OUT.retriable = False


def test_only_consumer_groups_are_taken_from_a_list() -> None:
    listed = ListGroupsResponse.ListedGroup
    for protocols, group_types, expected in (
        (("consumer", ""), ("classic", "Classic", ""), True),
        (("consumer",), ("consumer",), True),
        (("consumer",), ("a type of tomorrow",), False),
        (("connect", "sr"), ("classic", ""), False),
        (("share",), ("share",), False),
        (("streams",), ("streams",), False),
    ):
        for protocol, group_type in product(protocols, group_types):
            group = listed(group_id="g", protocol_type=protocol, group_type=group_type)
            assert is_consumer_group(group) is expected, (protocol, group_type)


@pytest.mark.parametrize(
    ("answers", "patient", "blocking"),
    [
        pytest.param(["answer", DENIED], True, None, id="a lasting failure of one group"),
        pytest.param([DENIED], True, None, id="a lasting failure of the only group"),
        pytest.param(["answer", AWAY], True, AWAY, id="a coordinator that is away, at first"),
        pytest.param(["answer", AWAY], False, None, id="a coordinator that is away for long"),
        pytest.param([AWAY], False, None, id="the only coordinator"),
        pytest.param(["answer", SILENT], False, None, id="a silent broker"),
        pytest.param([SILENT, SILENT], False, SILENT, id="a silent cluster"),
        pytest.param(["answer", LOCKED_OUT], True, LOCKED_OUT, id="a refused login"),
    ],
)
def test_an_error_blocks_a_read_only_where_it_may_pass_or_is_the_clusters(
    answers: List[Any], patient: bool, blocking: Optional[KafkaError]
) -> None:
    assert blocking_error(answers, patient) is blocking


def test_assignment_of_another_protocol_stays_as_it_is() -> None:
    member = DescribeGroupsResponse.DescribedGroup.DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b"\x00\x06mirror\x00"
    )
    worker, reader = (
        described(described_group(protocol_type=kind, members=[member])) for kind in ("connect", "consumer")
    )
    assert isinstance(worker, ConsumerGroup) and worker.members == (GroupMember("/h", b"\x00\x06mirror\x00"),)
    assert isinstance(reader, ConsumerGroup) and reader.members == (GroupMember("/h"),)


def test_offsets_of_a_group_are_those_that_exist_and_may_be_read() -> None:
    rows = [(0, 5, None, 0), (1, -1, "", 0), (2, 0, "text", 0), (3, -1, "", 29)]
    assert committed(fetched_group(rows)) == {("t", 0): CommittedOffset(5, ""), ("t", 2): CommittedOffset(0, "text")}
    assert isinstance(committed(fetched_group([*rows, (4, -1, "", 88)])), KafkaError), "an error that may pass"


def test_group_that_may_not_be_read_is_not_one_without_offsets() -> None:
    """Describe was taken back after the coordinator was found: a copy would start from elsewhere."""
    assert committed(fetched_group([], error_code=69)) == {}, "an absent group"
    for code in (30, 16, 24):
        assert isinstance(committed(fetched_group([], error_code=code)), KafkaError)


def described_group(**fields: Any) -> Any:
    given = {"group_id": "g", "group_state": "Stable", "protocol_type": "", "error_code": 0, "members": [], **fields}
    return DescribeGroupsResponse.DescribedGroup(**given)


def fetched_group(partitions: Any, error_code: int = 0) -> Any:
    of_group = OffsetFetchResponse.OffsetFetchResponseGroup
    of_topic = of_group.OffsetFetchResponseTopics
    rows = [
        of_topic.OffsetFetchResponsePartitions(
            partition_index=number, committed_offset=offset, metadata=metadata, error_code=code
        )
        for number, offset, metadata, code in partitions
    ]
    return of_group(group_id="g", error_code=error_code, topics=[of_topic(name="t", partitions=rows)])
