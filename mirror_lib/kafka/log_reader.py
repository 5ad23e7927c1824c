"""Reads one partition from an offset to the end of its log, as a reader of the given isolation level sees it."""

from __future__ import annotations

import time
from typing import Dict, Iterator, Mapping, Optional, Set, Tuple

from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, LogClient, chunks, error_name, grouped, is_retriable, name_of
from mirror_lib.kafka.fetcher import (
    EARLIEST,
    MAX_WAIT_MS,
    READ_UNCOMMITTED,
    Asked,
    Fetched,
    Gaps,
    fetch_request,
    fetched,
    is_throttled_empty,
    local_start,
    required_ends,
)
from mirror_lib.kafka.record_batch import CONTROL, TRANSACTIONAL, BatchHeader, split_entries
from mirror_lib.kafka.reencoder import last_offset

Entry = Tuple[memoryview, Optional[BatchHeader], bool]


def entries(found: Fetched) -> Iterator[Entry]:
    """Each whole entry as `(raw, header, is_data)`; the header is None for message sets of magic 0 and 1.

    Control batches and batches of aborted transactions are not data. A fetch response lists all aborted transactions
    that overlap its range, so no state is kept between responses (KIP-98, "Reading Transactions").
    """
    pending = list(found.aborted)
    aborted: Set[int] = set()
    for raw, header in split_entries(found.data):
        if header is None:
            yield raw, None, True
            continue
        while pending and pending[0][1] <= header.last_offset:
            aborted.add(pending.pop(0)[0])
        if not header.attributes & (CONTROL | TRANSACTIONAL):
            yield raw, header, True
        elif header.control:
            aborted.discard(header.producer_id)
            yield raw, header, False
        else:
            yield raw, header, header.producer_id not in aborted


TAIL_FETCH_BYTES = 4 * 1024 * 1024
# After a position most logs have one marker of 78 bytes. Logs with more are read one by one.
GLANCE_BYTES = 4 * 1024
GLANCES_PER_REQUEST = 1000
OFFSET_OUT_OF_RANGE = 1
# How long tiered storage may take to return data.
STORE_SECONDS = 30.0
# How long a broker may answer without data because a quota is used up; one such answer lasts seconds at most.
THROTTLED_SECONDS = 120.0


class LostTail(RefusedError):
    """The log was truncated: it ends before an offset that was acknowledged."""

    code = "MIR-312"


