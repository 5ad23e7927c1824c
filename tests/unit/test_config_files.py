"""Files of MirrorMaker 2 and YAML files: what their keys come to, and which slips of real files are put right with a
warning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict

import pytest

from mirror_lib.config.document import read_properties
from mirror_lib.config.loader import load
from mirror_lib.config.settings import OTHER_NAMES
from mirror_lib.topics.filters import why_skipped
from mirror_lib.topics.policy import remote_topic
from tests.lab.checkout import ROOT
from tests.unit.configs import CLUSTERS, FLOW, IN_YAML, MM2, YAML, fields, read, warnings

SERVERS = '"a:9092"'


def test_the_two_sample_files_are_the_same_flow() -> None:
    ours = load(str(ROOT / "conf/mirror.yaml"), {})
    # MirrorMaker's one job writes checkpoints and heartbeats on the source; in YAML a key asks for them.
    theirs = load(str(ROOT / "conf/mm2.properties"), {})
    excluded = (r".*[\-\.]internal", r".*\.replica", "__.*")
    flows = tuple(replace(flow, checkpoints_in_run=True, topics_exclude=excluded) for flow in ours.flows)
    assert replace(ours, flows=flows) == replace(theirs, heartbeat_pairs=())
    assert [pair.name for pair in theirs.heartbeat_pairs] == ["backup->primary"]


OFF = {"refresh_topics_interval": None, "emit_heartbeats_interval": None, "sync_group_offsets_interval": 60.0}
KEPT = {"replication_policy": "IdentityReplicationPolicy"}
LISTS = {"topics_exclude": ("a",), "groups_exclude": ("b",), "config_properties_exclude": ("c",)}
DEFAULTS = {
    **{"topics": (".*",), "replication_factor": 2, "tasks_max": 1, "isolation_level": "read_committed"},
    **{"auto_offset_reset": "earliest", "state": "./mirror-state", "history_days": 30},
    **{"trigger": "10 seconds", "warnings": ()},
}


# Lines after FLOW, what they come to, and a part of the warning.
LINES_OF_MM2 = [
    ("", DEFAULTS, ""),
    ("A->B.transforms =\nA->B.predicates = p", {"topics": (".*",)}, ""),
    ("A->B.replication.factor = 3\nreplication.factor = 1", {"replication_factor": 3}, ""),
    ("topics = a\ntopics = b", {"topics": ("b",)}, "topics is given twice"),
    ("A.consumer.isolation.level = read_uncommitted", {"isolation_level": "read_uncommitted"}, ""),
    ("B.consumer.isolation.level = read_uncommitted", {"isolation_level": "read_committed"}, ""),
    ("A->B.consumer.auto.offset.reset = latest", {"auto_offset_reset": "latest"}, ""),
    ("A->B.consumer.auto.offset.reset = none # nor skip", {"auto_offset_reset": "earliest", "on_data_loss": "fail"},
        "A->B.consumer.auto.offset.reset = none is read as on.data.loss = fail"),
    ("refresh.topics.enabled = false\nemit.heartbeats.interval.seconds = -1\nsync.group.offsets.enabled = true",
        OFF, ""),
    ("replication.policy.separator = __", {"separator": "__", "internal_separator": "__"}, ""),
    ("replication.policy.separator = __\nreplication.policy.internal.topic.separator.enabled = false",
        {"separator": "__", "internal_separator": "."}, ""),
    ("replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy", KEPT, ""),
    # Comments between the lines of a list, and after a value, are no part of it.
    ("topics = a, \\\n  # the second \\\n  b, \\\n  c", {"topics": ("a", "b", "c")}, "comments between the lines"),
    ("A->B.topics = \\\n a, \\\n // not b, \\\n c.*", {"topics": ("a", "c.*")}, "comments between the lines"),
    # The last byte of this letter would end a line for `str.splitlines`, but not for Java.
    ("topics = x, y   # s\u0105 dwa", {"topics": ("x", "y")}, "no comments after a value"),
    ("topics = 'x', 'y.*'", {"topics": ("x", "y.*")}, "quotes"),
    ("groups.exclude = *", {"groups_exclude": (".*",)}, "'*' at the start of a pattern is read as '.*'"),
    # Older names, and slips.
    ("topics.blacklist = a\nA->B.groups.blacklist = b\nA->B.config.properties.blacklist = c", LISTS, ""),
    ("refresh.topics.interval.ms = 30000", {"refresh_topics_interval": 30.0}, "refresh.topics.interval.seconds"),
    ("topics.exclude = new\nA->B.topics.blacklist = old", {"topics_exclude": ("new",)}, "topics.exclude beats it"),
    # MirrorMaker joins a list by |: a group may have a comma, and a flag applies to later items.
    ("topics = a.(b,c\\\\),d), e", {"topics": ("a.(b|c\\)|d)", "e")}, ""),
    ("topics = a, (?i)b, (?s)c", {"topics": ("a", "(?i)b", "(?i)(?s)c")}, ""),
    ("groups.exclude = $Default", {"groups_exclude": ("$Default",)}, ""),
    ("name = mm2", {"heartbeats_replication": False}, "name: heartbeats are not copied by a mirror with a name"),
    ("name = A->B", {"heartbeats_replication": True}, "name: ignored: it would name connectors"),
    ("B->A.transforms = x\nB->A.enabled = false\nA.key.converter = y", {"topics": (".*",)}, "transforms: ignored"),
    ("Tasks.Max = 2", {"tasks_max": 2}, "tasks.max and is read as that"),
    ("A->B.emit.heartbeats = false", {"emit_heartbeats_interval": None}, "emit.heartbeats.enabled and is read"),
]  # fmt: skip
OURS = "    delivery: at-least-once\n    on.error: skip\n    on.data.loss: continue\n    batch.max.seconds: 2.5\n"
FILES_IN_YAML = [
    (IN_YAML, {"topics": (".*",), "trigger": "availableNow", "warnings": ()}),
    (IN_YAML + "    tasks.max: 4\ntasks.max: 2\nreplication.factor: -1\nstate: /tmp/s\n",
        {"tasks_max": 4, "replication_factor": -1, "state": "/tmp/s"}),
    # Commas stand inside the items of a list; nested maps are dotted keys; servers may be a list.
    (IN_YAML + '    topics: ["a{1,3}", b]\n', {"topics": ("a{1,3}", "b")}),
    (IN_YAML + "    topics: a, b\n", {"topics": ("a", "b")}),
    (IN_YAML + "    topics: ''\n", {"topics": ()}),
    (IN_YAML.replace(SERVERS, f"{SERVERS}, consumer: {{isolation.level: read_uncommitted}}"),
        {"isolation_level": "read_uncommitted"}),
    (IN_YAML + "    refresh: {topics: {interval.seconds: 5}}\n", {"refresh_topics_interval": 5.0}),
    (IN_YAML + "trigger: 1 minute\n", {"trigger": "1 minutes"}),
    (IN_YAML + OURS + "    shared.remote.topics: true\n",
        {"delivery": "at-least-once", "on_error": "skip", "on_data_loss": "continue", "batch_max_seconds": 2.5,
         "shared_remote_topics": True}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "wanted", "warning"),
    [
        *((MM2, f"{FLOW}{lines}\n", wanted, warning) for lines, wanted, warning in LINES_OF_MM2),
        *((YAML, text, wanted, "") for text, wanted in FILES_IN_YAML),
    ],
)
def test_keys_come_to_these_values(tmp_path: Path, name: str, text: str, wanted: Dict[str, Any], warning: str) -> None:
    config = read(tmp_path, text, name)
    assert fields(config, wanted) == wanted
    assert warning in warnings(config)


@pytest.mark.parametrize(("written", "meant"), OTHER_NAMES.items())
def test_other_spellings_of_real_files_are_read_as_the_key(tmp_path: Path, written: str, meant: str) -> None:
    value = "2" if meant == "tasks.max" else "true" if meant.endswith("enabled") else "x"
    config = read(tmp_path, f"{FLOW}{written} = {value}\n")
    assert f"{meant} and is read as that" in warnings(config)
    assert config.flows == read(tmp_path, f"{FLOW}{meant} = {value}\n").flows


def test_bare_keys_count_for_each_flow_that_has_none_of_its_own(tmp_path: Path) -> None:
    text = CLUSTERS + "enabled = true\nA->B.replication.factor = 3\nreplication.factor = 1\n"
    assert [(f.name, f.replication_factor) for f in read(tmp_path, text).flows] == [("A->B", 3), ("B->A", 1)]
    assert [flow.name for flow in read(tmp_path, text + "B->A.enabled = false\n").flows] == ["A->B"]


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


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("A->B.topcs = x", "A->B.topcs: ignored: it is not a setting of MirrorMaker either; did you mean A->B.topics?"),
        ("zzz = true", "zzz: ignored"),
        ("source.bootstrap.servers = true", "ignored"),
        ("request.timeout.ms = 1", "it is a client property: A.consumer.request.timeout.ms or B.producer.request"),
        ("A.auto.offset.reset = latest", "MirrorMaker drops it; it is a client property: A.consumer.auto.offset.reset"),
        ("A->B.consumer.override.isolation.level = read_uncommitted", "MirrorMaker drops it"),
        ("consumer.security.protocol = SSL", "MirrorMaker drops it; it is a client property: A.security.protocol"),
        ("source.cluster.bootstrap.servers = b:9092", "MirrorMaker drops it"),
        ("A->B.source.cluster.consumer.auto.offset.reset = latest", "MirrorMaker drops it"),
        ("A->B.producer.sasl.jaas.config = x", "with the target's own producer; it is a client property: A.sasl.jaas"),
        ("A->B.admin.override.bootstrap.servers = c:9092", "Connect reads its own offsets topic with it"),
        ("B->A.topics = *", "B->A.topics: ignored: the flow is not enabled; "),
        ("A.bootstrap.server = x", "no client property of Kafka; it is passed on; did you mean A.bootstrap.servers?"),
        ("B.checkpoint.topic.replication.factor = 1", "did you mean A->B.checkpoints.topic.replication.factor?"),
        ("A->C.topics = x", "A->C.topics: ignored: it names an unknown cluster, C; the clusters are A, B"),
        ("A->A.enabled = true", "A->A.enabled: ignored: a pair is of two clusters"),
        ("A -> B.enabled = true", "write A->B without blanks"),
        ("A.replication.factor = 3", "it is not a setting of a cluster; write A->B.replication.factor"),
        ("A.transforms = mask", "A.transforms: ignored: "),
        ("config.storage.topic = ${env:NOT_HERE}", "config.storage.topic: ignored: "),
        ("A.my.plugin.key = 1", "A.my.plugin.key is no client property of Kafka; it is passed on"),
        ("topic.filter.class.prefix = x", "is for a class of your own, and topic.filter.class names none"),
    ],
)
def test_a_key_that_mirrormaker_ignores_is_ignored_and_named_with_what_may_be_meant(
    tmp_path: Path, line: str, why: str
) -> None:
    config = read(tmp_path, FLOW + line + "\n")
    (sentence,) = config.idle
    # No name is better than one that means something else.
    assert not why.endswith("ignored") or "did you mean" not in sentence
    assert why in sentence and sentence.endswith("mm2.properties:5)") and sentence in config.warnings
    assert [(flow.name, flow.topics) for flow in config.flows] == [("A->B", (".*",))]


@pytest.mark.parametrize(
    ("lines", "remote", "warning"),
    [
        ("replication.policy.separator =\nsource.cluster.alias =", "orders", "is blank: A->B keeps names"),
        ("replication.policy.separator =", "Aorders", "A->B names topics Aorders"),
        ("source.cluster.alias = east", "east.orders", ""),
        ("source.cluster.alias = west\nA.alias = east\nB.alias = B", "east.orders", "A.alias is read as A->B.source."),
        ("A->B.source.cluster.alias = north\nA.alias = east", "north.orders", ""),
        ("source.cluster.alias = B\nreplication.policy.class = IdentityReplicationPolicy", "orders", ""),
    ],
)
def test_alias_and_separator_name_the_remote_topic(tmp_path: Path, lines: str, remote: str, warning: str) -> None:
    config = read(tmp_path, f"{FLOW}{lines}\n")
    (flow,) = config.flows
    assert remote_topic(flow, "orders") == remote and why_skipped("orders", flow) is None
    assert (flow.name, flow.source.bootstrap_servers) == ("A->B", "a:9092") and warning in warnings(config)


def test_a_blank_separator_separates_internal_topics_from_heartbeats(tmp_path: Path) -> None:
    blank = FLOW + "replication.policy.separator =\n"
    (flow,) = read(tmp_path, blank + "source.cluster.alias =\n").flows
    assert why_skipped("mm2-offset-syncsBinternal", flow) is not None
    (flow,) = read(tmp_path, blank + "replication.policy.class = IdentityReplicationPolicy\n").flows
    assert why_skipped("device-heartbeats", flow) is None
    assert len(read(tmp_path, blank + "B->A.enabled = true\nsource.cluster.alias =\n").flows) == 2


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("B.ssl.key.password = a #b\t", "a #b"),
        # Where a comment cannot be meant as a value: as Kafka's own pages have them.
        ("B.security.protocol = PLAINTEXT // if target cluster needs it", "PLAINTEXT"),
        ("B.ssl.truststore.type = \"PEM\" # quoted", "PEM"),
    ],
)
def test_a_hash_in_a_client_property_is_kept_unless_it_can_only_begin_a_comment(
    tmp_path: Path, line: str, value: str
) -> None:
    (flow,) = read(tmp_path, f"{FLOW.replace('true', 'true // on')}{line}\n").flows
    assert flow.target.properties[line.partition(" ")[0][2:]] == value


def test_a_file_may_have_any_ending_and_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    for name, start in (("mirror.conf", ""), ("mm2.properties.tpl", "\ufeff"), ("mm2", "\ufeff# comment\n")):
        assert [flow.name for flow in read(tmp_path, start + FLOW, name).flows] == ["A->B"]


def test_comments_quotes_and_repetitions_in_the_list_of_clusters_are_put_right(tmp_path: Path) -> None:
    for clusters, sentences in (('"A", "B"  # aliases', 3), ("A, B, A", 1)):
        config = read(tmp_path, FLOW.replace("A, B", clusters).replace("a:9092", "a:9092 # one"))
        assert [(flow.name, flow.source.bootstrap_servers) for flow in config.flows] == [("A->B", "a:9092")]
        assert len(config.warnings) == sentences


def test_an_alias_may_hold_dots_with_another_separator_and_be_the_start_of_a_bare_key(tmp_path: Path) -> None:
    dotted = FLOW.replace("A", "us.west").replace("B", "us") + "replication.policy.separator = __\n"
    (flow,) = read(tmp_path, dotted).flows
    assert (flow.name, flow.source.bootstrap_servers, flow.target.bootstrap_servers) == (
        *("us.west->us", "a:9092", "b:9092"),
    )
    text = FLOW.replace("A", "topics").replace("B", "source") + "topics.exclude = x\n"
    assert read(tmp_path, text).flows[0].topics_exclude == ("x",)


def test_a_flow_can_be_switched_off_and_servers_may_be_a_list(tmp_path: Path) -> None:
    text = IN_YAML.replace(SERVERS, '["a:9092", "c:9093"]') + "    enabled: false\n  B->A:\n"
    (flow,) = read(tmp_path, text, YAML).flows
    assert (flow.name, flow.target.bootstrap_servers) == ("B->A", "a:9092,c:9093")


# Lines of a `.properties` file, and what Java 17's own reader reads of them, if they are no comment.
CORPUS = [
    (b"# comment\n! other\n", None),
    (b"a=1\n", ("a", "1")),
    (b"b = 2  \n", ("b", "2  ")),  # blanks at the end of a value count
    (b"c:3\n", ("c", "3")),
    (b"d 4\n", ("d", "4")),
    (rb"e\ f = 5" + b"\n", ("e f", "5")),
    (rb"g\=h\:i=6" + b"\n", ("g=h:i", "6")),
    (b"  j   =   7\n", ("j", "7")),
    (b"k = one, \\\n    two, \\\n      three\n", ("k", "one, two, three")),
    (b"l\n", ("l", "")),
    (b"m=\n", ("m", "")),
    (rb"n = \u00e9\u20ac" + b"\n", ("n", "\u00e9\u20ac")),
    (rb"o = tab\tnew\nq\q" + b"\n", ("o", "tab\tnew\nqq")),
    (rb"p = a\\b \\. \.x" + b"\n", ("p", "a\\b \\. .x")),
    (rb"q = x \\" + b"\n", ("q", "x \\")),
    (b"r = # not a comment\n", ("r", "# not a comment")),
    (b"s = a=b:c\n", ("s", "a=b:c")),
    (rb"u->v.topics = .*[\-\.]internal" + b"\n", ("u->v.topics", ".*[-.]internal")),
    (b"w = trail\\\n# still value\n", ("w", "trail# still value")),
    (b"x\\\ny = cont key\n", ("xy", "cont key")),
    (b"= emptykey\n", ("", "emptykey")),
    (rb"z = \uD83D\uDE00" + b"\n", ("z", "\U0001f600")),
    (b"aa = d\xe9\n", ("aa", "d\u00e9")),
    (b"bb = end\\\r\ncc = crlf\r\n", ("bb", "endcc = crlf")),
    (b"dd = cr\r", ("dd", "cr")),
    (b"ee\tff\n\n", ("ee", "ff")),
    (b"\\\n gg=1\n", ("gg", "1")),
    (b"hh=last\\", ("hh", "last")),
]


def test_keys_and_values_are_javas_and_lines_are_counted_through_continuations_and_every_line_end() -> None:
    found = read_properties(b"".join(written for written, _ in CORPUS), "x.properties")
    assert {one.key: one.value for one in found} == dict(expected for _, expected in CORPUS if expected)
    lines = {one.key: int(one.place.partition(":")[2]) for one in found}
    assert (lines["a"], lines["k"], lines["l"]) == (3, 10, 13)
    assert (lines["bb"], lines["dd"], lines["ee"], lines["hh"]) == (29, 31, 32, 36)
