"""What a flow changes in its records, as files say it: read in every form, refused with its line where it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional

import pytest

from mirror_lib.config.loader import load
from mirror_lib.config.model import KEEP, REFUSE, ReplicationFlow
from mirror_lib.config.record_change import KEY, SOURCE, RecordChange
from mirror_lib.errors import ConfigError

BASE = """\
clusters:
  A: {bootstrap.servers: "a:9092"}
  B: {bootstrap.servers: "b:9092"}
flows:
  A->B:
"""
PROPERTIES = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"
CONNECTOR = """\
{"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
 "source.cluster.alias": "A", "target.cluster.alias": "B",
 "source.cluster.bootstrap.servers": "a:9092",
 "target.cluster.bootstrap.servers": "b:9092",
 "%s": "x"}
"""


def flow_of(folder: Path, text: str, name: str = "mirror.yaml") -> ReplicationFlow:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load(str(path), {}).flows[0]


def change(folder: Path, text: str) -> Optional[RecordChange]:
    return flow_of(folder, BASE + text).change


def test_a_flow_copies_whole_batches_unless_it_changes_records(tmp_path: Path) -> None:
    assert change(tmp_path, "    engine: batches\n") is None
    assert change(tmp_path, "    partitioner: source\n    provenance: on\n    where: ''\n") is None
    assert change(tmp_path, "    engine: records\n") == RecordChange()


def test_each_key_that_changes_records_takes_the_other_engine(tmp_path: Path) -> None:
    keys = {
        "where": ("value is not null", RecordChange(where="value is not null")),
        "select": ("'*, sha2(key, 256) as key'", RecordChange(select="*, sha2(key, 256) as key")),
        "transform": ("house.rules:mask", RecordChange(transform="house.rules:mask")),
        "rename": ("[a -> b]", RecordChange(rename=(("a", "b"),))),
        "partitioner": ("key", RecordChange(partitioner=KEY)),
        "provenance": ("off", RecordChange(provenance=False)),
        "dead.letter.topic": ("dead", RecordChange(dead_letter_topic="dead")),
    }
    for key, (written, expected) in keys.items():
        assert change(tmp_path, f"    {key}: {written}\n") == expected, key


def test_topic_whose_partition_counts_differ_keeps_partitions_or_is_refused(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, BASE)
    assert (flow.counts_differ, flow.change) == (KEEP, None)
    flow = flow_of(tmp_path, BASE + "    partition.counts.differ: refuse\n")
    assert (flow.counts_differ, flow.change) == (REFUSE, None)
    with pytest.raises(ConfigError, match=r"counts\.differ must be keep or refuse; .* partitioner: key"):
        flow_of(tmp_path, BASE + "    partition.counts.differ: key\n")


@pytest.mark.parametrize("written", ["off", "false", "OFF", "'off'"])
def test_provenance_may_be_left_out(tmp_path: Path, written: str) -> None:
    assert change(tmp_path, f"    where: 'true'\n    provenance: {written}\n") == RecordChange(
        where="true", provenance=False
    )
    assert change(tmp_path, "    where: 'true'\n    provenance: on\n") == RecordChange(where="true")
    assert change(tmp_path, "    where: 'true'\n") == RecordChange(where="true", provenance=True)


def test_provenance_is_left_out_of_properties_too(tmp_path: Path) -> None:
    text = PROPERTIES + "A->B.where = true\nA->B.provenance = off\n"
    assert flow_of(tmp_path, text, "mm2.properties").change == RecordChange(where="true", provenance=False)


@pytest.mark.parametrize(
    ("key", "way_out"),
    [
        ("provenance.headers", "provenance: off leaves it out"),
        ("max.bytes.per.second.topics", "max.bytes.per.second limits a flow"),
        ("batch.max.bytes", "batch.max.seconds ends a cycle"),
        ("copy.window", "SIGTERM ends it"),
        ("copy.window.timezone", "SIGTERM ends it"),
        ("transform.deterministic", "what places a record may not be declared non-deterministic"),
    ],
)
def test_key_of_an_earlier_release_is_refused_with_what_took_its_place(
    tmp_path: Path, key: str, way_out: str
) -> None:
    texts = [
        ("mirror.yaml", 6, BASE + f"    {key}: true\n"),
        ("mm2.properties", 5, PROPERTIES + f"A->B.{key} = x\n"),
        ("source.json", 5, CONNECTOR % key),
    ]
    for name, line, text in texts:
        with pytest.raises(ConfigError) as caught:
            flow_of(tmp_path, text, name)
        said = str(caught.value).replace(str(tmp_path) + "/", "")
        assert said.startswith(f"A->B.{key} is gone: ") and way_out in said
        assert said.endswith(f"({name}:{line})")


@pytest.mark.parametrize(
    "key", ["emit.offset-syncs.enabled", "offset-syncs.topic.replication.factor", "offset.lag.max"]
)
def test_key_that_only_mirrormaker_has_by_now_is_refused_in_yaml_and_a_warning_in_its_files(
    tmp_path: Path, key: str
) -> None:
    with pytest.raises(ConfigError, match=f"A->B.{key} is gone: the table `offset_syncs`"):
        flow_of(tmp_path, BASE + f"    {key}: 1\n")
    path = tmp_path / "mm2.properties"
    path.write_text(PROPERTIES + f"A->B.{key} = 1\n", encoding="utf-8")
    (sentence,) = load(str(path), {}).warnings
    assert sentence.startswith(f"A->B.{key}: ignored: the table `offset_syncs`")


def test_properties_say_the_same_and_keep_sql_as_it_stands(tmp_path: Path) -> None:
    text = PROPERTIES + (
        "A->B.where = 'x' <> value and topic like '%#%' # not a comment\n"
        "A->B.rename = orders-(.*) -> sales-$1, audit -> audit.eu\n"
        "A->B.partitioner = 12\nA->B.transform = rules:mask\n"
    )
    assert flow_of(tmp_path, text, "mm2.properties").change == RecordChange(
        where="'x' <> value and topic like '%#%' # not a comment",
        rename=(("orders-(.*)", "sales-$1"), ("audit", "audit.eu")),
        partitioner=12,
        transform="rules:mask",
    )


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        (["a -> b"], ""),
        ([r"orders\.eu -> o"], ""),
        (["orders-(.*) -> sales-$1", "(.*) -> eu.$1"], ""),
        (["(.*)-(eu|us) -> $1-$2"], ""),
        (["(.*)-(eu|us) -> $1"], "item 1 brings (.*)-(eu|us) together with other topics in $1"),
        (["((a|b)c) -> $1"], "item 1 brings ((a|b)c) together with other topics in $1"),
        (["a -> x", "b -> x"], "item 2 brings b together with other topics in x"),
        (["a-(.*) -> $1", "b-(.*) -> $1"], "item 2 brings b-(.*) together with other topics in $1"),
        (["c -> d", "a|b -> x"], "item 2 brings a|b together with other topics in x"),
        ([".* -> all"], "item 1 brings .* together with other topics in all"),
        (["c -> d", "a -> b c"], "item 2 gives a several, b, c; copy it by a flow for each"),
    ],
)
def test_rename_that_may_bring_topics_together_or_spread_one_is_refused_without_topics(
    tmp_path: Path, rules: List[str], refused: str
) -> None:
    """Before anything is read: with the patterns, the remote topics and the way out."""
    listed = "".join(f"      - '{rule}'\n" for rule in rules)
    escaped = ", ".join(rules).replace("\\", "\\\\")
    texts = {"mirror.yaml": f"{BASE}    rename:\n{listed}", "mm2.properties": f"{PROPERTIES}A->B.rename = {escaped}\n"}
    for name, text in texts.items():
        if not refused:
            assert flow_of(tmp_path, text, name).change is not None
            continue
        with pytest.raises(ConfigError) as caught:
            flow_of(tmp_path, text, name)
        assert caught.value.code == "MIR-101" and refused in str(caught.value)
        way_out = "with a rename of its own" if "several" in refused else "with shared.remote.topics: true"
        assert way_out in str(caught.value)


def test_rename_is_a_list_or_a_map(tmp_path: Path) -> None:
    as_map = change(tmp_path, "    rename: {orders: b, c-(.*): e.$1}\n")
    as_list = change(tmp_path, "    rename: [orders -> b, c-(.*) -> e.$1]\n")
    assert as_map == as_list == RecordChange(rename=(("orders", "b"), ("c-(.*)", "e.$1")))
    with pytest.raises(ConfigError, match="item 2 gives c several, d, e"):
        change(tmp_path, "    rename: {a: b, c: [d, e.f]}\n")


def test_the_columns_of_a_select_may_be_a_list(tmp_path: Path) -> None:
    assert change(tmp_path, "    select: ['*', null as value]\n") == RecordChange(select="*, null as value")


@pytest.mark.parametrize(
    "topic, name",
    [
        ("orders-eu", "sales-eu"),
        ("orders-", "sales-"),
        ("my-orders-eu", None),
        ("audit", "audit.eu"),
        ("eu-billing", "billing.eu"),
        ("unknown", None),
    ],
)
def test_the_first_pattern_that_matches_the_whole_name_gives_the_remote_topic(topic: str, name: Optional[str]) -> None:
    rules = RecordChange(
        rename=(("orders-(.*)", "sales-$1"), ("audit", "audit.eu"), (r"(\w+)-(\w+)", r"\2.\1"), ("audi(.)", "x$1"))
    )
    assert rules.renamed(topic) == name


def test_heartbeats_are_left_out_of_a_flow_that_changes_records_unless_it_asks_for_them(tmp_path: Path) -> None:
    assert flow_of(tmp_path, BASE).heartbeats_replication
    assert not flow_of(tmp_path, BASE + "    where: 'true'\n").heartbeats_replication
    asked = "    where: 'true'\n    heartbeats.replication.enabled: true\n"
    assert flow_of(tmp_path, BASE + asked).heartbeats_replication


def test_heartbeats_are_left_out_of_a_mirror_with_a_name_unless_it_asks_for_them(tmp_path: Path) -> None:
    assert flow_of(tmp_path, BASE + "name: mirror\n").heartbeats_replication
    assert not flow_of(tmp_path, BASE + "name: sales\n").heartbeats_replication
    asked = "    heartbeats.replication.enabled: true\nname: sales\n"
    assert flow_of(tmp_path, BASE + asked).heartbeats_replication


def test_a_change_that_is_said_for_all_flows_counts_for_each(tmp_path: Path) -> None:
    assert flow_of(tmp_path, BASE + "partitioner: key\n").change == RecordChange(partitioner=KEY)
    assert flow_of(tmp_path, BASE + "    partitioner: source\npartitioner: key\n").change is None
    assert RecordChange().partitioner == SOURCE


@pytest.mark.parametrize(
    "text, sentence",
    [
        (
            "    engine: batches\n    partitioner: source\n    where: 'true'\n",
            "A->B.engine batches changes no records, and A->B.where asks for it",
        ),
        ("    engine: rows\n", "A->B.engine must be batches or records, not 'rows' (mirror.yaml:6)"),
        ("    transform: mask\n", "A->B.transform must be a Python function of your own, written module:function"),
        ("    partitioner: 0\n", "A->B.partitioner must be source, key or a number of partitions"),
        ("    partitioner: round-robin\n", "must be source, key or a number of partitions"),
        ("    rename: orders\n", "must be a list of TOPIC -> REMOTE TOPIC, and item 1 is none"),
        ("    rename: [a -> b, 'c ->']\n", "item 2 is none"),
        ("    rename: ['a( -> b']\n", "has a pattern (item 1) that cannot be used"),
        ("    rename: ['a -> b$1']\n", "names group 1 in item 1, whose pattern has 0"),
        ("    rename: ['a -> b/c']\n", "has in item 1 a remote topic that is no legal topic name"),
        ("    rename: [a -> b, c -> __consumer_offsets]\n", "has in item 2 a remote topic that begins with __"),
        ("    dead.letter.topic: 'a b'\n", "must be made of the characters that a topic name may have"),
        ("    were: 'true'\n", "A->B.were is not a setting; did you mean A->B.where? (mirror.yaml:6)"),
        ("    provenance: perhaps\n", "A->B.provenance must be on or off, not 'perhaps'"),
        ("    where: ['a', 'b']\n", "must be one value, not a list"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        change(tmp_path, text)
    assert sentence in str(caught.value).replace(str(tmp_path) + "/", "")
