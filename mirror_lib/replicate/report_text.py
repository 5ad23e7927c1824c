"""A task's report as one line of JSON, and back: how it comes from a task to its driver."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import asdict, replace
from typing import Any, Dict

from mirror_lib.log.producer import Producer
from mirror_lib.replicate.lanes import PartitionReport, TaskReport
from mirror_lib.replicate.rates import fetching_from
from mirror_lib.state.records import Incident, OffsetSyncs


def to_text(report: TaskReport) -> str:
    """One line."""
    bare = asdict(replace(report, syncs=()))
    syncs = [(each.topic, each.partition, b64encode(each.flat).decode("ascii")) for each in report.syncs]
    return json.dumps({**bare, "syncs": syncs})


def from_text(text: str) -> TaskReport:
    """The report of a line that `to_text` wrote."""
    fields: Dict[str, Any] = json.loads(text)
    producers, fetching = fields.pop("producers"), fields.pop("fetching")
    partitions = fields.pop("partitions")
    return TaskReport(
        **{**fields, "syncs": tuple(OffsetSyncs(topic, n, b64decode(flat)) for topic, n, flat in fields["syncs"])},
        fetching=fetching_from(fetching),
        producers={int(lane): Producer(**producer) for lane, producer in producers.items()},
        partitions=tuple(_partition(part) for part in partitions),
    )


def _partition(fields: Dict[str, Any]) -> PartitionReport:
    incidents = fields.pop("incidents")
    return PartitionReport(**fields, incidents=tuple(Incident(**incident) for incident in incidents))
