"""Reads and writes MirrorMaker's compacted topics: the last value of each key, and appends without duplicates.

A retried batch that lands after a later one would restore an older value. So each batch has a producer id and a
sequence (KIP-98). Another tool may have compressed the topic, so this package's own reader reads it.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import astuple
from functools import partial
from typing import Callable, Dict, Iterable, Iterator, Mapping, Optional, Sequence, Tuple, TypeVar

from kafka.errors import for_code

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError, MirrorError
from mirror_lib.facts import NewTopic, TopicPartition
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.admin_client import ANSWER_SECONDS, log_client
from mirror_lib.kafka.connection import LogClient, is_retriable
from mirror_lib.kafka.fencing import idempotent_producer
from mirror_lib.kafka.fetcher import READ_COMMITTED, READ_UNCOMMITTED, required_ends
from mirror_lib.kafka.log_reader import LogEntries
from mirror_lib.kafka.producer import PRODUCE_TIMEOUT_MS, ProduceRequest
from mirror_lib.kafka.record_batch import Producer, Record, decode_bytes, encode_varint, next_sequence
from mirror_lib.kafka.reencoder import NO_HEADERS, build_batches, read_records

log = logging.getLogger(__name__)

OK, DUPLICATE_SEQUENCE = 0, 46
NO_CODEC = 0
# Half of the brokers' default limit.
BATCH_BYTES = 512 * 1024


def _body(key: bytes, new: bytes) -> bytes:
    return b"".join((encode_varint(len(key)), key, encode_varint(len(new)), new))


def one_header(name: bytes, value: bytes) -> bytes:
    """The headers of a record with a single header, encoded in format v2."""
    return encode_varint(1) + _body(name, value)


T = TypeVar("T")
KeyValue = Tuple[Optional[bytes], Optional[bytes]]
UNKNOWN_TOPIC = 3
PARTITION = 0


class InternalTopic:
    """A compacted internal topic on the cluster of `config`. As in MirrorMaker, only partition 0 is read and written.

    `append` keeps its connection: call `close`, or use the class as a context manager. Not thread-safe.
    """

    def __init__(
        self, config: ClusterConfig, topic: str, replication_factor: int, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self.topic = topic
        self._place = (topic, PARTITION)
        self._config = config
        self._replication_factor = replication_factor
        self._answer_seconds = answer_seconds
        self._connection = ExitStack()
        # The client of `append`, and its producer with the sequence of its next batch.
        self._client: Optional[LogClient] = None
        self._producer, self._sequence = Producer(-1, -1), 0

    def __enter__(self) -> InternalTopic:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connections. Closing twice is harmless."""
        self._client = None
        self._connection.close()

    def ensure(self, cluster: KafkaCluster) -> None:
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

        def read(client: LogClient) -> T:
            return reduce(_records(client, self._place, 0, READ_UNCOMMITTED))

        return _read(self._config, [self._place], self._answer_seconds, read, lambda: reduce(()))

    def append(self, records: Sequence[Tuple[bytes, bytes]], headers: bytes = NO_HEADERS) -> None:
        """Write keys and values in this order, once each, and return when all in-sync replicas have them.

        Each record gets `headers`, in format v2. After a ClusterError some of the records may be in the log.
        """
        deadline, now = time.monotonic() + self._answer_seconds, int(1000 * time.time())
        numbered = [Record(number, now, _body(key, new) + headers) for number, (key, new) in enumerate(records)]
        try:
            self._append(numbered, deadline)
        except BaseException as error:
            # Without the producer id too: if the failed batch is in the log, the broker would drop the next batch under
            # the same sequence as a duplicate.
            self.close()
            if isinstance(error, MirrorError):
                raise ClusterError(f"cannot write {self.topic}: {error.message}", error.hint) from error
            raise

    def _append(self, records: Sequence[Record], deadline: float) -> None:
        if self._client is None:
            self._client = self._connection.enter_context(log_client(self._config, "producer", deadline))
            self._producer, self._sequence = idempotent_producer(self._client, deadline), 0
        client, (producer_id, epoch) = self._client, astuple(self._producer)
        for built in build_batches(records, NO_CODEC, producer_id, epoch, self._sequence, BATCH_BYTES):
            request = ProduceRequest([(self._place, built.pieces)], PRODUCE_TIMEOUT_MS)
            produce = partial(self._produced, client, request, deadline)
            client.ask(f"append to {self.topic}", "Write on the topic", produce, deadline)
            self._sequence = next_sequence(self._sequence, built.record_count)

    def _produced(self, client: LogClient, request: ProduceRequest, deadline: float) -> None:
        client.refresh_leaders([self._place], deadline)
        answer = client.call(client.leader(self._place), request)
        code = answer.responses[0].partition_responses[0].error_code
        if code not in (OK, DUPLICATE_SEQUENCE):
            raise for_code(code)

    def arrivals(self, seconds: float) -> Sequence[Record]:
        """The records that are written within the next `seconds`; none if the topic does not exist.

        Raises ClusterError if the topic cannot be read, BatchError if it is corrupt.
        """

        def read(client: LogClient) -> Sequence[Record]:
            end = required_ends(client, [self._place])[self._place]
            time.sleep(seconds)
            return list(_records(client, self._place, end, READ_UNCOMMITTED))

        return _read(self._config, [self._place], seconds + self._answer_seconds, read, list)


def whole_topic(config: ClusterConfig, topic: str, partitions: int) -> Sequence[KeyValue]:
    """Keys and values of all committed records, partition after partition; `None` for a null key or value.

    Raises ClusterError if a partition was not read to its end, BatchError if it is corrupt.
    """
    places = [(topic, number) for number in range(partitions)]

    def read(client: LogClient) -> Sequence[KeyValue]:
        return [key_and_value(each) for place in places for each in _records(client, place, 0, READ_COMMITTED)]

    return _read(config, places, ANSWER_SECONDS, read)


def _read(
    config: ClusterConfig,
    places: Sequence[TopicPartition],
    answer_seconds: float,
    read: Callable[[LogClient], T],
    absent: Optional[Callable[[], T]] = None,
) -> T:
    """What `read` makes of a client that has the leaders of `places`, partitions of one topic, called again after a
    lost connection; `absent()` if no topic exists. Without `absent` the topic is known to exist."""
    deadline, topic = time.monotonic() + answer_seconds, places[0][0]
    with log_client(config, "consumer", deadline) as client:

        def attempt() -> T:
            if absent is not None and not _exists(client, topic):
                return absent()
            client.refresh_leaders(places, deadline)
            return read(client)

        return client.ask(f"read {topic} to its end", "Describe and Read on the topic", attempt, deadline)


def _exists(client: LogClient, topic: str) -> bool:
    code = client.metadata([topic]).topics[0].error_code
    if code not in (OK, UNKNOWN_TOPIC) and not is_retriable(code):
        raise for_code(code)
    return bool(code != UNKNOWN_TOPIC)


def _records(client: LogClient, place: TopicPartition, start: int, isolation: int) -> Iterator[Record]:
    for raw, _, is_data in LogEntries(client, place, start, isolation):
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


def key_and_value(record: Record) -> KeyValue:
    key, at = decode_bytes(record.body, 0)
    return key, decode_bytes(record.body, at)[0]
