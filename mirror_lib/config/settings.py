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
    BOOLEAN,
    INTERVAL,
    LEGAL_NAME,
    MILLISECONDS,
    OPTIONAL_PORT,
    OPTIONAL_TEXT,
    PATTERNS,
    PORT,
    SECONDS,
    SIZE,
    START_POSITION,
    TEXT,
    TEXTFILE,
    TOPIC_CONFIGS,
    TOPIC_RATES,
    TRIGGER,
    WINDOWS,
    ZONE,
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


def _filter(name: str) -> Kind:
    return replaceable_class({name: name, _MIRROR + name: name})


def _counts_differ(value: Value) -> str:
    if one(value).lower() == "key":
        raise ValueError(
            "must be keep or refuse; to place records by their keys, copy those topics by a file of its own with "
            "partitioner: key"
        )
    return str(choice(KEEP, REFUSE).parse(value))


_PYTHON = "a class of your own is written in Python, see Custom classes"
_COUNT = whole_number(1)
_REPLICATION = whole_number(1, default_of_broker=True)

SETTINGS: Tuple[Setting, ...] = (
    Setting("clusters", TEXT, "", "Aliases of the clusters; in YAML a map from alias to client properties", level=TOP),
    Setting("name", LEGAL_NAME, "mirror", "Distinguishes mirrors whose flows have the same name (`A->B`), over other "
            "topics or into other remote topics; part of every transactional id, so never change it", "name",
            level=TOP),
    Setting("state", TEXT, "./mirror-state", "Folder of the Delta tables and Spark's checkpoints: any path that Spark "
            "can write", "state", level=TOP),
    Setting("trigger", TRIGGER, "availableNow", "`availableNow` copies the present records and ends; a time such as "
            "`10 seconds` runs until it is stopped", "trigger", level=TOP,
            note=f"in an MM2 file the default is `{MM2_TRIGGER}`, because MirrorMaker never ends"),
    Setting(METRICS_PORT, OPTIONAL_PORT, "none", "Port on the driver where `mirror run` serves its metrics to "
            "Prometheus, under `/metrics`; 0 is any free port. Needs the extra `metrics`", "metrics_port", level=TOP),
    Setting(METRICS_HOST, TEXT, "127.0.0.1", "Address on which that port listens; `0.0.0.0` is every interface. The "
            "server has no login", "metrics_host", level=TOP),
    Setting(METRICS_TEXTFILE, TEXTFILE, "", "File in which `mirror run` keeps the same metrics for node_exporter's "
            "textfile collector. Needs the extra `metrics`", "metrics_textfile", level=TOP),
    Setting(METRICS_TOPICS_MAX, whole_number(0), "1000", "How many topics of each flow have metrics of their own: "
            "those with the most lag. `kafka_mirror_topics_omitted` counts the others", "metrics_topics_max",
            level=TOP),
    Setting(ENABLED, BOOLEAN, "false", "Whether the flow is run", note="in YAML a flow that is listed is enabled"),
    Setting(COPY, BOOLEAN, "true", "Whether a run copies records. With `false` it translates groups by what another "
            "run copied with the same `state`, and writes heartbeats", "copied"),
    Setting("topics", PATTERNS, ".*", "Topics to copy: names or patterns, the whole name must match", "topics"),
    Setting(TOPICS_EXCLUDE, PATTERNS, r"mm2.*\.internal, .*\.replica, __.*", "Topics not to copy; beats `topics`",
            "topics_exclude", DIFFERS, "in a MirrorMaker 2 or Connect file without it, the default is "
            f"MirrorMaker's up to 3.9, `{MM2_TOPICS_EXCLUDE}`, which also excludes a user's `orders.internal`; the "
            "default of 4.x is to be written out"),
    Setting("replication.policy.class", replaceable_class(_POLICIES), DEFAULT_POLICY, "How remote topics are named: "
            f"`A.orders` (default), `orders` (identity; `{MM1_POLICY}` without MirrorMaker 2's rule for heartbeats and "
            "internal topics), or as a class of your own says", "replication_policy", DIFFERS, _PYTHON),
    Setting("replication.policy.separator", LEGAL_NAME, ".", "Between alias and topic in a remote topic's name",
            "separator"),
    Setting("replication.policy.internal.topic.separator.enabled", BOOLEAN, "true", "`false` keeps `.` in the names of "
            "internal topics, whatever the separator"),
    Setting(HEARTBEATS_REPLICATION, BOOLEAN, "true", "Copy heartbeats topics even if the patterns do not "
            "include them", "heartbeats_replication", note="in a flow that changes records the default is `false`"),
    Setting("tasks.max", _COUNT, "1", "How many Spark tasks copy the flow at the same time", "tasks_max",
            DIFFERS, "one task copies many partitions at once, so a few are enough; at most 64"),
    Setting("replication.factor", _REPLICATION, "2", "Of new remote topics; -1 is the broker's default",
            "replication_factor"),
    Setting("refresh.topics.enabled", BOOLEAN, "true", "Look for new topics and partitions while running",
            switches="refresh.topics.interval.seconds"),
    Setting("refresh.topics.interval.seconds", INTERVAL, "600", "How often what a listing of topics does not show, "
            "such as the limits of remote topics, is looked at again", "refresh_topics_interval", DIFFERS,
            "new and grown topics are seen with every pass, about every 2 s while a flow tails, whatever it says; "
            "`refresh.topics.enabled = false` stops that"),
    Setting("config.properties.exclude", PATTERNS, ", ".join(CONFIG_PROPERTIES_EXCLUDE), "Topic configs that are not "
            "copied", "config_properties_exclude"),
    Setting("remote.topic.configs", TOPIC_CONFIGS, "", "Topic configs that every remote topic of the flow has instead "
            "of its source's: `retention.ms=604800000, cleanup.policy=delete`. They are set when a remote topic is "
            "created, and by config sync on one that exists", "remote_topic_configs"),
    Setting("use.defaults.from", choice("target", "source"), "target", "Where a topic config that the source never set "
            "comes from", "use_defaults_from"),
    Setting("consumer.isolation.level", choice("read_committed", "read_uncommitted"), "read_committed", "Whether "
            "records of aborted transactions are left out", "isolation_level", DIFFERS,
            "MirrorMaker copies aborted records by default"),
    Setting("consumer.auto.offset.reset", choice("earliest", "latest"), "earliest", "Where to begin in a partition "
            "that was never copied", "auto_offset_reset"),
    Setting("start.position", START_POSITION, "", "The same, and more: `earliest`, `latest`, a time "
            "(`2026-01-01T00:00:00Z`), `group NAME` (where that group of the source stands) or offsets "
            "(`orders:0=100, orders:1=250`). Partitions that it says nothing of begin by "
            "`consumer.auto.offset.reset`", "start_position"),
    Setting("commit.source.group", OPTIONAL_TEXT, "", "A consumer group on the source under whose name progress is "
            "committed there. Drivers of one flow that share it take turns: one copies, the others stand by",
            "commit_source_group"),
    Setting("commit.source.group.interval.seconds", SECONDS, "60", "How often", "commit_source_group_interval"),
    Setting("delivery", choice("exactly-once", "at-least-once"), "exactly-once", "`at-least-once` is for targets that "
            "refuse transactional ids or are older than Kafka 2.5. A MirrorMaker file without this key falls back to "
            "it on targets older than 2.5", "delivery"),
    Setting("on.error", choice("fail", "skip"), "fail", "Where the target rejects a record batch: `fail` stops its "
            "partition and fails the run, `skip` writes the offsets down as an incident and continues", "on_error"),
    Setting("on.data.loss", choice("fail", "continue"), "fail", "What to do where the source lost records before they "
            "were copied, or a shared remote topic lost what an interrupted attempt may have written", "on_data_loss"),
    Setting("batch.max.seconds", SECONDS, "10", "About how long one pass copies before its offset syncs are committed",
            "batch_max_seconds"),
    Setting("tail.enabled", BOOLEAN, "true", "In continuous mode: tasks keep copying new records, so that a record is "
            "on the target milliseconds later; `false` copies once per `trigger`", "tail"),
    Setting("report.port", PORT, "0", "Where tasks that tail report to the driver; 0 is any free port. Where it is "
            "taken, as by another flow of the run, the driver tries the 15 ports after it, as Spark does",
            "report_port"),
    Setting("batch.max.bytes", SIZE, "none", "The same in bytes; whichever comes first", "batch_max_bytes"),
    Setting("max.bytes.per.second", SIZE, "none", "How many bytes the flow may fetch a second, all its tasks together: "
            "`50000000`, `50 MB`, `512 KiB`", "max_bytes_per_second"),
    Setting("max.bytes.per.second.topics", TOPIC_RATES, "", "The same for topics of the source by their names: "
            r"`logs\..*=5 MB, audit=1 MB`. Topics of one item share its bound, the first item that matches counts, and "
            "`max.bytes.per.second` holds over all", "max_bytes_per_second_topics"),
    Setting("copy.window", WINDOWS, "", "When the flow may copy, if not always: `22:00-06:00`, or `Mon-Fri "
            "22:00-06:00, Sat 00:00-24:00`. A day is the one on which the window opens. Outside a continuous run "
            "waits, and any other ends with exit code 0", "copy_window"),
    Setting("copy.window.timezone", ZONE, "UTC", "Whose clock that is: `UTC`, an offset such as `+01:00`, and from "
            "Python 3.9 on a name such as `Europe/Berlin`", "copy_window_timezone"),
    Setting("shared.remote.topics", BOOLEAN, "false", "Remote topics may have other writers than this flow",
            "shared_remote_topics"),
    Setting(COUNTS_DIFFER, Kind("keep or refuse", _counts_differ), KEEP, "Where a remote topic has another number of "
            "partitions than its source: `keep` keeps a record's partition, and grows a remote topic that has too few; "
            "`refuse` does not copy the topic. To place its records by their keys, copy it by a file of its own with "
            "`partitioner: key`",
            "counts_differ"),
    Setting(ENGINE, choice(BATCHES, RECORDS), BATCHES, "`batches` copies whole record batches as they are; `records` "
            "takes each record through Spark's rows", note="where one of the keys down to `dead.letter.topic` changes "
            "records, the default is `records`; see Flows that change records"),
    Setting("where", CONDITION, "", "Which records are copied: a condition in Spark SQL over `topic`, `partition`, "
            "`offset`, `timestamp`, `timestampType`, `key`, `value`, `headers`"),
    Setting("select", SELECT_LIST, "", "What becomes of a record: a select list over the same columns, `*` among them; "
            "what it calls `key`, `value`, `headers`, `timestamp` or `remote_topic` takes the place of the old one"),
    Setting("transform", TRANSFORM, "", "A Python function of your own from DataFrame to DataFrame, before `where` and "
            "`select`"),
    Setting("rename", RENAMES, "", "Remote topics by source topic, instead of the policy's: `TOPIC -> NAME`, the first "
            "that matches the whole name counts; `$1` is the pattern's first group"),
    Setting("partitioner", PARTITIONER, "source", "`source` keeps a record's partition; `key` puts it where Kafka's "
            "producer would by its key; a number does so over so many partitions"),
    Setting("provenance", ON_OR_OFF, "on", "Whether each record says in the header `mirror.origin` where it came from. "
            "By it what an interrupted attempt wrote is found; with `off` the flow is at least once"),
    Setting("dead.letter.topic", OPTIONAL_NAME, "", "Topic on the target for records on which an expression fails; "
            "without it their partition stops"),
    Setting("sync.topic.configs.enabled", BOOLEAN, "true", "Keep configs of remote topics like the source's", "",
            DIFFERS, "only differences are sent; `max.message.bytes` is never lowered, and what keeps timestamps never "
            "changed", switches="sync.topic.configs.interval.seconds"),
    Setting("sync.topic.configs.interval.seconds", INTERVAL, "600", "How often", "sync_topic_configs_interval"),
    Setting("sync.topic.acls.enabled", BOOLEAN, "true", "Copy ACLs of topics; the right to write is never copied", "",
            DIFFERS, "only differences are sent, and by default only rights to read and to describe; prefixed and "
            "wildcard patterns are translated too", switches="sync.topic.acls.interval.seconds"),
    Setting("sync.topic.acls.interval.seconds", INTERVAL, "600", "How often", "sync_topic_acls_interval"),
    Setting("sync.topic.acls.operations", some_of(*ACL_OPERATIONS), ", ".join(READING), "Which rights are copied: of "
            f"ALLOW these operations, of {', '.join(ACL_OPERATIONS)}. DENY is always copied",
            "sync_topic_acls_operations"),
    Setting("sync.topic.acls.wildcards", BOOLEAN, "false", "Under a policy that keeps names: whether `*` or a prefix "
            "of the source becomes one on the target, where it covers topics of the target's own as well. Otherwise "
            "each copy is named", "sync_topic_acls_wildcards"),
    Setting("sync.topic.acls.delete", BOOLEAN, "false", "Delete ACLs on the target that this flow created once their "
            "originals are gone", "sync_topic_acls_delete"),
    Setting("groups", PATTERNS, ".*", "Consumer groups whose offsets are translated", "groups"),
    Setting("groups.exclude", PATTERNS, "console-consumer-.*, connect-.*, __.*", "Consumer groups to leave out; beats "
            "`groups`", "groups_exclude"),
    Setting("groups.simple", choice("exclude", "include"), "exclude", "Whether to commit on the target for a group "
            "without membership that another client committed for: Kafka does not show whether such a consumer lives",
            "groups_simple"),
    Setting("refresh.groups.enabled", BOOLEAN, "true", "Look for new groups while running", "",
            switches="refresh.groups.interval.seconds"),
    Setting("refresh.groups.interval.seconds", INTERVAL, "600", "How often", "refresh_groups_interval"),
    Setting("sync.group.offsets.enabled", BOOLEAN, "false", "Commit translated offsets on the target", "",
            switches="sync.group.offsets.interval.seconds"),
    Setting("sync.group.offsets.interval.seconds", INTERVAL, "60", "How often", "sync_group_offsets_interval"),
    Setting("emit.checkpoints.enabled", BOOLEAN, "true", "Write MirrorMaker's checkpoints topic. `mirror translate` "
            "does, and `mirror run` where group offsets are synced, or in YAML where this key is given", "",
            switches="emit.checkpoints.interval.seconds"),
    Setting("emit.checkpoints.interval.seconds", INTERVAL, "60", "How often", "emit_checkpoints_interval"),
    Setting(EMIT_HEARTBEATS, BOOLEAN, "true", "Write heartbeats to the flow's target, also where the flow is not "
            "enabled", "", DIFFERS, "a cluster that no enabled flow reads or writes gets none. In YAML a flow that is "
            "not enabled writes them only where its own key or the one for all flows is `true`",
            switches="emit.heartbeats.interval.seconds"),
    Setting("emit.heartbeats.interval.seconds", INTERVAL, "1", "How often", "emit_heartbeats_interval"),
    Setting("emit.offset-syncs.enabled", BOOLEAN, "false", "Write MirrorMaker's offset-syncs topic",
            "emit_offset_syncs", DIFFERS, "off unless the topic lies on the target: the source stays read-only until "
            "asked for"),
    Setting("offset.lag.max", whole_number(0), "100", "Records between two of MirrorMaker's offset syncs",
            "offset_lag_max", DIFFERS, "no effect: each copied range has an offset sync at both ends"),
    Setting("offset-syncs.topic.location", choice("source", "target"), "source", "Cluster of the offset-syncs topic",
            "offset_syncs_topic_location"),
    Setting("offset-syncs.topic.replication.factor", _REPLICATION, "3", "Of the offset-syncs topic",
            "offset_syncs_topic_replication_factor"),
    Setting("checkpoints.topic.replication.factor", _REPLICATION, "3", "Of the checkpoints topic",
            "checkpoints_topic_replication_factor"),
    Setting("heartbeats.topic.replication.factor", _REPLICATION, "3", "Of the heartbeats topic",
            "heartbeats_topic_replication_factor"),
    Setting("admin.timeout.ms", MILLISECONDS, "60000", "How long a cluster may take to answer an admin request, tries "
            "included", "admin_timeout", DIFFERS, "what has no answer by then fails and is tried again, instead of "
            "being left out"),
    Setting("topic.filter.class", _filter(DEFAULT_TOPIC_FILTER), DEFAULT_TOPIC_FILTER, "Which topics are copied: by "
            "`topics` and `topics.exclude`, or as a class of your own says", "topic_filter", DIFFERS, _PYTHON),
    Setting("group.filter.class", _filter(DEFAULT_GROUP_FILTER), DEFAULT_GROUP_FILTER, "Whose offsets are translated: "
            "by `groups` and `groups.exclude`, or as a class of your own says", "group_filter", DIFFERS, _PYTHON),
    Setting("config.property.filter.class", _filter(DEFAULT_CONFIG_FILTER), DEFAULT_CONFIG_FILTER, "Which topic "
            "configs are not copied: by `config.properties.exclude`, or as a class of your own says",
            "config_property_filter", DIFFERS, _PYTHON),
)

OLD_NAMES: Mapping[str, str] = {
    "topics.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
}

MISSPELLINGS: Mapping[str, str] = {
    "task.max": "tasks.max",
    "enable": ENABLED,
    "topic.blacklist": "topics.exclude",
    "group.blacklist": "groups.exclude",
    "sync.topics.configs.enabled": "sync.topic.configs.enabled",
    "sync.topics.acls.enabled": "sync.topic.acls.enabled",
}

# Keys that releases before had, and what took their place.
GONE: Mapping[str, str] = {
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
