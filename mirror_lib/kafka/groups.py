"""Reads consumer groups and their committed offsets, and commits or deletes offsets; many groups in one request.

Each group succeeds or fails independently: an error is retried for its group only. A group without a response is
excluded from the result and logged.
"""

from __future__ import annotations

import logging
import time
from itertools import chain
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from kafka.admin import ACLOperation
from kafka.errors import KafkaError, LeaderNotAvailableError, for_code
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest

from mirror_lib.facts import CommittedOffset, ConsumerGroup, GroupMember, TopicPartition
from mirror_lib.kafka.admin_client import ClusterConnection
from mirror_lib.kafka.connection import GROUP_KEY, NO_LEADER, Disconnected, by_topic, chunks, grouped, shares
from mirror_lib.text import some

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, CommittedOffset]
Codes = Mapping[TopicPartition, int]

OK, UNKNOWN_TOPIC, NOT_FOUND = 0, 3, 69
NONE_COMMITTED = -1
# The first version of DescribeGroupsRequest that has operations (KIP-430), and of ListGroupsRequest that has types
# (KIP-848).
NAMES_OPERATIONS, NAMES_TYPES, KIP_848 = 3, 5, "consumer"
CONSUMER_PROTOCOL, NO_PROTOCOL = "consumer", ""
CONSUMER_TYPES = ("", "classic", "consumer")  # brokers before 3.7 name no type

IN_USE = "the group has members, so it is in use on this cluster"
_REASONS = {
    "UNKNOWN_MEMBER_ID": IN_USE,
    "ILLEGAL_GENERATION": IN_USE,
    "REBALANCE_IN_PROGRESS": IN_USE,
    "STALE_MEMBER_EPOCH": IN_USE,
    "FENCED_MEMBER_EPOCH": IN_USE,
    "NON_EMPTY_GROUP": IN_USE,
    "GROUP_SUBSCRIBED_TO_TOPIC": "the group has members that read this topic",
    "GROUP_AUTHORIZATION_FAILED": "not allowed: grant {right} on the group to this principal",
    "TOPIC_AUTHORIZATION_FAILED": "not allowed: grant Read on the topic to this principal",
    "UNKNOWN_TOPIC_OR_PARTITION": "there is no such partition on this cluster",
    "OFFSET_METADATA_TOO_LARGE": "the metadata is longer than the brokers' offset.metadata.max.bytes",
    "GROUP_ID_NOT_FOUND": "this group is not a consumer group",
}


def may_pass(outcome: Any) -> bool:
    return isinstance(outcome, KafkaError) and bool(outcome.retriable)


def blocking_error(outcomes: Sequence[Any], patient: bool) -> Optional[KafkaError]:
    """The error that makes `outcomes` incomplete, so that they are requested again or fail; `None` if they are final.

    That is a client error that is not retriable, a failure if no broker responds at all, and while `patient` any
    retriable failure.
    """
    refused = [each for each in outcomes if isinstance(each, Disconnected) and not may_pass(each)]
    silent = all(isinstance(each, Disconnected) for each in outcomes)
    waited_for = [each for each in outcomes if may_pass(each)] if patient or silent else []
    return next(iter([*refused, *waited_for]), None)


def is_consumer_group(listed: Any) -> bool:
    """Whether an entry of ListGroups is a consumer group, or a simple group of offsets only (protocol type `""`)."""
    known_type = (listed.group_type or "").lower() in CONSUMER_TYPES
    return known_type and listed.protocol_type in (CONSUMER_PROTOCOL, NO_PROTOCOL)


def operation_names(numbers: Any) -> Optional[FrozenSet[str]]:
    """Names of Kafka's operations. kafka-python decodes the response's bits to these numbers; `None` without any."""
    return frozenset(ACLOperation(each).name for each in numbers) if numbers else None


def described(group: Any) -> Union[ConsumerGroup, KafkaError, None]:
    """One group of DescribeGroups; `None` if the broker has no classic group under that name."""
    if group.error_code not in (OK, NOT_FOUND):
        return for_code(group.error_code)()
    if group.error_code == NOT_FOUND or group.group_state == "Dead":  # the latter before DescribeGroups version 6
        return None
    is_consumers = group.protocol_type == CONSUMER_PROTOCOL
    members = (
        GroupMember(each.client_host, b"" if is_consumers else bytes(each.member_assignment or b""))
        for each in group.members
    )
    return ConsumerGroup(group.group_id, group.group_state, group.protocol_type == NO_PROTOCOL, tuple(members))


