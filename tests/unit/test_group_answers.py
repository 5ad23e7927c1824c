from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
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
    reason,
)

AWAY, DENIED = CoordinatorNotAvailableError(), GroupAuthorizationFailedError()
SILENT, LOCKED_OUT = Disconnected("B: no answer"), Disconnected("B: a wrong password")
LOCKED_OUT.retriable = False


@pytest.mark.parametrize(
    ("protocol_type", "group_type", "expected"),
    [
        ("consumer", "classic", True),
        ("consumer", "Classic", True),
        ("consumer", "consumer", True),
        ("", "classic", True),
        ("consumer", "", True),
        ("connect", "classic", False),
        ("sr", "", False),
        ("share", "share", False),
        ("streams", "streams", False),
        ("consumer", "a type of tomorrow", False),
    ],
)
def test_only_consumer_groups_are_taken_from_a_list(protocol_type: str, group_type: str, expected: bool) -> None:
    group = ListGroupsResponse.ListedGroup(group_id="g", protocol_type=protocol_type, group_type=group_type)
    assert is_consumer_group(group) is expected


def test_one_groups_lasting_failure_does_not_hold_the_others_up() -> None:
    assert blocking_error(["answer", DENIED], patient=True) is None
    assert blocking_error([DENIED], patient=True) is None


def test_a_coordinator_that_is_away_is_waited_for_only_for_a_while() -> None:
    assert blocking_error(["answer", AWAY], patient=True) is AWAY
    assert blocking_error(["answer", AWAY], patient=False) is None
    assert blocking_error([AWAY], patient=False) is None
    assert blocking_error(["answer", SILENT], patient=False) is None


def test_a_cluster_that_is_silent_altogether_or_locks_the_client_out_never_counts_as_answered() -> None:
    assert blocking_error([SILENT, SILENT], patient=False) is SILENT
    assert blocking_error(["answer", LOCKED_OUT], patient=True) is LOCKED_OUT


def test_what_another_protocol_assigned_is_kept_as_it_is() -> None:
    member = DescribeGroupsResponse.DescribedGroup.DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b"\x00\x06mirror\x00"
    )
    worker, reader = (
        described(described_group(protocol_type=kind, members=[member])) for kind in ("connect", "consumer")
    )
    assert isinstance(worker, ConsumerGroup) and worker.members == (GroupMember("/h", b"\x00\x06mirror\x00"),)
    assert isinstance(reader, ConsumerGroup) and reader.members == (GroupMember("/h"),)


def test_an_absent_group_is_none_in_every_version_of_the_answer() -> None:
    dead = described_group(group_state="Dead")
    unknown = described_group(group_state="Dead", error_code=69)
    for each in (dead, unknown):
        assert described(each) is None


def test_partitions_without_an_offset_are_left_out_and_missing_metadata_is_empty() -> None:
    assert committed(fetched_group([(0, 5, None, 0), (1, -1, "", 0), (2, 0, "text", 0)])) == {
        ("t", 0): CommittedOffset(5, ""),
        ("t", 2): CommittedOffset(0, "text"),
    }


def test_a_refused_partition_does_not_hide_the_groups_other_offsets_but_a_passing_error_is_asked_again() -> None:
    assert committed(fetched_group([(0, -1, "", 29), (1, 7, "", 0)])) == {("t", 1): CommittedOffset(7)}
    again = committed(fetched_group([(0, -1, "", 88), (1, 7, "", 0)]))
    assert isinstance(again, KafkaError)


def test_a_refusal_says_what_it_means_with_kafkas_name() -> None:
    assert reason(25, "Read") == "UNKNOWN_MEMBER_ID: the group has members, so it is in use on this cluster"
    assert reason(29, "Read") == "TOPIC_AUTHORIZATION_FAILED: not allowed: grant Read on the topic to this principal"
    assert reason(KafkaConnectionError("socket disconnected"), "Read").count("socket disconnected") == 1


def described_group(**fields: Any) -> Any:
    given = {"group_id": "g", "group_state": "Stable", "protocol_type": "", "error_code": 0, "members": [], **fields}
    return DescribeGroupsResponse.DescribedGroup(**given)


def fetched_group(partitions: Any) -> Any:
    of_group = OffsetFetchResponse.OffsetFetchResponseGroup
    of_topic = of_group.OffsetFetchResponseTopics
    rows = [
        of_topic.OffsetFetchResponsePartitions(
            partition_index=number, committed_offset=offset, metadata=metadata, error_code=code
        )
        for number, offset, metadata, code in partitions
    ]
    return of_group(group_id="g", error_code=0, topics=[of_topic(name="t", partitions=rows)])
