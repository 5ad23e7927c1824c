"""Records on which an expression failed in, each of them once on the dead letter topic, from the driver, out.

Order: after a pass's rows, before its positions are written down. Killed in between, the next life reads the topic and
leaves out what is there: a dead letter says where it came from, and is the record as it came. A life that falls back
behind its positions reads it again.
"""

from __future__ import annotations

import base64
import logging
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.errors import ClusterError, MirrorError
from mirror_lib.log.batch import Producer, Record, read_header
from mirror_lib.log.connection import Disconnected, LogClient, name_of
from mirror_lib.log.fence import fence, idempotent_producer
from mirror_lib.log.fetch import READ_UNCOMMITTED
from mirror_lib.log.reencode import build_batches, cut
from mirror_lib.log.tail import log_entries
from mirror_lib.progress import counted
from mirror_lib.records.known_letters import KnownLetters, Letter, letter_of
from mirror_lib.records.ready import PATIENCE_SECONDS, RETRY_SECONDS, target_of
from mirror_lib.records.row_partition import BATCH_BYTES, NO_CODEC
from mirror_lib.records.rows import Partition
from mirror_lib.records.sending import Sending
from mirror_lib.replicate.encode import Outgoing
from mirror_lib.replicate.lanes import PartitionTask, TaskPlan
from mirror_lib.replicate.log_records import Records
from mirror_lib.replicate.partition import PartitionCopy
from mirror_lib.replicate.recovery import told_ends, up_to

log = logging.getLogger(__name__)

# The broker says what is too large.
MAX_BYTES = 2**31 - 1

# Source topic, partition and offset.
Origin = Tuple[str, int, int]


@dataclass(frozen=True)
class DeadLetter:
    """A record for the dead letter topic's partition `partition`, and where it came from."""

    origin: Origin
    partition: int
    timestamp: int
    body: bytes

    @cached_property
    def told_by(self) -> Letter:
        """What it is told by among the records of its topic."""
        told = letter_of(self.body, self.timestamp)
        if told is None:
            raise ValueError(f"no dead letter was made of {self.origin}")
        return told

    def as_json(self) -> List[object]:
        """For a task's report."""
        return [*self.origin, self.partition, self.timestamp, base64.b64encode(self.body).decode()]

    @staticmethod
    def from_json(cells: Sequence[object]) -> DeadLetter:
        """The letter of `as_json`."""
        topic, number, offset, partition, timestamp, body = cells
        origin = (str(topic), int(str(number)), int(str(offset)))
        return DeadLetter(origin, int(str(partition)), int(str(timestamp)), base64.b64decode(str(body)))


class DeadLetters:
    """One flow's dead letter topic in one driver's life."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        # Behind a fence of all partitions: what the topic holds, wherever it lies, as it may have been grown.
        self._there: Optional[KnownLetters] = None
        self._held: Optional[Producer] = None
        self._alone = False

    def append(self, plan: TaskPlan, letters: Sequence[DeadLetter], stands: Mapping[Partition, int]) -> None:
        """Append those that are not there. `stands` is where the pass began in each of its source partitions.

        Raises `FencedError`, `ClusterError`, and `MirrorError` where the topic does not take one.
        """
        if not letters:
            return
        if self._there is not None:
            self._there.stands(stands)
            self._there = self._there if self._there.tells_of(letter.told_by for letter in letters) else None
        deadline, done = time.monotonic() + PATIENCE_SECONDS, False
        while not done:
            try:
                with target_of(plan, deadline, self._topic) as client:
                    done = self._appended(client, plan, letters, stands, deadline)
            except Disconnected as error:
                self._there = None  # what was in flight may be there
                if time.monotonic() > deadline:
                    raise ClusterError(f"{plan.flow}: {error}", "is the cluster healthy?") from error
                time.sleep(RETRY_SECONDS)
        told = counted(len(letters), "record")
        log.warning("%s: %s could not be changed; dead letters are on %s", plan.flow, told, self._topic)

    def _appended(
        self,
        client: LogClient,
        plan: TaskPlan,
        letters: Sequence[DeadLetter],
        stands: Mapping[Partition, int],
        deadline: float,
    ) -> bool:
        """Whether all of them are there by now; else they are to go one by one."""
        by_partition: Dict[int, List[DeadLetter]] = {}
        for letter in letters:
            by_partition.setdefault(letter.partition, []).append(letter)
        fenced = by_partition if self._there is not None else client.partitions_of(self._topic)
        producer = self._held = self._fenced(client, plan, sorted(fenced), deadline)
        if self._there is None:
            found = KnownLetters(plan.source_alias, stands)
            for number in fenced:
                self._read(client, (self._topic, number), found)
            self._there = found
        copies = [self._queued(producer, number, own, self._there) for number, own in by_partition.items()]
        Sending(client).until(copies, 0)
        refused = [copy.report() for copy in copies if copy.stopped is not None]
        if any(part.rejected_until - (part.rejected_from or 0) > 1 for part in refused):
            # As large as a batch may be, or one of many that is not taken; others went behind it, or did not.
            self._there, self._alone = None, True
            return False
        for part in refused:
            raise MirrorError(f"the dead letter topic does not take a record: {part.stopped}")
        for letter in letters:
            self._there.add(letter.told_by)
        return True

    def _fenced(self, client: LogClient, plan: TaskPlan, numbers: List[int], deadline: float) -> Producer:
        # A lane of its own, as the partitions of this topic are nobody's copy.
        names = [name.rpartition(".")[0] for name in plan.transactional_ids.values()]
        if not names:
            return idempotent_producer(client, deadline)
        return fence(client, f"{names[0]}.dead-letters", {self._topic: numbers}, deadline, self._held)

    def _queued(
        self, producer: Producer, number: int, own: List[DeadLetter], there: KnownLetters
    ) -> PartitionCopy:
        new = [letter for letter in own if not there.has(letter.told_by)]
        records = [Record(i, letter.timestamp, letter.body) for i, letter in enumerate(new)]
        copy = PartitionCopy(self._task(number))
        copy.start(producer)
        sequence = 0
        for piece in [[record] for record in records] if self._alone else cut(records, BATCH_BYTES):
            for built in build_batches(piece, NO_CODEC, producer.producer_id, producer.epoch, sequence, MAX_BYTES):
                sequence += built.record_count
                newest = read_header(built.data).max_timestamp
                copy.put(Outgoing((built.data,), built.record_count, built.runs, sequence, newest, True))
        return copy

    def _read(self, client: LogClient, partition: Partition, found: KnownLetters) -> None:
        """Add the dead letters that are there."""
        end = told_ends(client, [partition])[partition]
        records = Records(up_to(log_entries(client, partition, 0, READ_UNCOMMITTED), end, name_of(partition)), 0)
        while True:
            record = records.record()
            if record is None:
                return
            told = letter_of(record.body, None if records.log_append_time else record.timestamp)
            if told is not None:
                found.add(told)

    def _task(self, number: int) -> PartitionTask:
        # Its offsets are not known, as other flows may write to it too.
        return PartitionTask(
            topic=self._topic,
            remote_topic=self._topic,
            partition=number,
            upstream_offset=0,
            downstream_offset=0,
            end=0,
            sequence=0,
            max_message_bytes=MAX_BYTES,
            shared=True,
        )

