"""Fetches raw record batches of many partitions from one cluster, and looks up the start and end of their logs."""

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
    Set,
    Tuple,
)

from kafka.protocol.consumer import ListOffsetsRequest

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, Future, LogClient, by_topic, error_name, grouped, name_of
from mirror_lib.kafka.fetch_quota import FetchQuota
from mirror_lib.kafka.record_batch import Buffer
from mirror_lib.kafka.wire import FetchAnswer, FetchRequestOfViews

log = logging.getLogger(__name__)

MAX_WAIT_MS = 500
# A broker answers one request of a connection at a time. If other partitions will need data soon, a request must not
# wait long.
BRIEF_WAIT_MS = 10

# Versions of Fetch that name a preferred read replica, and topics by id.
KNOWS_NEAREST, BY_TOPIC_ID = 11, 13
# The broker names no preferred read replica.
NO_REPLICA = -1
# With fewer partitions a session saves nothing, and a broker caches few of them
# (max.incremental.fetch.session.cache.slots).
SESSION_FROM_PARTITIONS = 50
# FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR, INCONSISTENT_TOPIC_ID
FORGOTTEN = (70, 71, 106, 103)
NO_SESSION, NO_EPOCH, FIRST_EPOCH, LAST_EPOCH = 0, -1, 0, 2**31 - 1


class Asked(NamedTuple):
    """One request: the session's id and epoch, the partitions to send, and those to remove from the session."""

    session_id: int = NO_SESSION
    epoch: int = NO_EPOCH
    positions: Mapping[TopicPartition, int] = {}
    forgotten: Tuple[TopicPartition, ...] = ()


class FetchSession:
    """A fetch session with one broker (KIP-227). The broker remembers the requested partitions: a request contains only
    changes, and a response only partitions with news.

    Not thread-safe; one request at a time. A request without the session leaves the session as it is.
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        # By partition, the position in the session's last request.
        self.known: Dict[TopicPartition, int] = {}

    def ask(self, wanted: Mapping[TopicPartition, int], changed: Collection[TopicPartition]) -> Asked:
        """The request for exactly the partitions `wanted` (partition to position). Of them, and of those before, only
        `changed` ones may have another position than in the session's last request, or have come or gone."""
        if len(wanted) < SESSION_FROM_PARTITIONS:
            return Asked(positions=wanted)
        if self._id == NO_SESSION:
            self.known = dict(wanted)
            return Asked(NO_SESSION, FIRST_EPOCH, self.known)
        gone = tuple(each for each in changed if each in self.known and each not in wanted)
        for each in gone:
            del self.known[each]
        moved = {each: wanted[each] for each in changed if each in wanted and self.known.get(each) != wanted[each]}
        self.known.update(moved)
        return Asked(self._id, self._epoch, moved, gone)

    @property
    def is_open(self) -> bool:
        """Whether the broker remembers the partitions of the last request."""
        return self._id != NO_SESSION

    def answered(self, asked: Asked, error_code: int, session_id: int) -> bool:
        """Process the header of the response to `asked`.

        False if the broker has dropped the session: the response has no data, and the next request is a full one."""
        if asked.epoch == NO_EPOCH:
            return True
        if error_code in FORGOTTEN or session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, FIRST_EPOCH
            return error_code not in FORGOTTEN
        self._id = session_id
        self._epoch = asked.epoch + 1 if asked.epoch < LAST_EPOCH else 1
        return True


# A partition without data in so many responses gets no request without the idle partitions any more.
IDLE_ANSWERS = 50