def committed(group: Any) -> Union[Offsets, KafkaError]:
    """One group of OffsetFetch, without partitions that have no committed offset."""
    if group.error_code not in (OK, NOT_FOUND):
        return for_code(group.error_code)()
    partitions = [(topic.name, each) for topic in group.topics for each in topic.partitions]
    failure = _failure(each.error_code for _, each in partitions)
    return failure or {
        (topic, each.partition_index): CommittedOffset(each.committed_offset, each.metadata or "")
        for topic, each in partitions
        if each.committed_offset != NONE_COMMITTED and each.error_code == OK
    }


def ordered(answer: Any, partitions: Sequence[TopicPartition]) -> Union[Codes, KafkaError]:
    """OffsetCommit's or OffsetDelete's error codes by partition. An absent group has no offsets to delete."""
    whole = getattr(answer, "error_code", OK)  # OffsetDelete has one for the whole request
    if whole == NOT_FOUND:
        return dict.fromkeys(partitions, OK)
    if whole != OK:
        return for_code(whole)()
    codes = {
        (topic.name, part.partition_index): part.error_code for topic in answer.topics for part in topic.partitions
    }
    return _failure(codes.values()) or codes


def reason(error: Union[int, KafkaError], right: str) -> str:
    """Kafka's name of an error and its meaning. `right` is the permission on the group that the request needs."""
    known = for_code(error) if isinstance(error, int) else error
    name = getattr(known, "message", None)
    if name is None:  # the client's own errors have no name in the protocol
        return str(known.__cause__ or known)
    meaning = _REASONS[name].format(right=right) if name in _REASONS else known.description
    return f"{name}: {meaning}"


def _failure(codes: Iterable[int]) -> Optional[KafkaError]:
    """The first retriable error, except of an unknown topic; `None` if there is none."""
    passing = (code for code in codes if code not in (OK, UNKNOWN_TOPIC) and for_code(code).retriable)
    first = next(passing, None)
    return None if first is None else for_code(first)()


# A coordinator that moves or loads is mostly available sooner. Otherwise the other groups do not wait any longer.
COORDINATOR_SECONDS = 10.0
GROUPS_PER_REQUEST = 1000

Asked = TypeVar("Asked", str, int)
# By group: the parsed response, or a KafkaError.
Outcomes = Mapping[str, Any]
Request = Callable[[Sequence[str]], Any]
Reading = Callable[[Any, Sequence[str]], Outcomes]
Reasons = Mapping[TopicPartition, Optional[str]]
Again = Callable[[], bool]

# From version 8 on OffsetFetch accepts many groups (KIP-709); from version 10 on topics have ids instead of names.
MANY_OFFSETS, LAST_WITH_TOPIC_NAMES = 8, 9
DESCRIBE = "Describe on the group to this principal"
# A coordinator writes a request as one batch of at most 1 MB by default (max.message.bytes). Each offset takes less
# than POSITION_BYTES there, in addition to its names and its metadata.
COMMIT_BYTES, POSITION_BYTES = 200_000, 100


def _away(cluster: Any) -> Mapping[str, KafkaError]:
    """The brokers that alone have the offsets of some groups, and are no longer in the MetadataResponse."""
    parts = (part for topic in cluster.topics for part in topic.partitions)
    away = {str(node) for part in parts if part.leader_id == NO_LEADER for node in part.replica_nodes}
    return {node: LeaderNotAvailableError() for node in away}


