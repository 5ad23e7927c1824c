"""The table of settings, from the fields of the model; other names of keys, and keys of before."""

from __future__ import annotations

from dataclasses import replace
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

_WITHOUT_WINDOWS = "a scheduler starts the run, and SIGTERM ends it: docs/run/start-and-stop.md"

_OFFSET_SYNCS = "the table `offset_syncs` has every offset range, and no offset-syncs topic is written"

# Keys that releases before had, and what took their place.
REMOVED: Mapping[str, str] = {
    "emit.offset-syncs.enabled": _OFFSET_SYNCS,
    "offset-syncs.topic.replication.factor": _OFFSET_SYNCS,
    "offset.lag.max": _OFFSET_SYNCS,
    "report.port": "tasks report through Spark, and the driver opens no port",
    "max.bytes.per.second.topics": "max.bytes.per.second limits a flow, and quotas of the brokers limit a client.id: "
    "docs/run/limits.md",
    "batch.max.bytes": "batch.max.seconds ends a cycle; the memory of a task has a fixed limit",
    "copy.window": _WITHOUT_WINDOWS,
    "copy.window.timezone": _WITHOUT_WINDOWS,
    "provenance.headers": "each record says in the header mirror.origin where it came from; provenance: off leaves it "
    "out",
    "transform.deterministic": "values may be others each time; what places a record may not be declared "
    "non-deterministic",
}

# A key that continues one of these is for the class that is named there, and for it alone.
CLASS_KEYS = tuple(setting.name for setting in SETTINGS if setting.kind.name == "class")

BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}


def class_key(key: str) -> Optional[str]:
    """The setting that names the class which `key`, e.g. `topic.filter.class.prefix`, is for; `None` for others."""
    return next((name for name in CLASS_KEYS if key.startswith(name + ".")), None)
