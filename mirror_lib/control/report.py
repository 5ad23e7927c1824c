"""What was kept in step beside the copy of one flow, counted: a frozen report, and the faces it is shown with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Dict, Tuple

from mirror_lib.text import counted


@dataclass(frozen=True)
class ControlReport:
    """Counts since the start of the run, and what stands in the way now, one sentence each."""

    flow: str
    topic_configs: int = 0
    acls_created: int = 0
    acls_deleted: int = 0
    heartbeats: int = 0
    problems: Tuple[str, ...] = ()

    @property
    def changes(self) -> int:
        """Everything but heartbeats."""
        return self.topic_configs + self.acls_created + self.acls_deleted


def control_line(report: ControlReport) -> str:
    """`A->B control · 3 topic configs changed · 2 ACLs created · 1 heartbeat · no ACLs are copied: …`."""
    counts = (
        (report.topic_configs, "topic config", " changed"),
        (report.acls_created, "ACL", " created"),
        (report.acls_deleted, "ACL", " deleted"),
        (report.heartbeats, "heartbeat", ""),
    )
    told = [f"{counted(count, what)}{done}" for count, what, done in counts if count]
    return " · ".join([f"{report.flow} control", *(told or ["nothing to change"]), *report.problems])


def control_json(report: ControlReport) -> Dict[str, object]:
    """The report as a JSON document; `control` tells it from those of a pass."""
    document = asdict(report)
    return {"flow": document.pop("flow"), "control": {**document, "problems": list(report.problems)}}
