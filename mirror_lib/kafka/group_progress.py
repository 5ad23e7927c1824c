"""Commits a flow's progress to a consumer group of the source, as a client that is no member of the group."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from typing import Dict, Generator, Iterable, Mapping

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import ClusterError, RefusedError, cause_of
from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.text import some
from mirror_lib.threads import Repeating, running

log = logging.getLogger(__name__)

# A job must end within 30 s of SIGTERM, and its last cycle may take most of that.
CLOSING_SECONDS = 4.0


class GroupProgress:
    """A context manager: inside it a background thread commits the offered offsets to the flow's `commit.source.group`,
    at its interval and at the end. Offsets that did not change are committed too, so they do not expire (KIP-211).
    After a failed commit the group only shows less progress than was copied.

    `source` is the connection for calls in the caller's thread. Entering raises `RefusedError` if the group has
    members: an old MirrorMaker may copy, and Kafka refuses commits from outside such a group.
    """

    def __init__(self, source: KafkaCluster, flow: ReplicationFlow) -> None:
        self._source, self._flow, self._group = source, flow, flow.commit_source_group
        self._running = ExitStack()
        self._offering = threading.Lock()
        self._offered: Dict[TopicPartition, CommittedOffset] = {}
        self._warning = ""

    def __enter__(self) -> GroupProgress:
        alias, group = self._source.alias, self._group
        found = self._source.describe_groups([group]).get(group)
        if group in self._source.undescribed_groups():
            hint = "grant Read on the group to this principal; its coordinator may be away for a while"
            raise ClusterError(f"{alias}: it is unknown whether group {group} has members", hint)
        if found is not None and found.has_members:
            hosts = some(sorted({member.host for member in found.members}) or ["their hosts are unknown"])
            raise RefusedError(
                f"{alias}: group {group} has members, an old MirrorMaker perhaps: {hosts}. The flow does not copy",
                "stop them, after a kill wait for their session timeout; or name another commit.source.group",
                code="MIR-301",
            )
        self._running.enter_context(running([Repeating(f"group {group}", self._commits())], CLOSING_SECONDS))
        return self

    def __exit__(self, *error: object) -> None:
        self._running.close()

    def offer(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Schedule offsets for the next commits. They must be in the ledger."""
        with self._offering:
            self._offered.update(offsets)

    def offers(self, partition: TopicPartition) -> bool:
        return partition in self._offered

    def withdraw(self, partitions: Iterable[TopicPartition]) -> None:
        """Do not commit offered offsets of these partitions: this process no longer copies them."""
        with self._offering:
            for each in partitions:
                self._offered.pop(each, None)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit at once. Raises `ClusterError` if an offset is not committed."""
        self.offer(offsets)
        refused = self._refused(self._source, offsets)
        if refused:
            raise ClusterError(refused)

    def _commits(self) -> Generator[float, None, None]:
        try:
            while True:
                yield self._flow.commit_source_group_interval
                self._commit()
        finally:
            self._commit()

    def _commit(self) -> None:
        with self._offering:
            offered = dict(self._offered)
        if not offered:
            return
        try:
            # Of this thread's own: a connection serves one thread.
            with KafkaCluster(self._flow.source, self._flow.admin_timeout) as cluster:
                warning = self._refused(cluster, offered)
        except Exception as error:
            # Any error is retried: if the thread ended, the group would show no progress any more.
            log.debug("group %s", self._group, exc_info=True)
            warning = f"{self._source.alias}: progress is not committed for group {self._group}: {cause_of(error)}"
        if warning not in ("", self._warning):
            log.warning("%s", warning)
        self._warning = warning

    def _refused(self, cluster: KafkaCluster, offsets: Mapping[TopicPartition, CommittedOffset]) -> str:
        """Commit `offsets`. A sentence on those that the broker refused; empty if it refused none."""
        reasons = cluster.commit_offsets(self._group, offsets)
        topics = sorted({topic for (topic, _), reason in reasons.items() if reason is not None})
        if not topics:
            return ""
        why = some(sorted({reason for reason in reasons.values() if reason is not None}))
        return f"{cluster.alias}: offsets of {some(topics)} are not committed for group {self._group}: {why}"
