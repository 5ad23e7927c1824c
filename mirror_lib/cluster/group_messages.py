"""ConsumerGroupDescribe (API 69, KIP-848) in kafka-python's own schema classes, which do not bring it."""

from __future__ import annotations

from typing import Any, Dict, List

from kafka.protocol.api_message import ApiMessage

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
