"""The positions of a flow's partitions, at first from the ledger, later from this driver's memory.

Progress for a consumer group of the source is committed after the ledger, so the group is never ahead of the copy. With
the offset metadata a driver with another ledger, or none, finds the records written since.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import Cluster, CommittedOffset, OffsetRange, TopicPartition
from mirror_lib.kafka.group_progress import GroupProgress
from mirror_lib.kafka.offsets import first_records
from mirror_lib.ledger.records import PartitionKey, Position
from mirror_lib.replication.copied_topics import CopiedPartition
from mirror_lib.replication.copy_ranges import (
    Range,
    SourceCluster,
    Start,
    Starts,
    first_range,
    healed,
    next_range,
    noted,
)
from mirror_lib.replication.journal import BatchRef, Journal, position_row
from mirror_lib.replication.start_rules import unlike

log = logging.getLogger(__name__)

Partitions = Mapping[PartitionKey, CopiedPartition]


def source_logs(
    source: Cluster, partitions: Sequence[TopicPartition], stands: Mapping[TopicPartition, int], isolation_level: str
) -> Mapping[TopicPartition, OffsetRange]:
    """The start and end of the logs of `partitions`, if their leaders report them. Raises `ClusterError`.

    A log that ends before its copy is accepted only if all brokers agree on its leader. If the copy is past the last
    stable offset but within the log, nothing was truncated: the copy was made under another isolation level.
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


class Positions:
    """The positions of one flow. `known` counts the partitions with rows in the ledger."""

    def __init__(
        self,
        flow: ReplicationFlow,
        source: SourceCluster,
        target: Cluster,
        journal: Journal,
    ) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._journal = journal
        self._starts = Starts(flow, source)
        self._in_ledger = dict(journal.positions())
        self._now: Dict[PartitionKey, Position] = {}
        self._doubted: Set[PartitionKey] = set()
        # Partitions of topics without an id, whose last recorded record was compared.
        self._alike: Set[PartitionKey] = set()
        self.known = len(self._in_ledger)

    def at(self, key: PartitionKey) -> Position:
        """The position of a partition; `ranges` must have decided on it."""
        return self._now[key]

    def move(self, key: PartitionKey, position: Position) -> None:
        """Remember a new position, which is in the ledger or will be at the next commit."""
        self._now[key] = position

    def doubt(self, keys: Iterable[PartitionKey]) -> None:
        """The remote logs may have more records than recorded: a lane's last appends could not be reported."""
        self._doubted.update(keys)

    def trust(self, keys: Iterable[PartitionKey]) -> None:
        """A lane has read the remote logs, and reported."""
        self._doubted.difference_update(keys)

    def ahead(self, each: Range) -> Range:
        """The range from its partition's present position on."""
        return replace(each, start=self._now.get(each.key, each.start))

    def ranges(self, partitions: Partitions, batch: BatchRef) -> List[Range]:
        """Decide for every partition, and record what must be in the ledger before anything is copied.

        A partition whose logs cannot be listed now is excluded; a later batch decides on it.
        """
        unknown = [each for key, each in partitions.items() if key not in self._now and key not in self._in_ledger]
        starts = self._starts.of(unknown)
        without_answer = self._starts.without_answer(unknown, starts)
        sources = self._source_ranges(list(partitions.values()), starts)
        self._recheck(partitions, sources)
        recreated, unread = self._compare_without_ids(partitions)
        new = [each.remote for key, each in partitions.items() if key not in self._now]
        targets = self._target.offsets(new, "read_uncommitted")
        ranges: List[Range] = []
        known = self._by_topic() if new else {}
        for key, each in partitions.items():
            if each.source not in sources or each.source in without_answer or key in unread:
                continue
            if key in self._now:
                ranges.append(next_range(self._flow, key, self._now[key], sources[each.source]))
            elif each.remote in targets:
                decided = first_range(
                    self._flow,
                    key,
                    known.get(each.topic, {}),
                    sources[each.source],
                    targets[each.remote],
                    starts.get(each.source),
                    each.topic in recreated,
                    each.remote_topic,
                    self._journal.folder,
                )
                ranges.append(self._heal(decided, sources[each.source]))
        return self._settle(partitions, ranges, batch)

    def _recheck(self, partitions: Partitions, sources: Mapping[TopicPartition, OffsetRange]) -> None:
        # Decided as at a start: records that left the source's log may have been copied, as the fence will show.
        for key in [key for key in self._doubted if key in partitions and key in self._now]:
            source, at = sources.get(partitions[key].source), self._now[key].upstream_offset
            if source is not None and not source.log_start <= at <= source.end:
                self._in_ledger[key] = self._now.pop(key)

    def _compare_without_ids(self, partitions: Partitions) -> Tuple[Set[str], Set[PartitionKey]]:
        """Compare the last recorded record of both logs where a topic has no id, once after a start and whenever the
        topic was not listed meanwhile. Returns the source topics that are not the recorded ones, and the partitions
        whose records could not be read now. Raises `ClusterError`."""
        self._alike.intersection_update(partitions)
        nameless = {key for key in partitions if not (key.source_topic_id and key.remote_topic_id)} - self._alike
        asked = {key for key in nameless if key in self._now or key in self._in_ledger}
        if not asked:
            return set(), set()
        last = {partitions[key]: at for key, at in self._journal.last_records().items() if key in asked}
        ours = first_records(self._flow.source, {each.source: at.upstream_offset for each, at in last.items()})
        theirs = first_records(self._flow.target, {each.remote: at.downstream_offset for each, at in last.items()})
        unread, recreated = set(), set()
        for each, at in last.items():
            one, other = ours.records.get(each.source), theirs.records.get(each.remote)
            if unlike(self._flow, at, one, other, each.remote in theirs.stamped):
                recreated.add(each.topic)
            elif (one is None and each.source not in ours.without) or (
                other is None and each.remote not in theirs.without
            ):
                unread.add(each.key)
        self._alike |= {key for key in asked - unread if key.source_topic not in recreated}
        for key in [key for key in self._now if key in asked and key.source_topic in recreated]:
            self._in_ledger[key] = self._now.pop(key)  # decided as at a start
        return recreated, unread

    def _by_topic(self) -> Mapping[str, Mapping[PartitionKey, Position]]:
        """The positions of partitions by source topic, including those under ids of deleted topics."""
        known: Dict[str, Dict[PartitionKey, Position]] = {}
        # Records copied since the ledger was read count as well: a topic may be re-created during one run.
        for key, at in {**self._in_ledger, **self._now}.items():
            known.setdefault(key.source_topic, {})[key] = at
        return known

    def _source_ranges(
        self, partitions: Sequence[CopiedPartition], starts: Mapping[TopicPartition, Start]
    ) -> Mapping[TopicPartition, OffsetRange]:
        stands = {each.source: self._stands(each.key).upstream_offset for each in partitions}
        stands.update({each: start.upstream_offset for each, start in starts.items()})
        return source_logs(self._source, [each.source for each in partitions], stands, self._flow.isolation_level)

    def _stands(self, key: PartitionKey) -> Position:
        return self._now.get(key) or self._in_ledger.get(key) or Position(0, 0)

    def _heal(self, each: Range, source: OffsetRange) -> Range:
        if each.void_from is None:
            return each
        # Without a row: another driver voided the rows at this moment.
        known = self._journal.history(each.key, each.void_from) or (each.start, each.start.upstream_offset)
        return healed(self._flow, each, source, *known)

    def _settle(self, partitions: Partitions, ranges: Sequence[Range], batch: BatchRef) -> List[Range]:
        going = [each for each in ranges if each.refused is None]
        # Incidents first: a crash in between records one twice, and never moves past records in silence.
        self._journal.note([each.incident for each in going if each.incident is not None], batch)
        known = {**self._in_ledger, **self._now}
        anchors = {each.key: position_row(partitions[each.key], each.start) for each in going if each.anchor}
        self._journal.append([row for key, row in anchors.items() if key in known], batch)
        # Another driver may have started from another offset. Its start counts, as it may have copied from there on.
        begun = self._journal.begin([row for key, row in anchors.items() if key not in known], batch)
        settled = [replace(each, start=begun.get(each.key, each.start)) for each in ranges]
        for each in (each for each in settled if each.refused is None):
            if each.void_from is not None:
                # Last: after a crash before this, the next run finds the remote log too short again.
                self._journal.forget_from(each.key, each.void_from)
            self._now[each.key] = each.start
        return settled


