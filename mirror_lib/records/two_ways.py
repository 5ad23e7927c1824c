"""A flow some of whose topics keep their partitions while others go by keys, as partition counts differ: both mirrors
in, one out. They share the run, the ledger's folder and the group, and no lane.
"""

from __future__ import annotations

import logging
from typing import Iterable, List, Optional, Sequence

from pyspark.sql import SparkSession

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import FencedError, RefusedError
from mirror_lib.records.mixing import MixingMirror
from mirror_lib.replicate.copy_hours import Halt
from mirror_lib.replicate.flow import FlowMirror
from mirror_lib.replicate.journal import BatchRef
from mirror_lib.replicate.lanes import PartitionReport
from mirror_lib.replicate.tailing import Tail
from mirror_lib.state.records import PartitionKey
from mirror_lib.state.row_passes import REMOTE, SOURCE, RowPass
from mirror_lib.topics.policy import remote_topic
from mirror_lib.topics.ways import Ways

log = logging.getLogger(__name__)


def ways_of(flow: ReplicationFlow, copied: Iterable[PartitionKey], last: Optional[RowPass]) -> Ways:
    """What was begun in either way: the flow's partitions in the ledger, and its last pass."""
    kept = {(key.source_topic, key.source_topic_id, key.remote_topic_id) for key in copied}
    rows, remotes = ((), ()) if last is None else (last.of(SOURCE), last.of(REMOTE))
    ids = {row.topic: row.topic_id for row in remotes}
    topics = {(row.topic, row.topic_id, remote_topic(flow, row.topic)) for row in rows}
    return Ways(kept, [(name, own_id, ids[remote]) for name, own_id, remote in topics if remote in ids])


class HaltForNews:
    """Ends copying also where a topic was found that the other mirror has to take."""

    def __init__(self, stop: Halt, ways: Ways) -> None:
        self._stop = stop
        self._ways = ways

    def is_set(self) -> bool:
        """Whether it is to end now."""
        return self._stop.is_set() or self._ways.news()


class TwoWayMirror:
    """See `Mirror`. `kept` halts by a `HaltForNews` over the same `ways` that both have."""

    def __init__(self, kept: FlowMirror, placed: MixingMirror, ways: Ways, stop: Halt) -> None:
        self.flow = kept.flow
        self._kept = kept
        self._placed = placed
        self._ways = ways
        self._stop = stop
        self._refused: Optional[str] = None

    def has_history(self) -> bool:
        """True if anything of it was copied before."""
        return self._kept.has_history() or self._placed.has_history()

    def reached(self) -> bool:
        """Whether `--until` is reached, in both ways."""
        return self._kept.reached() and (self._refused is not None or self._placed.reached())

    def due(self) -> bool:
        """Whether one more look may find `--until` reached."""
        return self._kept.due() and (self._refused is not None or self._placed.due())

    def stopped(self) -> Sequence[PartitionReport]:
        """The partitions that cannot go on."""
        return [*self._kept.stopped(), *([] if self._refused is not None else self._placed.stopped())]

    def not_copied(self) -> Sequence[str]:
        """What `--until` names and neither copies."""
        placed = self._placed.not_copied()
        return [name for name in self._kept.not_copied() if name in placed]

    def blocked(self) -> Sequence[str]:
        """Sentences on what cannot be copied."""
        refused: List[str] = [] if self._refused is None else [self._refused]
        return list(dict.fromkeys([*self._kept.blocked(), *refused]))

    def give_way(self) -> None:
        """End tasks that tail."""
        self._kept.give_way()

    def copy_batch(self, spark: SparkSession, batch: BatchRef, tail: Optional[Tail] = None) -> None:
        """Copy until every partition has reached the end that its source had when this was called. While any topic
        goes by keys nothing is tailed: nobody would look after those. Raises `MirrorError`."""
        while True:
            self._place(spark, batch)
            self._ways.seen()
            self._kept.copy_batch(spark, batch, None if self._placed.has_topics() else tail)
            if self._stop.is_set() or not self._ways.news():
                break

    def _place(self, spark: SparkSession, batch: BatchRef) -> None:
        """What is refused is refused until somebody looked and started again; the other topics go on. Whom another
        driver shut out has nothing to go on with. Raises `FencedError`."""
        if self._refused is not None:
            return
        try:
            self._placed.copy_batch(spark, batch)
        except FencedError:
            raise
        except RefusedError as error:
            self._refused = f"records that go by their keys: {error}"
            log.error("%s: %s", self.flow.name, self._refused)
