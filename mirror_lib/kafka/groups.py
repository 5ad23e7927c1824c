"""Questions and orders about consumer groups and their committed offsets: Kafka's answers as our own frozen facts.

Groups do not stand in each other's way: one that stays without an answer is left out and named in the log.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from kafka.errors import KafkaError
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest

from mirror_lib.facts import CommittedOffset, ConsumerGroup, TopicPartition
from mirror_lib.kafka.admin_client import some
from mirror_lib.kafka.connection import by_topic
from mirror_lib.kafka.coordinators import GROUPS_PER_REQUEST, GroupCoordinators
from mirror_lib.kafka.group_answers import (
    OK,
    Failure,
    classic_group,
    committed,
    consumer_group,
    described,
    is_consumer_group,
    ordered,
    reason,
)

log = logging.getLogger(__name__)

Reasons = Mapping[TopicPartition, Optional[str]]
Again = Callable[[], bool]

# OffsetFetch asks for many groups at once from version 8 on (KIP-709); from version 10 on topics have ids, not names.
MANY_OFFSETS, LAST_WITH_TOPIC_NAMES = 8, 9
# Who commits with these is no member of the group.
NO_GENERATION, NO_MEMBER = -1, ""
DESCRIBE = "Describe on the group to this principal"
# A coordinator writes all of a request as one batch, of at most 1 MB where nobody set max.message.bytes. A position
# takes there, besides its names and its metadata, less than the second of these.
COMMIT_BYTES, POSITION_BYTES = 200_000, 100

Field = Dict[str, Any]

API_KEY = 69
# Version 1 only adds whether a member speaks the old protocol.
VERSION = 0


def _field(name: str, kind: str, *fields: Field) -> Field:
    return {"name": name, "type": kind, "versions": "0+", **({"fields": list(fields)} if fields else {})}


def _nullable(name: str) -> Field:
    return {**_field(name, "string"), "nullableVersions": "0+", "default": "null"}


def _message(kind: str, fields: List[Field]) -> Any:
    schema = {
        "apiKey": API_KEY,
        "type": kind,
        "name": f"ConsumerGroupDescribe{kind.title()}",
        "validVersions": str(VERSION),
        "flexibleVersions": "0+",
        "fields": fields,
    }
    # A message class takes its schema from a file of the library that is named like it; this one swaps it on the way.
    replaced = {"json_patch": classmethod(lambda _class, _file: schema)}
    return type(ApiMessage)(f"DescribeGroups{kind.title()}", (ApiMessage,), replaced)


def _assignment(name: str) -> Field:
    partitions = [_field("TopicId", "uuid"), _field("TopicName", "string"), _field("Partitions", "[]int32")]
    return _field(name, "Assignment", _field("TopicPartitions", "[]TopicPartitions", *partitions))


_MEMBER = [
    _field("MemberId", "string"),
    _nullable("InstanceId"),
    _nullable("RackId"),
    _field("MemberEpoch", "int32"),
    _field("ClientId", "string"),
    _field("ClientHost", "string"),
    _field("SubscribedTopicNames", "[]string"),
    _nullable("SubscribedTopicRegex"),
    _assignment("Assignment"),
    _assignment("TargetAssignment"),
]
_GROUP = [
    _field("ErrorCode", "int16"),
    _nullable("ErrorMessage"),
    _field("GroupId", "string"),
    _field("GroupState", "string"),
    _field("GroupEpoch", "int32"),
    _field("AssignmentEpoch", "int32"),
    _field("AssignorName", "string"),
    _field("Members", "[]Member", *_MEMBER),
    _field("AuthorizedOperations", "int32"),
]

ConsumerGroupDescribeRequest = _message(
    "request", [_field("GroupIds", "[]string"), _field("IncludeAuthorizedOperations", "bool")]
)
# Known by its number to the library, which reads the answers with it.
ConsumerGroupDescribeResponse = _message(
    "response", [_field("ThrottleTimeMs", "int32"), _field("Groups", "[]DescribedGroup", *_GROUP)]
)


class ClusterGroups(GroupCoordinators):
    """What can be asked and ordered about consumer groups. Every method raises ClusterError where no broker answers."""

    _unlisted: Mapping[str, Failure] = {}
    _undescribed: Mapping[str, Failure] = {}

    def group_names(self) -> Sequence[str]:
        """Consumer groups, sorted: classic, KIP-848 and simple ones; no share, streams or Connect groups."""

        def once(brokers: Sequence[int]) -> Mapping[int, Any]:
            answers = self._exchange([(broker, ListGroupsRequest()) for broker in brokers])
            return dict(zip(brokers, map(_listed, answers)))

        brokers = [each.node_id for each in self._live_cluster().brokers]
        listed, failed = self._settle("list groups", DESCRIBE, brokers, once)
        self._unlisted = {str(broker): each for broker, each in failed.items()}
        self._name("groups of brokers not listed", self._unlisted)
        return sorted({each.group_id for groups in listed.values() for each in groups if is_consumer_group(each)})

    def unlisted_brokers(self) -> Sequence[str]:
        """The brokers that did not say at the last `group_names` which groups they coordinate, by id."""
        return sorted(self._unlisted)

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, ConsumerGroup]:
        """State and members by group. Absent groups are left out."""

        def classic(names: Sequence[str]) -> Any:
            return DescribeGroupsRequest(groups=list(names), include_authorized_operations=False)

        def newer(names: Sequence[str]) -> Any:
            return ConsumerGroupDescribeRequest(group_ids=list(names), include_authorized_operations=False)

        found, failed = self._ask_for_groups(
            "describe groups", DESCRIBE, groups, classic, lambda answer, _: described(answer, classic_group)
        )
        # To this question the groups of KIP-848 do not exist, nor do classic groups to the other.
        absent = [group for group, each in found.items() if each is None]
        if absent and self._knows(ConsumerGroupDescribeRequest, 0):
            more, failed_too = self._ask_for_groups(
                "describe groups", DESCRIBE, absent, newer, lambda answer, _: described(answer, consumer_group)
            )
            found, failed = {**found, **more}, {**failed, **failed_too}
        self._undescribed = failed
        self._name("groups not described", failed)
        return {group: each for group, each in found.items() if each is not None}

    def undescribed_groups(self) -> Sequence[str]:
        """The groups of which nobody told at the last `describe_groups` whether there are such, sorted."""
        return sorted(self._undescribed)

    def committed_offsets(self, groups: Sequence[str]) -> Mapping[str, Mapping[TopicPartition, CommittedOffset]]:
        """Every committed offset by group. A group without any, or absent, has an empty mapping; one of which nobody
        told is left out.

        Not what a transaction committed that is still open, nor offsets of topics this principal may not describe.
        """
        many = self._knows(OffsetFetchRequest, MANY_OFFSETS)

        def request(names: Sequence[str]) -> Any:
            if not many:
                return OffsetFetchRequest(group_id=names[0], topics=None, min_version=2, max_version=MANY_OFFSETS - 1)
            of_group = OffsetFetchRequest.OffsetFetchRequestGroup
            asked = [of_group(group_id=name, topics=None) for name in names]
            return OffsetFetchRequest(groups=asked, min_version=MANY_OFFSETS, max_version=LAST_WITH_TOPIC_NAMES)

        def reading(answer: Any, names: Sequence[str]) -> Mapping[str, Any]:
            if not many:
                return {names[0]: committed(answer)}
            return {group.group_id: committed(group) for group in answer.groups}

        size = GROUPS_PER_REQUEST if many else 1
        found, failed = self._ask_for_groups("read committed offsets", DESCRIBE, groups, request, reading, size)
        self._name("no committed offsets of groups", failed)
        return found

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], again: Again = lambda: True
    ) -> Reasons:
        """Commit for a group without being a member: `None` where it is done, else the broker's reason.

        Kafka refuses it for a group with members, but takes any offset, also one beyond the end of the log. `again` is
        asked before each further attempt, as one without an answer may have been carried out, and before each further
        part of a request that is too large for one, where not all of the earlier parts was done.
        """
        reasons: Dict[TopicPartition, Optional[str]] = {}
        for share in _shares_of(offsets):
            refused = next(filter(None, reasons.values()), None)
            if refused is not None and not again():
                reasons.update(dict.fromkeys(share, refused))
            else:
                reasons.update(self._commit(group, share, again))
        return reasons

    def _commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], again: Again) -> Reasons:
        of_topic = OffsetCommitRequest.OffsetCommitRequestTopic

        def commit(topic: str, partition: int) -> Any:
            return of_topic.OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offsets[topic, partition].offset,
                committed_leader_epoch=-1,
                committed_metadata=offsets[topic, partition].metadata,
            )

        topics = [
            of_topic(name=topic, partitions=[commit(topic, number) for number in numbers])
            for topic, numbers in by_topic(offsets).items()
        ]

        def request(names: Sequence[str]) -> Any:
            return OffsetCommitRequest(
                group_id=names[0],
                generation_id_or_member_epoch=NO_GENERATION,
                member_id=NO_MEMBER,
                group_instance_id=None,
                retention_time_ms=-1,
                topics=topics,
                max_version=LAST_WITH_TOPIC_NAMES,
            )

        return self._order_to_group("commit offsets", "Read", group, list(offsets), request, again)

    def delete_offsets(
        self, group: str, partitions: Sequence[TopicPartition], again: Again = lambda: True
    ) -> Reasons:
        """Delete committed offsets: `None` where there is none any more, else the broker's reason. `again` as above."""
        of_topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        of_partition = of_topic.OffsetDeleteRequestPartition
        topics = [
            of_topic(name=topic, partitions=[of_partition(partition_index=number) for number in numbers])
            for topic, numbers in by_topic(partitions).items()
        ]
        return self._order_to_group(
            "delete offsets", "Delete", group, partitions,
            lambda names: OffsetDeleteRequest(group_id=names[0], topics=topics), again,
        )  # fmt: skip

    def _order_to_group(
        self, asked: str, right: str, group: str, partitions: Sequence[TopicPartition], request: Any, again: Again
    ) -> Reasons:
        """One order to one group's coordinator, repeated where no answer came as long as `again` agrees."""
        if not partitions:
            return {}

        def reading(answer: Any, names: Sequence[str]) -> Mapping[str, Any]:
            return {names[0]: ordered(answer, partitions)}

        done, failed = self._ask_for_groups(asked, DESCRIBE, [group], request, reading, again=again)
        if group in failed:
            return dict.fromkeys(partitions, reason(failed[group].error, right))
        codes: Mapping[TopicPartition, int] = done[group]
        return {each: reason(codes[each], right) if codes.get(each, OK) != OK else None for each in partitions}

    def _name(self, what: str, failed: Mapping[str, Failure]) -> None:
        if failed:
            named = some([f"{name} ({reason(each.error, 'Describe')})" for name, each in sorted(failed.items())])
            log.warning("%s: %s: %s", self.alias, what, named)


def _shares_of(
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> Iterator[Mapping[TopicPartition, CommittedOffset]]:
    """`offsets` in parts that a coordinator takes at once."""
    share: Dict[TopicPartition, CommittedOffset] = {}
    size = 0
    for place, offset in offsets.items():
        own = POSITION_BYTES + len(place[0].encode()) + len(offset.metadata.encode())
        if share and size + own > COMMIT_BYTES:
            yield share
            share, size = {}, 0
        share[place] = offset
        size += own
    if share:
        yield share


def _listed(answer: Any) -> Any:
    if isinstance(answer, KafkaError):
        return Failure(answer, heard=False)
    return Failure.of(answer.error_code) if answer.error_code else answer.groups
