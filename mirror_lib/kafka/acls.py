"""Questions and orders about ACLs of topics: Kafka's answers as our own frozen facts (KIP-140, KIP-290)."""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence

from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import AuthorizationError, KafkaError, SecurityDisabledError, for_code
from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest

from mirror_lib.facts import AclBinding
from mirror_lib.kafka.admin_client import ClusterConnection

Outcomes = Mapping[AclBinding, Optional[str]]

OK = 0
# A KRaft controller takes at most 10 000 changes in one request.
ACLS_PER_REQUEST = 1000
_TOPICS = ResourcePatternFilter(ResourceType.TOPIC, None, ACLResourcePatternType.ANY)
_ALL_OF_TOPICS = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, _TOPICS)


class ClusterAcls(ClusterConnection):
    """What can be asked and ordered about ACLs. Every method raises ClusterError where no broker answers."""

    def topic_acls(self) -> Optional[FrozenSet[AclBinding]]:
        """Every ACL of topics; `None` where the cluster has no authorizer. ClusterError where they may not be read."""

        def question() -> Optional[FrozenSet[AclBinding]]:
            try:
                found, _ = self._client.describe_acls(_ALL_OF_TOPICS)
            except SecurityDisabledError:
                return None
            return frozenset(map(_binding, found))

        return self._ask("list ACLs", "Describe on the cluster", question)

    def create_topic_acls(self, acls: Sequence[AclBinding]) -> Outcomes:
        """Create ACLs: `None` where the ACL is there now (also where it was before), else the broker's reason."""

        def request(some: Sequence[AclBinding]) -> Any:
            of_one = CreateAclsRequest.AclCreation
            return CreateAclsRequest(
                creations=[
                    of_one(
                        resource_type=ResourceType.TOPIC,
                        resource_name=acl.topic,
                        resource_pattern_type=ACLResourcePatternType[acl.pattern_type],
                        principal=acl.principal,
                        host=acl.host,
                        operation=ACLOperation[acl.operation],
                        permission_type=ACLPermissionType[acl.permission],
                    )
                    for acl in some
                ],
                # From version 1 on there are patterns: before that a prefix would become a name.
                min_version=1,
            )

        return self._order_acls("create ACLs", acls, request, "results")

    def delete_topic_acls(self, acls: Sequence[AclBinding]) -> Outcomes:
        """Delete exactly these ACLs: `None` where the ACL is gone now, else the broker's reason."""

        def request(some: Sequence[AclBinding]) -> Any:
            of_one = DeleteAclsRequest.DeleteAclsFilter
            return DeleteAclsRequest(
                filters=[
                    of_one(
                        resource_type_filter=ResourceType.TOPIC,
                        resource_name_filter=acl.topic,
                        pattern_type_filter=ACLResourcePatternType[acl.pattern_type],
                        principal_filter=acl.principal,
                        host_filter=acl.host,
                        operation=ACLOperation[acl.operation],
                        permission_type=ACLPermissionType[acl.permission],
                    )
                    for acl in some
                ],
                min_version=1,
            )

        return self._order_acls("delete ACLs", acls, request, "filter_results")

    def _order_acls(
        self, asked: str, acls: Sequence[AclBinding], request: Callable[[Sequence[AclBinding]], Any], results: str
    ) -> Outcomes:
        outcomes: Dict[AclBinding, Optional[str]] = {}
        for first in range(0, len(acls), ACLS_PER_REQUEST):
            some = acls[first : first + ACLS_PER_REQUEST]

            def attempt(some: Sequence[AclBinding] = some) -> List[Optional[str]]:
                # The client's own call does not tell which of many was refused.
                (answer,) = self._exchange([(None, request(some))])
                if isinstance(answer, KafkaError):
                    raise answer
                return [_outcome(each) for each in getattr(answer, results)]

            outcomes.update(zip(some, self._ask(asked, "Alter on the cluster", attempt)))
        return outcomes


def _outcome(result: Any) -> Optional[str]:
    """What became of one order. Raises what another try, or nobody with these rights, gets past."""
    if result.error_code == OK:
        return None
    error = for_code(result.error_code)
    if error.retriable or issubclass(error, AuthorizationError):
        raise error(result.error_message)
    return f"{error.message}: {result.error_message or error.description}"


def _binding(acl: Any) -> AclBinding:
    pattern = acl.resource_pattern
    return AclBinding(
        topic=pattern.resource_name,
        pattern_type=pattern.pattern_type.name,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation.name,
        permission=acl.permission_type.name,
    )
