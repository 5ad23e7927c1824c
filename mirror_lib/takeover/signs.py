"""Finds out from both clusters whether another replication tool may still write to the remote topics of a flow.

A MirrorMaker shows by the members of its workers' group, by its heartbeats, and by log ends that move. The mirror's own
heartbeats have a header; its checkpoints and offset syncs are not read here.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Callable, Collection, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.control.heartbeats import LONGEST_WAIT_SECONDS, foreign_heartbeats
from mirror_lib.errors import MirrorError, RefusedError
from mirror_lib.facts import TopicDescription, TopicPartition
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.records import PartitionKey, TopicPair
from mirror_lib.ledger.table_reader import TableReader
from mirror_lib.replication.start_rules import Writer
from mirror_lib.status.read import run_is_open
from mirror_lib.takeover.origin import Origin, hosts_of, may_copy
from mirror_lib.text import counted, some
from mirror_lib.threads import BackgroundCall
from mirror_lib.topics.plan import select_topics

STOP_IT = (
    "stop that tool, and after a kill wait for its session timeout; then run `mirror takeover CONFIG --execute`, then "
    "`mirror run CONFIG`. For a mirror with another `state` use that folder"
)


@dataclass(frozen=True)
class OtherWriter:
    """What two reads of the target, seconds apart, show of another tool. `None`: this principal cannot read it.

    `partitions`: the remote partitions with records and without rows in the ledger; without one, mostly nothing was
    checked. `hosts`: of the members of `group`, the group of MirrorMaker's workers. `heartbeats`: how many of
    MirrorMaker arrived between the reads. `moved`: the partitions of remote topics and of MirrorMaker's own topics
    whose log end moved. `topics`: MirrorMaker's own topics.
    """

    alias: str = ""
    partitions: int = 0
    group: str = ""
    hosts: Optional[Tuple[str, ...]] = ()
    heartbeats: Optional[int] = 0
    moved: Tuple[str, ...] = ()
    topics: Tuple[str, ...] = ()

    @property
    def shown(self) -> List[str]:
        """The signs of a tool that runs."""
        signs = (
            (self.hosts, f"group {self.group} on {self.alias} has members ({', '.join(self.hosts or ())})"),
            (self.heartbeats, f"heartbeats of MirrorMaker arrive on {self.alias}"),
            (self.moved, f"the log end of {some(self.moved, 3)} moves"),
        )
        return [sign for found, sign in signs if found]

    @property
    def state(self) -> Writer:
        """RUNNING by any sign; an unreadable one is none, and `unknown` names it."""
        return Writer.RUNNING if self.shown else Writer.ENDED if self.topics else Writer.NONE

    @property
    def reason(self) -> str:
        """Empty if nothing was checked."""
        records = f"{counted(self.partitions, 'remote partition')} with records that the ledger does not have"
        if self.shown:
            return "; ".join(self.shown) + (f". There are {records}" if self.partitions else "")
        if not self.partitions:
            return ""
        if self.topics:
            way = "`mirror takeover CONFIG` resumes where it ended; a run compares these records with the source"
            return f"{records}; MirrorMaker has {some(self.topics, 1)} on {self.alias}, and has ended: {way} instead"
        return f"{records}; no other tool writes to them now: a run compares them with the source"

    @property
    def unknown(self) -> str:
        unread = (
            (self.hosts, f"the members of group {self.group} (grant Describe on it)"),
            (self.heartbeats, "MirrorMaker's heartbeats (grant Read on their topic)"),
        )
        closed = " and ".join(what for found, what in unread if found is None)
        return f"cannot read {closed} on {self.alias}" if closed else ""

    def refusal(self, flow: str) -> Optional[RefusedError]:
        if self.state is not Writer.RUNNING:
            return None
        what = f"{flow}: another tool may still write to the remote topics: {self.reason}. No record was copied"
        return RefusedError(what, STOP_IT, code="MIR-340")

    def warning(self, flow: str) -> str:
        """What an operator must know of a run that is not refused; empty if nothing was checked."""
        return "; ".join(filter(None, [f"{flow}: {self.reason}" if self.reason else "", self.unknown]))


# Between the two reads of what a running tool changes; a busy one writes more often.
SETTLE_SECONDS = 2.0
# Of MirrorMaker's worker for one source, on the target. Its other topics are also written by this mirror, or by a
# MirrorMaker that copies the other way.
WORKER_TOPICS = ("mm2-offsets", "mm2-status", "mm2-configs")

# The partitions in the ledger that keep their numbers, and its repartitioned topics.
Recorded = Callable[[], Tuple[Collection[PartitionKey], Collection[TopicPair]]]
Topics = Mapping[str, TopicDescription]


def other_writer(
    flow: ReplicationFlow,
    flows: Sequence[ReplicationFlow],
    source: KafkaCluster,
    target: KafkaCluster,
    recorded: Recorded,
    mirror_writes: Callable[[], bool],
) -> OtherWriter:
    """Whether another tool may write to remote partitions that hold records without rows in the ledger.

    Without such a partition nothing is awaited, and without any remote topic the ledger is not read. Where the remote
    partitions are still empty, only a dedicated MirrorMaker that copies counts. `flows` are all flows of the file.
    `mirror_writes`: whether another process of this mirror may still write until this one fences it, such as the tasks
    of a run without an end. Raises `ClusterError`, `StateError`.
    """
    if flow.shared_remote_topics:
        return OtherWriter()
    there = target.topics()
    places = target.offsets(unrecorded(flow, flows, source.topics(), there, recorded), "read_uncommitted")
    held = [place for place, log in places.items() if log.end > 0]
    topics = [name for name in (f"{kind}.{flow.source.alias}.internal" for kind in WORKER_TOPICS) if name in there]
    if not held:
        return _before_its_first_record(flow, target) if places and topics else OtherWriter()
    watched = [(name, number) for name in topics for number in range(there[name].partitions)]
    watched = watched if mirror_writes() else [*held, *watched]
    heartbeats = BackgroundCall(f"{flow.name} heartbeats", lambda: heartbeats_of(flow))
    before, began = target.offsets(watched, "read_uncommitted"), time.monotonic()
    origin = Origin()
    group, hosts = origin.members_group(flow), hosts_of(origin, flow, target)
    arrived = heartbeats.result()
    time.sleep(max(0.0, began + settle_seconds(flow) - time.monotonic()))
    after = target.offsets(watched, "read_uncommitted")
    moved = [f"{name}-{n}" for (name, n), log in before.items() if after.get((name, n), log).end != log.end]
    return OtherWriter(target.alias, len(held), str(group), hosts, arrived, tuple(moved), tuple(topics))


def _before_its_first_record(flow: ReplicationFlow, target: KafkaCluster) -> OtherWriter:
    group = str(Origin().members_group(flow))
    workers = target.describe_groups([group]).get(group)
    if workers is None or not may_copy(workers):
        return OtherWriter()
    hosts = {each.host for each in workers.members} or {"a member whose host is unknown"}
    return OtherWriter(target.alias, 0, group, tuple(sorted(hosts)))


def other_writer_by_tables(
    config: MirrorConfig, flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster
) -> OtherWriter:
    """What a run would find, with the ledger read without Spark. Raises `ClusterError`, `StateError`, and `ConfigError`
    where that cannot read the state folder."""
    reader = TableReader(config.state)
    is_open = partial(run_is_open, reader, flow)
    return other_writer(flow, config.flows, source, target, partial(reader.copied, flow.name), is_open)


def settle_seconds(flow: ReplicationFlow) -> float:
    """How long to wait between the two reads: a MirrorMaker with the flow's heartbeat interval writes one meanwhile."""
    return max(SETTLE_SECONDS, min(1.5 * (flow.emit_heartbeats_interval or 0.0), LONGEST_WAIT_SECONDS))


