"""The table of settings: each key's meaning, default and field. docs/reference/settings.md is generated from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from mirror_lib.config.document import Value
from mirror_lib.config.model import (
    ACL_OPERATIONS,
    CONFIG_PROPERTIES_EXCLUDE,
    DEFAULT_CONFIG_FILTER,
    DEFAULT_GROUP_FILTER,
    DEFAULT_POLICY,
    DEFAULT_TOPIC_FILTER,
    IDENTITY_POLICY,
    KEEP,
    MM1_POLICY,
    READING,
    REFUSE,
)
from mirror_lib.config.record_change import (
    BATCHES,
    CONDITION,
    ON_OR_OFF,
    OPTIONAL_NAME,
    PARTITIONER,
    RECORDS,
    RENAMES,
    SELECT_LIST,
    TRANSFORM,
)
from mirror_lib.config.values import (
    AT_MOST_A_MINUTE,
    BOOLEAN,
    INTERVAL,
    LEGAL_NAME,
    LEGAL_OR_BLANK,
    MILLISECONDS,
    OPTIONAL_PORT,
    OPTIONAL_TEXT,
    PATTERNS,
    SECONDS,
    SIZE,
    START_POSITION,
    TEXT,
    TEXTFILE,
    TOPIC_CONFIGS,
    TRIGGER,
    Kind,
    choice,
    one,
    replaceable_class,
    some_of,
    whole_number,
)

SUPPORTED = "supported"
DIFFERS = "differs"

TOP = "top"
FLOW = "flow"

ENABLED = "enabled"
ENGINE = "engine"
COUNTS_DIFFER = "partition.counts.differ"
HEARTBEATS_REPLICATION = "heartbeats.replication.enabled"
SEPARATOR, SOURCE_ALIAS = "replication.policy.separator", "source.cluster.alias"
EMIT_HEARTBEATS = "emit.heartbeats.enabled"
COPY = "copy.enabled"
METRICS_PORT, METRICS_HOST, METRICS_TEXTFILE = "metrics.port", "metrics.host", "metrics.textfile"
METRICS_TOPICS_MAX = "metrics.topics.max"
MM2_TRIGGER = "10 seconds"
TOPICS_EXCLUDE = "topics.exclude"
# MirrorMaker's default for `topics.exclude` up to 3.9. Since 4.0 its first pattern spares a user's `orders.internal`.
INTERNAL_UP_TO_3_9 = r".*[\-\.]internal"
MM2_TOPICS_EXCLUDE = rf"{INTERNAL_UP_TO_3_9}, .*\.replica, __.*"


@dataclass(frozen=True)
class Setting:
    """One key. `default` is what a file would say; `kind` turns it into the value of the model's `field`.

    A switch has `switches`, the interval key that it turns off, and no field of its own. `note` says what differs.
    """

    name: str
    kind: Kind
    default: str
    meaning: str
    field: str = ""
    status: str = SUPPORTED
    note: str = ""
    level: str = FLOW
    switches: str = ""

    @property
    def client_key(self) -> Optional[str]:
        """The Java client property behind a `consumer.` setting; its value comes from the source's properties."""
        return self.name[len("consumer.") :] if self.name.startswith("consumer.") else None


_MIRROR = "org.apache.kafka.connect.mirror."
_POLICIES = {
    **{prefix + name: name for prefix in ("", _MIRROR) for name in (DEFAULT_POLICY, IDENTITY_POLICY)},
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": IDENTITY_POLICY,
    MM1_POLICY: MM1_POLICY,
}
# The policy in the samples of Amazon MSK, from before MirrorMaker had one that keeps names.
_SAMPLES = {"com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy": IDENTITY_POLICY}


def _filter(name: str) -> Kind:
    return replaceable_class({name: name, _MIRROR + name: name})


def _counts_differ(value: Value) -> str:
    if one(value).lower() == "key":
        raise ValueError(
            "must be keep or refuse; to repartition records by key, copy those topics by a file of its own with "
            "partitioner: key"
        )
    return str(choice(KEEP, REFUSE).parse(value))


# The section of docs/reference/settings.md.
CLASSES = "Custom classes"
_PYTHON = f"your own class is in Python, see {CLASSES}"
_COUNT = whole_number(1)
_REPLICATION = whole_number(1, default_of_broker=True)

