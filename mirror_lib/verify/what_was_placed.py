"""Both clusters and the passes of a flow that places records anew in; what of its topics is to be compared out."""

from __future__ import annotations

from dataclasses import replace
from typing import FrozenSet, Mapping, Optional, Sequence

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import ClusterError
from mirror_lib.facts import Cluster, OffsetRange, TopicPartition
from mirror_lib.state.row_passes import REMOTE, SOURCE
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.compacted import compacted
from mirror_lib.verify.placed_range import Passes, PlacedCopy, placed_copy


def what_was_placed(
    flow: ReplicationFlow, copied: Sequence[CopiedTopic], source: Cluster, target: Cluster, passes: Optional[Passes]
) -> PlacedCopy:
    """Nothing is to be compared where there were no passes. Raises `ClusterError`."""
    if passes is None:
        return PlacedCopy((), (), unknown=_unknown(flow, copied, source, target))
    here = source.offsets([row.place for row in passes.last.of(SOURCE)], flow.isolation_level)
    there = target.offsets([row.place for row in passes.last.of(REMOTE)], "read_uncommitted")
    now = {(each.source.name, each.source.topic_id) for each in copied}
    now |= {(each.remote_topic, each.remote_topic_id) for each in copied}
    for row in passes.last.rows:
        offsets, alias = (here, flow.source.alias) if row.side == SOURCE else (there, flow.target.alias)
        # Nothing can be said of the others without it: their records may have come from there, or gone there.
        if row.side in (SOURCE, REMOTE) and (row.topic, row.topic_id) in now and row.place not in offsets:
            place = f"{row.topic}-{row.partition}"
            raise ClusterError(f"{flow.name}: {alias}: {place} has no leader", "verify again when it has one")
    by_number = flow.change is not None and flow.change.keeps_partitions
    cleaned = compacted(source, [each.source.name for each in copied])
    found = placed_copy(copied, passes, by_number, here, there)
    begun = found.counts()
    return replace(
        found,
        unknown=_unknown(flow, [each for each in copied if each.remote_topic not in begun], source, target),
        compacted=compacted(target, [each.remote_topic for each in copied]),
        thinned={each.remote_topic for each in copied if each.source.name in cleaned},
    )


def _unknown(
    flow: ReplicationFlow, waiting: Sequence[CopiedTopic], source: Cluster, target: Cluster
) -> FrozenSet[str]:
    """Remote topics that hold records, as does a source of theirs."""
    there = {(each.remote_topic, number) for each in waiting for number in range(each.remote_partitions)}
    here = {(each.source.name, number) for each in waiting for number in range(each.partitions)}
    filled = _filled(target.offsets(sorted(there), "read_uncommitted")) if there else ()
    fed = _filled(source.offsets(sorted(here), flow.isolation_level)) if here else ()
    return frozenset(each.remote_topic for each in waiting if each.remote_topic in filled and each.source.name in fed)


def _filled(logs: Mapping[TopicPartition, OffsetRange]) -> FrozenSet[str]:
    return frozenset(topic for (topic, _), log in logs.items() if log.end > log.log_start)
