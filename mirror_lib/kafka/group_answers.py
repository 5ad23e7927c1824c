"""What coordinators answer about groups in; our own frozen facts, or sentences about refusals, out. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Callable, FrozenSet, Iterable, Mapping, Optional, Sequence, Union

from kafka.errors import KafkaError, for_code
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from mirror_lib.facts import CommittedOffset, ConsumerGroup, GroupMember, TopicPartition

Offsets = Mapping[TopicPartition, CommittedOffset]
Codes = Mapping[TopicPartition, int]

OK, UNKNOWN_TOPIC, UNSUPPORTED, NOT_FOUND = 0, 3, 35, 69
NONE_COMMITTED = -1
CONSUMER_PROTOCOL, NO_PROTOCOL = "consumer", ""
CONSUMER_TYPES = ("", "classic", "consumer")  # brokers before 3.7 name no type

_IN_USE = "the group has members, so it is in use on this cluster"
_REASONS = {
    "UNKNOWN_MEMBER_ID": _IN_USE,
    "ILLEGAL_GENERATION": _IN_USE,
    "REBALANCE_IN_PROGRESS": _IN_USE,
    "STALE_MEMBER_EPOCH": _IN_USE,
    "FENCED_MEMBER_EPOCH": _IN_USE,
    "NON_EMPTY_GROUP": _IN_USE,
    "GROUP_SUBSCRIBED_TO_TOPIC": "the group has members that read this topic",
    "GROUP_AUTHORIZATION_FAILED": "not allowed: grant {right} on the group to this principal",
    "TOPIC_AUTHORIZATION_FAILED": "not allowed: grant Read on the topic to this principal",
    "UNKNOWN_TOPIC_OR_PARTITION": "there is no such partition on this cluster",
    "OFFSET_METADATA_TOO_LARGE": "the metadata is longer than the brokers' offset.metadata.max.bytes",
    "GROUP_ID_NOT_FOUND": "this group is not a consumer group",
}


@dataclass(frozen=True)
class Failure:
    """Why there is no answer for a group or broker. `heard`: a broker said so, it did not just stay silent."""

    error: KafkaError
    heard: bool = True

    @classmethod
    def of(cls, code: int) -> Failure:
        """From Kafka's error code."""
        return cls(for_code(code)())


def may_pass(outcome: Any) -> bool:
    """Whether it is worth asking again: a Failure that Kafka calls retriable."""
    return isinstance(outcome, Failure) and bool(outcome.error.retriable)


def standing_in_the_way(outcomes: Sequence[Any], patient: bool) -> Optional[KafkaError]:
    """The error because of which the answers that came are not enough; `None` where they are.

    A client that is refused at all, a cluster that is silent altogether, and, while `patient`, whatever may pass.
    """
    failures = [each for each in outcomes if isinstance(each, Failure)]
    refused = [each for each in failures if not each.heard and not may_pass(each)]
    passing = [each for each in failures if may_pass(each)]
    silent = len(failures) == len(outcomes) and not any(each.heard for each in failures)
    waited_for = passing if patient or silent else []
    return next((each.error for each in [*refused, *waited_for]), None)


def is_consumer_group(listed: Any) -> bool:
    """Whether an entry of ListGroups is a consumer group, or offsets without one (protocol type `""`)."""
    known_type = (listed.group_type or "").lower() in CONSUMER_TYPES
    return known_type and listed.protocol_type in (CONSUMER_PROTOCOL, NO_PROTOCOL)


def described(answer: Any, group_of: Callable[[Any], Optional[ConsumerGroup]]) -> Mapping[str, Any]:
    """By group; `None` where the broker knows none of this kind under that name."""

    def outcome(group: Any) -> Union[ConsumerGroup, Failure, None]:
        if group.error_code in (NOT_FOUND, UNSUPPORTED):
            return None
        return Failure.of(group.error_code) if group.error_code else group_of(group)

    return {each.group_id: outcome(each) for each in answer.groups}


def classic_group(group: Any) -> Optional[ConsumerGroup]:
    """One group of DescribeGroups. Members of another protocol, such as Connect's, come without partitions."""
    if group.group_state == "Dead":  # how brokers before DescribeGroups version 6 say that there is none
        return None
    is_consumers = group.protocol_type == CONSUMER_PROTOCOL
    members = (
        GroupMember(
            each.member_id,
            each.client_id,
            each.client_host,
            _classic_assignment(each.member_assignment) if is_consumers else frozenset(),
            b"" if is_consumers else bytes(each.member_assignment or b""),
        )
        for each in group.members
    )
    return ConsumerGroup(group.group_id, group.group_state, group.protocol_type == NO_PROTOCOL, tuple(members))


def consumer_group(group: Any) -> Optional[ConsumerGroup]:
    """One group of ConsumerGroupDescribe (KIP-848)."""
    members = (
        GroupMember(each.member_id, each.client_id, each.client_host, _assignment(each.assignment))
        for each in group.members
    )
    return ConsumerGroup(group.group_id, group.group_state, False, tuple(members))


def committed(group: Any) -> Union[Offsets, Failure]:
    """One group of OffsetFetch. Partitions without an offset are left out."""
    if group.error_code == NOT_FOUND:
        return {}
    partitions = [(topic.name, each) for topic in group.topics for each in topic.partitions]
    failure = _failure([group.error_code, *(each.error_code for _, each in partitions)])
    return failure or {
        (topic, each.partition_index): CommittedOffset(each.committed_offset, each.metadata or "")
        for topic, each in partitions
        if each.committed_offset != NONE_COMMITTED and each.error_code == OK
    }


def ordered(answer: Any, partitions: Sequence[TopicPartition]) -> Union[Codes, Failure]:
    """OffsetCommit's or OffsetDelete's error codes by partition. An absent group has no offsets to delete."""
    whole = getattr(answer, "error_code", OK)  # OffsetDelete has one for all
    if whole == NOT_FOUND:
        return dict.fromkeys(partitions, OK)
    if whole != OK:
        return Failure.of(whole)
    codes = {
        (topic.name, part.partition_index): part.error_code for topic in answer.topics for part in topic.partitions
    }
    return _failure(codes.values()) or codes


def reason(error: Union[int, KafkaError], right: str) -> str:
    """What a refusal means, with Kafka's name for it. `right` is what the question asks for on the group."""
    known = for_code(error) if isinstance(error, int) else error
    name = getattr(known, "message", None)
    if name is None:  # the client's own errors have no name in the protocol
        return str(known)
    meaning = _REASONS[name].format(right=right) if name in _REASONS else known.description
    return f"{name}: {meaning}"


def _failure(codes: Iterable[int]) -> Optional[Failure]:
    """The first error that another try, perhaps of another coordinator, may not meet; `None` where there is none."""
    passing = (code for code in codes if code not in (OK, UNKNOWN_TOPIC) and for_code(code).retriable)
    first = next(passing, None)
    return None if first is None else Failure.of(first)


def _assignment(assignment: Any) -> FrozenSet[TopicPartition]:
    return frozenset((each.topic_name, number) for each in assignment.topic_partitions for number in each.partitions)


def _classic_assignment(written: Optional[bytes]) -> FrozenSet[TopicPartition]:
    """The group's leader wrote it, so it can be anything. Empty outside the state Stable."""
    try:
        decoded = ConsumerProtocolAssignment.decode(written) if written else None
    except (struct.error, ValueError, IndexError):
        return frozenset()
    topics = decoded.assigned_partitions if decoded else ()
    return frozenset((each.topic, number) for each in topics for number in each.partitions)
