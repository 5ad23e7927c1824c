"""Proof for flows that place records anew. In: the flow's last pass, its copied topics. Out: a VerifyReport.

Everything before a flow's last pass is whole: all of the source before it lies before it on the remote logs. So each
remote partition must hold, up to there, the records that the change is made to place there: none lost, added, changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirror_lib.facts import Cluster, OffsetRange
from mirror_lib.state.row_passes import REMOTE, SOURCE, PassRow, RowPass
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.digests import DigestReader, Slice
from mirror_lib.verify.verdicts import (
    DIFFERS,
    EQUAL,
    EXPIRED,
    LOST,
    Difference,
    PartitionVerdict,
    TopicVerdict,
)

# A place is (topic, partition).
Place = Tuple[str, int]
ORDER = "the order of its records was not compared"
GONE = "a log of its source or of its remote topic no longer begins at its first record: nothing was compared"
EXTRA = "not made of the source"


@dataclass(frozen=True)
class Whole:
    """What was copied whole: upstream and downstream, the log's start and the end of it, by place."""

    source: Mapping[Place, OffsetRange]
    remote: Mapping[Place, OffsetRange]

    def expired(self, topics: Collection[str], remote_topic: str) -> bool:
        """Whether a log of the topics or of their remote topic has lost its beginning."""
        ours = [log for (name, _), log in self.source.items() if name in topics]
        theirs = [log for (name, _), log in self.remote.items() if name == remote_topic]
        return any(log.log_start > 0 for log in (*ours, *theirs))


def whole_before(last: Optional[RowPass], source: Cluster, target: Cluster, isolation_level: str) -> Whole:
    """What lies before the pass `last`; nothing where the flow had none."""
    ours, theirs = ((), ()) if last is None else (last.of(SOURCE), last.of(REMOTE))
    here = source.offsets([row.place for row in ours], isolation_level)
    there = target.offsets([row.place for row in theirs], "read_uncommitted")
    return Whole(_until(ours, here), _until(theirs, there))


def _until(rows: Sequence[PassRow], logs: Mapping[Place, OffsetRange]) -> Mapping[Place, OffsetRange]:
    return {row.place: OffsetRange(logs[row.place].log_start, row.from_offset) for row in rows if row.place in logs}


def verify_placed(
    source: DigestReader, remote: DigestReader, copied: Sequence[CopiedTopic], whole: Whole
) -> Tuple[TopicVerdict, ...]:
    """One verdict for each remote topic, with the names of all topics that are copied into it. `source` makes the
    flow's records, each under its remote place."""
    by_remote: Dict[str, List[CopiedTopic]] = {}
    for topic in copied:
        by_remote.setdefault(topic.remote_topic, []).append(topic)
    return tuple(_topic(source, remote, name, topics, whole) for name, topics in by_remote.items())


def _topic(
    source: DigestReader, remote: DigestReader, remote_topic: str, topics: Sequence[CopiedTopic], whole: Whole
) -> TopicVerdict:
    names = [topic.source.name for topic in topics]
    name, there = ", ".join(names), range(max(topic.remote_partitions for topic in topics))
    # Where nothing is left of a record, nobody knows which remote partition had it.
    if whole.expired(names, remote_topic):
        gone = [PartitionVerdict(number, 0, 0, EXPIRED, None, (GONE,)) for number in there]
        return TopicVerdict(name, remote_topic, tuple(gone))
    slots = [Slice(n, remote_topic, n, 0, 0) for n in there]
    made = source.hashes(_slices(whole.source, {each.source.name: each.partitions for each in topics}), slots)
    found = remote.hashes(_slices(whole.remote, {remote_topic: len(there)}))
    ours, theirs = _sums(made), _sums(found)
    different = [n for n in there if ours.get(n, _NONE)[0] != theirs.get(n, _NONE)[0]]
    firsts = _firsts(made, found, different) if different else {}
    return TopicVerdict(name, remote_topic, tuple(_verdict(n, theirs, firsts.get(n)) for n in there))


def _slices(ranges: Mapping[Place, OffsetRange], counts: Mapping[str, int]) -> List[Slice]:
    places = [(topic, n) for topic, count in counts.items() for n in range(count) if (topic, n) in ranges]
    return [Slice(at[1], *at, ranges[at].log_start, ranges[at].end) for at in places]


# Count and sums of hashes, then bytes.
Sums = Tuple[Tuple[int, ...], int]
_NONE: Sums = ((0, 0, 0), 0)


def _sums(records: DataFrame) -> Dict[int, Sums]:
    """By slot. Sums, not the exclusive or: a record that is there twice must not cancel itself out."""
    totals = [F.sum(F.col(f"hash_{n}").cast("decimal(38,0)")).alias(f"sum_{n}") for n in (1, 2)]
    counts = (F.count(F.lit(1)).alias("records"), F.sum("bytes").alias("bytes"))
    rows = records.groupBy("slot").agg(*counts, *totals).collect()
    return {row["slot"]: ((row["records"], int(row["sum_1"]), int(row["sum_2"])), row["bytes"]) for row in rows}


def _firsts(made: DataFrame, found: DataFrame, slots: Sequence[int]) -> Dict[int, Difference]:
    """The first record of each slot that is on one side more often than on the other."""
    ours, theirs = (_counted(side, slots, name) for side, name in ((made, "ours"), (found, "theirs")))
    joined = ours.join(theirs, ["slot", "hash_1", "hash_2"], "full_outer").na.fill(0, ["ours", "theirs"])
    rows = joined.where("ours <> theirs").groupBy("slot").agg(
        F.expr("sum(abs(ours - theirs))").alias("records"),
        F.expr("min(ours_first) filter (where ours > theirs)").alias("upstream"),
        F.expr("min(theirs_first) filter (where theirs > ours)").alias("downstream"),
    )
    return {row["slot"]: _difference(row["slot"], row["records"], row["upstream"], row["downstream"])
            for row in rows.collect()}  # fmt: skip


def _counted(records: DataFrame, slots: Sequence[int], name: str) -> DataFrame:
    own = records.where(F.col("slot").isin(list(slots))).groupBy("slot", "hash_1", "hash_2")
    return own.agg(F.count(F.lit(1)).alias(name), F.min("offset").alias(f"{name}_first"))


def _difference(slot: int, records: int, upstream: Optional[int], downstream: Optional[int]) -> Difference:
    if downstream is None:
        return Difference(slot, LOST, upstream, None, records, "the remote partition does not hold the record")
    detail = "the flow makes no such record for this partition, or not so often"
    return Difference(slot, EXTRA, upstream, downstream, records, detail)


def _verdict(slot: int, theirs: Mapping[int, Sums], difference: Optional[Difference]) -> PartitionVerdict:
    (records, _, _), size = theirs.get(slot, _NONE)
    return PartitionVerdict(slot, records, size, DIFFERS if difference else EQUAL, difference, (ORDER,))
