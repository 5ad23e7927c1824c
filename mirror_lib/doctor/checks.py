"""A check and its levels, and what follows from permissions and settings that were read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.errors import MirrorError
from mirror_lib.text import counted, one_entry, some

OK, WARNING, BLOCKING = "ok", "warning", "blocking"
# Names of topics or groups in one line.
names = partial(some, most=5)


@dataclass(frozen=True)
class Check:
    """A check of a cluster, a flow, Spark or the state folder (`subject`). `code` names the kind for scripts. `detail`
    is the finding, `remedy` what to do about it, `error` the code that `mirror help` explains."""

    subject: str
    code: str
    level: str
    detail: str
    remedy: str = ""
    error: str = ""


def failed(subject: str, code: str, error: MirrorError) -> Check:
    return Check(subject, code, BLOCKING, error.message, error.hint or "", error.code)


def check_lines(check: Check) -> List[str]:
    line = f"{check.level:<8}  {check.subject}: {check.code}: {one_entry(check.detail)}"
    return [line, *([f"          {one_entry(check.remedy)}"] if check.remedy else [])]


def summary_line(checks: Sequence[Check]) -> str:
    counts = {level: sum(each.level == level for each in checks) for level in (OK, WARNING, BLOCKING)}
    verdict = "a run would fail or be refused" if counts[BLOCKING] else "a run can start"
    return f"{counts[OK]} ok, {counted(counts[WARNING], 'warning')}, {counts[BLOCKING]} blocking: {verdict}"


# Kafka counts Describe as granted with these, and DescribeConfigs with AlterConfigs.
_IMPLIED = {"DESCRIBE_CONFIGS": "ALTER_CONFIGS"}


def missing_operations(
    subject: str,
    resource: str,
    wanted: Mapping[str, Tuple[str, ...]],
    granted: Mapping[str, Optional[FrozenSet[str]]],
    level: str = BLOCKING,
) -> Iterator[Check]:
    """One check for each operation that topics or groups lack the permission for, or one that all is granted.

    `wanted` and `granted`: operations in Kafka's words by the name of the `resource` (`topic`, `group`).
    """
    unknown = sorted(name for name in wanted if granted.get(name, frozenset()) is None)
    lacking: Dict[str, List[str]] = {}
    for name, operations in sorted(wanted.items()):
        own = granted.get(name, frozenset()) or frozenset()
        for operation in operations if name not in unknown else ():
            if not {operation, _IMPLIED.get(operation, ""), "ALL"} & own:
                lacking.setdefault(operation, []).append(name)
    for operation, missing in lacking.items():
        word = operation.title().replace("_", "")
        remedy = f"kafka-acls --add --allow-principal PRINCIPAL --operation {word} --{resource} {missing[0]}"
        detail = f"{word} is not granted on {len(missing)} of {len(wanted)} {resource}s: {names(missing)}"
        yield Check(subject, f"acl-{resource}", level, detail, remedy)
    if unknown:
        detail = f"the brokers do not report operations on {len(unknown)} {resource}s: {names(unknown)}"
        yield Check(subject, f"acl-{resource}", WARNING, detail, "grant what docs/deploy/permissions.md lists")
    if wanted and not lacking and not unknown:
        needed = sorted({each.title().replace("_", "") for operations in wanted.values() for each in operations})
        yield Check(subject, f"acl-{resource}", OK, f"{', '.join(needed)} granted on {counted(len(wanted), resource)}")


def collisions(remotes: Mapping[str, Sequence[str]], shared: FrozenSet[str]) -> Iterator[Check]:
    """`remotes`: the flows by remote topic with its cluster; `shared`: flows with `shared.remote.topics`."""
    for remote, flows in sorted(remotes.items()):
        alone = sorted(set(flows) - shared)
        if len(set(flows)) > 1 and alone:
            detail = f"{remote} is written by {', '.join(sorted(set(flows)))}"
            remedy = f"give {alone[0]} other remote topics (rename), or set shared.remote.topics for each flow"
            yield Check(alone[0], "collision", BLOCKING, detail, remedy)
