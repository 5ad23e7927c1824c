"""A whole topic of another tool, read as its readers see it: keys and values out, in order within each partition."""

from __future__ import annotations

import time
from typing import List, Optional, Sequence, Tuple

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError
from mirror_lib.kafka.admin_client import ANSWER_SECONDS, log_client
from mirror_lib.kafka.compacted_topic import key_and_value
from mirror_lib.kafka.connection import Disconnected, LogClient
from mirror_lib.kafka.fetcher import READ_COMMITTED
from mirror_lib.kafka.log_reader import log_entries
from mirror_lib.kafka.reencoder import read_records

PAUSE_SECONDS = 0.2

KeyValue = Tuple[Optional[bytes], Optional[bytes]]


def whole_topic(
    config: ClusterConfig, topic: str, partitions: int, answer_seconds: float = ANSWER_SECONDS
) -> Sequence[KeyValue]:
    """Keys and values of all partitions, one after the other, committed ones only; `None` where there is none.

    Raises ClusterError where a partition was not read to its end, BatchError where it is corrupt.
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
