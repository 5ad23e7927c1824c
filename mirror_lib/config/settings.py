"""The tables of keys: settings, which are the fields of `model.py`; other names of settings; keys without meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Mapping, Optional, Tuple

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import BOOLEAN, TEXT, TOP, Setting, rows

ENABLED = "enabled"
ENGINE = "engine"
COUNTS_DIFFER = "partition.counts.differ"
HEARTBEATS_REPLICATION = "heartbeats.replication.enabled"
SEPARATOR, SOURCE_ALIAS = "replication.policy.separator", "source.cluster.alias"
EMIT_HEARTBEATS = "emit.heartbeats.enabled"
COPY = "copy.enabled"
METRICS_PORT, METRICS_HOST, METRICS_TEXTFILE = "metrics.port", "metrics.host", "metrics.textfile"
TOPICS_EXCLUDE = "topics.exclude"

SETTINGS: Tuple[Setting, ...] = (
    Setting("clusters", TEXT, "", "Aliases of the clusters; in YAML a map of their client properties", level=TOP),
    *(replace(each, level=TOP) for each in rows(MirrorConfig)),
    Setting("enabled", BOOLEAN, "false", "Run the flow", note="in YAML a flow that is listed is enabled"),
    *rows(ReplicationFlow),
)

# Old names, and slips of real files.
OTHER_NAMES: Mapping[str, str] = {
    "topics.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
    "task.max": "tasks.max",
    "topic.blacklist": "topics.exclude",
    "group.blacklist": "groups.exclude",
    "sync.topics.configs.enabled": "sync.topic.configs.enabled",
    "sync.topics.acls.enabled": "sync.topic.acls.enabled",
}


@dataclass(frozen=True)
class Unused:
    """Keys of MirrorMaker, of Connect or of an earlier release that have no meaning here, and why; `*` stands for any
    text. In YAML each is refused.

    With `refused` the keys would have changed the copy, so no file is accepted that gives one a value other than
    `accepted`, which are class names without their package.
    """

    names: Tuple[str, ...]
    reason: str
    refused: bool = False
    accepted: Tuple[str, ...] = ()

    def refuses(self, value: str) -> bool:
        """A reference to a class is not resolved here."""
        if not self.refused or not value.strip():
            return False
        return not self.accepted or ("${" not in value and value.strip().rpartition(".")[2] not in self.accepted)


CONVERTERS = ("key.converter", "value.converter", "header.converter")
OF_MIRRORMAKER: Tuple[Unused, ...] = (
    Unused(("transforms",), "single message transforms do not run here, and records would be copied without them; "
           "`where`, `select` and `rename` do the same", refused=True),
    Unused(("transforms.*", "predicates*"), "single message transforms do not run here"),
    Unused(("offset.storage.*", "offset.flush.*", "config.storage.*", "status.storage.*", "offsets.storage.topic",
            "group.id", "internal.key.converter*", "internal.value.converter*", "scheduled.rebalance.max.delay.ms",
            "rebalance.timeout.ms", "plugin.*", "worker.*", "inter.worker.*", "connect.protocol", "connector.class",
            "connector.client.*", "task.index", "task.shutdown.graceful.timeout.ms", "topic.creation.*",
            "topic.tracking.*", "errors.*", "tasks.max.enforce", "connector.plugin.version", "config.action.reload"),
           "there is no Connect worker; Spark runs the tasks and their state is stored in the folder `state`"),
    Unused(CONVERTERS, "records are copied byte for byte; only ByteArrayConverter is accepted", True,
           ("ByteArrayConverter",)),
    Unused(("key.converter.*", "value.converter.*", "header.converter.*"), "records are copied byte for byte"),
    Unused(("consumer.group.id",), "partitions are assigned, as in MirrorMaker 2"),
    Unused(("dedicated.mode.enable.internal.rest", "listeners", "rest.*", "admin.listeners*", "access.control.*",
            "response.http.*", "ssl.client.auth"), "there is no REST server"),
    Unused(("exactly.once.support", "exactly.once.source.support", "transaction.boundary*"),
           "`delivery` decides, and exactly-once is the default"),
    Unused(("metric.names.formats", "add.source.alias.to.metrics", "auto.include.jmx.reporter", "metric.reporters"),
           "there are no JMX metrics; `metrics.port` has their counterparts"),
    Unused(("use.incremental.alter.configs",), "configs are always altered one by one"),
    Unused(("forwarding.admin.class",), "no Java class runs here; only ForwardingAdmin, which adds nothing, is "
           "accepted", True, ("ForwardingAdmin",)),
    Unused(("consumer.poll.timeout.ms",), "the fetcher sets its own wait"),
    Unused(("task.assigned.*", "task.class"), "MirrorMaker's connectors set it for their tasks"),
    Unused(("emit.offset-syncs.enabled", "offset-syncs.topic.replication.factor", "offset.lag.max"),
           "the table `offset_syncs` has every offset range, and no offset-syncs topic is written"),
    Unused(("target.cluster.alias",), "`A->B` names both clusters"),
    Unused(("config.providers*",), "`${env:NAME}`, `${file:/path:key}` and `${dir:/path:file}` always work, and limits "
           "set on a provider are not applied"),
)
# Options of Spark's source, and keys of earlier releases.
OF_OTHERS: Tuple[Unused, ...] = (
    Unused(("minPartitions", "maxRecordsPerPartition"), "Spark would read a partition in several tasks, and the order "
           "of its records would be lost", True),
    Unused(("report.port",), "tasks report through Spark, and the driver opens no port", True),
    Unused(("max.bytes.per.second.topics",), "`max.bytes.per.second` limits a flow, and quotas of the brokers limit a "
           "`client.id`", True),
    Unused(("batch.max.bytes",), "`batch.max.seconds` ends a cycle; the memory of a task has a fixed limit", True),
    Unused(("copy.window", "copy.window.timezone"), "a scheduler starts the run, and SIGTERM ends it", True),
    Unused(("provenance.headers",), "each record has the header `mirror.origin`, and `provenance: off` leaves it out",
           True),
    Unused(("transform.deterministic",), "values may be others each time; what places a record may not be declared "
           "non-deterministic", True),
)


def unused(key: str) -> Optional[Unused]:
    rows = (*OF_MIRRORMAKER, *OF_OTHERS)
    return next((row for row in rows if any(fnmatchcase(key, name) for name in row.names)), None)


def meant(key: str) -> Optional[str]:
    """The setting, or the key without meaning, that a key stands for: as it is, by an old name, by a known slip, or in
    other capitals."""
    lower = key.lower()
    if unused(lower):
        return lower
    slips = (OTHER_NAMES.get(lower, lower), lower + ".enabled", re.sub(r"\.ms$", ".seconds", lower))
    return next((slip for slip in slips if slip in BY_NAME), None)


# A key that continues one of these is for the class that is named there, and for it alone.
CLASS_KEYS = tuple(setting.name for setting in SETTINGS if setting.kind.name == "class")

BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}


def class_key(key: str) -> Optional[str]:
    """The setting that names the class which `key`, e.g. `topic.filter.class.prefix`, is for; `None` for others."""
    return next((name for name in CLASS_KEYS if key.startswith(name + ".")), None)
