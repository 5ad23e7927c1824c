"""Source partitions and where their copies stand in, how far each log reaches for them out."""

from __future__ import annotations

from typing import List, Mapping, Sequence

from mirror_lib.facts import Cluster, OffsetRange, TopicPartition


def source_logs(
    source: Cluster, partitions: Sequence[TopicPartition], stands: Mapping[TopicPartition, int], isolation_level: str
) -> Mapping[TopicPartition, OffsetRange]:
    """Where the logs of `partitions` begin and end, of those that tell it. Raises `ClusterError`.

    One that ends before its copy is believed only where all brokers agree on who leads it. Past the last stable offset
    but within the log a copy was not cut off: it was made under another isolation level.
    """
    found = source.offsets(partitions, isolation_level)
    beyond = _beyond(found, stands)
    if not beyond:
        return found
    sure = source.sure_offsets(beyond, isolation_level)
    still = _beyond(sure, stands)
    whole = source.sure_offsets(still, "read_uncommitted") if still else {}
    return {
        **{each: log for each, log in found.items() if each not in beyond},
        **{each: log for each, log in sure.items() if each not in still},
        **{each: OffsetRange(log.log_start, min(stands[each], log.end)) for each, log in whole.items()},
    }


def _beyond(found: Mapping[TopicPartition, OffsetRange], stands: Mapping[TopicPartition, int]) -> List[TopicPartition]:
    return [each for each, at in stands.items() if each in found and at > found[each].end]