SETTINGS: Tuple[Setting, ...] = (
    Setting("clusters", TEXT, "", "Aliases of the clusters; in YAML a map of their client properties", level=TOP),
    Setting("name", LEGAL_NAME, "mirror", "Distinguishes mirrors with a flow of the same name (`A->B`). Part of every "
            "transactional id: never change it", "name", level=TOP),
    Setting("state", TEXT, "./mirror-state", "Folder of the Delta tables and Spark's checkpoints, on any path that "
            "Spark can write", "state", level=TOP),
    Setting("trigger", TRIGGER, "availableNow", "`availableNow` copies the present records and ends; a time such as "
            "`10 seconds` runs until it is stopped", "trigger", level=TOP, note=f"in a MirrorMaker 2 file the default "
            f"is `{MM2_TRIGGER}`"),
    Setting(METRICS_PORT, OPTIONAL_PORT, "none", "Port of the driver for Prometheus metrics, under `/metrics`; 0 is "
            "any free port. Needs the extra `metrics`", "metrics_port", level=TOP),
    Setting(METRICS_HOST, TEXT, "127.0.0.1", "Address of that port; `0.0.0.0` is every interface. The server has no "
            "login", "metrics_host", level=TOP),
    Setting(METRICS_TEXTFILE, TEXTFILE, "", "File of the same metrics for node_exporter's textfile collector. Needs "
            "the extra `metrics`", "metrics_textfile", level=TOP),
    Setting(METRICS_TOPICS_MAX, whole_number(0), "1000", "How many topics of each flow have their own metrics, by lag. "
            "`kafka_mirror_topics_omitted` counts the others", "metrics_topics_max", level=TOP),
    Setting(ENABLED, BOOLEAN, "false", "Run the flow", note="in YAML a flow that is listed is enabled"),
    Setting(COPY, BOOLEAN, "true", "`false` copies no records. The run then translates groups by the ledger of another "
            "run with the same `state`, and writes heartbeats", "copied"),
    Setting("topics", PATTERNS, ".*", "Topics to copy: names or patterns", "topics"),
    Setting(TOPICS_EXCLUDE, PATTERNS, r"mm2.*\.internal, .*\.replica, __.*", "Topics not to copy; beats `topics`",
            "topics_exclude", DIFFERS, "in a MirrorMaker 2 or Connect file the default is " f"MirrorMaker's up to 3.9, "
            f"`{MM2_TOPICS_EXCLUDE}`, which also excludes a user's `orders.internal`"),
    Setting("replication.policy.class", replaceable_class(_POLICIES, _SAMPLES), DEFAULT_POLICY, "How remote topics are "
            f"named: `A.orders`, or `orders` by `{IDENTITY_POLICY}` and `{MM1_POLICY}`, which lacks MirrorMaker 2's "
            f"rule for heartbeats and internal topics", "replication_policy", DIFFERS, _PYTHON),
    Setting(SEPARATOR, LEGAL_OR_BLANK, ".", "Between alias and topic in a remote topic's name; may be blank",
            "separator"),
    Setting(SOURCE_ALIAS, LEGAL_OR_BLANK, "", "The alias of A in names of remote topics, if it is another one. If it "
            "and the separator are blank, topics keep their names"),
    Setting("replication.policy.internal.topic.separator.enabled", BOOLEAN, "true", "`false` keeps `.` in names of "
            "internal topics"),
    Setting(HEARTBEATS_REPLICATION, BOOLEAN, "true", "Copy heartbeats topics even if no pattern matches them",
            "heartbeats_replication", note="in a flow that changes records, and in a mirror with a `name` of its own, "
            "the default is `false`"),
    Setting("tasks.max", _COUNT, "1", "Spark tasks that copy the flow at once", "tasks_max", DIFFERS, "one task copies "
            "many partitions at once, so a few are enough; at most 64"),
    Setting("replication.factor", _REPLICATION, "2", "Of new remote topics; -1 is the broker's default",
            "replication_factor"),
    Setting("refresh.topics.enabled", BOOLEAN, "true", "Copy new topics and partitions while running",
            switches="refresh.topics.interval.seconds"),
    Setting("refresh.topics.interval.seconds", INTERVAL, "600", "How often the mirror re-reads what a topic listing "
            "lacks, such as limits of remote topics", "refresh_topics_interval", DIFFERS, "each cycle, or every 2 s of "
            "a tail, finds new and grown topics"),
    Setting("config.properties.exclude", PATTERNS, ", ".join(CONFIG_PROPERTIES_EXCLUDE), "Topic configs to exclude",
            "config_properties_exclude"),
    Setting("remote.topic.configs", TOPIC_CONFIGS, "", "Topic configs of every remote topic instead of its source's: "
            "`retention.ms=604800000, cleanup.policy=delete`. Set at creation, later by config sync",
            "remote_topic_configs"),
    Setting("use.defaults.from", choice("target", "source"), "target", "Cluster whose defaults apply to topic configs "
            "that the source never set", "use_defaults_from"),
    Setting("consumer.isolation.level", choice("read_committed", "read_uncommitted"), "read_committed",
            "`read_committed` skips records of aborted transactions", "isolation_level", DIFFERS, "MirrorMaker copies "
            "aborted records by default"),
    Setting("consumer.auto.offset.reset", choice("earliest", "latest"), "earliest", "Where a partition without copied "
            "records starts", "auto_offset_reset"),
    Setting("start.position", START_POSITION, "", "The same by more rules: a time (`2026-01-01T00:00:00Z`), the "
            "offsets of a source group (`group NAME`), or offsets (`orders:0=100, orders:1=250`). Other partitions "
            "follow `consumer.auto.offset.reset`", "start_position"),
    Setting("commit.source.group", OPTIONAL_TEXT, "", "Consumer group on the source to which the flow's "
            "progress is committed. It must have no members", "commit_source_group"),
    Setting("commit.source.group.interval.seconds", SECONDS, "60", "How often", "commit_source_group_interval"),
    Setting("delivery", choice("exactly-once", "at-least-once"), "exactly-once", "`at-least-once` is for targets older "
            "than Kafka 2.5, or without transactional ids. MirrorMaker files default to it on targets older than 2.5",
            "delivery"),
    Setting("on.error", choice("fail", "skip"), "fail", "If the target rejects a record batch, `fail` stops its "
            "partition and fails the run; `skip` writes an incident and continues", "on_error"),
    Setting("on.data.loss", choice("fail", "continue"), "fail", "If the source lost records before the copy, or a "
            "shared remote topic lost records of an interrupted attempt, `fail` stops the partition, `continue` "
            "resumes after the gap", "on_data_loss"),
    Setting("batch.max.seconds", SECONDS, "10", "About the length of a cycle. It ends with a commit to the ledger",
            "batch_max_seconds"),
    Setting("tail.enabled", BOOLEAN, "true", "In continuous mode tasks copy new records within milliseconds; `false` "
            "copies once per `trigger`", "tail"),
    Setting("tail.seconds", AT_MOST_A_MINUTE, "30", "How long a stage that tails lasts, at most 60. Then its offset "
            "syncs are committed to the ledger, and new topics are copied", "tail_seconds"),
    Setting("max.bytes.per.second", SIZE, "none", "Rate limit of the flow, split evenly over its tasks: `50000000`, "
            "`50 MB`, `512 KiB`", "max_bytes_per_second"),
    Setting("shared.remote.topics", BOOLEAN, "false", "Remote topics may have other writers", "shared_remote_topics"),
    Setting(COUNTS_DIFFER, Kind("keep or refuse", _counts_differ), KEEP, "If partition counts differ, `keep` keeps a "
            "record's partition and grows a remote topic that has too few; `refuse` does not copy the topic. For "
            "partitions by key use a separate file with `partitioner: key`", "counts_differ"),
    Setting(ENGINE, choice(BATCHES, RECORDS), BATCHES, "`batches` copies whole record batches; `records` sends each "
            "record through Spark's rows", note="a key from `where` to `dead.letter.topic` that changes records makes "
            "it `records`"),
    Setting("where", CONDITION, "", "Condition that selects the records to copy, over `topic`, `partition`, `offset`, "
            "`timestamp`, `timestampType`, `key`, `value`, `headers`"),
    Setting("select", SELECT_LIST, "", "Select list over the same columns. Its `key`, `value`, `headers` or "
            "`timestamp` replaces the old one; `*` keeps the others"),
    Setting("transform", TRANSFORM, "", "Your Python function from DataFrame to DataFrame, before `where` and "
            "`select`"),
    Setting("rename", RENAMES, "", "Remote topics by `TOPIC -> NAME`, instead of the policy. The first match of the "
            "whole name counts; `$1` is its first group"),
    Setting("partitioner", PARTITIONER, "source", "`source` keeps a record's partition; `key` repartitions as Kafka's "
            "producer does; a number also sets the partition count"),
    Setting("provenance", ON_OR_OFF, "on", "Adds the header `mirror.origin`, by which recovery finds copied records. "
            "With `off` the flow is at least once"),
    Setting("dead.letter.topic", OPTIONAL_NAME, "", "Topic on the target for records on which an expression fails. "
            "Without it the partition stops; a flow that repartitions records ends"),
    Setting("sync.topic.configs.enabled", BOOLEAN, "true", "Sync topic configs", "", DIFFERS, "`max.message.bytes` is "
            "never lowered, and configs of timestamps never change", switches="sync.topic.configs.interval.seconds"),
    Setting("sync.topic.configs.interval.seconds", INTERVAL, "600", "How often", "sync_topic_configs_interval"),
    Setting("sync.topic.acls.enabled", BOOLEAN, "true", "Sync topic ACLs, never Write", "", DIFFERS, "by default only "
            "Read and Describe; prefixed and wildcard patterns are translated too",
            switches="sync.topic.acls.interval.seconds"),
    Setting("sync.topic.acls.interval.seconds", INTERVAL, "600", "How often", "sync_topic_acls_interval"),
    Setting("sync.topic.acls.operations", some_of(*ACL_OPERATIONS), ", ".join(READING), "Operations of ALLOW that are "
            "copied, of " f"{', '.join(ACL_OPERATIONS)}. DENY is always copied", "sync_topic_acls_operations"),
    Setting("sync.topic.acls.wildcards", BOOLEAN, "false", "With a policy that keeps names, copy `*` and prefixes as "
            "such. They then cover the target's own topics too. Otherwise each copy is named",
            "sync_topic_acls_wildcards"),
    Setting("sync.topic.acls.delete", BOOLEAN, "false", "Delete ACLs that this flow created, after their originals",
            "sync_topic_acls_delete"),
    Setting("groups", PATTERNS, ".*", "Consumer groups whose offsets are translated", "groups"),
    Setting("groups.exclude", PATTERNS, "console-consumer-.*, connect-.*, __.*", "Consumer groups to exclude; beats "
            "`groups`", "groups_exclude"),
    Setting("groups.simple", choice("exclude", "include"), "exclude", "`include` commits for groups without membership "
            "that another client committed for. Kafka does not show whether such a consumer is alive", "groups_simple"),
    Setting("refresh.groups.enabled", BOOLEAN, "true", "Find new groups while running", "",
            switches="refresh.groups.interval.seconds"),
    Setting("refresh.groups.interval.seconds", INTERVAL, "600", "How often", "refresh_groups_interval"),
    Setting("sync.group.offsets.enabled", BOOLEAN, "false", "Commit translated offsets on the target", "",
            switches="sync.group.offsets.interval.seconds"),
    Setting("sync.group.offsets.interval.seconds", INTERVAL, "60", "How often", "sync_group_offsets_interval"),
    Setting("emit.checkpoints.enabled", BOOLEAN, "true", "`mirror translate` writes MirrorMaker's checkpoints topic. "
            "`mirror run` does if it syncs group offsets, or if YAML sets this key", "",
            switches="emit.checkpoints.interval.seconds"),
    Setting("emit.checkpoints.interval.seconds", INTERVAL, "60", "How often", "emit_checkpoints_interval"),
    Setting(EMIT_HEARTBEATS, BOOLEAN, "true", "Write heartbeats to the target, also if the flow is not enabled", "",
            DIFFERS, "a cluster without an enabled flow gets none. In YAML a flow that is not enabled needs an "
            "explicit `true`", switches="emit.heartbeats.interval.seconds"),
    Setting("emit.heartbeats.interval.seconds", INTERVAL, "1", "How often", "emit_heartbeats_interval"),
    Setting("offset-syncs.topic.location", choice("source", "target"), "source", "Cluster of MirrorMaker's "
            "offset-syncs topic, which a take-over reads", "offset_syncs_topic_location"),
    Setting("checkpoints.topic.replication.factor", _REPLICATION, "3", "Of the checkpoints topic",
            "checkpoints_topic_replication_factor"),
    Setting("heartbeats.topic.replication.factor", _REPLICATION, "3", "Of the heartbeats topic",
            "heartbeats_topic_replication_factor"),
    Setting("admin.timeout.ms", MILLISECONDS, "60000", "Timeout of an admin request, retries included",
            "admin_timeout", DIFFERS, "a timeout fails and is retried, instead of skipped"),
    Setting("topic.filter.class", _filter(DEFAULT_TOPIC_FILTER), DEFAULT_TOPIC_FILTER, "Topics to copy, by `topics` "
            "and `topics.exclude`", "topic_filter", DIFFERS, _PYTHON),
    Setting("group.filter.class", _filter(DEFAULT_GROUP_FILTER), DEFAULT_GROUP_FILTER, "Groups to translate, by "
            "`groups` and `groups.exclude`", "group_filter", DIFFERS, _PYTHON),
    Setting("config.property.filter.class", _filter(DEFAULT_CONFIG_FILTER), DEFAULT_CONFIG_FILTER, "Topic configs to "
            "exclude, by `config.properties.exclude`", "config_property_filter", DIFFERS, _PYTHON),
)

OLD_NAMES: Mapping[str, str] = {
    "topics.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
}

MISSPELLINGS: Mapping[str, str] = {
    "task.max": "tasks.max",
    "topic.blacklist": "topics.exclude",
    "group.blacklist": "groups.exclude",
    "sync.topics.configs.enabled": "sync.topic.configs.enabled",
    "sync.topics.acls.enabled": "sync.topic.acls.enabled",
}

WITHOUT_WINDOWS = "a scheduler starts the run, and SIGTERM ends it: docs/run/start-and-stop.md"

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
    "copy.window": WITHOUT_WINDOWS,
    "copy.window.timezone": WITHOUT_WINDOWS,
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
