"""A report and what the flow wrote down as left out in, the report that tells of it out. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Tuple

from mirror_lib.state.records import LeftOut
from mirror_lib.verify.verdicts import PartitionVerdict, VerifyReport


def with_left_out(report: VerifyReport, left_out: Mapping[Tuple[str, int], LeftOut]) -> VerifyReport:
    """`report` with what `on.error: skip` left out of each partition of the source. Verdicts stay as they are: what the
    target refused is missing there, and what an expression failed on was not asked for."""

    def told(topic: str, partition: PartitionVerdict) -> PartitionVerdict:
        return replace(partition, left_out=left_out.get((topic, partition.partition)))

    topics = (
        replace(topic, partitions=tuple(told(topic.topic, partition) for partition in topic.partitions))
        for topic in report.topics
    )
    return replace(report, topics=tuple(topics))
