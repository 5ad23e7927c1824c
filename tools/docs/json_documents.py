"""Writes docs/reference/json.md from the dataclasses that the commands print:
`python -m tools.docs.json_documents > docs/reference/json.md`."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import fields, is_dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, get_args, get_type_hints

from mirror_lib.control.service import ControlReport
from mirror_lib.cutover.failover import Failover
from mirror_lib.cutover.gates import Readiness
from mirror_lib.doctor.checks import Check
from mirror_lib.groups.flow import CycleReport
from mirror_lib.groups.moves import UndoneOffset
from mirror_lib.groups.report import PlannedOffset
from mirror_lib.ledger.records import CutoverStep
from mirror_lib.ledger.runs import OpenRun
from mirror_lib.metrics import FlowMetrics
from mirror_lib.plan.deciding import Decided
from mirror_lib.plan.preview import FlowPreview
from mirror_lib.progress import Outage
from mirror_lib.replication.totals import FlowOutcome
from mirror_lib.status.facts import FlowStatus
from mirror_lib.takeover.verdicts import PartitionTakeover
from mirror_lib.verify.verdicts import VerifyReport

_HEAD = """\
# JSON documents

<!-- Written by `python -m tools.docs.json_documents`; change the docstrings of the dataclasses. -->

`--json` prints one document a line. Durations are in seconds, times in Unix seconds, sizes in bytes. *Keys* are those
that the text does not name; a link leads to the object that a key holds, one or an array of them, or `null`. Releases
may add keys. `mirror mm1` prints the documents of `mirror run`, `mirror translate-position` the form of its input.
"""
ERROR: Mapping[str, Any] = {"error": Optional[str], "code": Optional[str], "exit_code": int}
# By heading: the class that is printed if there is one, further keys with their types, and a remark.
DOCUMENTS: Mapping[str, Tuple[Optional[type], Mapping[str, Any], str]] = {
    "mirror run: a cycle": (FlowMetrics, {}, ""),
    "mirror run: an outage": (Outage, {}, ""),
    "mirror run: topic configs, ACLs, heartbeats": (ControlReport, {}, ""),
    "mirror run: the end of a flow": (FlowOutcome, ERROR, "Of a flow that copies nothing, and of `mirror "
        "translate`, only `flow`, `error`, `code` and `exit_code`, and only if it failed."),
    "mirror run --if-running exit": (OpenRun, {"already_running": bool}, "Of a process on this machine `flow`, "
        "`process` (its id) and `already_running`."),
    "mirror translate: a cycle": (CycleReport, {}, "Also of `mirror run`."),
    "mirror status": (FlowStatus, {}, ""),
    "mirror report": (None, {"page": str, "sha256": str, "bytes": int, "flows": Mapping[str, str]}, "The file, its "
        "digest and size, and the state of each flow."),
    "mirror doctor": (Check, {}, ""),
    "mirror plan": (FlowPreview, {}, ""),
    "mirror plan --topic, --group": (Decided, {}, ""),
    "mirror verify": (VerifyReport, {"exit_code": int}, ""),
    "mirror groups plan": (None, {"flow": str, "direction": str, "run_id": Optional[str],
        "positions": Sequence[PlannedOffset], "unreadable": Sequence[str], "exit_code": int}, "`run_id` is null "
        "without commits; `unreadable`: groups that cannot be read."),
    "mirror groups rollback": (None, {"flow": str, "cluster": str, "run_id": str, "undo_run_id": Optional[str],
        "positions": Sequence[UndoneOffset]}, "`undo_run_id` is the run of the rollback; null without `--execute`."),
    "mirror cutover run": (CutoverStep, {}, "Also of `cutover back`."),
    "mirror cutover plan": (Readiness, {}, ""),
    "mirror failover": (Failover, {}, ""),
    "mirror takeover": (None, {"flow": str, "run_id": Optional[str], "partitions": Sequence[PartitionTakeover],
        **ERROR}, "`run_id` is null where the take-over wrote no partition."),
    "Log lines": (None, {"time": str, "level": str, "message": str, "code": str, "trace": str}, "Standard "
        "error with `MIRROR_LOG_FORMAT=json`. `time` is UTC, ISO 8601; `code` and `trace` may be absent."),
}  # fmt: skip
# Where the keys of a class are that is a document itself.
_TITLES = {cls: title for title, (cls, _, _) in DOCUMENTS.items() if cls}


def page() -> str:
    objects: Dict[str, type] = {}
    lines = [_HEAD]
    for title, (cls, more, remark) in DOCUMENTS.items():
        keys = {**({} if cls is None else keys_of(cls)), **more}
        lines += [f"## {title}", "", *_section(cls, remark, keys, objects)]
    lines += ["## Objects", ""]
    listed: List[str] = []
    while len(listed) < len(objects):
        name = min(objects.keys() - set(listed))
        listed.append(name)
        lines += [f"### {name}", "", *_section(objects[name], "", keys_of(objects[name]), objects)]
    return "\n".join(lines).rstrip() + "\n"


def keys_of(cls: type) -> Dict[str, Any]:
    """The keys of a dataclass in JSON with their types, as `document_of` has them."""
    hints = get_type_hints(cls)
    own = {each.name: hints[each.name] for each in fields(cls) if each.metadata.get("json", True)}
    derived: Sequence[str] = getattr(cls, "DERIVED", ())
    return {**own, **{name: get_type_hints(getattr(cls, name).fget)["return"] for name in derived}}


def _section(cls: Optional[type], remark: str, keys: Mapping[str, Any], objects: Dict[str, type]) -> List[str]:
    """The docstring, the remark, and the keys that neither explains; objects with their place on the page."""
    words = inspect.cleandoc(cls.__doc__ or "") if cls else ""
    text = " ".join(f"{words} {remark}".replace("`None`", "`null`").split())
    further = []
    for key, hint in keys.items():
        link = _link(hint, objects)
        shown = f"[`{key}`]{link}" if link else f"`{key}`"
        if f"`{key}`" in text:
            text = text.replace(f"`{key}`", shown, 1)
        else:
            further.append(shown)
    return _wrapped(f"{text} Keys: {', '.join(further)}." if further else text)


def _wrapped(text: str) -> List[str]:
    return [*textwrap.wrap(text, 140, break_long_words=False, break_on_hyphens=False), ""]


def _link(hint: Any, objects: Dict[str, type]) -> str:
    """`(#anchor)` of the object that a value holds, also in arrays and objects; empty for a plain value."""
    for inner in get_args(hint):
        link = _link(inner, objects)
        if link:
            return link
    if not (isinstance(hint, type) and is_dataclass(hint)) or hasattr(hint, "PRINTED"):
        return ""
    if hint in _TITLES:
        return f"(#{_TITLES[hint].replace(' ', '-')})"
    objects[hint.__name__] = hint
    return f"(#{hint.__name__.lower()})"


if __name__ == "__main__":
    print(page(), end="")
