"""Joins a consumer group of the source, so that only one mirror process copies. Commits progress to the group."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, Type

from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as KafkaPartition
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.errors import (
    AuthorizationError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    KafkaConfigurationError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from mirror_lib.config.client_options import kafka_python_options
from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError, MirrorError, RefusedError, cause_of
from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.kafka.admin_client import LARGEST_ANSWER_BYTES, LONGEST_BACKOFF_MS
from mirror_lib.kafka.security import ready_options
from mirror_lib.log_lines import of_this_flow
from mirror_lib.text import some

log = logging.getLogger(__name__)

POLL_MS = 300
AGAIN_SECONDS = 2.0
COMMIT_SECONDS = 30.0
# A job must end within 30 s of SIGTERM, and its last cycle may take most of that.
CLOSING_SECONDS = 4.0
# After this silence of a process another one gets its turn. Shorter than a consumer's 45 s, because the copy stops
# meanwhile.
SESSION_MS = 10_000
OTHERS = "another process of the group copies"
STRANGERS = "consumers of another kind are in the group, an old MirrorMaker perhaps"
FULL = "the group has as many members as group.max.size allows"
# Errors that a retry does not fix.
REFUSED = (InvalidGroupIdError, InvalidSessionTimeoutError, KafkaConfigurationError)

VERSION = 0
YOUR_TURN, STAND_BY = b"copy", b"stand by"


class Turns(AbstractPartitionAssignor):  # type: ignore[misc]
    """Elects the process that copies, among the processes of a consumer group, by the group's own protocol (KIP-62).

    All processes join, the group's leader chooses one, and Kafka's failure detection ends a turn. No partition is
    assigned, so no member fetches. Turns only save work; the fence prevents duplicates.

    `claim` returns the time since which this process copies, in milliseconds since 1970; 0 if it does not.

    `reported` is called after each rebalance, with whether this process has the turn.
    """

    # MirrorMaker 1 does not support this protocol, so it cannot be in the group together with these processes.
    name = "mirror-turns"

    def __init__(self, claim: Callable[[], int], reported: Callable[[bool], None]) -> None:
        self._claim = claim
        self._reported = reported

    def metadata(self, topics: Sequence[str]) -> Any:
        """This process's subscription and claim. The subscribed topics' committed offsets do not expire (KIP-211)."""
        return ConsumerProtocolSubscription(VERSION, sorted(topics), b"%d" % self._claim())

    def assign(self, cluster: Any, members: List[Any]) -> Dict[str, Any]:
        """The leader's decision: one member copies, the others stand by."""
        chosen = chosen_member({each.member_id: _claim_of(each.metadata.user_data) for each in members})
        return {
            each.member_id: ConsumerProtocolAssignment(
                VERSION, [], YOUR_TURN if each.member_id == chosen else STAND_BY
            )
            for each in members
        }

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Report the leader's decision for this process."""
        self._reported(assignment.user_data == YOUR_TURN)


def chosen_member(claims: Dict[str, int]) -> str:
    """The member that copies: of several with a claim the one that started last; without a claim the first by name.

    A process that resumes after a pause still claims its turn. The process that got the turn meanwhile started later
    and has fenced it.
    """
    return min(claims, key=lambda member: (-claims[member], member))


def _claim_of(user_data: Any) -> int:
    text = bytes(user_data or b"")
    return int(text) if text.isdigit() else 0


