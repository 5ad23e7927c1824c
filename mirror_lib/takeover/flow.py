"""Takes over one flow: reads MirrorMaker's state and both clusters, decides, writes the ledger's rows."""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Dict, Iterator, List, Optional, Sequence

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.admin_client import ANSWER_SECONDS
from mirror_lib.kafka.connection import Disconnected, LogClient
from mirror_lib.kafka.fetcher import READ_COMMITTED
from mirror_lib.kafka.log_pairs import log_pairs
from mirror_lib.kafka.log_reader import LogEntries
from mirror_lib.ledger.event_tables import EventTable
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow, MirrorRun, PartitionKey, Position, Progress, TakeoverRow
from mirror_lib.ledger.runs import RunTable
from mirror_lib.replication.copy_ranges import noted
from mirror_lib.takeover.origin import Left, Origin, changed, read_left, refuse_live
from mirror_lib.takeover.signs import SETTLE_SECONDS, heartbeats_of
from mirror_lib.takeover.verdicts import (
    KNOWN,
    REFUSED,
    TAKE_OVER,
    Known,
    PartitionTakeover,
    Verdict,
    decide,
    decide_known,
    moved,
)
from mirror_lib.takeover.walk import PartitionLogs
from mirror_lib.text import some
from mirror_lib.topics.remote_topics import plan_flow

log = logging.getLogger(__name__)

# Partitions whose leaders move while they are read are read again, so often in all.
ATTEMPTS = 300

UNLISTED = Verdict(REFUSED, "one of its clusters answers with no offsets of it; check that the partition has a leader")


@dataclass(frozen=True)
class _Partition:
    """A partition that the flow copies and whose remote topic exists. `known` is `None` if a cluster does not list its
    offsets, `resumes_at` if the ledger has no rows of it."""

    key: PartitionKey
    remote_topic: str
    known: Optional[Known]
    resumes_at: Optional[Position]

    @property
    def source(self) -> TopicPartition:
        return self.key.source_topic, self.key.partition

    @property
    def remote(self) -> TopicPartition:
        return self.remote_topic, self.key.partition


