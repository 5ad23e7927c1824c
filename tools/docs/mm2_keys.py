"""MirrorMaker 2's keys by the part that reads them, as Kafka 4.3.1's ConfigDefs and its releases since 2.4 have them.

What becomes of each here is in `mirror_lib/config/model.py`; `parity.py` puts both together. `*` stands for any
ending.
"""

from __future__ import annotations

from typing import Tuple

Keys = Tuple[str, ...]

DRIVER: Keys = (
    *("clusters", "config.providers*", "dedicated.mode.enable.internal.rest", "listeners", "rest.*"),
    *("access.control.*", "admin.listeners*", "response.http.*", "ssl.client.auth"),
)
WORKER: Keys = (
    *("group.id", "offset.storage.*", "offset.flush.*", "status.storage.*", "config.storage.*"),
    *("scheduled.rebalance.max.delay.ms", "rebalance.timeout.ms", "connect.protocol", "worker.*", "inter.worker.*"),
    *("plugin.*", "task.shutdown.graceful.timeout.ms", "topic.creation.*", "topic.tracking.*", "connector.client.*"),
    *("exactly.once.source.support", "metric.reporters"),
)
EVERY_CONNECTOR: Keys = (
    *("name", "connector.class", "connector.plugin.version", "enabled", "source.cluster.alias", "target.cluster.alias"),
    *("tasks.max", "tasks.max.enforce", "replication.policy.class", "replication.policy.separator"),
    *("replication.policy.internal.topic.separator.enabled", "admin.timeout.ms", "forwarding.admin.class"),
    *("metric.names.formats", "key.converter", "value.converter", "header.converter", "key.converter.*"),
    *("value.converter.*", "header.converter.*", "config.action.reload"),
    *("transforms", "transforms.*", "predicates*", "errors.*", "exactly.once.support", "transaction.boundary*"),
    *("offsets.storage.topic", "task.index", "task.assigned.*"),
)
SOURCE: Keys = (
    *("topics", "topics.exclude", "topic.filter.class", "heartbeats.replication.enabled", "refresh.topics.enabled"),
    *("refresh.topics.interval.seconds", "replication.factor", "sync.topic.configs.enabled"),
    *("sync.topic.configs.interval.seconds", "config.properties.exclude", "config.property.filter.class"),
    *("use.defaults.from", "sync.topic.acls.enabled", "sync.topic.acls.interval.seconds", "consumer.poll.timeout.ms"),
    *("offset.lag.max", "emit.offset-syncs.enabled", "offset-syncs.topic.location"),
    *("offset-syncs.topic.replication.factor", "consumer.auto.offset.reset", "consumer.isolation.level"),
    *("consumer.group.id",),
)
CHECKPOINT: Keys = (
    *("groups", "groups.exclude", "group.filter.class", "refresh.groups.enabled", "refresh.groups.interval.seconds"),
    *("emit.checkpoints.enabled", "emit.checkpoints.interval.seconds", "sync.group.offsets.enabled"),
    *("sync.group.offsets.interval.seconds", "checkpoints.topic.replication.factor"),
)
HEARTBEAT: Keys = (
    *("emit.heartbeats.enabled", "emit.heartbeats.interval.seconds", "heartbeats.topic.replication.factor"),
)
CLIENTS: Keys = ("bootstrap.servers", "security.protocol", "ssl.*", "sasl.*")
# Names that an earlier release read, or that guides give.
FORMER: Keys = (
    *("topics.blacklist", "groups.blacklist", "config.properties.blacklist", "use.incremental.alter.configs"),
    *("add.source.alias.to.metrics", "auto.include.jmx.reporter", "internal.key.converter*"),
    *("internal.value.converter*", "task.class"),
)

SECTIONS: Tuple[Tuple[str, Keys], ...] = (
    ("Dedicated MirrorMaker 2", DRIVER),
    ("Every connector", EVERY_CONNECTOR),
    ("MirrorSourceConnector", SOURCE),
    ("MirrorCheckpointConnector", CHECKPOINT),
    ("MirrorHeartbeatConnector", HEARTBEAT),
    ("Clients", CLIENTS),
    ("Connect's worker", WORKER),
    ("Former names", FORMER),
)
