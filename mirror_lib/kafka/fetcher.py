"""Fetch requests to one cluster: positions in, raw record batches and each partition's end out."""

from __future__ import annotations

import logging
import math
import time
import uuid
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Callable, Dict, Iterable, Iterator, Mapping, NamedTuple, Optional, Protocol, Sequence, Set, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, Future, LogClient, error_name, name_of
from mirror_lib.kafka.fetch_answer import NO_REPLICA, FetchAnswer
from mirror_lib.kafka.fetch_request import BRIEF_WAIT_MS, Asked, FetchSession, FetchTurns, fetch_request
from mirror_lib.kafka.offsets_of_log import local_start
from mirror_lib.kafka.record_batch import Buffer

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
# One question to a broker is under way at a time, so what it brings has to be worth a long way.
FETCH_BYTES = 16 * 1024 * 1024
PARTITION_FETCH_BYTES = 8 * 1024 * 1024

# Behind an answer that brought less, questions begin no sooner than so long after each other.
SMALL_BYTES = 64 * 1024
PAUSE_SECONDS = 0.005

log = logging.getLogger(__name__)

EMPTY_ANSWERS = 3


class Gaps:
    """Decides from answers without data below a log's end whether the offsets up to that end hold no record.

    A compacted log may end in such offsets: the broker then answers with no data for ever. So it does for a while where
    the data is in tiered storage (KIP-405), which may be slow or throttled by a quota: that is no gap. `local_start`
    returns the first offset that a partition's leader keeps itself.
    """

    def __init__(self, local_start: Callable[[TopicPartition], int]) -> None:
        self._local_start = local_start
        self._seen: Dict[TopicPartition, Tuple[int, int]] = {}
        self._stored: Set[TopicPartition] = set()

    def answered(self, partition: TopicPartition, position: int, empty: bool) -> bool:
        """Whether all from `position` up to the end is a gap. `empty`: no data, below the end, for who was asked alone.

        Raises what `local_start` raises.
        """
        at, count = self._seen.pop(partition, (position, 0))
        if not empty:
            self._stored.discard(partition)
            return False
        count = count + 1 if at == position else 1
        if count < EMPTY_ANSWERS:
            self._seen[partition] = (position, count)
            return False
        if position >= self._local_start(partition):
            return True
        if partition not in self._stored:
            log.warning("%s: tiered storage gives nothing at offset %d yet; asking again", name_of(partition), position)
        self._stored.add(partition)
        return False

    def stored(self, partition: TopicPartition) -> bool:
        """Whether its data is waited for from tiered storage: brokers read there as long as the request may wait."""
        return partition in self._stored


class FetchPace:
    """When a task asks each broker again, by node id. Times are seconds of one clock.

    Records that trickle in are fetched a few at a time: a request for each would cost both clusters and the task more
    than the records do.
    """

    def __init__(self) -> None:
        self._asked: Dict[int, float] = {}
        self._due: Dict[int, float] = {}

    def asked(self, node: int, now: float) -> None:
        """A question goes to the broker."""
        self._asked[node] = now

    def answered(self, node: int, brought: int) -> None:
        """Its answer is there, with so many bytes of records."""
        self._due[node] = self._asked[node] + (PAUSE_SECONDS if brought < SMALL_BYTES else 0.0)

    def wait(self, node: int, now: float) -> float:
        """Seconds until the broker may be asked; 0 where it may be now."""
        return max(0.0, self._due.get(node, now) - now)


@dataclass(frozen=True)
class Fetched:
    """What one partition answered. `end` is the last stable offset under `read_committed`, else the high watermark.

    `aborted` lists `(producer_id, first_offset)` of the aborted transactions that touch the data.
    """

    error_code: int
    end: int
    log_start: int
    aborted: Tuple[Tuple[int, int], ...]
    data: Buffer


def fetched(answer: FetchAnswer, isolation: int, ids: Mapping[str, uuid.UUID] = {}) -> Dict[TopicPartition, Fetched]:
    """The answer by partition. `ids` are those of the question."""
    names = {topic_id: name for name, topic_id in ids.items()}
    found: Dict[TopicPartition, Fetched] = {}
    for topic in answer.responses:
        name = topic.topic if topic.topic_id is None else names[topic.topic_id]
        for part in topic.partitions:
            found[(name, part.partition_index)] = Fetched(
                error_code=part.error_code,
                end=part.last_stable_offset if isolation == READ_COMMITTED else part.high_watermark,
                log_start=part.log_start_offset,
                aborted=tuple(sorted(part.aborted_transactions, key=itemgetter(1))),
                data=part.records if part.records is not None else b"",
            )
    return found


