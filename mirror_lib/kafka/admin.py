"""Reads and changes topics, topic configs and ACLs of a cluster (KIP-140, KIP-290) through `KafkaCluster`."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from kafka.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType, ConfigSourceType, ResourceType
from kafka.errors import AuthorizationError, RequestTimedOutError, SecurityDisabledError, for_code
from kafka.protocol.admin import (
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import ClusterError
from mirror_lib.facts import AclBinding, NewTopic, TopicConfigEntry, TopicConfigs, TopicDescription, TopicPartition
from mirror_lib.kafka.admin_client import ClusterConnection
from mirror_lib.kafka.connection import NO_LEADER, REQUEST_TIMEOUT_MS, chunks, error_name, printed_id, shares
from mirror_lib.kafka.groups import ClusterGroups, operation_names
from mirror_lib.kafka.offsets import ClusterOffsets
from mirror_lib.kafka.reach import accepts_connections
from mirror_lib.text import some

log = logging.getLogger(__name__)

TopicOutcomes = Mapping[str, Optional[str]]
# Of the broker's outcome for each of these topics: name, error code and error message.
Send = Callable[[Sequence[str]], Sequence[Any]]

# A KRaft controller refuses requests for more than 10,000 partitions; a response on 200 topics' configs is about 2 MB.
PARTITIONS_PER_REQUEST = 5000
TOPICS_PER_REQUEST = 200
# How long brokers may disagree on whether a topic exists, and the pause between two requests meanwhile.
AGREED_SECONDS, ASKED_AGAIN_SECONDS = 10.0, 0.1

TOPIC = 2  # Kafka's number for this kind of resource
SET, DELETE = 0, 1  # and for changes of a config
OK, UNKNOWN_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS = 0, 3, 36, 37
# The first version of MetadataRequest that has operations (KIP-430).
NAMES_OPERATIONS = 8


class ClusterTopics(ClusterOffsets):
    """Reads, creates, grows and configures topics. Every method raises ClusterError if no broker answers."""

    def cluster_id(self) -> str:
        return str(self._live_cluster().cluster_id)

    def broker_count(self) -> int:
        """Brokers that are registered and not fenced."""
        return len(self._live_cluster().brokers)

    def topics(self) -> Mapping[str, TopicDescription]:
        """Every visible topic, in one round trip. A topic in an error state is excluded and logged."""
        answers = self._describe_topics(None)
        unready = {each.name: for_code(each.error_code).message for each in answers if each.error_code != OK}
        if unready:
            log.warning("%s: topics without an answer, skipped in this listing: %s", self.alias, unready)
        return {each.name: _topic_description(each) for each in answers if each.error_code == OK}

    def topic_configs(
        self, names: Sequence[str], keys: Optional[Sequence[str]] = None
    ) -> Mapping[str, Optional[TopicConfigs]]:
        """Effective configs by topic, defaults included; limited to `keys` if given. Unknown topics are excluded;
        `None` of a topic whose configs this principal may not read.

        Raises ClusterError if a broker keeps answering with an error of its own about an existing topic.
        """
        found: Dict[str, Optional[TopicConfigs]] = {}
        silent, patient_until = list(names), time.monotonic() + AGREED_SECONDS
        while silent:
            failed: Dict[str, int] = {}
            for names_asked in chunks(silent, TOPICS_PER_REQUEST):
                known, errors = self._topic_configs(names_asked, keys)
                found.update(known)
                failed.update(errors)
            # Metadata of a new topic reaches each broker at a different time; the queried broker may not have it yet.
            silent = sorted(self._present(sorted(set(silent) - found.keys())))
            if silent and time.monotonic() > patient_until:
                reasons = sorted({error_name(failed[name]) for name in silent if name in failed})
                raise ClusterError(
                    f"{self.alias}: cannot read the configs of {some(silent)}: {', '.join(reasons) or 'no answer'}",
                    "check the brokers' logs",
                )
            time.sleep(ASKED_AGAIN_SECONDS if silent else 0)
        return found

    def _present(self, names: Sequence[str]) -> Set[str]:
        return {each.name for each in self._describe_topics(names) if each.error_code == OK} if names else set()

    def topic_config_keys(self, new_topic: str) -> FrozenSet[str]:
        """Names of the topic configs that the brokers support: of `new_topic` in a creation that is only validated
        (KIP-525), else of a topic that is there. Empty if the principal may read neither.
        """
        validate = partial(self._created, [NewTopic(new_topic, 1, -1)], validate_only=True)
        (topic,) = self._ask("validate a topic", "Create on topics", validate)
        if topic.configs:
            return frozenset(each.name for each in topic.configs)
        try:
            for name in sorted(self.topics())[:1]:
                configs = self.topic_configs([name]).get(name)
                if configs is not None:
                    return frozenset(configs)
        except ClusterError as error:
            log.debug("%s: no configs of an existing topic: %s", self.alias, error)
        return frozenset()

    def _created(self, specs: Sequence[NewTopic], validate_only: bool = False) -> Sequence[Any]:
        topics = [
            (each.name, each.partitions, each.replication_factor, (), list(each.configs.items())) for each in specs
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS, validate_only=validate_only)
        return self._by_controller(request, "topics")

    def release(self) -> str:
        """The newest Kafka release whose request versions the brokers accept, such as `3.2`.

        The brokers may run a newer release.
        """
        return self._client.release()

    def topic_operations(self, names: Sequence[str]) -> Mapping[str, Optional[FrozenSet[str]]]:
        """The operations that this principal may do on each topic, by Kafka's names such as `READ`.

        `None` if the brokers do not report operations (before Kafka 2.3, KIP-430). A topic that the principal may not
        describe is excluded."""
        if not self._client.accepts(MetadataRequest, NAMES_OPERATIONS):
            return dict.fromkeys(names)
        operations = {"include_topic_authorized_operations": True, "min_version": NAMES_OPERATIONS}
        found: List[Any] = []
        for some_names in chunks(names, TOPICS_PER_REQUEST):
            read = partial(self._client.metadata, some_names, **operations)
            found += self._ask("list topics", "Describe on the topics", read).topics
        return {each.name: operation_names(each.authorized_operations) for each in found if each.error_code == OK}

    def check_creation(self, specs: Sequence[NewTopic]) -> Mapping[str, Tuple[Optional[str], Mapping[str, str]]]:
        """Validate `create_topics` without creating anything.

        By topic: the broker's reason for a refusal, or `None`, and the configs that the topic would have. Brokers
        before Kafka 2.4 report no configs."""
        found: Dict[str, Tuple[Optional[str], Mapping[str, str]]] = {}
        for some_specs in chunks(specs, TOPICS_PER_REQUEST):
            validate = partial(self._created, some_specs, validate_only=True)
            for topic in self._ask("validate topics", "Create on topics", validate):
                reason = None
                if topic.error_code not in (OK, TOPIC_EXISTS):
                    reason = topic.error_message or error_name(topic.error_code)
                found[topic.name] = (reason, {each.name: str(each.value) for each in topic.configs or ()})
        return found

    def log_sizes(self, topics: Sequence[str]) -> Optional[Mapping[TopicPartition, int]]:
        """Bytes of each partition's log, from its largest replica; `None` if Describe on the cluster is not granted."""
        sizes: Dict[TopicPartition, int] = {}
        try:
            found = self._describe_topics(topics)
            asked = [(each.name, [part.partition_index for part in each.partitions]) for each in found]
            requests = [(node, DescribeLogDirsRequest(topics=asked)) for node in self._client.nodes()]
            read = partial(self._client.calls, requests)
            answers = self._ask("describe log folders", "Describe on the cluster", read)
        except ClusterError as error:
            log.info("%s: %s", self.alias, error)
            return None
        folders = [folder for answer in answers for folder in answer.results]
        if any(folder.error_code for folder in folders) or not folders:
            return None
        for folder in folders:
            for topic in folder.topics:
                for part in topic.partitions:
                    at = (topic.name, part.partition_index)
                    sizes[at] = max(sizes.get(at, 0), part.partition_size)
        return sizes

    def create_topics(self, specs: Sequence[NewTopic]) -> TopicOutcomes:
        """Create topics and wait until they have leaders. By name: `None` if the topic exists now, else the reason."""
        wanted = {spec.name: spec for spec in specs}

        def send(names: Sequence[str]) -> Sequence[Any]:
            return self._created([wanted[name] for name in names])

        sizes = {spec.name: spec.partitions for spec in specs}
        outcomes = self._order("create topics", "Create on the topic or the cluster", sizes, send, TOPIC_EXISTS)
        return self._led(outcomes, dict.fromkeys(sizes, 1))  # an existing topic may be smaller than requested

    def create_partitions(self, counts: Mapping[str, int]) -> TopicOutcomes:
        """Grow topics and wait for the leaders. By name: `None` if the topic has its `counts`, else the reason."""

        def send(names: Sequence[str]) -> Sequence[Any]:
            topics = [(name, counts[name], None) for name in names]
            request = CreatePartitionsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS, validate_only=False)
            return self._by_controller(request, "results")

        outcomes = self._order("add partitions", "Alter on the topic", counts, send, INVALID_PARTITIONS)
        return self._led(outcomes, counts)

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, Optional[str]]]) -> TopicOutcomes:
        """Set single topic configs, or delete them (value `None`); other configs stay unchanged.

        By name: `None` on success, else the broker's reason.
        """
        resources = [
            (TOPIC, name, [(key, SET if value is not None else DELETE, value) for key, value in one.items()])
            for name, one in changes.items()
        ]
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
        alter = partial(self._client.call, None, request)
        answer = self._ask("alter topic configs", "AlterConfigs on the topics", alter)
        return {
            each.resource_name: str(for_code(each.error_code)(each.error_message)) if each.error_code else None
            for each in answer.responses
        }

    def _topic_configs(
        self, names: Sequence[str], keys: Optional[Sequence[str]]
    ) -> Tuple[Mapping[str, Optional[TopicConfigs]], Mapping[str, int]]:
        """The configs that one request returns, as `topic_configs` does, and the error codes of the other topics."""
        request = DescribeConfigsRequest(resources=[(TOPIC, name, keys and list(keys)) for name in names])
        describe = partial(self._client.call, None, request)
        answer = self._ask("read topic configs", "DescribeConfigs on the topics", describe)
        found: Dict[str, Optional[TopicConfigs]] = {
            each.resource_name: {
                entry.name: _config_entry(entry.value, entry.config_source, entry.is_sensitive, entry.read_only)
                for entry in each.configs
            }
            for each in answer.results
            if each.error_code == OK
        }
        failed = {each.resource_name: int(each.error_code) for each in answer.results if each.error_code != OK}
        closed = {name for name, code in failed.items() if issubclass(for_code(code), AuthorizationError)}
        return {**found, **dict.fromkeys(closed)}, {name: failed[name] for name in failed.keys() - closed}

    def _order(
        self, asked: str, right: str, sizes: Mapping[str, int], send: Send, already: int
    ) -> Dict[str, Optional[str]]:
        """Repeat a request for topics of `sizes` partitions until each topic has a final outcome.

        The error code `already` counts as success: the topic was created or grown before.
        """
        outcomes: Dict[str, Optional[str]] = {}

        def attempt() -> None:
            waiting = [name for name in sizes if name not in outcomes]
            for names in shares(waiting, sizes.__getitem__, PARTITIONS_PER_REQUEST):
                for each in send(names):
                    error = for_code(each.error_code)
                    if each.error_code in (OK, already):
                        outcomes[each.name] = None
                    elif issubclass(error, AuthorizationError):
                        outcomes[each.name] = f"not allowed to {asked}: grant {right} to this principal"
                    elif not error.retriable or each.error_code == UNKNOWN_TOPIC:
                        outcomes[each.name] = f"{error.message}: {each.error_message or error.description}"
            if outcomes.keys() != sizes.keys():
                raise RequestTimedOutError

        self._ask(asked, right, attempt)
        return outcomes

    def _led(self, outcomes: Dict[str, Optional[str]], counts: Mapping[str, int]) -> TopicOutcomes:
        """Wait until each successful topic has at least `counts` partitions, and a leader for every partition."""
        waiting = sorted(name for name, reason in outcomes.items() if reason is None)
        # A broker needs tens of seconds to create thousands of partitions.
        patient_until = time.monotonic() + self._answer_seconds
        while waiting and time.monotonic() < patient_until:
            leaders = {
                each.name: [partition.leader_id for partition in each.partitions]
                for each in self._describe_topics(waiting)
            }
            waiting = [name for name in waiting if len(leaders[name]) < counts[name] or min(leaders[name]) < 0]
            time.sleep(0.05 if waiting else 0)
        return {**outcomes, **dict.fromkeys(waiting, "exists, but not all its partitions have leaders yet")}