class GroupMember:
    """A context manager: inside it, a background thread keeps the process in the group, or tries to join.

    Call its methods from one thread. `pattern` is a regex of the topics whose progress is committed, `interval` the
    seconds between two commits.
    """

    def __init__(self, config: ClusterConfig, group: str, pattern: str, interval: float) -> None:
        self._config = config
        self._group = group
        self._pattern = f"(?:{pattern})$"
        self._interval = interval
        self._closing = threading.Event()
        self._changed = threading.Condition()
        self._copies_since = 0
        self._waits_for: Optional[str] = None
        self._error: Optional[MirrorError] = None
        self._forbidden: FrozenSet[str] = frozenset()
        self._offered: Dict[TopicPartition, CommittedOffset] = {}
        self._committed: Dict[TopicPartition, CommittedOffset] = {}
        self._commit_at = 0.0
        self._thread = threading.Thread(target=of_this_flow(self._run), name=f"group {group}", daemon=True)

    def __enter__(self) -> GroupMember:
        self._thread.start()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Commit the last offsets and leave the group, so the next process does not wait for the session timeout."""
        self._closing.set()
        self._thread.join(2 * CLOSING_SECONDS)

    def has_turn(self) -> bool:
        """Whether this process has the turn to copy; False after an error that ended its membership."""
        return self._copies_since > 0 and self._error is None

    def refusal(self) -> Optional[MirrorError]:
        """The error that keeps this process out of the group, or `None`."""
        return self._error

    def wait_for_turn(self, stop: threading.Event, patient: bool) -> bool:
        """Wait until this process has the turn: True; False if `stop` is set before.

        Raises `RefusedError` if another process has the turn and this one is not `patient`, `ClusterError` if the
        process cannot join the group.
        """
        said: Optional[str] = None
        while not self.has_turn():
            if stop.is_set():
                return False
            if self._error is not None:
                raise self._error
            why = self._waits_for
            if why is not None and not patient:
                raise RefusedError(
                    f"{self._config.alias}: {why}: group {self._group}",
                    "let it end first; without --once a process waits for its turn",
                    code="MIR-301",
                )
            if why is not None and why != said:
                log.warning("%s: %s: standing by: group %s", self._config.alias, why, self._group)
                said = why
            with self._changed:
                self._changed.wait(0.2)
        return True

    def offer(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Schedule offsets for the next commit. They must be in the ledger."""
        with self._changed:
            self._offered.update(offsets)

    def withdraw(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Do not commit these offered offsets: this process no longer copies their partitions."""
        with self._changed:
            for each, at in offsets.items():
                if self._offered.get(each) == at:
                    del self._offered[each]
                    self._committed.pop(each, None)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit at once. Raises `ClusterError` if the commit fails."""
        self.offer(offsets)
        with self._changed:
            self._commit_at, self._forbidden = 0.0, frozenset()
            self._changed.wait_for(lambda: not self._due(offsets) or self._refused(offsets), COMMIT_SECONDS)
            done = not self._due(offsets)
        if self._error is not None:
            raise self._error
        if not done and self._refused(offsets):
            raise ClusterError(*self._may_not_commit())
        if not done:
            raise ClusterError(f"{self._config.alias}: cannot commit for group {self._group}", "is its coordinator up?")

    def _refused(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> bool:
        return self._error is not None or any(topic in self._forbidden for topic, _ in self._due(offsets))

    def _run(self) -> None:
        while not self._closing.is_set() and self._error is None:
            try:
                self._in_group()
            except AuthorizationError:
                hint = "grant Read on the group to this principal"
                self._fail(ClusterError(
                    f"{self._config.alias}: not allowed to join group {self._group}",
                    hint,
                    code="MIR-203",
                ))
            except MirrorError as error:
                self._fail(error)
            except REFUSED as error:
                hint = "check its name, and that the brokers' group.min.session.timeout.ms allows session.timeout.ms"
                reported = f"{self._config.alias}: group {self._group} cannot be joined: {cause_of(error)}"
                self._fail(ClusterError(reported, hint))
            except InconsistentGroupProtocolError:
                self._wait(STRANGERS)
            except GroupMaxSizeReachedError:
                self._wait(FULL)
            except Exception as error:
                # Any error is retried: if the thread ended, the process would stand by forever.
                log.warning("%s: group %s: %s; trying again", self._config.alias, self._group, cause_of(error))
                log.debug("group %s", self._group, exc_info=True)
            self._closing.wait(AGAIN_SECONDS)

    def _in_group(self) -> None:
        consumer = self._consumer()
        try:
            consumer.subscribe(pattern=self._pattern)
            while not self._closing.is_set():
                consumer.poll(timeout_ms=POLL_MS)
                if time.monotonic() >= self._commit_at:
                    self._commit(consumer)
            self._commit(consumer)
        finally:
            # Leaves the group. This process keeps a turn that the group did not end until another process gets it.
            consumer.close(autocommit=False, timeout_ms=int(1000 * CLOSING_SECONDS))

    def _consumer(self) -> Any:
        properties = self._config.client_properties("consumer")
        session = int(properties.get("session.timeout.ms") or SESSION_MS)
        options = {
            "client_id": f"mirror-{self._config.alias}-group",
            "reconnect_backoff_max_ms": LONGEST_BACKOFF_MS,
            **ready_options(kafka_python_options(properties)),
            "receive_message_max_bytes": LARGEST_ANSWER_BYTES,
            "group_id": self._group,
            "enable_auto_commit": False,
            "allow_auto_create_topics": False,
            "session_timeout_ms": session,
            "heartbeat_interval_ms": max(1, session // 4),
            "partition_assignment_strategy": [Turns(lambda: self._copies_since, self._reported)],
        }
        return KafkaConsumer(**options)

    def _reported(self, turn: bool) -> None:
        with self._changed:
            if turn and not self._copies_since:
                self._copies_since = int(time.time() * 1000)
            elif not turn:
                self._copies_since = 0
            self._waits_for = None if turn else OTHERS
            self._changed.notify_all()

    def _wait(self, why: str) -> None:
        with self._changed:
            self._copies_since = 0
            self._waits_for = why
            self._changed.notify_all()

    def _fail(self, error: MirrorError) -> None:
        with self._changed:
            self._error = error
            log.error("%s", error)
            self._changed.notify_all()

    def _due(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> Dict[TopicPartition, CommittedOffset]:
        return {each: at for each, at in offsets.items() if self._committed.get(each) != at}

    def _commit(self, consumer: Any) -> None:
        """Commit the offsets that changed. After a failed commit the group only shows less progress than was copied."""
        with self._changed:
            due = self._due(self._offered) if self._copies_since else {}
            if not due:
                return
            # Set before the request: a `commit` meanwhile resets it and does not wait for the next interval.
            self._commit_at = time.monotonic() + self._interval
        orders = {KafkaPartition(*each): OffsetAndMetadata(at.offset, at.metadata, -1) for each, at in due.items()}
        seconds = CLOSING_SECONDS if self._closing.is_set() else COMMIT_SECONDS
        try:
            consumer.commit(orders, timeout_ms=int(1000 * seconds))
        except TopicAuthorizationFailedError as error:
            # The broker committed the other topics.
            self._forbid(due, frozenset(error.args[0]))
            return
        except AuthorizationError:
            raise
        except KafkaError as error:
            log.warning("%s: group %s: offsets not committed: %s", self._config.alias, self._group, error)
            # Some partitions of the request may be committed. Retried soon: a new ACL takes a while to be effective.
            self._commit_at = time.monotonic() + AGAIN_SECONDS
            return
        self._forbidden = frozenset()
        self._have_committed(due)

    def _have_committed(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        with self._changed:
            self._committed.update(offsets)
            self._changed.notify_all()

    def _forbid(self, due: Mapping[TopicPartition, CommittedOffset], topics: FrozenSet[str]) -> None:
        """Record that the broker refused these topics of `due` and committed the rest. Every commit retries them."""
        before, self._forbidden = self._forbidden, topics
        if not topics <= before:
            log.warning("%s; %s", *self._may_not_commit())
        self._have_committed({each: at for each, at in due.items() if each[0] not in topics})

    def _may_not_commit(self) -> Tuple[str, str]:
        reported = some(sorted(self._forbidden))
        sentence = f"{self._config.alias}: not allowed to commit offsets of {reported} for group {self._group}"
        return sentence, "grant Read on these topics to this principal"
