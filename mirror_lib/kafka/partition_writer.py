"""Keys and values in, appended once each to one partition, in order, however often a request must be repeated.

A batch repeated after a later one would read as a step back, so each carries a producer id and sequence (KIP-98).
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any, Optional, Sequence, Tuple

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.admin_client import log_client
from mirror_lib.kafka.connection import error_name
from mirror_lib.kafka.fencing import idempotent_producer
from mirror_lib.kafka.produce_request import ProduceRequest
from mirror_lib.kafka.producer import PRODUCE_TIMEOUT_MS
from mirror_lib.kafka.record_batch import next_sequence
from mirror_lib.kafka.reencoder import Record, build_batches
from mirror_lib.kafka.varint import encode_varint

OK, DUPLICATE_SEQUENCE = 0, 46
NO_CODEC = 0
NO_HEADERS = b"\x00"
# Half of what brokers take by default.
BATCH_BYTES = 512 * 1024


class PartitionWriter:
    """Connects on construction; deadlines are in `time.monotonic()` seconds. After an error it must not be used again.

    Raises ClusterError where the brokers do not answer in time or refuse.
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

    def append(self, records: Sequence[Tuple[bytes, bytes]], deadline: float) -> None:
        """Return when all replicas in sync have the records. On an error some of them may be there."""
        now = int(1000 * time.time())
        numbered = [Record(number, now, _body(key, new)) for number, (key, new) in enumerate(records)]
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
    return b"".join((encode_varint(len(key)), key, encode_varint(len(new)), new, NO_HEADERS))
