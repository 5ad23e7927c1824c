"""Looks up log start and end offsets, and record timestamps at offsets, with one request to each broker.

The client's cached leaders are used, because looking them up costs more than looking up the offsets.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from kafka.errors import KafkaError, LeaderNotAvailableError, UnknownTopicOrPartitionError, for_code
from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import MirrorError
from mirror_lib.facts import ActiveProducer, OffsetRange, TopicPartition
from mirror_lib.kafka.admin_client import ClusterConnection, log_client
from mirror_lib.kafka.connection import (
    NO_LEADER,
    TRANSACTION_KEY,
    Disconnected,
    by_topic,
    grouped,
    metadata_request,
    name_of,
)
from mirror_lib.kafka.fetcher import EARLIEST, ISOLATION, LATEST, READ_UNCOMMITTED, list_offsets_request
from mirror_lib.kafka.log_reader import LogEntries, glances
from mirror_lib.kafka.record_batch import Record
from mirror_lib.kafka.reencoder import NO_TIMESTAMP, read_records
from mirror_lib.text import some

log = logging.getLogger(__name__)

LEADER_SECONDS = 10.0
# A broker that is cut off from the others may still answer as a leader, so cached leaders expire, as in other clients.
LEADERS_LAST_SECONDS = 10.0

Offsets = Mapping[TopicPartition, OffsetRange]
# A time (or -2 for the start, -1 for the end) and an isolation level.
Question = Tuple[int, int]


def agreed_leaders(reported: Iterable[Sequence[Any]]) -> Dict[TopicPartition, int]:
    """Node ids of the leaders with the highest leader epoch, from every broker's list of MetadataResponseTopic.

    A broker that is cut off from the others reports its former leadership until it learns of the new leader. Partitions
    are excluded if they have no leader, if brokers report different topic ids for the name, or if brokers disagree
    without a leader epoch (before 2.1)."""
    words: Dict[TopicPartition, List[Tuple[int, int, Any]]] = {}
    for topics in reported:
        for topic in topics:
            for partition in topic.partitions:
                word = (partition.leader_epoch, partition.leader_id, topic.topic_id)
                words.setdefault((topic.name, partition.partition_index), []).append(word)
    found: Dict[TopicPartition, int] = {}
    for name, of_it in words.items():
        newest = max(epoch for epoch, _, _ in of_it)
        leaders = {leader for epoch, leader, _ in of_it if epoch == newest}
        if len(leaders) == 1 and NO_LEADER not in leaders and len({topic_id for _, _, topic_id in of_it}) == 1:
            found[name] = leaders.pop()
    return found


class ClusterOffsets(ClusterConnection):
    """Looks up the offsets of many partitions. Methods raise ClusterError if no broker answers."""

    def offsets(self, partitions: Sequence[TopicPartition], isolation_level: str) -> Offsets:
        """Log start and end by partition, with a few requests to each broker.

        The end is the last stable offset under `read_committed`, else the high watermark. Partitions that are unknown,
        not visible, or stay without a leader are excluded and logged.
        """
        starts, ends = self._offsets("read offsets", partitions, _questions(isolation_level))
        missing = sorted(set(partitions) - ends.keys())
        if missing:
            named = some([name_of(each) for each in missing])
            log.warning("%s: no offsets of %d partitions, unknown or leaderless: %s", self.alias, len(missing), named)
        return {each: OffsetRange(starts[each], end) for each, end in ends.items()}

    def active_producers(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, List[ActiveProducer]]:
        """The producers in the state of each partition's leader; it has only idempotent and transactional producers.

        Empty before Kafka 2.8, or if Read on one of the topics is not granted.
        """
        try:
            states = self._producers(partitions)
            names = self._transactional_ids(sorted({each.producer_id for state in states.values() for each in state}))
            open_ids = {
                names[each.producer_id]
                for state in states.values()
                for each in state
                if each.current_txn_start_offset >= 0 and each.producer_id in names
            }
            begun = self._begun(sorted(open_ids))
        except KafkaError as error:
            log.debug("%s: producers are not known: %s", self.alias, error)
            return {}
        return {
            at: [
                ActiveProducer(
                    each.producer_id,
                    each.last_sequence,
                    each.last_timestamp,
                    None if each.current_txn_start_offset < 0 else each.current_txn_start_offset,
                    names.get(each.producer_id),
                    begun.get((each.producer_id, at)) if each.current_txn_start_offset >= 0 else None,
                )
                for each in state
            ]
            for at, state in states.items()
        }

    def _producers(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Sequence[Any]]:
        by_leader = self._by_leader(partitions, math.inf)
        if sum(map(len, by_leader.values())) < len(partitions):
            raise UnknownTopicOrPartitionError
        requests = [
            (node, DescribeProducersRequest(topics=list(by_topic(of_node).items())))
            for node, of_node in by_leader.items()
        ]
        topics = [topic for answer in self._client.calls(requests) for topic in answer.topics]
        found = {(topic.name, part.partition_index): part for topic in topics for part in topic.partitions}
        for part in found.values():
            if part.error_code:
                raise for_code(part.error_code)(part.error_message)
        return {at: part.active_producers for at, part in found.items()}

    def _transactional_ids(self, producer_ids: Sequence[int]) -> Mapping[int, str]:
        requests = [
            (node, ListTransactionsRequest(state_filters=[], producer_id_filters=list(producer_ids)))
            for node in self._client.nodes()
        ]
        answers = self._client.calls(requests) if producer_ids else []
        for answer in answers:
            if answer.error_code:
                raise for_code(answer.error_code)
        return {each.producer_id: each.transactional_id for answer in answers for each in answer.transaction_states}

    def _begun(self, transactional_ids: Sequence[str]) -> Mapping[Tuple[int, TopicPartition], int]:
        """By producer and partition, when the ongoing transaction began (ms since 1970). A transaction that its
        coordinator does not show is excluded."""
        nodes, _ = self._client.coordinators(transactional_ids, TRANSACTION_KEY)
        shares = grouped(nodes, nodes.get).items()
        requests = [(node, DescribeTransactionsRequest(transactional_ids=names)) for node, names in shares]
        answers = [each for each in self._client.exchange(requests) if not isinstance(each, Disconnected)]
        return {
            (each.producer_id, (topic.topic, number)): each.transaction_start_time_ms
            for answer in answers
            for each in answer.transaction_states
            for topic in each.topics
            for number in topic.partitions
            if not each.error_code and each.transaction_start_time_ms > 0
        }

    def sure_offsets(self, partitions: Sequence[TopicPartition], isolation_level: str) -> Offsets:
        """`offsets` of the partitions on whose leader the brokers agree; empty if a broker does not answer.

        Call it before acting on a log that seems truncated: see `agreed_leaders`.
        """
        names = sorted({topic for topic, _ in partitions})
        try:
            nodes = sorted(broker.node_id for broker in self._client.metadata(names).brokers)
            reported = self._client.calls([(node, metadata_request(names)) for node in nodes])
            leaders = agreed_leaders([answer.topics for answer in reported])
            starts, ends = self._answers(grouped(partitions, leaders.get), _questions(isolation_level))
        except KafkaError as error:
            log.warning("%s: not all brokers answered with the log ends of %s: %s", self.alias, some(names), error)
            return {}
        unsure = [name_of(each) for each in partitions if each not in ends]
        if unsure:
            what = "%s: brokers disagree about the leader of %s, whose logs seem truncated"
            log.warning(what, self.alias, some(unsure))
        return {each: OffsetRange(starts[each], end) for each, end in ends.items()}

    def offsets_at(
        self, partitions: Sequence[TopicPartition], timestamp: int, isolation_level: str
    ) -> Mapping[TopicPartition, int]:
        """The first offset of a record with `timestamp` (ms since 1970) or later; -1 if there is no such record.

        Partitions that are unknown, not visible, or stay without a leader are excluded.
        """
        (found,) = self._offsets("read offsets by time", partitions, [(timestamp, ISOLATION[isolation_level])])
        return found

    def _describe_topics(self, names: Optional[Sequence[str]]) -> Sequence[Any]:
        """Kafka's MetadataResponseTopic of each of `names`, or of all topics; it has the partitions' leaders."""
        topics: Sequence[Any] = self._ask(
            "list topics", "Describe on the topics", partial(self._client.metadata, names)
        ).topics
        return topics

    def _offsets(
        self, asked: str, partitions: Sequence[TopicPartition], questions: Sequence[Question]
    ) -> Sequence[Dict[TopicPartition, int]]:
        """For each question the offsets of the same partitions."""
        # Shorter than the wait for an answer: one partition without a leader must not fail the others.
        patient_until = time.monotonic() + min(LEADER_SECONDS, self._answer_seconds / 2)

        def attempt() -> Sequence[Dict[TopicPartition, int]]:
            return self._answers(self._by_leader(partitions, patient_until), questions)

        return self._ask(asked, "Describe on the topics", attempt) if partitions else [{} for _ in questions]

    def _by_leader(
        self, partitions: Sequence[TopicPartition], patient_until: float
    ) -> Mapping[int, Sequence[TopicPartition]]:
        """The partitions with a leader, by the leader's node id."""
        old = sorted({each[0] for each in partitions if not self._client.is_led(each, LEADERS_LAST_SECONDS)})
        if old:
            self._client.metadata(old)
        leaderless = [each for each in partitions if self._client.leader(each) is None]
        if any(map(self._client.is_known, leaderless)) and time.monotonic() < patient_until:
            raise LeaderNotAvailableError
        return grouped(partitions, self._client.leader)

    def _answers(
        self, by_leader: Mapping[int, Sequence[TopicPartition]], questions: Sequence[Question]
    ) -> Sequence[Dict[TopicPartition, int]]:
        asked = [(number, node) for number in range(len(questions)) for node in by_leader]
        requests = [(node, list_offsets_request(by_leader[node], *questions[number])) for number, node in asked]
        found: List[Dict[TopicPartition, int]] = [{} for _ in questions]
        for (number, node), answer in zip(asked, self._client.exchange(requests)):
            found[number].update(self._taken(answer, by_leader[node]))
        return found

    def _taken(self, answer: Any, partitions: Sequence[TopicPartition]) -> Dict[TopicPartition, int]:
        """Offsets by partition. Raises the first error, and drops the cached leaders of the failed partitions."""
        if isinstance(answer, Disconnected):
            self._client.forget_leaders({topic for topic, _ in partitions})
            raise answer
        parts = [((topic.name, part.partition_index), part) for topic in answer.topics for part in topic.partitions]
        failed = {name: part.error_code for name, part in parts if part.error_code}
        if failed:
            self._client.forget_leaders({topic for topic, _ in failed})
            name, code = next(iter(failed.items()))
            raise for_code(code)(f"{name[0]}-{name[1]}")
        return {name: part.offset for name, part in parts}


