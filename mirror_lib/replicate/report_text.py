"""A task's report as one line of JSON, and back: how it comes from a task to its driver."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, replace
from typing import Any, Dict, Sequence

from mirror_lib.log.producer import Producer
from mirror_lib.replicate.lanes import PartitionReport, TaskReport
from mirror_lib.replicate.rates import fetching_from
from mirror_lib.state.records import Incident, OffsetSync


def to_text(report: TaskReport) -> str:
    """One line."""
    bare = asdict(with_syncs(report, []))
    return json.dumps({**bare, "syncs": [astuple(sync) for sync in report.syncs]})


def from_text(text: str) -> TaskReport:
    """The report of a line that `to_text` wrote."""
    fields: Dict[str, Any] = json.loads(text)
    producers, fetching = fields.pop("producers"), fields.pop("fetching")
    partitions = fields.pop("partitions")
    return TaskReport(
        **{**fields, "syncs": tuple(OffsetSync(*sync) for sync in fields["syncs"])},
        fetching=fetching_from(fetching),
        producers={int(lane): Producer(**producer) for lane, producer in producers.items()},
        partitions=tuple(_partition(part) for part in partitions),
    )


def with_syncs(report: TaskReport, syncs: Sequence[OffsetSync]) -> TaskReport:
    """The report with these offset syncs, and no others."""
    return replace(report, syncs=tuple(syncs))


def _partition(fields: Dict[str, Any]) -> PartitionReport:
    incidents = fields.pop("incidents")
    return PartitionReport(**fields, incidents=tuple(Incident(**incident) for incident in incidents))
