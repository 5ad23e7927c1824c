"""MirrorMaker 2 files: what their keys come to, and which slips of real files are put right with a warning."""

from __future__ import annotations

from pathlib import Path
from typing import List, Tuple

import pytest

from mirror_lib.config.loader import load
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import EXIT_USAGE, ConfigError
from mirror_lib.topics.filters import why_skipped
from mirror_lib.topics.policy import remote_topic

CLUSTERS = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\n"
FLOW = CLUSTERS + "A->B.enabled = true\n"


def read(folder: Path, text: str) -> MirrorConfig:
    path = folder / "mm2.properties"
    path.write_bytes(text.encode("iso-8859-1"))
    return load(str(path), {})


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    assert caught.value.exit_code == EXIT_USAGE
    return str(caught.value).replace(str(folder) + "/", "")


def warnings(config: MirrorConfig) -> str:
    return "\n".join(config.warnings)


# Two published guides: both directions, quoted lists, a capital, milliseconds where seconds are due; and older names.
AZURE = """
clusters = primary-kafka-cluster, secondary-kafka-cluster
primary-kafka-cluster.bootstrap.servers = wn0-src-kafka.bx.internal.net:9092,wn1-src-kafka.bx.internal.net:9092\x20
secondary-kafka-cluster.bootstrap.servers = wn0-dest-kafka.bx.internal.net:9092,wn1-dest-kafka.bx.internal.net:9092\x20
primary-kafka-cluster->secondary-kafka-cluster.enabled = true
secondary-kafka-cluster->primary-kafka-cluster.enabled = true
primary-kafka-cluster->secondary-kafka-cluster.topics = .*
secondary-kafka-cluster->primary-kafka-cluster.topics = .*
groups=.*
emit.checkpoints.enabled = true\x20
primary-kafka-cluster->secondary-kafka-cluster.sync.group.offsets.enabled=true\x20
primary-kafka-cluster->secondary-kafka-cluster.sync.group.offsets.interval.ms=30000\x20
secondary-kafka-cluster->primary-kafka-cluster.sync.group.offsets.enabled   = true\x20
secondary-kafka-cluster->primary-kafka-cluster.sync.group.offsets.interval.ms=30000
topics.blacklist="*.internal,__.*"
Replication.factor=3
checkpoints.topic.replication.factor=3
heartbeats.topic.replication.factor=3
offset-syncs.topic.replication.factor=3
offset.storage.replication.factor=3
status.storage.replication.factor=3
config.storage.replication.factor=3
"""
DZONE = """
clusters = source, target
source.bootstrap.servers = kafka-source:9092
target.bootstrap.servers = kafka-target:9092
source.config.storage.replication.factor = 1
target.offset.storage.replication.factor = 1
source.status.storage.replication.factor = 1
source->target.enabled = true
target->source.enabled = false
offset-syncs.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
topics = .*
groups = .*
tasks.max = 1
replication.factor = 1
refresh.topics.enabled = true
sync.topic.configs.enabled = true
refresh.topics.interval.seconds = 30
topics.blacklist = .*[\\-\\.]internal, .*\\.replica, __consumer_offsets
groups.blacklist = console-consumer-.*, connect-.*, __.*
source->target.emit.heartbeats.enabled = true
source->target.emit.checkpoints.enabled = true
"""


def test_the_azure_guides_file_loads_as_its_text_means_it(tmp_path: Path) -> None:
    config = read(tmp_path, AZURE)
    there, back = config.flows
    assert (there.name, back.name) == (
        "primary-kafka-cluster->secondary-kafka-cluster",
        "secondary-kafka-cluster->primary-kafka-cluster",
    )
    assert there.topics_exclude == (".*.internal", "__.*")
    assert there.replication_factor == 3
    assert there.sync_group_offsets_interval == back.sync_group_offsets_interval == 30.0
    assert there.source.bootstrap_servers.endswith(":9092")
    for right in ("topics.exclude", "replication.factor", "sync.group.offsets.interval.seconds", "quotes", "'.*'"):
        assert right in warnings(config)


