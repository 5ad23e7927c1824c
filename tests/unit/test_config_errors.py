"""What is wrong in a file is refused with its line: all entries at once, none that only follows, and no secret."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List

import pytest

from mirror_lib.cli import main
from mirror_lib.config.loader import load
from mirror_lib.errors import ConfigError
from tests.unit.configs import CLUSTERS, FLOW, IN_YAML, MM2, YAML, read, refusal

# Lines after FLOW, by what is said of them.
IN_MM2 = {
    "A->B.state = x": "state is for the whole file",
    "B->A.emit.heartbeats.enabled = no": "B->A.emit.heartbeats.enabled must be true or false, not 'no'",
    "tasks.max = many": "tasks.max must be a whole number from 1 on, not 'many' (mm2.properties:5)",
    "replication.factor = 0": "or -1 for the broker's default, not '0'",
    "A->B.refresh.topics.interval.seconds = 0": "must be a number of seconds above 0",
    "A->B.refresh.topics.interval.ms = soon": "must be a number of seconds, not 'soon'",
    "A->B.tail.seconds = 61": "must be at most 60 seconds",
    "A->B.refresh.topics.enabled = yes": "must be true or false, not 'yes'",
    "A.consumer.auto.offset.reset = newest": "must be earliest or latest",
    "replication.policy.class = com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy": "IdentityReplicationPolicy",
    "topic.filter.class = com.example.Mine": "take DefaultTopicFilter, or a Python class of your own",
    "replication.policy.separator = /": "characters that a topic name may have",
    "topics = *": "topics has a pattern (item 1) that cannot be used: nothing to repeat at character 1; write '.*'",
    "topics = ok, \\\\p{L}+": "(item 2) that cannot be used: bad escape",
    "topics = a{1,3}": "commas split the list",
    "topics = (a{1,3}|b)": "commas split the list; give such patterns in a YAML list",
    "topics = (a,b": "commas split the list, so write | inside brackets, not '(a,b'",
    "topics = ['a', 'b']": "leave out brackets round the list",
    "topics = ${TOPICS}": "is a placeholder; fill it in, or write ${env:NAME}, not '${TOPICS}' (mm2.properties:5)",
    **{f"topics = {each}": "is a placeholder; fill it in" for each in ("#{T}#", "$(T)", "$T", "%T%", "<t>")},
    "topics.\u0420.\u00a0exclude = x": "has a no-break blank, which is part of it to Java; write a plain one (mm2.prop",
    "topics = \\u12": "four hexadecimal digits (mm2.properties:5)",
    "trigger = now and then": "must be availableNow or a time",
    # It may be a connection string with a key in it.
    "A.bootstrap.servers = a:9092;c:9092": "must be a comma list of host:port (mm2.properties:5)",
    "A.consumer.ssl.keystore.key = x\nA.security.protocol = SSL": "needs ssl.keystore.type = PEM (mm2.properties:5)",
    "source.cluster.alias =": "would be called .orders",
    "B->A.enabled = true\nA.alias = east": "A.alias is not read for B->A; list east in clusters instead of A",
    "replication.policy.separator =\nB->A.enabled = true": "is blank, and B is copied on: records could",
    # It is not what MirrorMaker ignores that is wrong.
    "A->B.transforms = a\nA->B.transforms.a.type = X\nB->C.enabled = true\nzzz = 1": "A->B.transforms cannot",
}
# Lines of the flow A->B; the first is line 6.
IN_A_FLOW = {
    "topcs: x": "A->B.topcs is not a setting; did you mean A->B.topics? (mirror.yaml:6)",
    "a: 1\n    a: 2": "a is given twice, first at mirror.yaml:6 (mirror.yaml:7)",
    "tasks.max: 1\n    tasks: {max: 2}": "A->B.tasks.max is given twice",
    "tasks.max: [1, 2]": "A->B.tasks.max must be one value, not a list",
    "tasks.max:": "tasks.max has no value",
    "topics: [a, [b]]": "topics must be a list of plain values",
    "topics.exclude: ['a.*, b']": "has several patterns in item 1; make each an item of its own",
    "topics: *.internal": "quote a value that begins with * (mirror.yaml:6)",
    "topics: &x a": "anchors are not used here",
    "engine: batches\n    where: 'true'": "A->B.engine batches changes no records",
    "engine: rows": "A->B.engine must be batches or records, not 'rows' (mirror.yaml:6)",
    "partition.counts.differ: key": "counts.differ must be keep or refuse",
    "transform: mask": "A->B.transform must be a Python function of your own, written module:function",
    "partitioner: 0": "A->B.partitioner must be source, key or a number of partitions",
    "rename: orders": "must be a list of TOPIC -> REMOTE TOPIC, and item 1 is none",
    "rename: [a -> b, 'c ->']": "item 2 is none",
    "rename: {a: b, c: [d, e.f]}": "item 2 gives c several, d, e",
    "rename: ['a( -> b']": "has a pattern (item 1) that cannot be used",
    "rename: ['a -> b$1']": "names group 1 in item 1, whose pattern has 0",
    "rename: ['a -> b/c']": "has in item 1 a remote topic that is no legal topic name",
    "rename: [a -> b, c -> __consumer_offsets]": "has in item 2 a remote topic that begins with __",
    "tasks.max: 2\nhistory.days: 0": "history.days must be a whole number from 1 on, not '0' (mirror.yaml:7)",
    "provenance: perhaps": "A->B.provenance must be on or off, not 'perhaps'",
}
FILES = {
    "x": "no clusters are given",
    "\0x": "the file must be UTF-8, and is UTF-16 or binary",
    CLUSTERS: "no flow is enabled; write A->B.enabled = true (mm2.properties)",
    CLUSTERS + "topics = *\n": "no flow is enabled; write A->B.enabled = true (mm2.properties)\ntopics has a pattern",
    CLUSTERS + "A->D.enabled = true\n": "names an unknown cluster, D; the clusters are A, B (mm2.properties:4)",
    CLUSTERS + "A -> B.enabled = true\n": "write A->B without blanks (mm2.properties:4)",
    FLOW.replace("A.bootstrap", "# for example A.bootstrap"): "A.bootstrap.servers = host:port (mm2.properties:4)",
    "bootstrap.servers=a:9092\ngroup.id=mirrorgroup\n": "MirrorMaker 1",
    "clusters:\n  A: {}\n": "write clusters = A, B",
    "clusters = {{ a }}, {{ b }}\n{{ a }}->{{ b }}.enabled = true": "{{ a }} under clusters is no alias: take a-z",
    "curl -d '{\n\"connector.class\": \"MirrorSource\"}'": "no clusters are given; if a connector is in a script",
    FLOW.replace("A", "us.west").replace("B", "us"): "an alias must not contain the separator '.'",
}
IN_YAML_FILES = {
    IN_YAML + "topics: x\ntopics: y\n": "topics is given twice, first at mirror.yaml:6 (mirror.yaml:7)",
    IN_YAML + "  A -> B: {}\n": "A->B.enabled is given twice, first at mirror.yaml:5 (mirror.yaml:6)",
    IN_YAML + "  A->C: {}\n": "A->C names an unknown cluster, C; the clusters are A, B (mirror.yaml:6)",
    IN_YAML + "  AB: {}\n": "flow AB must be written A->B (mirror.yaml:6)",
    IN_YAML + "  A->A: {}\n": "A->A: source and target are the same cluster",
    IN_YAML.replace("A: {", "A: {tasks.max: 2, "): "A.tasks.max is not a setting of a cluster; write A->B.",
    IN_YAML + "x: [\n": "not valid YAML",
    "clusters: [A, B]\n": "clusters must be a map, `key: value` on each line (mirror.yaml:1)",
    "just text": "the file must be a map",
    "services: {mm2: {image: x}, web: {image: y}}": "has neither clusters nor flows; if it is another tool's, give",
    "clusters: A, B\nA.bootstrap.servers: a:9092\n": "A.bootstrap.servers is not a setting; docs/reference/settings.md",
    "": "no flow is enabled; list A->B under flows (mirror.yaml)",
    IN_YAML.replace('{bootstrap.servers: "a:9092"}', ""): "cluster A has no bootstrap.servers",
    IN_YAML + "? [a, b]\n: c\n": "a key must be plain text",
    IN_YAML + "state: !!python/object/apply:os.system ['touch pwned']\n": "state must be one value",
}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        *((MM2, f"{FLOW}{line}\n", words) for line, words in IN_MM2.items()),
        *((MM2, text, words) for text, words in FILES.items()),
        *((YAML, f"{IN_YAML}    {lines}\n", words) for lines, words in IN_A_FLOW.items()),
        *((YAML, text, words) for text, words in IN_YAML_FILES.items()),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text, name)


SEVERAL_IN_YAML = """\
clusters:
  primary:
    bootstrap.servers: localhost:9092
    ssl.truststore.pasword: hunter2
  backup:
    bootstrap.server: localhost:9192