def redirects(answer: FetchAnswer) -> bool:
    """Whether another replica than the leader is named to read from (KIP-392): nothing was read of that log then."""
    return any(part.preferred_read_replica != NO_REPLICA for topic in answer.responses for part in topic.partitions)


def says_nothing(answer: FetchAnswer) -> bool:
    """Whether the broker held its answer back, as a quota is used up (KIP-219): it has then not looked at any log."""
    return bool(answer.throttle_time_ms > 0 and not answer.responses)


class Fetchable(Protocol):
    """A partition that may want more data."""

    @property
    def source(self) -> TopicPartition:
        """(topic, partition)."""

    @property
    def fetch_position(self) -> int:
        """The next offset to ask for."""

    def hungry(self) -> bool:
        """True if it wants data now."""

    def full(self) -> bool:
        """True if it will want data as soon as some of what it has is appended."""


@dataclass(frozen=True)
class Grant:
    """What one request may bring: `total` bytes, of each partition so many. One that is not in `each` has to wait.

    A broker sends at least one whole batch, however large it is.
    """

    total: int
    each: Mapping[TopicPartition, int]


class FetchGate(Protocol):
    """Says how much may be fetched, and is told what came."""

    def grant(self, wanted: Sequence[TopicPartition], brokers: int) -> Grant:
        """What may be asked of one of `brokers` brokers."""

    def settle(self, granted: Grant, brought: Mapping[TopicPartition, int]) -> None:
        """An answer to what was granted brought so many bytes."""

    def forget_asked(self) -> None:
        """No answer will come any more to what was asked."""


class _Question(NamedTuple):
    """A request that is under way: what it asks, all of it and in a session's short words."""

    future: Future
    positions: Dict[TopicPartition, int]
    asked: Asked
    granted: Grant
    ids: Mapping[str, uuid.UUID]


