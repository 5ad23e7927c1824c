"""Reads and writes MirrorMaker's compacted topics: the last value of each key, and appends without duplicates.

A retried batch that lands after a later one would restore an older value. So each batch has a producer id and a
sequence (KIP-98). Another tool may have compressed the topic, so this package's own reader reads it.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar

from kafka.errors import for_code
from kafka.protocol.metadata import MetadataRequest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError, MirrorError
from mirror_lib.facts import Cluster, NewTopic, TopicPartition
from mirror_lib.kafka.admin_client import ANSWER_SECONDS, log_client
from mirror_lib.kafka.connection import Disconnected, LogClient, error_name
from mirror_lib.kafka.fencing import idempotent_producer
from mirror_lib.kafka.fetcher import READ_COMMITTED, READ_UNCOMMITTED, log_ends
from mirror_lib.kafka.log_reader import log_entries
from mirror_lib.kafka.producer import PRODUCE_TIMEOUT_MS, ProduceRequest
from mirror_lib.kafka.record_batch import decode_varint, encode_varint, next_sequence
from mirror_lib.kafka.reencoder import NO_HEADERS, Record, build_batches, read_records

log = logging.getLogger(__name__)

OK, DUPLICATE_SEQUENCE = 0, 46
NO_CODEC = 0
# Half of the brokers' default limit.
BATCH_BYTES = 512 * 1024


class PartitionWriter:
    """Appends records to one partition. Connects on construction; do not use it again after an error.

    Deadlines are in `time.monotonic()` seconds. Raises ClusterError if the brokers refuse or do not answer in time.
    """

    def __init__(self, config: ClusterConfig, partition: TopicPartition, deadline: float) -> None:
        self._partition = partition
        self._resources = ExitStack()
        try:
            self._client = self._resources.enter_context(log_client(config, "producer", deadline))
            self._producer = idempotent_producer(self._client, deadline)
        except BaseException:
            self.close()
            raise
        self._sequence = 0

    def close(self) -> None:
        """Drop the connections. Closing twice is harmless."""
        self._resources.close()

    def append(self, records: Sequence[Tuple[bytes, bytes]], deadline: float, headers: bytes = NO_HEADERS) -> None:
        """Append, and return when all in-sync replicas have the records. After an error some may be in the log."""
        now = int(1000 * time.time())
        numbered = [Record(number, now, _body(key, new) + headers) for number, (key, new) in enumerate(records)]
        writer = self._producer
        for built in build_batches(
            numbered, NO_CODEC, writer.producer_id, writer.epoch, self._sequence, max_bytes=BATCH_BYTES
        ):
            self._send(built.data, deadline)
            self._sequence = next_sequence(self._sequence, built.record_count)

    def _send(self, batch: bytes, deadline: float) -> None:
        def leader() -> Optional[int]:
            self._client.refresh_leaders([self._partition[0]], deadline)
            return self._client.leader(self._partition)

        request = ProduceRequest([(self._partition, (batch,))], PRODUCE_TIMEOUT_MS)
        code = _error_code(self._client.retry(request, leader, _error_code, deadline))
        if code not in (OK, DUPLICATE_SEQUENCE):
            raise ClusterError(f"{self._client.alias}: {error_name(code)}", "the principal needs Write on the topic")


def _error_code(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def _body(key: bytes, new: bytes) -> bytes:
    return b"".join((encode_varint(len(key)), key, encode_varint(len(new)), new))


def one_header(name: bytes, value: bytes) -> bytes:
    """The headers of a record with a single header, encoded in format v2."""
    return encode_varint(1) + _body(name, value)


T = TypeVar("T")
UNKNOWN_TOPIC = 3
PARTITION = 0
PAUSE_SECONDS = 0.2


class InternalTopic:
    """A compacted internal topic on the cluster of `config`. As in MirrorMaker, only partition 0 is read and written.

    `append` keeps its connection: call `close`, or use the class as a context manager. Not thread-safe.
    """

    def __init__(
        self, config: ClusterConfig, topic: str, replication_factor: int, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self.topic = topic
        self._config = config
        self._replication_factor = replication_factor
        self._answer_seconds = answer_seconds
        self._writer: Optional[PartitionWriter] = None

    def __enter__(self) -> InternalTopic:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connections. Closing twice is harmless."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def ensure(self, cluster: Cluster) -> None:
        """Create the topic, compacted, with one partition, unless it exists. Raises ClusterError if refused.

        If there are too few brokers, the topic gets fewer replicas than requested: its content can be re-created.
        """
        # The listing comes first, so that an existing topic needs no Create permission.
        if self.topic in cluster.topics():
            return
        replicas = min(self._replication_factor, cluster.broker_count())
        if replicas < self._replication_factor:
            reported = "%s: %s gets %d of %d replicas, as there are no more brokers"
            log.warning(reported, cluster.alias, self.topic, replicas, self._replication_factor)
        new = NewTopic(self.topic, 1, replicas, {"cleanup.policy": "compact"})
        refused = cluster.create_topics([new])[self.topic]
        if refused is not None:
            raise ClusterError(
                f"{cluster.alias}: cannot create {self.topic}: {refused}", "create it by hand, compacted"
            )

    def latest(self) -> Mapping[bytes, bytes]:
        """The last value of each key, read to the end of the topic, without deleted keys; `{}` if no topic exists.

        Raises ClusterError if the end was not reached, BatchError if the topic is corrupt.
        """
        return self.reduced(_last_values)

    def reduced(self, reduce: Callable[[Iterable[Record]], T]) -> T:
        """What `reduce` makes of all records to the end of the topic; of none if no topic exists. Raises as `latest`.

        After a lost connection it is called again."""
        deadline = time.monotonic() + self._answer_seconds
        with log_client(self._config, "consumer", deadline) as client:
            while True:
                try:
                    return reduce(self._records(client) if self._exists(client, deadline) else ())
                except Disconnected as error:
                    if time.monotonic() > deadline:
                        raise ClusterError(
                            f"{error}: {self.topic} was not read to its end", "check that its leader is up"
                        ) from error
                time.sleep(PAUSE_SECONDS)

    def append(self, records: Sequence[Tuple[bytes, bytes]], headers: bytes = NO_HEADERS) -> None:
        """Write keys and values in this order, once each, and return when all in-sync replicas have them.

        Each record gets `headers`, in format v2. After a ClusterError some of the records may be in the log.
        """
        deadline = time.monotonic() + self._answer_seconds
        writer, self._writer = self._writer, None
        try:
            writer = writer or PartitionWriter(self._config, (self.topic, PARTITION), deadline)
            writer.append(records, deadline, headers)
        except MirrorError as error:
            # The writer is dropped: if the failed batch is in the log, the broker would drop the next batch under the
            # same sequence as a duplicate.
            if writer is not None:
                writer.close()
            raise ClusterError(f"cannot write {self.topic}: {error.message}", error.hint) from error
        self._writer = writer

    def arrivals(self, seconds: float) -> Sequence[Record]:
        """The records that are written within the next `seconds`; none if the topic does not exist.

        Raises ClusterError if the topic cannot be read, BatchError if it is corrupt.
        """
        deadline = time.monotonic() + seconds + self._answer_seconds
        place = (self.topic, PARTITION)
        with log_client(self._config, "consumer", deadline) as client:
            try:
                end = log_ends(client, [place]).get(place) if self._exists(client, deadline) else None
                if end is None:
                    return []
                time.sleep(seconds)
                entries = log_entries(client, place, end, READ_UNCOMMITTED)
                return [record for raw, _, is_data in entries if is_data for record in read_records(raw)]
            except Disconnected as error:
                raise ClusterError(f"{error}: {self.topic} was not read", "check that its leader is up") from error

    def _exists(self, client: LogClient, deadline: float) -> bool:
        asked = MetadataRequest.MetadataRequestTopic(name=self.topic)
        request = MetadataRequest(topics=[asked], allow_auto_topic_creation=False, max_version=9)
        code = client.call(None, request).topics[0].error_code
        if code == UNKNOWN_TOPIC:
            return False
        if code != OK and not for_code(code).retriable:
            raise ClusterError(
                f"{client.alias}: cannot read {self.topic}: {for_code(code).message}",
                "grant Describe and Read on this topic",
            )
        client.refresh_leaders([self.topic], deadline)
        return True

    def _records(self, client: LogClient) -> Iterator[Record]:
        for raw, _, is_data in log_entries(client, (self.topic, PARTITION), 0, READ_UNCOMMITTED):
            yield from read_records(raw) if is_data else ()


def _last_values(records: Iterable[Record]) -> Mapping[bytes, bytes]:
    found: Dict[bytes, bytes] = {}
    for record in records:
        key, new = key_and_value(record)
        if key is not None and new is not None:
            found[key] = new
        elif key is not None:
            found.pop(key, None)
    return found


def key_and_value(record: Record) -> Tuple[Optional[bytes], Optional[bytes]]:
    """A record's key and value; `None` for a null one."""
    key, at = _bytes(record.body, 0)
    new, _ = _bytes(record.body, at)
    return key, new


