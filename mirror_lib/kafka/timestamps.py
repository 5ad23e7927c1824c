"""Offsets in, the time of the first record at or after each out: what turns a lag of records into one of seconds."""

from __future__ import annotations

import logging
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from kafka.protocol.consumer import ListOffsetsRequest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import BatchError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.admin_client import log_client
from mirror_lib.kafka.connection import Disconnected, LogClient, is_retriable
from mirror_lib.kafka.fetch_request import fetch_request
from mirror_lib.kafka.fetcher import READ_UNCOMMITTED, Fetched, fetched
from mirror_lib.kafka.reencoder import read_records
from mirror_lib.kafka.visible import entries

log = logging.getLogger(__name__)

PATIENCE_SECONDS, PAUSE_SECONDS = 5.0, 0.1
# Holds a producer's usual batch; of one that is larger the broker sends one a request, so all come in the end.
PARTITION_BYTES = 64 * 1024
ANSWER_BYTES = 32 * 1024 * 1024
OK, EARLIEST = 0, -2
NO_TIME = -1


def timestamps_at(config: ClusterConfig, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    """Milliseconds of the first record at or after each offset, aborted ones included.

    Left out where there is no such record, where it has no time, and what was not found within a few seconds.
    Raises ClusterError where no broker answers.
    """
    if not offsets:
        return {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    with log_client(config, "consumer", deadline) as client:
        return _Search(client, offsets).run(deadline)


class _Search:
    """Partitions are open, at a position, until their record is found or it is certain that there is none."""

    def __init__(self, client: LogClient, offsets: Mapping[TopicPartition, int]) -> None:
        self._client = client
        self._open: Dict[TopicPartition, int] = dict(offsets)
        self._started = False
        self._found: Dict[TopicPartition, int] = {}

    def run(self, deadline: float) -> Mapping[TopicPartition, int]:
        while self._open and time.monotonic() < deadline:
            try:
                self._round()
            except Disconnected as error:
                log.info("%s", error)
                time.sleep(PAUSE_SECONDS)
        if self._open:
            log.info("%s: no time found at %d of the offsets yet", self._client.alias, len(self._open))
        return self._found

    def _round(self) -> None:
        self._client.refresh_leaders({topic for topic, _ in self._open}, time.monotonic())
        shares: Dict[int, List[TopicPartition]] = {}
        for partition in list(self._open):
            leader = self._client.leader(partition)
            if leader is None:
                del self._open[partition]  # unknown, or without a leader now
            else:
                shares.setdefault(leader, []).append(partition)
        if not self._started:
            for node, partitions in shares.items():
                self._move_to_log_starts(node, partitions)
            self._started = True
        for node, partitions in shares.items():
            self._fetch(node, {partition: self._open[partition] for partition in partitions})

    def _move_to_log_starts(self, node: int, partitions: Sequence[TopicPartition]) -> None:
        """An offset that retention has removed stands for the first that is still there."""
        of_topic = ListOffsetsRequest.ListOffsetsTopic
        topics: Dict[str, List[Any]] = {}
        for topic, number in partitions:
            asked = of_topic.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=EARLIEST)
            topics.setdefault(topic, []).append(asked)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_UNCOMMITTED,
            topics=[of_topic(name=topic, partitions=asked) for topic, asked in topics.items()],
            max_version=5,
        )
        for topic in self._client.call(node, request).topics:
            for each in (each for each in topic.partitions if each.error_code == OK):
                partition = (topic.name, each.partition_index)
                self._open[partition] = max(self._open[partition], each.offset)

    def _fetch(self, node: int, positions: Mapping[TopicPartition, int]) -> None:
        request = fetch_request(positions, READ_UNCOMMITTED, ANSWER_BYTES, PARTITION_BYTES, max_wait_ms=0)
        answers = fetched(self._client.call(node, request), READ_UNCOMMITTED)
        # A partition that sends nothing may only be waiting for its turn with a large batch; all of them cannot.
        nothing = not any(len(each.data) for each in answers.values())
        for partition, answer in answers.items():
            try:
                timestamp, position = _first_time(answer, positions[partition])
            except BatchError as error:
                log.info("%s: no time of %s-%d: %s", self._client.alias, *partition, error)
                timestamp, position = NO_TIME, positions[partition]
            self._open[partition] = position
            refused = answer.error_code != OK and not is_retriable(answer.error_code)
            ended = answer.error_code == OK and (position >= answer.end or nothing)
            if timestamp is not None or refused or ended:
                del self._open[partition]
            if timestamp is not None and timestamp > NO_TIME:
                self._found[partition] = timestamp


def _first_time(answer: Fetched, position: int) -> Tuple[Optional[int], int]:
    """The time (or NO_TIME) of the first record from `position` on, and where to go on if there is none."""
    for raw, header, is_data in entries(answer):
        for record in read_records(raw) if is_data else ():
            if record.offset >= position:
                return record.timestamp, position
        if header is not None:
            position = max(position, header.next_offset)
    return None, position