def test_the_dzone_guides_file_loads_with_one_flow(tmp_path: Path) -> None:
    (flow,) = read(tmp_path, DZONE).flows
    assert flow.name == "source->target"
    # Java drops a single backslash, so the pattern's dot matches any character there too.
    assert flow.topics_exclude == (".*[-.]internal", ".*.replica", "__consumer_offsets")
    assert flow.refresh_topics_interval == 30.0
    assert flow.replication_factor == 1


def test_servers_lost_in_a_comment_are_pointed_at(tmp_path: Path) -> None:
    lost = CLUSTERS.replace("A.bootstrap", "# for example A.bootstrap") + "A->B.enabled = true\n"
    assert refusal(tmp_path, lost) == (
        "cluster A has no bootstrap.servers; it stands inside the comment at mm2.properties:2 (mm2.properties:4)"
    )


def test_a_mirrormaker_1_client_file_is_recognised(tmp_path: Path) -> None:
    assert "MirrorMaker 1" in refusal(tmp_path, "bootstrap.servers=a:9092\ngroup.id=mirrorgroup\n")


def test_defaults_are_mirrormakers_and_a_file_without_trigger_goes_on_for_ever(tmp_path: Path) -> None:
    config = read(tmp_path, FLOW)
    (flow,) = config.flows
    assert (flow.topics, flow.replication_factor, flow.tasks_max) == ((".*",), 2, 1)
    assert (config.state, config.trigger, config.name) == ("./mirror-state", "10 seconds", "mirror")
    assert config.warnings == ()


def test_a_flows_own_key_beats_the_bare_key(tmp_path: Path) -> None:
    text = FLOW + "B->A.enabled = true\nA->B.replication.factor = 3\nreplication.factor = 1\n"
    assert [flow.replication_factor for flow in read(tmp_path, text).flows] == [3, 1]


def test_bare_enabled_runs_every_pair_but_those_switched_off(tmp_path: Path) -> None:
    text = CLUSTERS + "enabled = true\nB->A.enabled = false\n"
    assert [flow.name for flow in read(tmp_path, text).flows] == ["A->B"]


def test_client_properties_reach_the_right_clients_with_mirrormakers_precedence(tmp_path: Path) -> None:
    text = FLOW + (
        "security.protocol = PLAINTEXT\nA.client.id = one\n"
        "A->B.consumer.fetch.max.bytes = 1\nA.consumer.fetch.max.bytes = 2\n"
        "A->B.consumer.max.poll.records = 5\n"
        "B.producer.linger.ms = 1\nA->B.producer.override.linger.ms = 9\n"
        "A->B.source.admin.request.timeout.ms = 7000\n"
    )
    config = read(tmp_path, text)
    (flow,) = config.flows
    assert flow.source.client_properties("consumer") == {
        "bootstrap.servers": "a:9092",
        "security.protocol": "PLAINTEXT",
        "client.id": "one",
        "fetch.max.bytes": "2",
        "max.poll.records": "5",
    }
    assert flow.target.producer["linger.ms"] == "9"
    assert flow.target.properties["security.protocol"] == "PLAINTEXT"
    assert flow.source.admin["request.timeout.ms"] == "7000"
    assert "request.timeout.ms" not in flow.target.admin
    assert "A->B.consumer.fetch.max.bytes is overruled by A.consumer.fetch.max.bytes" in warnings(config)


def test_isolation_level_and_offset_reset_come_from_the_source_consumer(tmp_path: Path) -> None:
    default = read(tmp_path, FLOW).flows[0]
    assert (default.isolation_level, default.auto_offset_reset) == ("read_committed", "earliest")
    text = FLOW + "A.consumer.isolation.level = read_uncommitted\nA->B.consumer.auto.offset.reset = latest\n"
    flow = read(tmp_path, text).flows[0]
    assert (flow.isolation_level, flow.auto_offset_reset) == ("read_uncommitted", "latest")
    assert "must be earliest or latest" in refusal(tmp_path, FLOW + "A.consumer.auto.offset.reset = newest\n")
    # The target's consumer says nothing about how the source is read.
    other = read(tmp_path, FLOW + "B.consumer.isolation.level = read_uncommitted\n").flows[0]
    assert other.isolation_level == "read_committed"