class FetchTurns:
    """Decides which of a task's partitions the next request to a broker contains.

    A partition that got data comes last in the next request. A partition without data before its end gets a request of
    its own, if the response had room for its data. While tiered storage delays a partition, every second request is for
    the other partitions. `stored` returns whether a partition waits for data from tiered storage.

    A broker walks all partitions of a session for each request. So partitions that get data are asked for without the
    others, which are looked at now and then.
    """

    def __init__(self, stored: Callable[[TopicPartition], bool]) -> None:
        self._stored = stored
        # In the order of their requests.
        self._alone: Dict[TopicPartition, None] = {}
        # Nodes whose last request was for a partition in tiered storage.
        self._owe_the_rest: Set[int] = set()
        # Partitions that got data lately, with the number of responses without data after which they count as idle:
        # IDLE_ANSWERS for one that got data in the last response to a request for it.
        self._busy: Dict[TopicPartition, int] = {}

    def next(
        self, node: int, wanted: Mapping[TopicPartition, int], brief: bool, in_session: bool, rest_ms: int = 0
    ) -> Tuple[Mapping[TopicPartition, int], int]:
        """The positions of the next request to `node`, in order of precedence, and how many ms the broker may wait.

        `wanted`: the positions from which its partitions need data. `brief`: other partitions of the node may need data
        soon. `in_session`: the broker itself puts a partition that got data last, and after `rest_ms` all partitions
        are to be looked at.
        """
        lonely = [each for each in self._alone if each in wanted]
        stored = [each for each in lonely if self._stored(each)]
        if stored and (len(stored) == len(wanted) or node not in self._owe_the_rest):
            # One alone: a broker reads from tiered storage for as long as the request may wait.
            first = stored[0]
            self._alone[first] = self._alone.pop(first)
            self._owe_the_rest.add(node)
            return {first: wanted[first]}, MAX_WAIT_MS
        self._owe_the_rest.discard(node)
        if len(lonely) > len(stored):
            first = next(each for each in lonely if each not in stored)
            return {first: wanted[first]}, 0
        max_wait_ms = BRIEF_WAIT_MS if brief else MAX_WAIT_MS
        if in_session and not stored:
            busy = {each: wanted[each] for each in self._busy if each in wanted}
            if not 0 < len(busy) < SESSION_FROM_PARTITIONS:
                return wanted, max_wait_ms
            return (busy, min(rest_ms, max_wait_ms)) if rest_ms else (wanted, 0)
        served = {each for each, left in self._busy.items() if left == IDLE_ANSWERS}
        rest = sorted((each for each in wanted if each not in stored), key=served.__contains__)
        return {each: wanted[each] for each in rest}, max_wait_ms

    def answered(
        self, asked: Collection[TopicPartition], served: Collection[TopicPartition], alone: Set[TopicPartition]
    ) -> None:
        """Record a response: of the `asked` partitions, `served` got data, and `alone` need a request of their own."""
        kept = [each for each in self._alone if each not in asked]
        self._alone = dict.fromkeys([*kept, *sorted(alone)])
        waited = {each: left - (each in asked) for each, left in self._busy.items()}
        self._busy = {each: left for each, left in waited.items() if left}
        self._busy.update(dict.fromkeys(served, IDLE_ANSWERS))


def fetch_request(
    asked: Asked,
    isolation: int,
    max_bytes: int,
    partition_max_bytes: int,
    max_wait_ms: int,
    ids: Mapping[str, uuid.UUID] = {},
) -> FetchRequestOfViews:
    """One request for several partitions. The broker sends at least one whole batch of the first that has data.

    With the `ids` of all topics, the request uses topic ids if the broker supports them (KIP-516). For a re-created
    topic the broker then returns an error instead of records. Without `ids`, the request version is too old for the
    broker to name a preferred read replica (KIP-392).
    """
    of_topic, gone = FetchRequestOfViews.FetchTopic, FetchRequestOfViews.ForgottenTopic
    topics: Dict[str, List[Any]] = {}
    for (topic, number), position in asked.positions.items():
        # With all fields: the library computes a missing one anew for each partition.
        part = of_topic.FetchPartition(
            partition=number,
            fetch_offset=position,
            partition_max_bytes=partition_max_bytes,
            log_start_offset=-1,
            current_leader_epoch=-1,
            last_fetched_epoch=-1,
        )
        topics.setdefault(topic, []).append(part)
    forgotten = by_topic(asked.forgotten)
    return FetchRequestOfViews(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=asked.session_id,
        session_epoch=asked.epoch,
        topics=[of_topic(topic=name, topic_id=ids.get(name), partitions=of_it) for name, of_it in topics.items()],
        forgotten_topics_data=[
            gone(topic=name, topic_id=ids.get(name), partitions=of_it) for name, of_it in forgotten.items()
        ],
        min_version=4,
        max_version=BY_TOPIC_ID if ids else KNOWS_NEAREST - 1,
    )


EARLIEST = -2
LATEST = -1
# The first offset on the leader's local disk (KIP-405).
EARLIEST_LOCAL = -4
KNOWS_TIERED_STORAGE = 8
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


def log_ends(
    client: LogClient, partitions: Iterable[TopicPartition], isolation: int = READ_UNCOMMITTED, timestamp: int = LATEST
) -> Mapping[TopicPartition, int]:
    """The end of each partition's log, with one request to each broker; without partitions whose leader gives none.
    With the `timestamp` EARLIEST it is the start.

    The end is the high watermark, which just after an election may be lower than an acknowledged offset. With
    `READ_COMMITTED` it is the last stable offset. Raises `Disconnected`.
    """
    by_leader = grouped(partitions, client.leader).items()
    requests = [(node, list_offsets_request(each, timestamp, isolation)) for node, each in by_leader]
    return {
        (topic.name, part.partition_index): part.offset
        for answer in client.calls(requests)
        for topic in answer.topics
        for part in topic.partitions
        if not part.error_code
    }


