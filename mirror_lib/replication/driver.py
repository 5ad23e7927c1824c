"""What both engines share on the driver: decides where partitions resume, and records what was copied of them.

Order of effects of a batch: incidents and anchors to the ledger, records to the remote logs, offset syncs to the
ledger. Progress for a consumer group of the source is committed after the ledger, so the group is never ahead of the
copy. With the offset metadata a driver with another ledger, or none, finds the records written since.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import CommittedOffset, OffsetRange, TopicPartition
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.group_progress import GroupProgress
from mirror_lib.kafka.offsets import first_records
from mirror_lib.ledger.records import PARTITION_STOPPED, Incident, LedgerRow, LedgerRuns, PartitionKey, Position
from mirror_lib.replication.copy_ranges import (
    Found,
    Range,
    Start,
    first_range,
    healed,
    moved_on,
    next_range,
    noted,
    starts_of,
)
from mirror_lib.replication.flow_state import Commit, FlowState, Partitions
from mirror_lib.replication.journal import Journal
from mirror_lib.replication.messages import CopiedPartition
from mirror_lib.replication.start_rules import unlike as records_unlike


def source_logs(
    source: KafkaCluster,
    partitions: Sequence[TopicPartition],
    stands: Mapping[TopicPartition, int],
    isolation_level: str,
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


def starting_logs(
    flow: ReplicationFlow,
    source: KafkaCluster,
    partitions: Sequence[CopiedPartition],
    stands: Mapping[TopicPartition, int],
) -> Tuple[Mapping[TopicPartition, Start], Mapping[TopicPartition, OffsetRange]]:
    """The starts of the partitions that are not at an offset in `stands`, and the logs of all partitions on which a
    driver can decide now. Raises `ClusterError`."""
    unknown = [each for each in partitions if each.source not in stands]
    found = starts_of(flow, source, unknown)
    at = {**stands, **{each: start.upstream_offset for each, start in found.items()}}
    logs = source_logs(source, [each.source for each in partitions], at, flow.isolation_level)
    # A partition waits if its leader does not return the offset of the timestamp at which it starts.
    by_time = flow.start_position is not None and flow.start_position.timestamp is not None
    waiting = {each.source for each in unknown if by_time and each.source not in found}
    return found, {each: log for each, log in logs.items() if each not in waiting}


def _beyond(found: Mapping[TopicPartition, OffsetRange], stands: Mapping[TopicPartition, int]) -> List[TopicPartition]:
    return [each for each, at in stands.items() if each in found and at > found[each].end]


Offsets = Mapping[TopicPartition, CommittedOffset]


class FlowDriver:
    """One flow's partitions on its driver. Progress is committed to the source's group `group`, if there is one.
    `tails`: the flow tails once it has caught up."""

    def __init__(
        self,
        flow: ReplicationFlow,
        source: KafkaCluster,
        target: KafkaCluster,
        journal: Journal,
        group: Optional[GroupProgress] = None,
        tails: bool = False,
    ) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._journal = journal
        self._group = group
        self._tails = tails
        self.state = FlowState(flow, journal.positions())
        # What is copied and not yet appended to the ledger.
        self._owed: Optional[Commit] = None

    def begin(self, partitions: Partitions) -> None:
        """Decide for every partition, and record what must be in the ledger before anything is copied. Raises
        `ClusterError`.

        A partition whose logs cannot be listed now is stopped; a later batch decides on it.
        """
        self._drop(partitions)
        ranges = self._recorded(partitions, self._ranges(partitions))
        self._offer_begun(partitions, ranges)
        self.state.begin(partitions, ranges)

    def commit(
        self,
        commit: Commit,
        runs: Sequence[LedgerRuns] = (),
        incidents: Sequence[Incident] = (),
        *,
        in_background: bool = False,
        later: bool = False,
    ) -> None:
        """Record `commit`, with more `runs` and `incidents`: incidents, ledger, this driver's positions, then the
        source's group. Where the append to the ledger may wait it is done `in_background`, or `later` by `write_owed`.
        A crash before it leaves records on the remote logs that the ledger lacks, and the next start recovers them."""
        # Incidents first: a crash in between records one twice, and never moves past records in silence.
        self._journal.note([*commit.incidents, *incidents])
        may_wait = commit.plain and self._group is None
        if later and may_wait:
            self._owed = commit
        else:
            self._journal.append(commit.rows, [*commit.runs, *runs], in_background=in_background and may_wait)
        self.state.take(commit)
        if self._group is not None:
            self._group.offer(self._offers(self.state.copied, commit.moves))

    def write_owed(self) -> None:
        """Begin to append, in a thread, what `commit` left for later. Call it before other writes to the ledger."""
        owed, self._owed = self._owed, None
        if owed is not None:
            self._journal.append(owed.rows, owed.runs, in_background=True)

    def pass_loss(self, key: PartitionKey, lost: Incident, at: Position) -> None:
        """Move a partition past a loss in its source's log."""
        # The incident first: a crash in between records it twice, and never moves past records silently.
        self._journal.note([lost])
        self._journal.append([self.state.copied[key].position_row(at)])
        self.state.change(key, position=at)

    def _drop(self, partitions: Partitions) -> None:
        """Drop the state of partitions that are no longer copied, but their positions."""
        gone = [key for key in self.state.copied if key not in partitions]
        if self._group is not None:
            self._group.withdraw([self.state.copied[key].source for key in gone])
        for key in gone:
            self.state.change(key, range=None, stop=None, alike=False)

    def _ranges(self, partitions: Partitions) -> List[Range]:
        of = self.state.of
        positions = {each.source: of(key).position for key, each in partitions.items()}
        stands = {source: at.upstream_offset for source, at in positions.items() if at is not None}
        starts, sources = starting_logs(self._flow, self._source, list(partitions.values()), stands)
        kept = {each.source: of(key).at for key, each in partitions.items() if of(key).position and not of(key).decided}
        moved = moved_on(self._flow, self._source, kept)
        self._recheck(partitions, sources)
        recreated, unread = self._compare_without_ids(partitions)
        new = [each.remote for key, each in partitions.items() if not of(key).decided]
        targets = self._target.offsets(new, "read_uncommitted")
        ranges: List[Range] = []
        known = self._by_topic() if new else {}
        for key, each in partitions.items():
            if each.source not in sources or key in unread:
                continue
            if of(key).decided:
                later, before = next_range(self._flow, key, of(key).at, sources[each.source]), of(key).range
                if before is not None and before.start == of(key).at:
                    later = replace(later, unrecorded=before.unrecorded)
                ranges.append(later)
            elif each.remote in targets:
                logs = sources[each.source], targets[each.remote]
                begin, unlike, by_others = starts.get(each.source), each.topic in recreated, moved.get(each.source)
                of_topic = known.get(each.topic, {})
                found = Found(key, each.remote_topic, of_topic, *logs, begin, unlike, by_others, self._tails)
                ranges.append(self._heal(first_range(self._flow, found, self._journal.folder), found))
        return ranges

    def _recheck(self, partitions: Partitions, sources: Mapping[TopicPartition, OffsetRange]) -> None:
        # Decided as at a start: records that left the source's log may have been copied, as the fence will show.
        for key, each in partitions.items():
            state = self.state.of(key)
            if state.doubted and state.decided and each.source in sources:
                source, at = sources[each.source], state.at.upstream_offset
                if not source.log_start <= at <= source.end:
                    self.state.change(key, decided=False)

    def _compare_without_ids(self, partitions: Partitions) -> Tuple[Set[str], Set[PartitionKey]]:
        """Compare the last recorded record of both logs where a topic has no id, once after a start and whenever the
        topic was not listed meanwhile. Returns the source topics that are not the recorded ones, and the partitions
        whose records could not be read now. Raises `ClusterError`."""
        nameless = [key for key in partitions if not (key.source_topic_id and key.remote_topic_id)]
        states = {key: self.state.of(key) for key in nameless}
        asked = {key for key, each in states.items() if each.position is not None and not each.alike}
        if not asked:
            return set(), set()
        last = {partitions[key]: at for key, at in self._journal.last_records().items() if key in asked}
        ours = first_records(self._flow.source, {each.source: at.upstream_offset for each, at in last.items()})
        theirs = first_records(self._flow.target, {each.remote: at.downstream_offset for each, at in last.items()})
        unread, recreated = set(), set()
        for each, at in last.items():
            one, other = ours.records.get(each.source), theirs.records.get(each.remote)
            if records_unlike(self._flow, at, one, other, each.remote in theirs.stamped):
                recreated.add(each.topic)
            elif (one is None and each.source not in ours.without) or (
                other is None and each.remote not in theirs.without
            ):
                unread.add(each.key)
        for key in asked:
            if key.source_topic in recreated:
                self.state.change(key, decided=False)  # as at a start
            elif key not in unread:
                self.state.change(key, alike=True)
        return recreated, unread

    def _by_topic(self) -> Mapping[str, Mapping[PartitionKey, Position]]:
        """The positions of partitions by source topic, including those under ids of deleted topics."""
        known: Dict[str, Dict[PartitionKey, Position]] = {}
        for key, each in self.state.partitions.items():
            if each.position is not None:
                known.setdefault(key.source_topic, {})[key] = each.position
        return known

    def _heal(self, each: Range, found: Found) -> Range:
        if each.void_from is None:
            return each
        # Without a row: another driver voided the rows at this moment.
        known = self._journal.history(each.key, each.void_from) or (each.start, each.start.upstream_offset)
        return healed(self._flow, each, found.source, *known, older=found.had_other_records(each.void_from))

    def _recorded(self, partitions: Partitions, ranges: Sequence[Range]) -> List[Range]:
        going = [each for each in ranges if each.refused is None]
        # Incidents first: a crash in between records one twice, and never moves past records in silence.
        news = [each.incident for each in going if each.incident is not None]
        news += [
            Incident(PARTITION_STOPPED, *each.source, each.start.upstream_offset, -1, each.refused)
            for each in ranges
            if each.refused is not None and not self.state.of(each.key).refused
        ]
        self._journal.note(news)
        known: List[LedgerRow] = []
        first: List[LedgerRow] = []
        for each in (each for each in going if each.anchor):
            rows = first if self.state.of(each.key).position is None else known
            rows.append(partitions[each.key].position_row(each.start))
        self._journal.append(known)
        # Another driver may have started from another offset. Its start counts, as it may have copied from there on.
        begun = self._journal.begin(first)
        settled = [replace(each, start=begun[each.key]) if each.key in begun else each for each in ranges]
        for each in (each for each in settled if each.refused is None):
            if each.void_from is not None:
                # Last: after a crash before this, the next run finds the remote log too short again.
                self._journal.forget_from(each.key, each.void_from)
            state = self.state.of(each.key)
            if not state.decided or state.position != each.start:
                self.state.change(each.key, position=each.start, decided=True)
        return settled

    def _offer_begun(self, partitions: Partitions, ranges: Sequence[Range]) -> None:
        """Offer the positions of partitions that this driver starts.

        A start that only this ledger has is committed before anything is copied. Otherwise a driver with another ledger
        would start there too, after the records copied by then. A start that is not proved yet is not offered.
        """
        if self._group is None:
            return
        sure = (each for each in ranges if each.refused is None and not each.unrecorded)
        new = [each for each in sure if not self._group.offers(each.source)]
        anchored = self._offers(partitions, {each.key: each.start for each in new if each.anchor})
        if anchored:
            self._group.commit(anchored)
        self._group.offer(self._offers(partitions, {each.key: each.start for each in new if not each.anchor}))

    def _offers(self, partitions: Partitions, positions: Mapping[PartitionKey, Position]) -> Offsets:
        """What the group gets for these positions, which must be in the ledger."""
        return {
            partitions[key].source: noted(partitions[key].remote_topic, key.remote_topic_id, at)
            for key, at in positions.items()
        }