def test_a_switch_turns_its_interval_off(tmp_path: Path) -> None:
    text = FLOW + "refresh.topics.enabled = false\nemit.heartbeats.interval.seconds = -1\n"
    text += "sync.group.offsets.enabled = true\n"
    flow = read(tmp_path, text).flows[0]
    assert flow.refresh_topics_interval is None
    assert flow.emit_heartbeats_interval is None
    assert flow.sync_group_offsets_interval == 60.0


def test_the_internal_separator_follows_unless_told_not_to(tmp_path: Path) -> None:
    underscore = FLOW + "replication.policy.separator = __\n"
    assert read(tmp_path, underscore).flows[0].internal_separator == "__"
    kept = underscore + "replication.policy.internal.topic.separator.enabled = false\n"
    assert (read(tmp_path, kept).flows[0].separator, read(tmp_path, kept).flows[0].internal_separator) == ("__", ".")


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("A->B.state = x", "state is for the whole file"),
        ("tasks.max = many", "tasks.max must be a whole number from 1 on, not 'many' (mm2.properties:5)"),
        ("tasks.max = 0", "tasks.max must be a whole number from 1 on, not '0'"),
        ("replication.factor = 0", "or -1 for the broker's default, not '0'"),
        ("A->B.refresh.topics.interval.seconds = 0", "must be a number of seconds above 0"),
        ("A->B.tail.seconds = 61", "must be at most 60 seconds"),
        ("A->B.refresh.topics.enabled = yes", "must be true or false, not 'yes'"),
        ("use.defaults.from = both", "must be target or source"),
        ("replication.policy.class = com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy",
            "Java cannot run here; take IdentityReplicationPolicy, which does the same"),
        ("replication.policy.class = com.example.Mine", "names a Java class, and Java cannot run here; take Default"),
        ("topic.filter.class = com.example.Mine", "take DefaultTopicFilter, or a Python class of your own"),
        ("replication.policy.separator = /", "characters that a topic name may have"),
        ("topics = *", "topics has a pattern (item 1) that cannot be used: nothing to repeat at character 1"),
        ("topics = ok, \\\\p{L}+", "(item 2) that cannot be used: bad escape"),
        ("topics = [a-z&&[b]]", "Java and Python read differently"),
        ("topics = a{1,3}", "commas split the list"),
        ("transforms = Filter", "transforms cannot be honoured"),
        ("trigger = now and then", "must be availableNow or a time"),
        ("A.bootstrap.servers = a:9092;c:9092", "must be a comma list of host:port"),
        ("name = a/b", "characters that a topic name may have"),
        ("A.security.protocol = TLS", "cluster A: security.protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, "
            "SASL_SSL (mm2.properties:5)"),
        ("A.consumer.ssl.keystore.key = x\nA.security.protocol = SSL", "ssl.keystore.type = PEM (mm2.properties:5)"),
        ("topics = \\u12", "four hexadecimal digits (mm2.properties:5)"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(tmp_path: Path, line: str, sentence: str) -> None:
    assert sentence in refusal(tmp_path, FLOW + line + "\n")


@pytest.mark.parametrize(
    "line, why",
    [
        ("A->B.topcs = x", "A->B.topcs: ignored: it is not a setting of MirrorMaker either; did you mean A->B.topics?"),
        ("A->B.topics.whitelist = x", "did you mean A->B.topics?"),
        ("group.whitelist = x", "did you mean groups?"),
        ("B->A.enable = true", "did you mean B->A.enabled?"),
        ("refresh.topic.interval.seconds = 5", "did you mean refresh.topics.interval.seconds?"),
        ("offset.syncs.topic.location = target", "did you mean offset-syncs.topic.location?"),
        ("b.bootstrap.servers = x:1", "did you mean B.bootstrap.servers?"),
        ("request.timeout.ms = 1", "client properties belong to a cluster: A.request.timeout.ms"),
        ("B->A.max.poll.records = 1", "client properties belong to a cluster: B.max.poll.records"),
        ("A->B.ssl.key.password = x", "client properties belong to a cluster: A.ssl.key.password"),
        ("A.bootstrap.server = x", "no client property of Kafka; it is passed on; did you mean A.bootstrap.servers?"),
        ("B.checkpoint.topic.replication.factor = 1", "did you mean A->B.checkpoints.topic.replication.factor?"),
        ("A.ssl.trustore.location = x", "did you mean A.ssl.truststore.location?"),
        ("A->C.topics = x", "A->C.topics: ignored: it names an unknown cluster, C; the clusters are A, B"),
        ("A->A.enabled = true", "A->A.enabled: ignored: a pair is of two clusters"),
        ("A.replication.factor = 3", "it is not a setting of a cluster; write A->B.replication.factor"),
        ("A.transforms = mask", "A.transforms: ignored: "),
        ("A->B.transforms.mask.type = x", "transforms.mask.type: ignored: single message transforms do not run here"),
        ("config.storage.topic = ${env:NOT_HERE}", "config.storage.topic: ignored: "),
        ("A->B.emit.offset-syncs.enabled = true", "ignored: the table `offset_syncs` has every offset range"),
        ("topic.filter.class.prefix = x", "is for a class of your own, and topic.filter.class names none"),
    ],
)
def test_a_key_that_mirrormaker_ignores_is_ignored_and_named_with_what_may_be_meant(
    tmp_path: Path, line: str, why: str
) -> None:
    config = read(tmp_path, FLOW + line + "\n")
    (sentence,) = config.idle
    assert why in sentence and sentence.endswith("mm2.properties:5)") and sentence in config.warnings
    assert [(flow.name, flow.topics) for flow in config.flows] == [("A->B", (".*",))]


@pytest.mark.parametrize(
    "key",
    ["zzz", "source.bootstrap.servers", "A->B.replication.enabled", "internal.topic.replication.factor",
     "A->B.offset-syncs.topic.partitions", "A->B.MirrorHeartbeatConnector.enabled", "checkpoints.topic.location"],
)
def test_no_name_is_better_than_one_that_means_something_else(tmp_path: Path, key: str) -> None:
    (sentence,) = read(tmp_path, FLOW + f"{key} = true\n").idle
    assert "did you mean" not in sentence


def test_a_slip_is_of_a_key_that_takes_the_value(tmp_path: Path) -> None:
    assert "did you mean tasks.max?" in read(tmp_path, FLOW + "taks.max = 4\n").idle[0]
    assert "did you mean" not in read(tmp_path, FLOW + "taks.max = many\n").idle[0]


def test_a_refusal_does_not_blame_what_is_ignored(tmp_path: Path) -> None:
    text = FLOW + "A->B.transforms = a\nA->B.transforms.a.type = X\nB->C.enabled = true\nzzz = 1\nlinger.ms = 1\n"
    assert refusal(tmp_path, text).startswith("A->B.transforms cannot be honoured")
    assert "A->B.transforms.a" not in refusal(tmp_path, text)
    assert read(tmp_path, FLOW + "A->B.transforms =\nA->B.predicates = p\n").flows


def test_a_file_whose_flows_are_all_of_other_clusters_says_so(tmp_path: Path) -> None:
    assert refusal(tmp_path, CLUSTERS + "A->D.enabled = true\n") == (
        "no flow is enabled; write A->B.enabled = true; A->D.enabled: it names an unknown cluster, D; the clusters are "
        "A, B (mm2.properties:4) (mm2.properties)"
    )


def test_a_blank_separator_with_a_blank_alias_keeps_names(tmp_path: Path) -> None:
    config = read(tmp_path, FLOW + "replication.policy.separator =\nsource.cluster.alias = \n")
    (flow,) = config.flows
    assert remote_topic(flow, "orders") == "orders" and why_skipped("orders", flow) is None
    assert why_skipped("mm2-offset-syncsBinternal", flow) is not None
    assert "replication.policy.separator is blank: A->B keeps names" in warnings(config)


def test_a_blank_separator_alone_is_nothing_between_alias_and_topic(tmp_path: Path) -> None:
    config = read(tmp_path, FLOW + "replication.policy.separator =\n")
    (flow,) = config.flows
    assert remote_topic(flow, "orders") == "Aorders" and why_skipped("orders", flow) is None
    assert "A->B names topics Aorders" in warnings(config)
    back = FLOW + "replication.policy.separator =\nB->A.enabled = true\n"
    assert "replication.policy.separator is blank, and records of A would come back" in refusal(tmp_path, back)
    assert len(read(tmp_path, back + "source.cluster.alias =\n").flows) == 2
    identity = read(tmp_path, FLOW + "replication.policy.separator =\nreplication.policy.class = Identity"
                    "ReplicationPolicy\n").flows[0]
    assert remote_topic(identity, "orders") == "orders" and why_skipped("device-heartbeats", identity) is None


def test_a_bare_source_alias_counts_in_names_of_topics(tmp_path: Path) -> None:
    (flow,) = read(tmp_path, FLOW + "source.cluster.alias = east\n").flows
    assert (flow.name, flow.source.bootstrap_servers) == ("A->B", "a:9092")
    assert remote_topic(flow, "orders") == "east.orders"
    assert "would be called .orders" in refusal(tmp_path, FLOW + "source.cluster.alias =\n")
    kept = read(tmp_path, FLOW + "source.cluster.alias = B\nreplication.policy.class = IdentityReplicationPolicy\n")
    assert remote_topic(kept.flows[0], "orders") == "orders" and why_skipped("orders", kept.flows[0]) is None


def test_a_reset_of_none_is_the_default_for_lost_data(tmp_path: Path) -> None:
    config = read(tmp_path, FLOW + "A->B.consumer.auto.offset.reset = none # nor skip\n")
    assert (config.flows[0].auto_offset_reset, config.flows[0].on_data_loss) == ("earliest", "fail")
    assert "A->B.consumer.auto.offset.reset = none is read as on.data.loss = fail" in warnings(config)


@pytest.mark.parametrize(
    "text, topics",
    [
        ("topics = a, \\\n  # the second \\\n  b, \\\n  c\n", ("a", "b", "c")),
        ("topics = a, # one, and more \\\n  b # two\n", ("a", "b")),
        ("A->B.topics = \\\n a, \\\n // not b, \\\n c.*\n", ("a", "c.*")),
        ("topics = a,#b,\\\n c\n", ("a", "#b", "c")),
    ],
)
def test_comments_between_the_lines_of_a_list_are_no_items(tmp_path: Path, text: str, topics: Tuple[str, ...]) -> None:
    config = read(tmp_path, FLOW + text)
    assert config.flows[0].topics == topics
    assert ("comments between the lines" in warnings(config)) == ("#b" not in topics)


@pytest.mark.parametrize("name", ["mirror.conf", "mm2.properties.tpl", "mm2"])
def test_a_file_may_have_any_ending_and_begin_with_a_byte_order_mark(tmp_path: Path, name: str) -> None:
    for start in ("", "\ufeff", "\ufeff# comment\n"):
        (tmp_path / name).write_text(start + FLOW, encoding="utf-8")
        assert [flow.name for flow in load(str(tmp_path / name), {}).flows] == ["A->B"]


@pytest.mark.parametrize(
    "line, right",
    [
        ("task.max = 4", "tasks.max"),
        ("A->B.emit.heartbeats = false", "emit.heartbeats.enabled"),
        ("A->B.sync.group.offsets = true", "sync.group.offsets.enabled"),
        ("sync.topics.configs.enabled = true", "sync.topic.configs.enabled"),
        ("topic.blacklist = x", "topics.exclude"),
        ("config.properties.blacklist = x", "config.properties.exclude"),
        ("Tasks.Max = 2", "tasks.max"),
    ],
)
def test_known_slips_are_read_as_meant_and_named(tmp_path: Path, line: str, right: str) -> None:
    config = read(tmp_path, FLOW + line + "\n")
    assert f"{right} and is read as that" in warnings(config)


def test_the_right_name_beats_an_old_one(tmp_path: Path) -> None:
    text = FLOW + "topics.exclude = new\ntopics.blacklist = old\n"
    assert read(tmp_path, text).flows[0].topics_exclude == ("new",)


def test_comments_after_a_value_are_not_part_of_it(tmp_path: Path) -> None:
    text = FLOW.replace("A, B", "A, B  # aliases").replace("a:9092", "a:9092 # one") + "topics = x, y   # two\n"
    config = read(tmp_path, text)
    assert config.flows[0].topics == ("x", "y")
    assert config.flows[0].source.bootstrap_servers == "a:9092"
    assert warnings(config).count("no comments after a value") == 3


def test_a_hash_in_a_client_property_is_kept(tmp_path: Path) -> None:
    (flow,) = read(tmp_path, FLOW + "A.ssl.key.password = a #b\n").flows
    assert flow.source.properties["ssl.key.password"] == "a #b"


def test_comments_after_client_properties_are_put_right_where_they_cannot_be_meant(tmp_path: Path) -> None:
    # As Kafka's own pages have them.
    text = "B.security.protocol = PLAINTEXT // if target cluster needs it\nB.ssl.truststore.type = \"PEM\" # quoted\n"
    config = read(tmp_path, FLOW.replace("true", "true // as in Kafka's README") + text)
    assert config.flows[0].target.properties["security.protocol"] == "PLAINTEXT"
    assert config.flows[0].target.properties["ssl.truststore.type"] == "PEM"
    assert warnings(config).count("'//' is read as one") == 2


@pytest.mark.parametrize("line", ["A -> B.enabled = true", "A-> B.enabled = true", "A ->B.enabled = true"])
def test_a_flow_written_with_blanks_is_pointed_at(line: str, tmp_path: Path) -> None:
    (sentence,) = read(tmp_path, FLOW + line + "\n").idle
    assert "write A->B without blanks" in sentence and sentence.endswith("mm2.properties:5)")
    assert "write A->B without blanks (mm2.properties:4)" in refusal(tmp_path, CLUSTERS + line + "\n")


def test_quotes_round_each_item_of_a_list_are_no_part_of_it(tmp_path: Path) -> None:
    config = read(tmp_path, FLOW.replace("A, B", '"A", "B"') + "topics = 'x', 'y.*'\n")
    assert [(flow.name, flow.topics) for flow in config.flows] == [("A->B", ("x", "y.*"))]


def test_a_list_of_clusters_without_one_is_refused(tmp_path: Path) -> None:
    assert "write clusters = A, B" in refusal(tmp_path, "clusters:\n  A: {}\n")


MORE = "clusters: A, B, C, D\n" + "".join(f"{alias}.bootstrap.servers = {alias.lower()}:9092\n" for alias in "ABCD")


@pytest.mark.parametrize(
    "flows",
    [
        ["A->B"],
        ["A->B", "B->A"],
        ["A->D", "B->D", "C->D"],
        ["A->B", "A->C", "A->D"],
        ["A->B", "B->C", "C->D"],
        ["A->B", "B->A", "C->D", "D->C", "A->C", "C->A"],
    ],
    ids=["active/passive", "active/active", "aggregation", "fan-out", "chain", "three of a kind"],
)
def test_every_topology_of_several_clusters_is_read(flows: List[str], tmp_path: Path) -> None:
    text = MORE + "topics = all.*\n" + "".join(f"{flow}.enabled = true\n" for flow in flows)
    text += f"{flows[-1]}.topics = own.*\nA.consumer.isolation.level = read_uncommitted\n"
    config = read(tmp_path, text)
    assert [flow.name for flow in config.flows] == flows
    for flow in config.flows:
        source, target = flow.name.lower().split("->")
        assert (flow.source.bootstrap_servers, flow.target.bootstrap_servers) == (f"{source}:9092", f"{target}:9092")
        assert flow.topics == (("own.*",) if flow.name == flows[-1] else ("all.*",))
        assert flow.isolation_level == ("read_uncommitted" if flow.source.alias == "A" else "read_committed")


def test_a_cluster_that_is_listed_twice_is_one(tmp_path: Path) -> None:
    config = read(tmp_path, FLOW.replace("A, B", "A, B, A"))
    assert [flow.name for flow in config.flows] == ["A->B"]
    assert "clusters names A twice" in warnings(config)


@pytest.mark.parametrize(
    "lines",
    [
        "config.providers = env\nconfig.providers.env.class = {}EnvVarConfigProvider\n"
        "config.providers.env.param.allowlist.pattern = .*\nA.ssl.key.password = ${env:PW}\n",
        "config.providers=e,f\nconfig.providers.e.class={}EnvVarConfigProvider\nA.ssl.key.password=${e:PW}\n",
        "config.providers=vars\nconfig.providers.vars.class={}EnvVarConfigProvider\nA.ssl.key.password=${vars::PW}\n",
        "config.providers=file\nconfig.providers.file.class={}FileConfigProvider\n"
        "config.providers.file.param.allowed.paths=/etc\nA.ssl.key.password=${file:PATH/s.properties:key}\n",
        "config.providers=d\nconfig.providers.d.class={}DirectoryConfigProvider\nA.ssl.key.password=${d:PATH:one}\n",
        "A.ssl.key.password = ${dir:PATH:one}\n",
    ],
)
def test_secrets_come_from_kafkas_providers_by_any_name(lines: str, tmp_path: Path) -> None:
    (tmp_path / "s.properties").write_text("key = secret\n")
    (tmp_path / "one").write_text("secret")
    text = lines.replace("{}", "org.apache.kafka.common.config.provider.").replace("PATH", str(tmp_path))
    path = tmp_path / "mm2.properties"
    path.write_text(FLOW + text)
    config = load(str(path), {"PW": "secret"})
    assert config.flows[0].source.properties["ssl.key.password"] == "secret"
    assert "secret" not in (repr(config) + warnings(config)).replace(str(tmp_path), "")
    assert all(".param." in sentence for sentence in config.idle)


def test_the_older_name_of_every_list_is_read_in_every_place(tmp_path: Path) -> None:
    text = "topics.blacklist = a\nA->B.groups.blacklist = b\nA->B.config.properties.blacklist = c\n"
    (flow,) = read(tmp_path, FLOW + text).flows
    assert (flow.topics_exclude, flow.groups_exclude, flow.config_properties_exclude) == (("a",), ("b",), ("c",))


def test_each_key_without_effect_is_listed_once_with_the_reason(tmp_path: Path) -> None:
    text = FLOW + "offset.storage.topic = x\nB.offset.flush.interval.ms = 1\nlisteners = http://:8083\n"
    config = read(tmp_path, text + "B.replication.factor = 3\nA.my.plugin.key = 1\n")
    for key in ("offset.storage.topic", "B.offset.flush.interval.ms"):
        assert f"{key}: ignored: there is no Connect worker" in warnings(config)
    assert "listeners: ignored: there is no REST server" in warnings(config)
    assert "A.my.plugin.key is no client property of Kafka; it is passed on" in warnings(config)
    assert len(config.idle) == len(set(config.idle)) == 5
    assert config.flows[0].source.properties["my.plugin.key"] == "1"


def test_a_repeated_key_counts_the_last_time_as_in_java(tmp_path: Path) -> None:
    config = read(tmp_path, FLOW + "topics = a\ntopics = b\n")
    assert config.flows[0].topics == ("b",)
    assert "topics is given twice" in warnings(config)


def test_an_alias_may_hold_dots_only_with_another_separator(tmp_path: Path) -> None:
    dotted = FLOW.replace("A", "us.west").replace("B", "us")
    assert "an alias must not contain the separator '.'" in refusal(tmp_path, dotted)
    (flow,) = read(tmp_path, dotted + "replication.policy.separator = __\n").flows
    assert flow.name == "us.west->us"
    assert (flow.source.bootstrap_servers, flow.target.bootstrap_servers) == ("a:9092", "b:9092")


def test_an_alias_may_be_the_start_of_a_bare_key(tmp_path: Path) -> None:
    text = FLOW.replace("A", "topics").replace("B", "source") + "topics.exclude = x\n"
    assert read(tmp_path, text).flows[0].topics_exclude == ("x",)


def test_policies_go_by_any_of_their_names(tmp_path: Path) -> None:
    for name in ("IdentityReplicationPolicy", "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"):
        flow = read(tmp_path, FLOW + f"replication.policy.class = {name}\n").flows[0]
        assert flow.replication_policy == "IdentityReplicationPolicy"


def test_no_flow_enabled_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, CLUSTERS) == "no flow is enabled; write A->B.enabled = true (mm2.properties)"