def required_ends(
    client: LogClient, places: Collection[TopicPartition], isolation: int = READ_UNCOMMITTED, timestamp: int = LATEST
) -> Mapping[TopicPartition, int]:
    """`log_ends` of all `places`. Raises `Disconnected` if a leader does not report it, too.

    Request the ends after the fence and before reading the logs: records that others append later do not count.
    """
    ends, asked = log_ends(client, places, isolation, timestamp), "end" if timestamp == LATEST else "start"
    for each in places:
        if each not in ends:
            raise Disconnected(f"{client.alias}: {name_of(each)} does not tell the {asked} of its log")
    return ends


def local_start(client: LogClient, partition: TopicPartition) -> int:
    """The first offset on the leader's local disk: earlier offsets are in tiered storage (KIP-405).

    -1 if the leader's protocol version does not know tiered storage. Raises `Disconnected`.
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
    """A request to one leader for offsets by time; `EARLIEST` and `LATEST` are times too.

    From version 5 on a new leader returns an error while it does not know its log's end (KIP-207).
    """
    kind = ListOffsetsRequest.ListOffsetsTopic

    def part(number: int) -> Any:
        return kind.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=timestamp)

    topics = by_topic(partitions).items()
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[kind(name=topic, partitions=list(map(part, numbers))) for topic, numbers in topics],
        min_version=2 if isolation else 0,
        max_version=max_version,
    )


PARTITION_FETCH_BYTES = 8 * 1024 * 1024

# After a response with less data, the next request starts at least PAUSE_SECONDS after the previous one.
SMALL_BYTES = 64 * 1024
PAUSE_SECONDS = 0.005
# Requests for all partitions of a session may take this part of the time; the rest is for its busy partitions.
WHOLE_SHARE = 0.1

EMPTY_ANSWERS = 3


class Gaps:
    """Decides from empty responses before a log's end whether the offsets up to that end contain no record.

    A compacted log may end with such a gap: the broker then always returns an empty response. While tiered storage
    (KIP-405) is slow or throttled by a quota, responses are empty too, but there is no gap. `local_start` returns the
    first offset on the local disk of a partition's leader.
    """

    def __init__(self, local_start: Callable[[TopicPartition], int]) -> None:
        self._local_start = local_start
        self._seen: Dict[TopicPartition, Tuple[int, int]] = {}
        self._stored: Set[TopicPartition] = set()

    def answered(self, partition: TopicPartition, position: int, empty: bool) -> bool:
        """Whether all offsets from `position` up to the end are a gap.

        `empty`: the partition is before its end, and its response has no data. Raises what `local_start` raises.
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
        """Whether the partition waits for data from tiered storage."""
        return partition in self._stored


class FetchSchedule:
    """Decides when a task sends the next request to each broker, by node id. Times are seconds of one clock.

    At low rates the pause collects a few records for each request. A request for every record would cost both clusters
    and the task more than the records themselves.
    """

    def __init__(self) -> None:
        self._asked: Dict[int, float] = {}
        self._due: Dict[int, float] = {}
        self._rest_until: Dict[int, float] = {}

    def asked(self, node: int, now: float) -> None:
        """Record that a request was sent to the broker."""
        self._asked[node] = now

    def answered(self, node: int, brought: int, whole: bool, now: float) -> None:
        """Record the broker's response, with `brought` bytes of records. `whole`: of all partitions."""
        self._due[node] = self._asked[node] + (PAUSE_SECONDS if brought < SMALL_BYTES else 0.0)
        if whole:
            rest = (now - self._asked[node]) / WHOLE_SHARE
            self._rest_until[node] = now + min(rest, MAX_WAIT_MS / 1000)

    def rest_ms(self, node: int, now: float) -> int:
        """Until when a request to the broker may leave idle partitions out."""
        return round(1000 * max(0.0, self._rest_until.get(node, now) - now))

    def wait(self, node: int, now: float) -> float:
        """Seconds until the next request to the broker is due; 0 if it is due now."""
        return max(0.0, self._due.get(node, now) - now)


@dataclass(frozen=True)
class Fetched:
    """One partition's response. `end` is the last stable offset under `read_committed`, else the high watermark.

    `aborted` lists `(producer_id, first_offset)` of the aborted transactions that overlap the data.
    """

    error_code: int
    end: int
    aborted: Tuple[Tuple[int, int], ...]
    data: Buffer


