"""Kafka Connect's connector files: three of them are one flow, each counts for its part, contradictions are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

import pytest

from mirror_lib.config.loader import load
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import ConfigError
from tests.unit.configs import warnings

MM2 = "KafkaMirrorMaker2"
PACKAGE = "org.apache.kafka.connect.mirror."
PAIR = {
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a:9092",
    "target.cluster.bootstrap.servers": "b1:9092;b2:9092",
}
Config = Dict[str, Any]


def connector(kind: str, **keys: Any) -> Config:
    """A flat config; `_` in a name stands for `.`."""
    named = {key.replace("_", "."): value for key, value in keys.items()}
    return {"name": f"my-{kind}", "connector.class": f"{PACKAGE}Mirror{kind}Connector", **PAIR, **named}


def read(folder: Path, *configs: Any) -> MirrorConfig:
    paths = []
    for number, config in enumerate(configs):
        paths.append(folder / f"{number}.json")
        paths[-1].write_text(config if isinstance(config, str) else json.dumps(config, indent=1), encoding="utf-8")
    return load([str(path) for path in paths], {"SECRET": "pw"})


def refusal(folder: Path, *configs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, *configs)
    return str(caught.value).replace(str(folder) + "/", "")


@pytest.mark.parametrize(
    ("source", "checkpoint"),
    [
        ({"topics": "a, b"}, {"topics": "b,a"}),
        ({"topics": "a"}, {"topics": ".*"}),
        ({}, {"topics": ".*"}),
        ({"topics": "a", "topics_exclude": "c,d"}, {"topics": "a", "topics_blacklist": "d"}),
        ({"topics": "a"}, {"topics": "b", "enabled": "false"}),
        ({"topics": "a, c"}, {"topics": "a"}),
    ],
)
def test_groups_are_translated_on_the_topics_that_are_copied_whatever_the_checkpoint_connector_has(
    source: Config, checkpoint: Config, tmp_path: Path
) -> None:
    alone, both = connector("Source", **source), connector("Checkpoint", **checkpoint)
    config = read(tmp_path, alone, both)
    (flow,), (without,) = config.flows, read(tmp_path, alone).flows
    assert (flow.topics, flow.topics_exclude) == (without.topics, without.topics_exclude)
    assert "does not read it" not in warnings(config)


def test_each_pair_of_clusters_is_a_flow_or_for_a_heartbeat_connector_alone_a_pair_with_heartbeats(
    tmp_path: Path,
) -> None:
    turned = {
        "source.cluster.alias": "B",
        "target.cluster.alias": "A",
        "source.cluster.bootstrap.servers": "b2:9092,b1:9092",
        "target.cluster.bootstrap.servers": "a:9092",
    }
    fan_out = {**connector("Source"), "target.cluster.alias": "C", "target.cluster.bootstrap.servers": "c:9092"}
    flows = read(tmp_path, connector("Source"), {**connector("Source"), **turned}, fan_out).flows
    assert [flow.name for flow in flows] == ["A->B", "B->A", "A->C"]
    assert [flow.target.bootstrap_servers for flow in flows] == ["b1:9092,b2:9092", "a:9092", "c:9092"]
    back = {**connector("Heartbeat"), **turned}
    config = read(tmp_path, connector("Source"), back)
    assert [flow.name for flow in config.flows] == ["A->B"]
    assert [pair.name for pair in config.heartbeat_pairs] == ["B->A"]
    assert read(tmp_path, connector("Source"), {**back, "emit.heartbeats.enabled": "false"}).heartbeat_pairs == ()
    assert not read(tmp_path, connector("Source", enabled=False), connector("Checkpoint")).flows[0].copied


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda config: {"name": "x", "config": config},
        lambda config: [{"name": "x", "config": config, "tasks": [], "type": "source"}],
        lambda config: {"x": {"info": {"name": "x", "config": config, "tasks": [{"connector": "x", "task": 0}]}}},
        lambda config: {**config, "connector.class": "MirrorSource"},
        lambda config: {**config, "tasks.max": 3, "groups": None},
        lambda config: "\n".join(f"{key}={value}" for key, value in config.items()),
    ],
    ids=["POST", "list of GET", "expand=info", "short class", "null", ".properties"],
)
def test_every_form_that_connect_gives_or_takes_is_read(wrapped: Any, tmp_path: Path) -> None:
    config = connector("Source", topics="orders", tasks_max="3", sync_topic_acls_enabled="false")
    given = wrapped(config)
    path = tmp_path / ("source.properties" if isinstance(given, str) else "source.json")
    path.write_text(given if isinstance(given, str) else json.dumps(given))
    (flow,) = flows = load([str(path)], {}).flows
    assert flows == read(tmp_path, config).flows
    assert (flow.topics, flow.tasks_max, flow.sync_topic_acls_interval) == (("orders",), 3, None)


def test_keys_without_effect_and_connectors_of_others_are_ignored_and_named(tmp_path: Path) -> None:
    dump: Config = {name: {"info": {"name": name, "config": connector("Source")}} for name in ("sink", "mirror")}
    dump["sink"]["info"]["config"] = {"connector.class": "io.FileSink", "topics": "orders"}
    config = read(tmp_path, dump)
    assert [flow.name for flow in config.flows] == ["A->B"]
    assert "connector.class: ignored: 'io.FileSink' is not MirrorMaker's connector" in warnings(config)
    config = read(tmp_path, connector("Source", topcis="x", security_protocol="SSL", foo_enabled=True))
    assert config.flows[0].topics == (".*",) and "security.protocol" not in config.flows[0].source.properties
    for key in ("A->B.topcis", "A->B.security.protocol", "A->B.foo.enabled"):
        assert f"{key}: ignored: it is not a setting of MirrorMaker either" in "\n".join(config.idle)
    source = connector("Source", tasks_max="4", emit_heartbeats_interval_seconds="9", groups="x")
    config = read(tmp_path, source, connector("Checkpoint", tasks_max="1", groups="g.*"), connector("Heartbeat"))
    (flow,) = config.flows
    assert (flow.tasks_max, flow.groups, flow.emit_heartbeats_interval) == (4, ("g.*",), 1)
    assert "tasks.max" not in warnings(config)
    assert "emit.heartbeats.interval.seconds: ignored: MirrorSourceConnector does not read it" in warnings(config)


def test_connector_that_copies_nothing_has_its_own_clients(tmp_path: Path) -> None:
    own = {"source_admin_security_protocol": "SSL", "consumer_auto_offset_reset": "latest"}
    config = read(tmp_path, connector("Checkpoint", **own))
    assert config.flows[0].source.client_properties("admin")["security.protocol"] == "SSL"
    assert config.flows[0].auto_offset_reset == "earliest" and "does not read" not in warnings(config)


def test_client_properties_are_the_source_connectors(tmp_path: Path) -> None:
    source = connector("Source", consumer_isolation_level="read_uncommitted", source_cluster_security_protocol="SSL")
    source["producer.override.linger.ms"] = "5"
    source["producer.ssl.key.password"] = source["consumer.override.bootstrap.servers"] = "c:9092"
    source["source.cluster.auto.offset.reset"] = source["consumer.override.auto.offset.reset"] = "latest"
    config = read(tmp_path, source, connector("Checkpoint", consumer_auto_offset_reset="latest"))
    (flow,) = config.flows
    assert (flow.isolation_level, flow.auto_offset_reset) == ("read_uncommitted", "earliest")
    assert warnings(config).count("auto.offset.reset: ignored") == 3
    assert flow.target.client_properties("producer")["linger.ms"] == "5"
    assert flow.source.properties["security.protocol"] == "SSL"
    assert "security.protocol" not in flow.target.properties
    assert "c:9092" not in [*flow.source.client_properties("consumer").values(), *flow.target.producer.values()]


IDENTITY = PACKAGE + "IdentityReplicationPolicy"
KEY = "source_cluster_sasl_jaas_config"
LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="{}";'


def test_one_login_may_have_other_blanks_in_each_connector(tmp_path: Path) -> None:
    login = {"source_cluster_security_protocol": "SASL_SSL", "source_cluster_sasl_mechanism": "SCRAM-SHA-512"}
    first, second = LOGIN.format("pw"), f" {LOGIN.format('pw')} ".replace(" u", "  u").replace(";", " ;")
    config = read(tmp_path, connector("Source", **login, **{KEY: first}), connector("Heartbeat", **{KEY: second}))
    assert config.flows[0].source.properties["sasl.jaas.config"] == first


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        ([connector("Source"), {**connector("Checkpoint"), "target.cluster.bootstrap.servers": "c:9092"}],
            "A->B.target.cluster.bootstrap.servers is 'c:9092', and 'b1:9092;b2:9092' at 0.json:7"),
        ([connector("Source", replication_policy_class=IDENTITY), connector("Checkpoint")],
            f"A->B.replication.policy.class is 'DefaultReplicationPolicy', and '{IDENTITY}' at 0.json:8; give all the"),
        ([connector("Source"), connector("Source", topics="b")],
            "A->B has two of MirrorSourceConnector, the first at 0.json:2; join them"),
        ([connector("Source", state="a"), connector("Heartbeat", state="b")], "state is 'b', and 'a' at 0.json:8"),
        ([connector("Source", transforms="x")], "A->B.transforms cannot be honoured"),
        ([{**connector("Source"), "source.cluster.alias": ""}],
            "source.cluster.alias is blank, and remote topics would be called .orders"),
        ([{"connector.class": "MirrorSource"}], "MirrorSourceConnector has no source.cluster.alias; name the source"),
        ([{**connector("Source"), "connector.class": "io.FileSink"}], "'io.FileSink' is not MirrorMaker's; only"),
        ([{"topics": "x"}], "the connector has no connector.class; add it, for example MirrorSourceConnector (0.json"),
        ([connector("Source", **{KEY: LOGIN.format(" pw")}), connector("Heartbeat", **{KEY: LOGIN.format("pw")})],
            "source.cluster.sasl.jaas.config is ***, and *** at 0.json:8; give all the same"),
        ([connector("Source", topics=["a"])], "topics must be one text (0.json:8)"),
        ([{"name": "x", "config": {}, "topics": "a"}], "topics is next to config; move it into config (0.json:4)"),
        (['{"a": "b",\n}'], "not valid JSON"),
        (['{"a": "b"}\n{"c": "d"}'], "not valid JSON: Extra data; put several connectors into a list"),
        (['{"a": ".*[.\\-]x"}'], "write \\\\ for a backslash"),
        ([connector("Source", target_cluster_bootstrap_servers=None)],
            "write target.cluster.bootstrap.servers = host:port"),
        (["[]"], "the file has no connector; give the JSON of one, or a list of them (0.json)"),
        ([connector("Checkpoint", enabled=False)], "no flow is enabled"),
        ([connector("Heartbeat", emit_heartbeats_enabled=False)], "no flow is enabled"),
        (["[" * 100000], "not a connector: its maps are nested too deeply (0.json)"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_contradicts_is_one_sentence(configs: Any, sentence: str, tmp_path: Path) -> None:
    assert sentence in refusal(tmp_path, *configs)


def test_json_is_read_as_json_and_not_as_yaml(tmp_path: Path) -> None:
    text = json.dumps(connector("Source", topics='a "quoted": b'), indent=1).replace("  ", "\t")
    assert "(0.json:9)" in refusal(tmp_path, text.replace("\n}", ',\n "tasks.max": "many"\n}'))
    values = {"a": "\U0001f600 \\ \t/", "b": "null", "c": "# {", "d": " x ", "e": ""}
    sources = [{**connector("Source"), **{f"source.cluster.ssl.{key}": text for key, text in values.items()}}]
    (flow,) = read(tmp_path, json.dumps(sources).replace("/", "\\/")).flows
    found = {key[4:]: text for key, text in flow.source.properties.items() if key.startswith("ssl.")}
    assert found == {key: text.strip() for key, text in values.items()}


@pytest.mark.parametrize("other", ["connect-standalone.properties", "mirror.yaml"])
def test_file_without_connectors_does_not_go_with_others(tmp_path: Path, other: str) -> None:
    (tmp_path / "0.json").write_text(json.dumps(connector("Source")))
    (tmp_path / other).write_text("bootstrap.servers: b")
    with pytest.raises(ConfigError, match="several files go together only where each holds connectors") as found:
        load([str(tmp_path / "0.json"), str(tmp_path / other)], {})
    assert other in str(found.value)


@pytest.mark.parametrize(
    ("name", "text", "kind", "way_out"),
    [
        ("mm2.yaml", "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaMirrorMaker2\nspec: {}\n", MM2, ""),
        ("mm2.yaml.tpl", "---\nkind: KafkaConnector\napiVersion: x/v1\nspec:\n  - {{ broken\n", "KafkaConnector", ""),
        ("mm2.json", '{"apiVersion": "v1", "kind": "KafkaMirrorMaker2"}', MM2, ""),
        ("mm1.yaml", "apiVersion: x/v1\nkind: KafkaMirrorMaker\n", "KafkaMirrorMaker", "give `mirror mm1` its pod's"),
        ("cm.yaml", "apiVersion: v1\nkind: ConfigMap\ndata: {}\n", "ConfigMap", "the file that is in it"),
        ("two.yml", "apiVersion: v1\nkind: ConfigMap\n---\napiVersion: v1\nkind: KafkaMirrorMaker2\n", MM2, ""),
    ],
)
def test_a_resource_of_kubernetes_is_refused_with_what_to_do(
    name: str, text: str, kind: str, way_out: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(str(tmp_path / name), {})
    assert caught.value.message.startswith(f"{kind} is a resource")
    assert (way_out or "connectors?expand=info") in caught.value.message