def _topic_description(answer: Any) -> TopicDescription:
    leaderless = sorted(each.partition_index for each in answer.partitions if each.leader_id == NO_LEADER)
    topic_id = printed_id(answer.topic_id)
    return TopicDescription(answer.name, topic_id, len(answer.partitions), answer.is_internal, tuple(leaderless))


@lru_cache(maxsize=1024)  # most topics have the same values
def _config_entry(value: Optional[str], source: int, is_sensitive: bool, is_read_only: bool) -> TopicConfigEntry:
    name = ConfigSourceType(source).name
    return TopicConfigEntry(value, name, name == "DEFAULT_CONFIG", bool(is_sensitive), bool(is_read_only))


AclOutcomes = Mapping[AclBinding, Optional[str]]

# A KRaft controller accepts at most 10,000 changes in one request.
ACLS_PER_REQUEST = 1000


class ClusterAcls(ClusterConnection):
    """Lists, creates and deletes topic ACLs. Every method raises ClusterError if no broker answers."""

    def topic_acls(self) -> Optional[FrozenSet[AclBinding]]:
        """Every topic ACL; `None` if the cluster has no authorizer. Raises ClusterError if Describe is not granted."""

        request = DescribeAclsRequest(
            resource_type_filter=ResourceType.TOPIC,
            resource_name_filter=None,
            pattern_type_filter=ACLResourcePatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            min_version=1,
        )

        def question() -> Optional[FrozenSet[AclBinding]]:
            answer = self._client.call(None, request)
            error = for_code(answer.error_code)
            if error is SecurityDisabledError:
                return None
            if answer.error_code:
                raise error(answer.error_message)
            return frozenset(_binding(topic, acl) for topic in answer.resources for acl in topic.acls)

        return self._ask("list ACLs", "Describe on the cluster", question)

    def create_topic_acls(self, acls: Sequence[AclBinding]) -> AclOutcomes:
        """Create ACLs. By ACL: `None` if it exists now, including if it existed before, else the broker's reason."""
        # Version 0 has no pattern type: a prefixed ACL would become a literal one.
        return self._order_acls(
            "create ACLs", acls, lambda fields: CreateAclsRequest(creations=fields, min_version=1), "results"
        )

    def delete_topic_acls(self, acls: Sequence[AclBinding]) -> AclOutcomes:
        """Delete exactly these ACLs. By ACL: `None` if it no longer exists, else the broker's reason."""
        return self._order_acls(
            "delete ACLs", acls, lambda fields: DeleteAclsRequest(filters=fields, min_version=1), "filter_results"
        )

    def _order_acls(
        self, asked: str, acls: Sequence[AclBinding], request: Callable[[Sequence[Any]], Any], results: str
    ) -> AclOutcomes:
        outcomes: Dict[AclBinding, Optional[str]] = {}
        for some_acls in chunks(acls, ACLS_PER_REQUEST):

            def attempt(some_acls: Sequence[AclBinding] = some_acls) -> List[Optional[str]]:
                answer = self._client.call(None, request(list(map(_fields, some_acls))))
                return [_outcome(each) for each in getattr(answer, results)]

            outcomes.update(zip(some_acls, self._ask(asked, "Alter on the cluster", attempt)))
        return outcomes