Offsets = Mapping[TopicPartition, CommittedOffset]


class SourceProgress:
    """Commits the positions of partitions to a group, if there is one."""

    def __init__(self, group: Optional[GroupProgress]) -> None:
        self._group = group
        self._reported: Dict[PartitionKey, CommittedOffset] = {}

    def begun(self, partitions: Mapping[PartitionKey, CopiedPartition], ranges: Sequence[Range]) -> None:
        """Offer the positions of partitions that this driver starts, and drop partitions that it no longer copies.
        Raises `ClusterError`.

        A start that only this ledger has is committed before anything is copied. Otherwise a driver with another ledger
        would start there too, after the records copied by then.
        """
        if self._group is None:
            return
        gone = [key for key in self._reported if key not in partitions]
        self._group.withdraw(_by_source({key: self._reported.pop(key) for key in gone}))
        new = [each for each in ranges if each.refused is None and each.key not in self._reported]
        anchored = _offsets(partitions, {each.key: each.start for each in new if each.anchor})
        if anchored:
            self._group.commit(_by_source(anchored))
        found = _offsets(partitions, {each.key: each.start for each in new if not each.anchor})
        self._group.offer(_by_source(found))
        self._reported.update({**anchored, **found})

    def waits_for_ledger(self) -> bool:
        """Whether progress is committed to a group, after the ledger."""
        return self._group is not None

    def moved(self, partitions: Mapping[PartitionKey, CopiedPartition], moves: Mapping[PartitionKey, Position]) -> None:
        """Offer positions that are in the ledger."""
        if self._group is not None:
            found = _offsets(partitions, moves)
            self._group.offer(_by_source(found))
            self._reported.update(found)


def _offsets(
    partitions: Mapping[PartitionKey, CopiedPartition], positions: Mapping[PartitionKey, Position]
) -> Dict[PartitionKey, CommittedOffset]:
    return {
        key: noted(partitions[key].remote_topic, key.remote_topic_id, at)
        for key, at in positions.items()
        if key in partitions
    }


def _by_source(offsets: Mapping[PartitionKey, CommittedOffset]) -> Offsets:
    return {(key.source_topic, key.partition): at for key, at in offsets.items()}