def _questions(isolation_level: str) -> Sequence[Question]:
    # The start is read first: it only grows, and never past the end that is read afterwards.
    return [(EARLIEST, READ_UNCOMMITTED), (LATEST, ISOLATION[isolation_level])]


PATIENCE_SECONDS, PAUSE_SECONDS = 5.0, 0.1
# Fits a usual batch. Larger ones are read one by one.
FIRST_BYTES = 64 * 1024


@dataclass(frozen=True)
class FirstRecords:
    """The first record at or after given offsets, aborted records included.

    `without`: partitions without a record from that offset on. Partitions without a leader, and those that could not be
    read within PATIENCE_SECONDS, are in neither. `stamped`: partitions whose broker set the record's timestamp."""

    records: Mapping[TopicPartition, Record]
    without: FrozenSet[TopicPartition]
    stamped: FrozenSet[TopicPartition] = frozenset()

    @property
    def times(self) -> Mapping[TopicPartition, int]:
        """The record's timestamp in milliseconds, if it has one."""
        return {each: record.timestamp for each, record in self.records.items() if record.timestamp > NO_TIMESTAMP}


def first_records(config: ClusterConfig, offsets: Mapping[TopicPartition, int]) -> FirstRecords:
    """The first record at or after each offset. Raises ClusterError if no broker answers."""
    if not offsets:
        return FirstRecords({}, frozenset())
    deadline, waiting = time.monotonic() + PATIENCE_SECONDS, dict(offsets)
    found: Dict[TopicPartition, Optional[Tuple[Record, bool]]] = {}
    with log_client(config, "consumer", deadline) as client:
        while waiting and time.monotonic() < deadline:
            client.refresh_leaders(waiting, time.monotonic())
            waiting = {each: at for each, at in waiting.items() if client.leader(each) is not None}
            seen = glances(client, waiting, READ_UNCOMMITTED, FIRST_BYTES)
            for each, at in list(waiting.items()):
                try:
                    if time.monotonic() < deadline:
                        found[each] = _first_record(LogEntries(client, each, at, READ_UNCOMMITTED, seen.get(each)), at)
                        del waiting[each]
                except Disconnected as error:  # its leader has moved, perhaps
                    log.info("%s", error)
                except MirrorError as error:
                    log.info("%s: no record of %s: %s", client.alias, name_of(each), error)
                    del waiting[each]
            time.sleep(PAUSE_SECONDS if waiting else 0)
    records = {each: one for each, one in found.items() if one is not None}
    return FirstRecords(
        {each: record for each, (record, _) in records.items()},
        frozenset(found.keys() - records.keys()),
        frozenset(each for each, (_, stamped) in records.items() if stamped),
    )


def _first_record(log: LogEntries, position: int) -> Optional[Tuple[Record, bool]]:
    """The first record from `position` on, and whether the broker set its timestamp."""
    for raw, header, is_data in log:
        for record in read_records(raw) if is_data else ():
            if record.offset >= position:
                return record, header is not None and header.log_append_time
    return None