def fetched(answer: FetchAnswer, isolation: int, names: Mapping[uuid.UUID, str] = {}) -> Dict[TopicPartition, Fetched]:
    """The response by partition. `names` are the topics by id."""
    found: Dict[TopicPartition, Fetched] = {}
    for topic in answer.responses:
        name = topic.topic if topic.topic_id is None else names[topic.topic_id]
        for part in topic.partitions:
            found[(name, part.partition_index)] = Fetched(
                error_code=part.error_code,
                end=part.last_stable_offset if isolation == READ_COMMITTED else part.high_watermark,
                aborted=tuple(sorted((_ids(each) for each in part.aborted_transactions or ()), key=itemgetter(1))),
                data=part.records if part.records is not None else b"",
            )
    return found


def _ids(aborted: Any) -> Tuple[int, int]:
    return aborted.producer_id, aborted.first_offset


def is_throttled_empty(answer: FetchAnswer) -> bool:
    """Whether the response is empty because a quota is used up (KIP-219): the broker has read no log for it."""
    return bool(answer.throttle_time_ms > 0 and not answer.responses)


class Fetchable(Protocol):
    """A partition that is `hungry` if it wants data now, or `full` if it will as soon as some of its data is appended.
    """

    source: TopicPartition

    @property
    def fetch_position(self) -> int:
        """The next offset to ask for."""

    def hungry(self) -> bool: ...

    def full(self) -> bool: ...


class _Question(NamedTuple):
    """A request in flight: all its positions, its form within the session, and its limit in bytes."""

    future: Future
    positions: Mapping[TopicPartition, int]
    asked: Asked
    granted: int


