"""Source partitions and where their copies stand in, how far each log reaches for them out."""

from __future__ import annotations

from typing import Mapping, Sequence

from mirror_lib.facts import Cluster, OffsetRange, TopicPartition


def source_logs(
    source: Cluster, partitions: Sequence[TopicPartition], stands: Mapping[TopicPartition, int], isolation_level: str
) -> Mapping[TopicPartition, OffsetRange]:
    """Where the logs of `partitions` begin and end, of those that tell it. Raises `ClusterError`.

    Past the last stable offset but within the log a copy was not cut off: it was made under another isolation level.
    """
    found = dict(source.offsets(partitions, isolation_level))
    beyond = {each: at for each, at in stands.items() if each in found and at > found[each].end}
    if beyond:
        for name, whole in source.offsets(list(beyond), "read_uncommitted").items():
            found[name] = OffsetRange(whole.log_start, min(beyond[name], whole.end))
    return found
