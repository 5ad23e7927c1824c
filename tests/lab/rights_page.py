"""docs/deploy/permissions.md as rows, and as ACLs for the principals that use them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import List

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)

from tests.lab.checkout import ROOT
from tests.lab.secured import acl

_FURTHER = re.compile(r"\| ([^|]+) \| ([AB])(?: or [AB])? \| ([^|]+) \| ([\w, ]*?) ?\|[^|]*\|")
_ROW = re.compile(r"\| ([^|]+) \| ([AB]) \| (\w+) `([^`]+)` \| ([\w, ]+) \| [^|]* \|")


@dataclass(frozen=True)
class Right:
    """One operation of a row."""

    feature: str
    cluster: str
    kind: str
    name: str
    operation: str

    def acl(self, user: str) -> ACL:
        return acl(user, self.operation, self.kind, self.name.rstrip("*"), prefixed=self.name.endswith("*"))


def _table(number: int) -> str:
    text = (ROOT / "docs" / "deploy" / "permissions.md").read_text(encoding="utf-8")
    return [part for part in text.split("\n\n") if part.startswith("| feature |")][number]


def rights() -> List[Right]:
    table = _table(0)
    found = [_ROW.fullmatch(line) for line in table.splitlines()[2:]]
    assert all(found), table
    return [
        Right(row.group(1), row.group(2), row.group(3), row.group(4), operation.strip())
        for row in found if row is not None for operation in row.group(5).split(",")
    ]  # fmt: skip


def further_rights() -> List[Right]:
    """Every operation of the page's second table; `A or B` as A, and the first name where a row has others."""
    table = _table(1)
    found = [_FURTHER.fullmatch(line) for line in table.splitlines()[2:]]
    assert all(found), table
    return [
        Right(row.group(1).replace("`", ""), row.group(2), kind, name, operation.strip())
        for row in found if row is not None
        for kind, name in re.findall(r"(Topic|Group|Cluster) `([^`]+)`", row.group(3))
        for operation in row.group(4).split(",")
    ]  # fmt: skip


def grant(admin: KafkaAdminClient, acls: List[ACL]) -> None:
    assert admin.create_acls(acls)["failed"] == []


def take(admin: KafkaAdminClient, one: ACL) -> None:
    """Take one away again; it must have been there."""
    same = ACLFilter(one.principal, "*", ACLOperation(one.operation), ACLPermissionType.ALLOW, one.resource_pattern)
    ((_, matched, _),) = admin.delete_acls([same])
    assert len(matched) == 1


def granted(admin: KafkaAdminClient, user: str) -> List[ACL]:
    anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    found, _ = admin.describe_acls(
        ACLFilter(f"User:{user}", None, ACLOperation.ANY, ACLPermissionType.ANY, anything)
    )
    return list(found)