def unrecorded(
    flow: ReplicationFlow, flows: Sequence[ReplicationFlow], ours: Topics, theirs: Topics, recorded: Recorded
) -> List[TopicPartition]:
    """The partitions of the flow's remote topics without a row in the ledger. Pure but for `recorded`."""
    selected, _ = select_topics(flow, ours, flows)
    pairs = [(name, remote) for name, remote in selected.items() if remote in theirs]
    if not pairs:
        return []
    kept, ranges = recorded()
    # Under any id of the source topic: one that was re-created there has rows of its remote topic.
    known = {(key.source_topic, key.remote_topic_id, key.partition) for key in kept}
    known_pairs = {(each.topic, each.remote_topic_id) for each in ranges}
    found: Dict[TopicPartition, None] = {}
    for name, remote in pairs:
        topic = theirs[remote]
        if (name, topic.topic_id) not in known_pairs:
            count = topic.partitions if flow.repartitions else min(ours[name].partitions, topic.partitions)
            found.update({(remote, n): None for n in range(count) if (name, topic.topic_id, n) not in known})
    return list(found)


def heartbeats_of(flow: ReplicationFlow) -> Optional[int]:
    """How many heartbeats of MirrorMaker arrive on the target; `None` if they cannot be read. Waits for one."""
    try:
        return foreign_heartbeats(flow, settle_seconds(flow))
    except MirrorError:
        return None


class WriterCheck:
    """Checks once in a process, for all that write for one flow: its copy, its control and its translation. The last
    two arguments are those of `other_writer`."""

    def __init__(
        self,
        flow: ReplicationFlow,
        flows: Sequence[ReplicationFlow],
        recorded: Recorded,
        mirror_writes: Callable[[], bool],
    ) -> None:
        self._flow, self._flows, self._recorded, self._mirror_writes = flow, flows, recorded, mirror_writes
        self._checking = threading.Lock()
        self._found: Optional[OtherWriter] = None

    def recorded_topics(self) -> Set[Tuple[str, str, str]]:
        """The ledger's topics: name, id, and id of the remote topic. Raises `StateError`."""
        kept, ranges = self._recorded()
        found = {(key.source_topic, key.source_topic_id, key.remote_topic_id) for key in kept}
        return found.union((each.topic, each.topic_id, each.remote_topic_id) for each in ranges)

    def refuse(self, source: KafkaCluster, target: KafkaCluster, recorded: Optional[Recorded] = None) -> OtherWriter:
        """Raise `RefusedError` if another tool may still write. After a `ClusterError` or `StateError` the next call
        checks again. `recorded`: if the caller has read the ledger, what it has."""
        rows, mirror_writes = recorded or self._recorded, self._mirror_writes
        with self._checking:
            if self._found is None:
                self._found = other_writer(self._flow, self._flows, source, target, rows, mirror_writes)
        refusal = self._found.refusal(self._flow.name)
        if refusal is not None:
            raise refusal
        return self._found
