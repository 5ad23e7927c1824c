"""Fetches raw record batches of many partitions from one cluster, and looks up where their logs begin and end."""

from __future__ import annotations

import logging
import math
import time
import uuid
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Set,
    Tuple,
)

from kafka.protocol.consumer import ListOffsetsRequest

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, Future, LogClient, by_topic, error_name, name_of
from mirror_lib.kafka.fetch_answer import BY_TOPIC_ID, KNOWS_NEAREST, NO_REPLICA, FetchAnswer
from mirror_lib.kafka.record_batch import Buffer
from mirror_lib.kafka.wire import FetchRequestOfViews

log = logging.getLogger(__name__)

MAX_WAIT_MS = 500
# A broker answers one request of a connection at a time: who may want more soon must not wait for a long one.
BRIEF_WAIT_MS = 10

# Below it a session would save nothing, and a broker keeps few of them (max.incremental.fetch.session.cache.slots).
SESSION_FROM_PARTITIONS = 50
# FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR, INCONSISTENT_TOPIC_ID
FORGOTTEN = (70, 71, 106, 103)
NO_SESSION, NO_EPOCH, FIRST_EPOCH, LAST_EPOCH = 0, -1, 0, 2**31 - 1


class Asked(NamedTuple):
    """One request: the session's id and epoch, the partitions to name, those that are not wanted any more."""

    session_id: int = NO_SESSION
    epoch: int = NO_EPOCH
    positions: Mapping[TopicPartition, int] = {}
    forgotten: Tuple[TopicPartition, ...] = ()