class FlowTakeover:
    """Takes a flow over from `origin`. `compare`: that many records before a stored position are compared as well.

    Raises `RefusedError` if there is no take-over of the whole flow now, `ClusterError` and `StateError`. A refused
    partition is a verdict, and does not stop the others.
    """

    def __init__(
        self,
        config: MirrorConfig,
        flow: ReplicationFlow,
        spark: SparkSession,
        source: KafkaCluster,
        target: KafkaCluster,
        origin: Origin,
        compare: int,
    ) -> None:
        self.flow = flow
        self.run_id = uuid.uuid4().hex
        self._flows = config.flows
        self._source, self._target = source, target
        self._origin = origin
        self._compare = compare
        self._ledger = OffsetSyncTable(spark, config.state)
        self._events = EventTable(spark, config.state)
        self._runs = RunTable(spark, config.state)
        self._clusters = (source.cluster_id(), target.cluster_id())
        self._runs.same_clusters(flow.name, self._clusters)

    def examine(self) -> List[PartitionTakeover]:
        began = time.monotonic()
        refuse_live(self._origin, self.flow, self._source, self._target)
        if self._origin.members_group(self.flow) is None and heartbeats_of(self.flow):
            raise RefusedError(
                f"{self.flow.name}: the other tool still runs: its heartbeats arrive on {self._target.alias}",
                "stop it; if only its other connectors run, give --worker-group and --connector",
                code="MIR-340",
            )
        left = read_left(self._origin, self.flow, self._source, self._target)
        partitions = list(self._partitions(left))
        uncopied = {topic for topic, _ in left.positions} - {each.key.source_topic for each in partitions}
        if uncopied:
            what = "%s: positions of topics that do not exist or are not copied by this flow: %s"
            log.warning(what, self.flow.name, some(sorted(uncopied)))
        verdicts = {each.key: Verdict(KNOWN) for each in partitions if each.resumes_at is not None}
        verdicts.update(self._decided(partitions))
        time.sleep(max(0.0, SETTLE_SECONDS - (time.monotonic() - began)))
        self._refuse_changes(left)
        # A tool that still writes moves a log end.
        now = self._target.offsets([each.remote for each in partitions], "read_uncommitted")
        for each in partitions:
            if each.known is not None and verdicts[each.key].action == TAKE_OVER:
                end = now[each.remote].end if each.remote in now else None
                before = each.known.remote.end
                verdicts[each.key] = UNLISTED if end is None else moved(verdicts[each.key], before, end)
        origin, kept = self._origin.described(self.flow), left.positions
        return [
            PartitionTakeover(
                each.key, each.remote_topic, origin, kept.get(each.source), verdicts.get(each.key, UNLISTED)
            )
            for each in partitions
        ]

    def execute(self, decided: Sequence[PartitionTakeover]) -> int:
        going = [each for each in decided if each.verdict.action == TAKE_OVER]
        if not going:
            return 0
        run = MirrorRun(
            self.run_id, self.flow.name, self.flow.tasks_max, self.flow.delivery, *self._clusters, self.run_id
        )
        self._runs.started(run)
        self._events.add_takeovers(self.flow.name, [_takeover_row(each) for each in going], run_id=self.run_id)
        self._commit_to_group(going)
        rows = [row for each in going for row in _ledger_rows(each)]
        self._ledger.append(self.flow.name, rows, run_id=self.run_id, query_id="", batch_id=-1)
        self._runs.ended(run, "ok", Progress(0, 0))
        return len(going)

    def _commit_to_group(self, going: Sequence[PartitionTakeover]) -> None:
        """Commit the offsets to the flow's group. A process with another ledger resumes from the group alone, and would
        copy records after its offsets again."""
        group = self.flow.commit_source_group
        if not group or not self._origin.is_group or group != self._origin.name:
            return
        offsets = {
            (key.source_topic, key.partition): noted(each.remote_topic, key.remote_topic_id, each.resumes_at)
            for each, key in ((each, each.key) for each in going)
        }
        for (topic, number), reason in self._source.commit_offsets(group, offsets).items():
            if reason is not None:
                reported = f"{self.flow.name}: group {group} cannot be moved to the end of {topic}-{number}: {reason}"
                raise RefusedError(reported, "a process with another ledger would copy its tail again", code="MIR-343")

    def _partitions(self, left: Left) -> Iterator[_Partition]:
        topics = self._target.topics()
        plan = plan_flow(self.flow, self._source, self._target, self._flows)
        pairs = {
            ((topic.source.name, number), (topic.remote_topic, number)): topic
            for topic in plan.copied
            if topic.remote_topic in topics
            for number in range(min(topic.partitions, topics[topic.remote_topic].partitions))
        }
        sources, remotes = [here for here, _ in pairs], [there for _, there in pairs]
        ours = self._source.offsets(sources, "read_uncommitted")
        theirs, stable = (self._target.offsets(remotes, level) for level in ("read_uncommitted", "read_committed"))
        in_ledger = self._ledger.positions(self.flow.name)
        for (here, there), topic in pairs.items():
            known = None
            if here in ours and there in theirs and there in stable:
                kept, syncs = left.positions.get(here), left.syncs.get(here, ())
                known = Known(kept, syncs, ours[here], theirs[there], stable[there].end, self._compare)
            key = PartitionKey(topic.source.topic_id, topic.remote_topic_id, *here)
            yield _Partition(key, topic.remote_topic, known, in_ledger.get(key))

    def _decided(self, partitions: Sequence[_Partition]) -> Dict[PartitionKey, Verdict]:
        found: Dict[PartitionKey, Verdict] = {}
        listed = [(each, each.known) for each in partitions if each.known is not None]
        pairs = [(each.source, each.remote) for each, _ in listed]
        with log_pairs(self.flow.source, self.flow.target, pairs, ATTEMPTS, ANSWER_SECONDS) as logs:
            for (each, known), pair in zip(listed, pairs):
                try:
                    found[each.key] = logs.read(pair, partial(self._decide, each, known))
                except Disconnected as error:
                    found[each.key] = Verdict(REFUSED, f"its logs cannot be read: {error}")
                log.info("%s: %s-%d: %s", self.flow.name, *each.source, found[each.key].action)
        return found

    def _decide(self, each: _Partition, known: Known, source: LogClient, target: LogClient) -> Verdict:
        resumes_at = each.resumes_at
        # What a flow changes cannot be compared with the source.
        if resumes_at is not None and (self.flow.change or known.stable_end <= resumes_at.downstream_offset):
            return Verdict(KNOWN)

        def first_of(timestamp: int) -> int:
            return self._target.offsets_at([each.remote], timestamp, "read_uncommitted").get(each.remote, -1)

        logs = PartitionLogs(
            partial(LogEntries, source, each.source),
            lambda offset: LogEntries(target, each.remote, offset, READ_COMMITTED),
            first_of,
        )
        return decide(known, logs) if resumes_at is None else decide_known(resumes_at, logs)

    def _refuse_changes(self, left: Left) -> None:
        kept = changed(left, read_left(self._origin, self.flow, self._source, self._target))
        if kept:
            raise RefusedError(
                f"{self.flow.name}: the other tool still runs: the kept position of {kept[0]} has changed meanwhile",
                "stop it first",
                code="MIR-340",
            )
        refuse_live(self._origin, self.flow, self._source, self._target)


def _takeover_row(each: PartitionTakeover) -> TakeoverRow:
    place, found = (each.key, each.remote_topic, each.taken_from, each.kept_offset), each.verdict
    return TakeoverRow(*place, each.resumes_at, found.tail, found.doubled, found.older)


def _ledger_rows(each: PartitionTakeover) -> Iterator[LedgerRow]:
    key = each.key
    names = (key.source_topic, each.remote_topic, key.partition, key.source_topic_id, key.remote_topic_id)
    for run in each.verdict.runs:
        yield LedgerRow(*names, *run)
    yield LedgerRow(*names, each.resumes_at.upstream_offset, each.resumes_at.downstream_offset, 0)