def _bytes(body: bytes, at: int) -> Tuple[Optional[bytes], int]:
    length, at = decode_varint(body, at)
    return (body[at : at + length] if length >= 0 else None), at + max(length, 0)


KeyValue = Tuple[Optional[bytes], Optional[bytes]]


def whole_topic(
    config: ClusterConfig, topic: str, partitions: int, answer_seconds: float = ANSWER_SECONDS
) -> Sequence[KeyValue]:
    """Keys and values of all committed records, partition after partition; `None` for a null key or value.

    Raises ClusterError if a partition was not read to its end, BatchError if it is corrupt.
    """
    deadline = time.monotonic() + answer_seconds
    with log_client(config, "consumer", deadline) as client:
        while True:
            try:
                client.refresh_leaders([topic], deadline)
                return [each for number in range(partitions) for each in _partition(client, topic, number)]
            except Disconnected as error:
                if time.monotonic() > deadline:
                    raise ClusterError(f"{error}: {topic} was not read to its end", "has it leaders?") from error
            time.sleep(PAUSE_SECONDS)


def _partition(client: LogClient, topic: str, number: int) -> List[KeyValue]:
    entries = log_entries(client, (topic, number), 0, READ_COMMITTED)
    return [key_and_value(record) for raw, _, is_data in entries if is_data for record in read_records(raw)]