flows:
  primary->backup:
    topic: [orders]
    batch.max.seconds: soon
    delivery: ${env:ABSENT}
  primary->bakup: {}
state: ./s
state: ./t
trigger:
"""
SEVERAL_IN_MM2 = """\
clusters = A, B
A.bootstrap.servers = localhost:9092
B.bootstrap.servers = localhost
A->B.enabled = true
A->C.enabled = true
A->B.topic = orders
tasks.max = many
A->B.refresh.topics.enabled = ${env:ABSENT}
"""


def lines_of(text: str, path: Path) -> List[int]:
    """The line of each error that is listed."""
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(str(path), {})
    assert "hunter2" not in str(caught.value)
    return [int(line) for line in re.findall(rf"\({re.escape(str(path))}:(\d+)\)", str(caught.value))]


GOOD = "clusters: {A: {bootstrap.servers: 'h:1'}, B: {bootstrap.servers: 'h:2'}}\nflows: {A->B: {}}\n"
# Of servers without a port, and of no wrong entry.
PORTLESS = "".join(SEVERAL_IN_MM2.replace("localhost:9092", "localhost").splitlines(keepends=True)[:4])


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        # The cluster without bootstrap.servers only follows from line 6.
        ("a.yaml", SEVERAL_IN_YAML, [4, 6, 9, 10, 11, 12, 14, 15]),
        ("a.yaml", GOOD + "topic: a\n", [3]),
        # MirrorMaker ignores lines 5 and 6.
        ("a.properties", SEVERAL_IN_MM2, [3, 7, 8]),
        ("a.properties", PORTLESS, [2, 3]),
    ],
)
def test_every_error_of_a_file_is_reported_with_its_line(
    tmp_path: Path, name: str, text: str, lines: List[int]
) -> None:
    assert lines_of(text, tmp_path / name) == lines


def test_each_error_has_a_line_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(SEVERAL_IN_YAML)
    assert main(["plan", str(tmp_path / "a.yaml")]) == 2
    first, *listed = capsys.readouterr().err.splitlines()
    assert "8 errors" in first and len(listed) == 8 and all(line.startswith("    ") for line in listed)


CANARY = "hunter2-canary"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{CANARY}";'
PROVIDERS = "config.providers = s, f, d\n" + "".join(
    f"config.providers.{name}.class = org.apache.kafka.common.config.provider.{kind}ConfigProvider\n"
    for name, kind in (("s", "EnvVar"), ("f", "File"), ("d", "Directory"))
)


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("${file:FOLDER/secrets.properties:jaas}", "one-two"),
        ("x${env:PART}y${dir:FOLDER:token}", "x2ythree"),
        ("${env::PART}", "2"),
        # A file is UTF-8, as for Kafka.
        ("${file:FOLDER/secrets.properties:password}", "Grüße-密-é"),
        ("${s:PART}", "2"),
        ("${f:FOLDER/secrets.properties:jaas}", "one-two"),
        # No references.
        ("a${b}$c", "a${b}$c"),
    ],
)
def test_references_stand_for_what_lies_elsewhere(tmp_path: Path, reference: str, value: str) -> None:
    text = "jaas = one\\\n   -two\npassword = Grüße-密-\\u00e9\n"
    (tmp_path / "secrets.properties").write_text(text, encoding="utf-8")
    (tmp_path / "token").write_text("three\n")
    line = f"A.ssl.key.password = {reference.replace('FOLDER', str(tmp_path))}\n"
    config = read(tmp_path, FLOW + PROVIDERS + "config.providers.s.param.x = y\n" + line, environ={"PART": "2"})
    assert config.flows[0].source.properties["ssl.key.password"] == value
    (sentence,) = config.idle
    assert sentence.startswith("config.providers.s.param.x: ignored: ")


def test_references_work_inside_yaml_lists(tmp_path: Path) -> None:
    text = IN_YAML + "    topics: ['${env:TOPIC}', b]\n"
    assert read(tmp_path, text, YAML, {"TOPIC": "orders"}).flows[0].topics == ("orders", "b")


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("${env:NOPE}", "A.ssl.key.password: ${env:NOPE} was not found"),
        ("${file:/no/such/file:key}", "${file:/no/such/file:key} was not found; set it, or write the value itself"),
        ("${dir:/etc:../passwd}", "${dir:/etc:../passwd} was not found"),
        ("${secrets:ns/a:b}", "${secrets:ns/a:b} names no provider that is known here; export the value or mount it"),
        (f"${{A_PASSWORD:-{CANARY}}}", "${A_PASSWORD:…} names no provider that is known here; export the value"),
        (f"${{env:A_PASSWORD:-{CANARY}}}", "${env:A_PASSWORD:- was not found"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(tmp_path: Path, reference: str, words: str) -> None:
    said = refusal(tmp_path, FLOW + f"A.ssl.key.password = {reference}\n", environ={"OTHER": CANARY})
    assert words in said and "mm2.properties:5" in said and CANARY not in said


def test_a_whole_configuration_prints_without_its_secrets(tmp_path: Path) -> None:
    text = FLOW + (
        f"sasl.mechanism = PLAIN\nsasl.jaas.config = {JAAS}\nsecurity.protocol = SASL_PLAINTEXT\n"
        f"A.ssl.key.password = {CANARY} # not a comment\nA.consumer.some.plugin.token = {CANARY}\n"
        f"sasl.jaas.config = {JAAS}\nA->B.consumer.sasl.jaas.config = {JAAS}\nA.admin.sasl.jaas.config = {JAAS} \n"
    )
    config = read(tmp_path, text)
    assert CANARY in config.flows[0].source.properties["sasl.jaas.config"]
    assert CANARY not in repr(config) + "".join(config.warnings)
    assert any("sends the password in clear" in warning for warning in config.warnings)


SASL = "A.security.protocol = SASL_SSL\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(
            (MM2, f"{FLOW}{lines}\n")
            for lines in (
                f"A->B.tasks.max = ${{env:SECRET}}\nx = {CANARY}",
                "A.bootstrap.servers = ${env:SECRET}",
                "state = ok\nsync.group.offsets.interval.ms = ${env:SECRET}",
                f"{SASL}A.sasl.jaas.config = {CANARY}\nA.sasl.mechanism = PLAIN",
                f"{SASL}A.sasl.jaas.config = {JAAS[:-1]}\nA.sasl.mechanism = PLAIN",
                f"{SASL}A.sasl.jaas.config = {JAAS}\nA.sasl.mechanism = SCRAM-SHA-256",
                f"A.ssl.pasword = {CANARY}\nA.ssl.key.pasword = {CANARY}\ntasks.max = many",
                f"A.ssl.key.password = {CANARY}\\u00",
            )
        ),
        # A line of YAML that is broken is not shown.
        *(
            (YAML, f"clusters:\n  A:\n    ssl.key.password: {value}\n")
            for value in (f"*{CANARY}", f"[{CANARY}", f"'{CANARY}", f"&{CANARY} x", f"{{{CANARY}", f"a: {CANARY}")
        ),
    ],
)
def test_no_refusal_repeats_a_secret(tmp_path: Path, name: str, text: str) -> None:
    assert CANARY not in refusal(tmp_path, text, name, {"SECRET": f"*{CANARY}*("})