class FetchSession:
    """A fetch session with one broker (KIP-227), which remembers the partitions asked for: a request names only
    changes, and an answer only what is new.

    Not thread-safe; one request at a time. What `ask` wants without the session does not disturb it.
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known: Dict[TopicPartition, Tuple[int, int]] = {}

    def ask(self, wanted: Mapping[TopicPartition, int], limits: Mapping[TopicPartition, int] = {}) -> Asked:
        """What a request for `wanted` (partition to position) has to say; the answer is about these alone. `limits` are
        the most bytes of each."""
        if len(wanted) < SESSION_FROM_PARTITIONS:
            return Asked(positions=wanted)
        before, self._known = self._known, {each: (at, limits.get(each, -1)) for each, at in wanted.items()}
        if self._id == NO_SESSION:
            return Asked(NO_SESSION, FIRST_EPOCH, wanted)
        changed = {each: at for each, at in wanted.items() if before.get(each) != self._known[each]}
        return Asked(self._id, self._epoch, changed, tuple(each for each in before if each not in wanted))

    def answered(self, asked: Asked, error_code: int, session_id: int) -> bool:
        """Take the head of the answer to `asked`. False where the broker has forgotten the session, and returned
        nothing else: the next `ask` says everything again."""
        if asked.epoch == NO_EPOCH:
            return True
        if error_code in FORGOTTEN or session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, FIRST_EPOCH
            return error_code not in FORGOTTEN
        self._id = session_id
        self._epoch = asked.epoch + 1 if asked.epoch < LAST_EPOCH else 1
        return True


class Turn(NamedTuple):
    """The partitions of a question, first those that should get something, and how long the broker may wait."""

    partitions: List[TopicPartition]
    max_wait_ms: int


class FetchTurns:
    """Which of a task's partitions the next request to a broker is about.

    A partition that got something is asked for last the next time. One that got nothing below its end, though there was
    room in the answer, is asked for alone. While tiered storage keeps one waiting, every other request is about the
    rest. `stored` returns whether a partition's data is awaited from tiered storage.
    """

    def __init__(self, stored: Callable[[TopicPartition], bool]) -> None:
        self._stored = stored
        self._served: Set[TopicPartition] = set()
        self._alone: Set[TopicPartition] = set()
        # Nodes whose last question was about a stored partition, and when each of these had its turn.
        self._owe_the_rest: Set[int] = set()
        self._turns: Dict[TopicPartition, int] = {}

    def next(self, node: int, wanted: Collection[TopicPartition], brief: bool) -> Turn:
        """The request to `node`, whose partitions in `wanted` want data. `brief`: others of it may want some in a
        moment."""
        lonely = self._alone.intersection(wanted)
        stored = {each for each in lonely if self._stored(each)}
        if stored and (len(stored) == len(wanted) or node not in self._owe_the_rest):
            return self._of_stored(node, stored)
        self._owe_the_rest.discard(node)
        if lonely - stored:
            return Turn([min(lonely - stored)], 0)
        rest = sorted((each for each in wanted if each not in stored), key=self._served.__contains__)
        return Turn(rest, BRIEF_WAIT_MS if brief else MAX_WAIT_MS)

    def _of_stored(self, node: int, stored: Iterable[TopicPartition]) -> Turn:
        """One alone: brokers read in tiered storage as long as the request may wait."""
        first = min(stored, key=lambda each: (self._turns.get(each, 0), each))
        self._turns[first] = max(self._turns.values(), default=0) + 1
        self._owe_the_rest.add(node)
        return Turn([first], MAX_WAIT_MS)

    def answered(
        self, asked: Collection[TopicPartition], served: Collection[TopicPartition], alone: Set[TopicPartition]
    ) -> None:
        """Of those that were `asked` about some were `served`, others are to be asked for `alone`."""
        self._alone = (self._alone - set(asked)) | alone
        self._served = (self._served - set(asked)) | set(served)


def fetch_request(
    positions: Mapping[TopicPartition, int],
    isolation: int,
    max_bytes: int,
    partition_max_bytes: int,
    max_wait_ms: int = MAX_WAIT_MS,
    asked: Optional[Asked] = None,
    limits: Mapping[TopicPartition, int] = {},
    ids: Mapping[str, uuid.UUID] = {},
) -> FetchRequestOfViews:
    """One request for several partitions. The broker sends at least one whole batch of the first that has data.

    `asked` says it within a session, `limits` beats `partition_max_bytes`. With `ids` of all topics it asks by id where
    the broker can (KIP-516): another topic that was given the name gives then an error, and none of its records.
    Without them it asks so that no broker names another replica to read from instead (KIP-392).
    """
    asked = asked or Asked(positions=positions)
    topics: Dict[str, List[Any]] = {}
    for (topic, number), position in asked.positions.items():
        part = _part(number, position, limits.get((topic, number), partition_max_bytes))
        topics.setdefault(topic, []).append(part)
    return FetchRequestOfViews(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=asked.session_id,
        session_epoch=asked.epoch,
        topics=[
            FetchRequestOfViews.FetchTopic(topic=name, topic_id=ids.get(name), partitions=parts)
            for name, parts in topics.items()
        ],
        forgotten_topics_data=_forgotten(asked.forgotten, ids),
        rack_id="",
        min_version=4,
        max_version=BY_TOPIC_ID if ids else KNOWS_NEAREST - 1,
    )


def _part(number: int, position: int, max_bytes: int) -> Any:
    return FetchRequestOfViews.FetchTopic.FetchPartition(
        partition=number,
        fetch_offset=position,
        partition_max_bytes=max_bytes,
        log_start_offset=-1,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
    )


def _forgotten(partitions: Iterable[TopicPartition], ids: Mapping[str, uuid.UUID]) -> List[Any]:
    kind = FetchRequestOfViews.ForgottenTopic
    topics = by_topic(partitions).items()
    return [kind(topic=name, topic_id=ids.get(name), partitions=numbers) for name, numbers in topics]


EARLIEST = -2
LATEST = -1
# The first offset that the leader keeps itself (KIP-405).
EARLIEST_LOCAL = -4
KNOWS_TIERED_STORAGE = 8
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


def log_ends(
    client: LogClient, partitions: Iterable[TopicPartition], isolation: int = READ_UNCOMMITTED
) -> Mapping[TopicPartition, int]:
    """The end of each partition's log, in one request a broker; left out where its leader does not tell it.

    It is the high watermark: just after an election that may lie before what was acknowledged. Or the last stable
    offset, by `isolation`. Raises `Disconnected`.
    """
    by_node: Dict[int, List[TopicPartition]] = {}
    for partition in partitions:
        node = client.leader(partition)
        if node is not None:
            by_node.setdefault(node, []).append(partition)
    # All at once: brokers may be far, and there may be many.
    asked = [client.send(node, list_offsets_request(of_node, LATEST, isolation)) for node, of_node in by_node.items()]
    return {
        (topic.name, part.partition_index): part.offset
        for answer in map(client.answer, asked)
        for topic in answer.topics
        for part in topic.partitions
        if not part.error_code
    }


def local_start(client: LogClient, partition: TopicPartition) -> int:
    """The first offset that the partition's leader keeps itself: what lies before is in tiered storage.

    -1 where all is with the leader, for all that it can tell. Raises `Disconnected`.
    """
    request = list_offsets_request([partition], EARLIEST_LOCAL, READ_UNCOMMITTED, KNOWS_TIERED_STORAGE)
    answer = client.call(client.leader(partition), request)
    if answer.version < KNOWS_TIERED_STORAGE:
        return -1
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise Disconnected(f"{client.alias}: {name_of(partition)}: {error_name(found.error_code)}")
    return int(found.offset)


def list_offsets_request(
    partitions: Iterable[TopicPartition], timestamp: int, isolation: int, max_version: int = 5
) -> ListOffsetsRequest:
    """Asks one leader for offsets by time; `EARLIEST` and `LATEST` are times too.

    Version 5 says where a new leader does not know its end yet (KIP-207).
    """
    kind = ListOffsetsRequest.ListOffsetsTopic
    by_topic: Dict[str, List[Any]] = {}
    for topic, number in partitions:
        part = kind.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=timestamp)
        by_topic.setdefault(topic, []).append(part)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[kind(name=topic, partitions=parts) for topic, parts in by_topic.items()],
        min_version=2 if isolation else 0,
        max_version=max_version,
    )


# One question to a broker is under way at a time, so what it brings has to be worth a long way.
FETCH_BYTES = 16 * 1024 * 1024
PARTITION_FETCH_BYTES = 8 * 1024 * 1024

# Behind an answer that brought less, questions begin no sooner than so long after each other.
SMALL_BYTES = 64 * 1024
PAUSE_SECONDS = 0.005

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
            log.warning("%s: tiered storage has not served offset %d yet; trying again", name_of(partition), position)
        self._stored.add(partition)
        return False

    def stored(self, partition: TopicPartition) -> bool:
        """Whether its data is waited for from tiered storage: brokers read there as long as the request may wait."""
        return partition in self._stored


class FetchSchedule:
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
    """The answer by partition. `ids` are the topic ids of the request."""
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


def is_throttled_empty(answer: FetchAnswer) -> bool:
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


class FetchGrants(Protocol):
    """Says how much may be fetched, and gets the size of each answer."""

    def grant(self, wanted: Sequence[TopicPartition], brokers: int) -> Grant:
        """What may be asked of one of `brokers` brokers."""

    def settle(self, granted: Grant, brought: Mapping[TopicPartition, int]) -> None:
        """An answer to what was granted brought so many bytes."""

    def forget_asked(self) -> None:
        """No answer will come any more to the request."""


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

    def __init__(self, client: LogClient, isolation: int, quota: FetchGrants) -> None:
        quota.forget_asked()
        self._client = client
        self._isolation = isolation
        self._quota = quota
        self._in_flight: Dict[int, _Question] = {}
        # By broker, when it was asked last: where a bound is short, everyone gets a turn.
        self._asked_at: Dict[int, int] = {}
        self._sessions: Dict[int, FetchSession] = {}
        # By partition, what was last said of its log.
        self._last: Dict[TopicPartition, Fetched] = {}
        self._schedule = FetchSchedule()
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
            wait = self._schedule.wait(node, now) if node is not None else 0.0
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
        granted = self._quota.grant(in_turn, brokers)
        if not granted.each and len(in_turn) < len(wanted):
            # A bound holds back the one that is asked for alone, and not the others.
            rest = wanted.keys() - in_turn
            in_turn, max_wait_ms = [each for each in wanted if each in rest], BRIEF_WAIT_MS
            granted = self._quota.grant(in_turn, brokers)
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
        self._schedule.asked(node, time.monotonic())
        self._in_flight[node] = _Question(self._client.send(node, request), positions, asked, granted, ids)

    def answers(self) -> Iterator[Tuple[TopicPartition, int, bool, Fetched]]:
        """What has come: (partition, position asked for, whether nothing lies between it and the end, answer)."""
        for node in iter(self._answered, None):
            future, positions, asked, granted, ids = self._in_flight.pop(node)
            if not future.succeeded():
                raise Disconnected(f"{self._client.alias}: fetch failed: {future.exception}")
            found = fetched(future.value, self._isolation, ids)
            brought = {each: len(one.data) for each, one in found.items()}
            self._quota.settle(granted, brought)
            self._schedule.answered(node, sum(brought.values()))
            self._brought[node] = self._brought.get(node, 0) + sum(brought.values())
            code = future.value.error_code
            known = self._sessions[node].answered(asked, code, future.value.session_id)
            if known and code:
                raise Disconnected(f"{self._client.alias}: fetch failed: {error_name(code)}")
            if redirects(future.value):
                self._by_id = False
                del self._sessions[node]  # its answers are dropped here
            elif known and not is_throttled_empty(future.value):
                yield from self._reported(positions, found, granted)

    def _answered(self) -> Optional[int]:
        # Asked again behind each answer: to take one may wait for another broker's word, and more may come then.
        return next((node for node, question in self._in_flight.items() if question.future.is_done), None)

    def _reported(
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
        leaves out partitions without news, also where there was no room for their data."""
        self._last.update({each: replace(one, data=b"", aborted=()) for each, one in found.items()})
        left_out = [each for each, at in positions.items() if each not in found and each in self._last]
        return {**found, **{each: self._last[each] for each in left_out if positions[each] < self._last[each].end}}