def _fields(acl: AclBinding) -> Tuple[Any, ...]:
    """A topic ACL as CreateAcls and DeleteAcls have it."""
    pattern, operation = ACLResourcePatternType[acl.pattern_type], ACLOperation[acl.operation]
    return ResourceType.TOPIC, acl.topic, pattern, acl.principal, acl.host, operation, ACLPermissionType[acl.permission]


def _outcome(result: Any) -> Optional[str]:
    """The outcome for one ACL: `None` or the broker's reason. Raises retriable and authorization errors."""
    if result.error_code == OK:
        return None
    error = for_code(result.error_code)
    if error.retriable or issubclass(error, AuthorizationError):
        raise error(result.error_message)
    return f"{error.message}: {result.error_message or error.description}"


def _binding(topic: Any, acl: Any) -> AclBinding:
    return AclBinding(
        topic=topic.resource_name,
        pattern_type=ACLResourcePatternType(topic.pattern_type).name,
        principal=acl.principal,
        host=acl.host,
        operation=ACLOperation(acl.operation).name,
        permission=ACLPermissionType(acl.permission_type).name,
    )


class KafkaCluster(ClusterTopics, ClusterGroups, ClusterAcls):
    """The topics, groups and ACLs of a cluster. Connects on construction.

    Use it as a context manager. The constructor and every method raise ClusterError if no broker answers.
    """

    def __enter__(self) -> KafkaCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def answering(config: ClusterConfig, patience: float) -> KafkaCluster:
    """A cluster for a command that an operator waits for: ClusterError after two seconds if no bootstrap server accepts
    a connection."""
    if not accepts_connections(config.bootstrap_servers):
        raise ClusterError(
            f"cannot reach the cluster {config.alias} at {config.bootstrap_servers}: no broker accepts a connection",
            "check bootstrap.servers, and that a broker is up; mirror failover CONFIG shows what the target holds",
        )
    return KafkaCluster(config, patience)


# Raises `RefusedError` if nothing is to be written for the flow of this source and target.
CheckClusters = Callable[[KafkaCluster, KafkaCluster], object]


@contextmanager
def clusters_of(
    flow: ReplicationFlow, stop: Optional[threading.Event] = None
) -> Iterator[Tuple[KafkaCluster, KafkaCluster]]:
    """The flow's source and target, connected. Requests to both time out after the flow's `admin.timeout.ms`, and are
    not repeated after `stop` is set."""
    patience = flow.admin_timeout
    with KafkaCluster(flow.source, patience, stop) as source, KafkaCluster(flow.target, patience, stop) as target:
        yield source, target