class ClusterGroups(ClusterConnection):
    """Lists and describes consumer groups, and reads, commits and deletes their offsets.

    Every method raises ClusterError if no broker answers.
    """

    _unlisted: Mapping[str, KafkaError] = {}
    _undescribed: Mapping[str, KafkaError] = {}

    def _ask_for_groups(
        self,
        asked: str,
        groups: Sequence[str],
        request: Request,
        reading: Reading,
        groups_per_request: int = GROUPS_PER_REQUEST,
        again: Again = lambda: True,
    ) -> Tuple[Outcomes, Mapping[str, KafkaError]]:
        """Send a `request` to each coordinator for its groups, and parse the responses by group with `reading`.

        Returns the results by group, and the failures that persisted. `again` is called before each retry.
        """

        def once(waiting: Sequence[str]) -> Outcomes:
            nodes, failures = self._client.coordinators(waiting, GROUP_KEY)
            outcomes: Dict[str, Any] = {**failures}
            by_node = grouped(nodes, nodes.get).items()
            sent = [(node, share) for node, own in by_node for share in chunks(own, groups_per_request)]
            answers = self._client.exchange([(node, request(share)) for node, share in sent])
            for (_, share), answer in zip(sent, answers):
                is_silent = isinstance(answer, Disconnected)
                outcomes.update(dict.fromkeys(share, answer) if is_silent else reading(answer, share))
            failed = [group for group, outcome in outcomes.items() if isinstance(outcome, KafkaError)]
            self._client.forget_coordinators(failed, GROUP_KEY)
            return outcomes

        return self._settle(asked, list(dict.fromkeys(groups)), once, again)

    def _settle(
        self,
        asked: str,
        names: Sequence[Asked],
        once: Callable[[Sequence[Asked]], Mapping[Asked, Any]],
        again: Again = lambda: True,
    ) -> Tuple[Mapping[Asked, Any], Mapping[Asked, KafkaError]]:
        """Repeat `once` for the names without a result or a final failure, as long as `again` returns True.

        Retries until the connection's deadline if no broker responds, else for COORDINATOR_SECONDS. Returns the results
        and the failures.
        """
        outcomes: Dict[Asked, Any] = {}
        patient_until = time.monotonic() + COORDINATOR_SECONDS

        def attempt() -> None:
            if outcomes and not again():
                return
            outcomes.update(once([name for name in names if name not in outcomes or may_pass(outcomes[name])]))
            error = blocking_error(list(outcomes.values()), time.monotonic() < patient_until)
            if error is not None:
                raise error

        if names:
            self._ask(asked, DESCRIBE, attempt)
        failed = {name: each for name, each in outcomes.items() if isinstance(each, KafkaError)}
        return {name: each for name, each in outcomes.items() if name not in failed}, failed

    def _list_groups(self, cluster: Any) -> Tuple[Sequence[Any], Mapping[str, KafkaError]]:
        """The entries of ListGroups of all brokers of a MetadataResponse, and the failures by broker."""

        def once(brokers: Sequence[int]) -> Mapping[int, Any]:
            answers = self._client.exchange([(broker, ListGroupsRequest()) for broker in brokers])
            return dict(zip(brokers, map(_listed, answers)))

        brokers = [each.node_id for each in cluster.brokers]
        listed, failed = self._settle("list groups", brokers, once)
        return list(chain.from_iterable(listed.values())), {str(broker): each for broker, each in failed.items()}

    def group_names(self) -> Sequence[str]:
        """Consumer groups, sorted: classic, KIP-848 and simple groups; no share, streams or Connect groups."""
        cluster = self._live_cluster("__consumer_offsets")
        listed, silent = self._list_groups(cluster)
        self._unlisted = {**_away(cluster), **silent}
        self._name("groups of brokers not listed", self._unlisted)
        return sorted({each.group_id for each in listed if is_consumer_group(each)})

    def unlisted_brokers(self) -> Sequence[str]:
        """The ids of the brokers that did not list their groups at the last `group_names`."""
        return sorted(self._unlisted)

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, ConsumerGroup]:
        """State and members by group, without absent groups. The members of KIP-848 groups are not listed."""
        found, failed = self._ask_for_groups(
            "describe groups",
            groups,
            lambda names: DescribeGroupsRequest(groups=names, include_authorized_operations=False),
            lambda answer, _: {each.group_id: described(each) for each in answer.groups},
        )
        # DescribeGroups does not find KIP-848 groups, and the library has no ConsumerGroupDescribe.
        absent = [group for group, each in found.items() if each is None]
        if absent and self._client.accepts(ListGroupsRequest, NAMES_TYPES):
            listed, silent = self._list_groups(self._live_cluster())
            newer = {
                each.group_id: ConsumerGroup(each.group_id, each.group_state, False, ())
                for each in listed
                if each.group_type.lower() == KIP_848
            }
            found = {**found, **{group: newer.get(group) for group in absent}}
            for failure in silent.values():
                failed = {**failed, **{group: failure for group in absent if group not in newer}}
        self._undescribed = failed
        self._name("groups not described", failed)
        return {group: each for group, each in found.items() if each is not None}

    def group_operations(self, groups: Sequence[str]) -> Mapping[str, Optional[FrozenSet[str]]]:
        """The operations that this principal may do on each group, by Kafka's names.

        `None` if it may not describe the group, or if the brokers do not report operations (before Kafka 2.3,
        KIP-430)."""
        if not self._client.accepts(DescribeGroupsRequest, NAMES_OPERATIONS):
            return dict.fromkeys(groups)

        def reading(answer: Any, _: Sequence[str]) -> Mapping[str, Any]:
            said = {each.group_id: (each.error_code, each.authorized_operations) for each in answer.groups}
            return {group: for_code(code)() if code else operation_names(bits) for group, (code, bits) in said.items()}

        options = {"include_authorized_operations": True, "min_version": NAMES_OPERATIONS}
        found, failed = self._ask_for_groups(
            "describe groups", groups, lambda names: DescribeGroupsRequest(groups=names, **options), reading
        )
        return {**dict.fromkeys(failed), **found}

    def undescribed_groups(self) -> Sequence[str]:
        """The groups whose coordinator did not answer at the last `describe_groups`, sorted."""
        return sorted(self._undescribed)

    def committed_offsets(self, groups: Sequence[str]) -> Mapping[str, Mapping[TopicPartition, CommittedOffset]]:
        """Every committed offset by group. A group without offsets, or an absent one, has an empty mapping.

        A group whose coordinator did not answer is excluded. Offsets of open transactions are not included, nor offsets
        of topics that this principal may not describe.
        """
        many = self._client.accepts(OffsetFetchRequest, MANY_OFFSETS)

        def request(names: Sequence[str]) -> Any:
            if not many:
                return OffsetFetchRequest(group_id=names[0], topics=None, min_version=2, max_version=MANY_OFFSETS - 1)
            asked = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
            return OffsetFetchRequest(groups=asked, min_version=MANY_OFFSETS, max_version=LAST_WITH_TOPIC_NAMES)

        def reading(answer: Any, names: Sequence[str]) -> Mapping[str, Any]:
            if not many:
                return {names[0]: committed(answer)}
            return {group.group_id: committed(group) for group in answer.groups}

        size = GROUPS_PER_REQUEST if many else 1
        found, failed = self._ask_for_groups("read committed offsets", groups, request, reading, size)
        self._name("no committed offsets of groups", failed)
        return found

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], again: Again = lambda: True
    ) -> Reasons:
        """Commit offsets of a group without being a member. By partition: `None` on success, else the broker's reason.

        Kafka refuses the commit for a group with members, but accepts any offset, even one after the end of the log.
        Many offsets are committed in several requests. `again` is called before each retry, because a request without
        a response may have been carried out. It is also called before the next request if an earlier one failed.
        """
        reasons: Dict[TopicPartition, Optional[str]] = {}
        for share in map(dict, shares(offsets.items(), _size, COMMIT_BYTES)):
            refused = next(filter(None, reasons.values()), None)
            if refused is not None and not again():
                reasons.update(dict.fromkeys(share, refused))
            else:
                reasons.update(self._commit(group, share, again))
        return reasons

    def _commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], again: Again) -> Reasons:
        of_topic = OffsetCommitRequest.OffsetCommitRequestTopic
        parts: Dict[str, List[Any]] = {}
        for (topic, number), at in offsets.items():
            part = of_topic.OffsetCommitRequestPartition(
                partition_index=number, committed_offset=at.offset, committed_metadata=at.metadata
            )
            parts.setdefault(topic, []).append(part)
        topics = [of_topic(name=topic, partitions=of_one) for topic, of_one in parts.items()]

        def request(names: Sequence[str]) -> Any:
            # The other fields' defaults are those of a client that is no member of the group.
            return OffsetCommitRequest(group_id=names[0], topics=topics, max_version=LAST_WITH_TOPIC_NAMES)

        return self._order_to_group("commit offsets", "Read", group, list(offsets), request, again)

    def delete_offsets(self, group: str, partitions: Sequence[TopicPartition], again: Again = lambda: True) -> Reasons:
        """Delete committed offsets. By partition: `None` if no offset is committed now, else the broker's reason.

        `again` as in `commit_offsets`."""
        topics = [(topic, [(number,) for number in numbers]) for topic, numbers in by_topic(partitions).items()]
        return self._order_to_group(
            "delete offsets", "Delete", group, partitions,
            lambda names: OffsetDeleteRequest(group_id=names[0], topics=topics), again,
        )  # fmt: skip

    def _order_to_group(
        self, asked: str, right: str, group: str, partitions: Sequence[TopicPartition], request: Any, again: Again
    ) -> Reasons:
        """Send one request to a group's coordinator, and retry it as long as `again` returns True."""
        if not partitions:
            return {}

        done, failed = self._ask_for_groups(
            asked, [group], request, lambda answer, _: {group: ordered(answer, partitions)}, again=again
        )
        if group in failed:
            return dict.fromkeys(partitions, reason(failed[group], right))
        codes: Mapping[TopicPartition, int] = done[group]
        return {each: reason(codes[each], right) if codes.get(each, OK) != OK else None for each in partitions}

    def _name(self, what: str, failed: Mapping[str, KafkaError]) -> None:
        if failed:
            named = some([f"{name} ({reason(each, 'Describe')})" for name, each in sorted(failed.items())])
            log.warning("%s: %s: %s", self.alias, what, named)


def _size(item: Tuple[TopicPartition, CommittedOffset]) -> int:
    (topic, _), offset = item
    return POSITION_BYTES + len(topic.encode()) + len(offset.metadata.encode())


def _listed(answer: Any) -> Any:
    if isinstance(answer, Disconnected):
        return answer
    return for_code(answer.error_code)() if answer.error_code else answer.groups