class Fetcher:
    """Keeps one fetch request in flight to each broker of the source, over all its partitions that want data.

    One that got nothing below its end, though there was room in the answer, is asked for alone: there is a gap in the
    log, or a batch that no shared answer has room for. Data comes from leaders alone, whatever brokers advise.
    """

    def __init__(self, client: LogClient, isolation: int, gate: FetchGate) -> None:
        gate.forget_asked()
        self._client = client
        self._isolation = isolation
        self._gate = gate
        self._in_flight: Dict[int, _Question] = {}
        # By broker, when it was asked last: where a bound is short, everyone gets a turn.
        self._asked_at: Dict[int, int] = {}
        self._sessions: Dict[int, FetchSession] = {}
        # By partition, what was last said of its log.
        self._last: Dict[TopicPartition, Fetched] = {}
        self._pace = FetchPace()
        self._gaps = Gaps(lambda partition: local_start(client, partition))
        self._turns = FetchTurns(self._gaps.stored)
        self._by_id = True
        # By broker, how much it has brought.
        self._brought: Dict[int, int] = {}

    def idle(self) -> bool:
        """True when no answer is awaited."""
        return not self._in_flight

    def hears_first(self) -> bool:
        """Whether a broker that has brought nothing yet is giving a large answer."""
        return any(self._client.hears(node) for node in self._in_flight if not self._brought.get(node))

    def pump(self, partitions: Iterable[Fetchable]) -> float:
        """Ask each free broker for what its partitions want. Returns the seconds until one that is not to be asked yet
        may be, infinite where there is none. Raises `Disconnected` for a leaderless partition."""
        wanted: Dict[int, Dict[TopicPartition, int]] = {}
        brief: Set[int] = set()
        waits: Dict[int, float] = {}
        now = time.monotonic()
        for partition in partitions:
            node = self._client.leader(partition.source)
            if node in self._in_flight:
                continue
            wait = self._pace.wait(node, now) if node is not None else 0.0
            if node is not None and wait:
                waits[node] = wait
                continue
            if not partition.hungry():
                brief.update([node] if node is not None and partition.full() else [])
                continue
            if node is None:
                raise Disconnected(f"{self._client.alias}: {name_of(partition.source)} has no leader")
            wanted.setdefault(node, {})[partition.source] = partition.fetch_position
        # Those that will be asked in a moment have their share of what may be brought, too.
        brokers = len({*wanted, *self._in_flight, *waits, *brief})
        for node in sorted(wanted, key=lambda each: self._asked_at.get(each, 0)):
            self._send(node, wanted[node], node in brief, brokers)
        return min(waits.values(), default=math.inf)

    def _send(self, node: int, wanted: Mapping[TopicPartition, int], brief: bool, brokers: int) -> None:
        in_turn, max_wait_ms = self._turns.next(node, wanted, brief)
        granted = self._gate.grant(in_turn, brokers)
        if not granted.each and len(in_turn) < len(wanted):
            # A bound holds back the one that is asked for alone, and not the others.
            rest = wanted.keys() - in_turn
            in_turn, max_wait_ms = [each for each in wanted if each in rest], BRIEF_WAIT_MS
            granted = self._gate.grant(in_turn, brokers)
        if not granted.each:
            return
        self._asked_at[node] = max(self._asked_at.values(), default=0) + 1
        positions = {each: wanted[each] for each in granted.each}
        asked = self._sessions.setdefault(node, FetchSession()).ask(positions, granted.each)
        topics = {topic for topic, _ in (*positions, *asked.forgotten)}
        ids = self._client.topic_ids(topics) if self._by_id else {}
        request = fetch_request(
            positions, self._isolation, granted.total, PARTITION_FETCH_BYTES, max_wait_ms, asked, granted.each, ids
        )
        self._pace.asked(node, time.monotonic())
        self._in_flight[node] = _Question(self._client.send(node, request), positions, asked, granted, ids)

    def answers(self) -> Iterator[Tuple[TopicPartition, int, bool, Fetched]]:
        """What has come: (partition, position asked for, whether nothing lies between it and the end, answer)."""
        for node in iter(self._answered, None):
            future, positions, asked, granted, ids = self._in_flight.pop(node)
            if not future.succeeded():
                raise Disconnected(f"{self._client.alias}: fetch failed: {future.exception}")
            found = fetched(future.value, self._isolation, ids)
            brought = {each: len(one.data) for each, one in found.items()}
            self._gate.settle(granted, brought)
            self._pace.answered(node, sum(brought.values()))
            self._brought[node] = self._brought.get(node, 0) + sum(brought.values())
            code = future.value.error_code
            known = self._sessions[node].answered(asked, code, future.value.session_id)
            if known and code:
                raise Disconnected(f"{self._client.alias}: fetch failed: {error_name(code)}")
            if redirects(future.value):
                self._by_id = False
                del self._sessions[node]  # what was told in it is dropped here
            elif known and not says_nothing(future.value):
                yield from self._told(positions, found, granted)

    def _answered(self) -> Optional[int]:
        # Asked again behind each answer: to take one may wait for another broker's word, and more may come then.
        return next((node for node, question in self._in_flight.items() if question.future.is_done), None)

    def _told(
        self, positions: Mapping[TopicPartition, int], found: Mapping[TopicPartition, Fetched], granted: Grant
    ) -> Iterator[Tuple[TopicPartition, int, bool, Fetched]]:
        answer = self._whole(positions, found)
        sizes = {partition: len(one.data) for partition, one in answer.items() if len(one.data)}
        gaps = {each for each, one in answer.items() if not len(one.data) and positions[each] < one.end}
        room = 2 * sum(sizes.values()) <= granted.total
        self._turns.answered(positions, sizes, gaps if room else set())
        for partition, one in answer.items():
            at = positions[partition]
            empty = not sizes and at < one.end and not one.error_code
            yield partition, at, self._gaps.answered(partition, at, empty), one

    def _whole(
        self, positions: Mapping[TopicPartition, int], found: Mapping[TopicPartition, Fetched]
    ) -> Mapping[TopicPartition, Fetched]:
        """`found`, and of partitions that have more than was asked from what was said last: an answer within a session
        leaves out those of which nothing is new, also where there was no room for their data."""
        self._last.update({each: replace(one, data=b"", aborted=()) for each, one in found.items()})
        left_out = [each for each, at in positions.items() if each not in found and each in self._last]
        return {**found, **{each: self._last[each] for each in left_out if positions[each] < self._last[each].end}}