class Fetcher:
    """Keeps one fetch request in flight to each broker of the source, for all `topics`' partitions that want data.

    A partition gets a request of its own if it got no data before its end although the response had room. Its log has a
    gap there, or its next batch does not fit into a shared response. The fetcher reads from leaders only and ignores
    preferred read replicas. What a request costs depends on the partitions that moved, not on how many there are.
    """

    def __init__(self, client: LogClient, isolation: int, quota: FetchQuota, topics: Collection[str]) -> None:
        quota.forget_asked()
        self._client = client
        self._isolation = isolation
        self._quota = quota
        self._in_flight: Dict[int, _Question] = {}
        # By broker, the number of its last request: under a tight quota every broker gets its turn.
        self._asked_at: Dict[int, int] = {}
        self._sessions: Dict[int, FetchSession] = {}
        # By broker: the positions of partitions that want data, partitions whose queue is full, and those that its
        # session does not have as they are now.
        self._wanted: Dict[int, Dict[TopicPartition, int]] = {}
        self._full: Dict[int, Set[TopicPartition]] = {}
        self._changed: Dict[int, Set[TopicPartition]] = {}
        # By partition, the last response without its data, and the partitions that are before its end.
        self._last: Dict[TopicPartition, Fetched] = {}
        self._behind: Set[TopicPartition] = set()
        self._schedule = FetchSchedule()
        self._gaps = Gaps(lambda partition: local_start(client, partition))
        self._turns = FetchTurns(self._gaps.stored)
        self._ids = client.topic_ids(topics)
        self._names = {topic_id: name for name, topic_id in self._ids.items()}
        # By broker, the bytes of all its responses.
        self._brought: Dict[int, int] = {}

    def hears_first(self) -> bool:
        """Whether the first data of a broker is arriving in a large response."""
        return any(self._client.hears(node) for node in self._in_flight if not self._brought.get(node))

    def look(self, partitions: Iterable[Fetchable]) -> None:
        """See which of `partitions`, the only ones that may have moved since, want data. Raises `Disconnected` for one
        without a leader."""
        for partition in partitions:
            node, hungry, source = self._client.leader(partition.source), partition.hungry(), partition.source
            if node is None:
                if hungry:
                    raise Disconnected(f"{self._client.alias}: {name_of(source)} has no leader")
                continue
            wanted, full = self._wanted.setdefault(node, {}), self._full.setdefault(node, set())
            self._changed.setdefault(node, set()).add(source)
            if hungry:
                wanted[source] = partition.fetch_position
            else:
                wanted.pop(source, None)
            if not hungry and partition.full():
                full.add(source)
            else:
                full.discard(source)

    def pump(self) -> float:
        """Send a request to each broker without one in flight, for its partitions that want data.

        Returns the seconds until the next delayed request is due; infinite if none is delayed."""
        now = time.monotonic()
        wanting = [node for node, wanted in self._wanted.items() if wanted or self._full[node]]
        waits = {node: self._schedule.wait(node, now) for node in wanting if node not in self._in_flight}
        # Brokers with a request due soon count for the quota too.
        brokers = len({*wanting, *self._in_flight})
        for node in sorted(waits, key=lambda each: self._asked_at.get(each, 0)):
            if not waits[node] and self._wanted[node]:
                self._send(node, brokers)
        return min((wait for wait in waits.values() if wait), default=math.inf)

    def _send(self, node: int, brokers: int) -> None:
        granted = self._quota.grant(brokers)
        if not granted:
            return
        session, wanted = self._sessions.setdefault(node, FetchSession()), self._wanted[node]
        in_session = session.is_open and len(wanted) >= SESSION_FROM_PARTITIONS
        rest_ms = self._schedule.rest_ms(node, time.monotonic())
        positions, max_wait_ms = self._turns.next(node, wanted, bool(self._full[node]), in_session, rest_ms)
        of_session = SESSION_FROM_PARTITIONS <= len(positions) < len(wanted)
        waiting = wanted.keys() - positions.keys() if of_session else set()
        asked = session.ask(positions, self._changed[node] | waiting)
        if asked.epoch != NO_EPOCH:
            positions, self._changed[node] = session.known, waiting
        request = fetch_request(asked, self._isolation, granted, PARTITION_FETCH_BYTES, max_wait_ms, self._ids)
        self._asked_at[node] = max(self._asked_at.values(), default=0) + 1
        self._schedule.asked(node, time.monotonic())
        self._in_flight[node] = _Question(self._client.send(node, request), positions, asked, granted)

    def answers(self) -> Iterator[Tuple[TopicPartition, int, bool, Fetched]]:
        """The responses so far: (partition, requested position, whether a gap reaches to the log's end, response)."""
        for node in iter(self._answered, None):
            future, positions, asked, granted = self._in_flight.pop(node)
            if not future.succeeded():
                raise Disconnected(f"{self._client.alias}: fetch failed: {future.exception}")
            found = fetched(future.value, self._isolation, self._names)
            brought = sum(len(one.data) for one in found.values())
            self._quota.settle(granted, brought)
            self._schedule.answered(node, brought, asked.epoch != NO_EPOCH, time.monotonic())
            self._brought[node] = self._brought.get(node, 0) + brought
            code = future.value.error_code
            known = self._sessions[node].answered(asked, code, future.value.session_id)
            if known and code:
                raise Disconnected(f"{self._client.alias}: fetch failed: {error_name(code)}")
            parts = (part for topic in future.value.responses for part in topic.partitions)
            if any(part.preferred_read_replica != NO_REPLICA for part in parts):  # KIP-392: it has no data of these
                self._ids = {}
                del self._sessions[node]  # its answers are dropped here
            elif known and not is_throttled_empty(future.value):
                yield from self._reported(positions, found, granted)

    def _answered(self) -> Optional[int]:
        # Evaluated again after each response: more may arrive while the caller processes one and waits for a broker.
        return next((node for node, question in self._in_flight.items() if question.future.is_done), None)

    def _reported(
        self, positions: Mapping[TopicPartition, int], found: Mapping[TopicPartition, Fetched], granted: int
    ) -> Iterator[Tuple[TopicPartition, int, bool, Fetched]]:
        answer = self._whole(positions, found)
        sizes = {partition: len(one.data) for partition, one in answer.items() if len(one.data)}
        gaps = {each for each, one in answer.items() if not len(one.data) and positions[each] < one.end}
        room = 2 * sum(sizes.values()) <= granted
        self._turns.answered(positions, sizes, gaps if room else set())
        for partition, one in answer.items():
            at = positions[partition]
            empty = not sizes and at < one.end and not one.error_code
            yield partition, at, self._gaps.answered(partition, at, empty), one

    def _whole(
        self, positions: Mapping[TopicPartition, int], found: Mapping[TopicPartition, Fetched]
    ) -> Mapping[TopicPartition, Fetched]:
        """`found`, plus the last known state of requested partitions that are before their log's end.

        A response within a session omits partitions without news, even if there was no room for their data."""
        self._last.update({each: replace(one, data=b"", aborted=()) for each, one in found.items()})
        self._behind = {
            each
            for each in self._behind.union(found)
            if each not in positions or positions[each] < self._last[each].end
        }
        left_out = [each for each in self._behind if each not in found and each in positions]
        return {**found, **{each: self._last[each] for each in left_out}}
