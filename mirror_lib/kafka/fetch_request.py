"""Positions in, a fetch request out: one question to one broker about several partitions. Pure."""

from __future__ import annotations

import uuid
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import by_topic
from mirror_lib.kafka.fetch_answer import BY_TOPIC_ID, KNOWS_NEAREST
from mirror_lib.kafka.wire import FetchRequestOfViews

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
    """A fetch session with one broker (KIP-227), which remembers what is asked for: a request names only what changed,
    and an answer only what is new.

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
        """Take the head of the answer to `asked`. False where the broker has forgotten the session, and told nothing
        else: the next `ask` says everything again."""
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
        """The question to `node`, of which `wanted` want data. `brief`: others of it may want some in a moment."""
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