class LogEntries(Iterator[Entry]):
    """Iterates over the entries from `start` on; `end` is the end of the log as the last answer gave it.

    `first` is an earlier fetch response from `start` on, by `glances`; if it reaches its `end`, no request is sent.
    If retention has removed `start`, iteration starts at the log start, and `expired` is true.
    Raises `Disconnected` if the leader does not answer, `LostTail` if the log ends before `start`,
    `ClusterError` if the broker refuses.
    """

    def __init__(
        self, client: LogClient, partition: TopicPartition, start: int, isolation: int, first: Optional[Fetched] = None
    ) -> None:
        self._client = client
        self._partition = partition
        self._isolation = isolation
        self._position = start
        self._fetched: Iterator[Entry] = iter(()) if first is None else entries(first)
        self._first_end = None if first is None else first.end
        self.start = start
        self.end = start if first is None else first.end
        self.expired = False

    def begin(self) -> int:
        """The offset at which iteration starts: `start`, or a later log start. Call it before the first entry."""
        if self._first_end is None:
            self._fetch()
        return self.start

    def __next__(self) -> Entry:
        while True:
            for entry in self._fetched:
                raw, header, _ = entry
                self._position = last_offset(raw) + 1 if header is None else header.next_offset
                return entry
            if not self._fetch():
                raise StopIteration

    def _fetch(self) -> bool:
        first_end, self._first_end = self._first_end, None
        if first_end is not None and self._position >= first_end:
            return False
        found = self._fetch_until_answer()
        self.end = found.end
        if self._position >= found.end:
            return False
        self._fetched = entries(found)
        if not len(found.data):
            # No record up to the end: compaction may leave such a gap.
            self._position = found.end
            return False
        return True

    def _fetch_until_answer(self) -> Fetched:
        """Fetch, and retry after an empty response before the end of the log until it is a gap by `Gaps`."""
        gaps = Gaps(lambda partition: local_start(self._client, partition))
        until, found = time.monotonic() + STORE_SECONDS, self._ask(0)
        while self._position < found.end and not len(found.data):
            if gaps.answered(self._partition, self._position, empty=True):
                break
            if time.monotonic() > until:
                at = f"{name_of(self._partition)} at offset {self._position}"
                raise Disconnected(f"{self._client.alias}: tiered storage gives nothing of {at}")
            found = self._ask(MAX_WAIT_MS if gaps.stored(self._partition) else 0)
        return found

    def _ask(self, max_wait_ms: int) -> Fetched:
        client, name = self._client, name_of(self._partition)
        node = client.leader(self._partition)
        if node is None:
            raise Disconnected(f"{client.alias}: {name} has no leader")
        asked = Asked(positions={self._partition: self._position})
        request = fetch_request(asked, self._isolation, TAIL_FETCH_BYTES, TAIL_FETCH_BYTES, max_wait_ms)
        answer, until = client.call(node, request), time.monotonic() + THROTTLED_SECONDS
        while is_throttled_empty(answer):  # the broker delays the next request until the quota allows it
            if time.monotonic() > until:
                raise Disconnected(f"{client.alias}: {name}: a quota has left no data for {THROTTLED_SECONDS:.0f} s")
            answer = client.call(node, request)
        found = fetched(answer, self._isolation).get(self._partition)
        if found is None:
            raise Disconnected(f"{client.alias}: {name}: {error_name(answer.error_code)}")
        if found.error_code == OFFSET_OUT_OF_RANGE:
            self._move_to_log_start(name)
            return self._ask(max_wait_ms)
        if is_retriable(found.error_code):
            raise Disconnected(f"{client.alias}: {name}: {error_name(found.error_code)}")
        if found.error_code:
            raise ClusterError(
                f"{client.alias}: cannot read {name}: {error_name(found.error_code)}",
                "the principal needs Read on the topic",
            )
        return found

    def _move_to_log_start(self, name: str) -> None:
        start = required_ends(self._client, [self._partition], self._isolation, EARLIEST)[self._partition]
        if start <= self._position:
            raise LostTail(
                f"{self._client.alias}: the log of {name} ends before offset {self._position}, which was acknowledged",
                "the next start copies the lost records again",
            )
        self.start = self._position = start
        self.expired = True


def markers_until(
    client: LogClient, partition: TopicPartition, start: int, end: int, first: Optional[Fetched] = None
) -> int:
    """The end of the control records that follow one another from `start` on; at most `end`, and `start` for none.

    A missing offset ends them as a data record does: compaction or retention may have removed a data record there.
    Raises what `LogEntries` raises.
    """
    at = start
    for _, header, _ in LogEntries(client, partition, start, READ_UNCOMMITTED, first):
        if at >= end or header is None or not header.control or header.base_offset > at:
            break
        at = max(at, header.next_offset)
    return min(at, end)


def glances(
    client: LogClient, positions: Mapping[TopicPartition, int], isolation: int, most_bytes: int = GLANCE_BYTES
) -> Dict[TopicPartition, Fetched]:
    """Read the first few KB of many logs from these positions on, in few requests sent in parallel.

    Partitions with an error are excluded, and partitions before their end for whose data the response had no room.
    """
    requests = [
        (node, fetch_request(Asked(positions=share), isolation, len(share) * most_bytes, most_bytes, max_wait_ms=0))
        for node, partitions in grouped(positions, client.leader).items()
        for share in ({each: positions[each] for each in own} for own in chunks(partitions, GLANCES_PER_REQUEST))
    ]
    found: Dict[TopicPartition, Fetched] = {}
    for answer in client.exchange(requests):
        found.update({} if isinstance(answer, Disconnected) else fetched(answer, isolation))
    return {
        each: answer
        for each, answer in found.items()
        if not answer.error_code and (len(answer.data) or answer.end <= positions[each])
    }
