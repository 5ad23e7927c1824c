"""Keys of MirrorMaker and Connect that have no meaning here, and why: accepted without effect, or refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class Unused:
    """Keys of MirrorMaker or Connect that have no meaning here (a trailing `*` stands for any ending), and why.

    With `refused` the keys would have changed what is copied, so a file that has one is not accepted; with `accepted`
    as well, only one that names another class than these.
    """

    names: Tuple[str, ...]
    reason: str
    refused: bool = False
    accepted: Tuple[str, ...] = ()

    def refuses(self, key: str, value: str) -> bool:
        """Whether a file with this value is not accepted. A reference is not resolved here."""
        if self.accepted:
            return key in self.names and "${" not in value and value.strip().rpartition(".")[2] not in self.accepted
        return self.refused

    def covers(self, key: str) -> bool:
        """Whether `key` is one of `names`."""
        return any(key.startswith(name[:-1]) if name.endswith("*") else key == name for name in self.names)


UNUSED: Tuple[Unused, ...] = (
    Unused(("transforms*", "predicates*"), "single message transforms do not run here, and records would be copied "
           "without them; `where`, `select` and `rename` do what they do", refused=True),
    Unused(("minPartitions", "maxRecordsPerPartition"), "Spark would read a partition in several tasks, and the order "
           "of its records would be lost", refused=True),
    Unused(("offset.storage.*", "offset.flush.*", "config.storage.*", "status.storage.*", "offsets.storage.topic",
            "group.id", "internal.key.converter*", "internal.value.converter*", "scheduled.rebalance.max.delay.ms",
            "rebalance.timeout.ms", "plugin.*", "worker.*", "inter.worker.*", "connect.protocol", "connector.class",
            "connector.client.*", "task.index", "task.shutdown.graceful.timeout.ms", "topic.creation.*",
            "topic.tracking.*", "errors.*", "tasks.max.enforce", "connector.plugin.version", "config.action.reload"),
           "there is no Connect worker; Spark runs the tasks and state lies under `state`"),
    Unused(("key.converter", "value.converter", "header.converter"), "records are copied byte for byte; only "
           "ByteArrayConverter, which does that, is accepted", True, ("ByteArrayConverter",)),
    Unused(("key.converter.*", "value.converter.*", "header.converter.*"), "settings of a converter; records are "
           "copied byte for byte"),
    Unused(("consumer.group.id",), "partitions are assigned, as MirrorMaker 2 does it, so there is no group to join"),
    Unused(("dedicated.mode.enable.internal.rest", "listeners", "rest.*", "admin.listeners*", "access.control.*",
            "response.http.*", "ssl.client.auth"), "there is no REST server"),
    Unused(("exactly.once.support", "exactly.once.source.support", "transaction.boundary*"),
           "`delivery` decides, and exactly-once is the default"),
    Unused(("metric.names.formats", "add.source.alias.to.metrics", "auto.include.jmx.reporter", "metric.reporters"),
           "there are no JMX metrics"),
    Unused(("use.incremental.alter.configs",), "configs are always altered one by one"),
    Unused(("forwarding.admin.class",), "no Java class runs on the way to the admin client, so topics would be created "
           "past it; only ForwardingAdmin, which adds nothing, is accepted", True, ("ForwardingAdmin",)),
    Unused(("consumer.poll.timeout.ms",), "the fetcher sets its own wait"),
    Unused(("task.assigned.*", "task.class"), "MirrorMaker's connectors set it for their tasks"),
    Unused(("readahead.queue.capacity", "heartbeats.topic.retention.ms", "checkpoints.topic.retention.ms",
            "offset.syncs.topic.retention.ms", "offset-syncs.topic.retention.ms"),
           "guides name it, and no release of MirrorMaker 2 reads it"),
    Unused(("source.cluster.alias", "target.cluster.alias"), "`A->B` names both clusters"),
    Unused(("config.providers*",), "`${env:NAME}`, `${file:/path:key}` and `${dir:/path:file}` always work; limits set "
           "on a provider are not applied"),
)


def unused(key: str) -> Optional[Unused]:
    """The row of `UNUSED` that covers `key`, if any."""
    return next((row for row in UNUSED if row.covers(key)), None)
