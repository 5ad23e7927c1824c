"""References are resolved from where they point to, and no secret shows in an error, a warning or a repr."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror_lib.config.loader import load
from mirror_lib.errors import ConfigError

CANARY = "hunter2-canary"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{CANARY}";'
FLOW = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"


def write(folder: Path, text: str, name: str = "mm2.properties") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_references_stand_for_what_lies_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, "jaas = one\\\n   -two\n", "secrets.properties")
    write(tmp_path, "three\n", "token")
    path = write(tmp_path, FLOW + (
        f"A.ssl.key.password = ${{file:{tmp_path}/secrets.properties:jaas}}\n"
        f"B.ssl.key.password = x${{env:PART}}y${{dir:{tmp_path}:token}}\n"
        "A->B.tasks.max = ${env::LANES}\n"
    ))
    (flow,) = load(path, {"PART": "2", "LANES": "3"}).flows
    assert flow.source.properties["ssl.key.password"] == "one-two"
    assert flow.target.properties["ssl.key.password"] == "x2ythree\n"
    assert flow.tasks_max == 3


def test_a_file_that_is_referred_to_is_utf8_as_for_kafka(tmp_path: Path) -> None:
    write(tmp_path, "password = Grüße-密-\\u00e9\n", "secrets.properties")
    path = write(tmp_path, FLOW + f"A.ssl.key.password = ${{file:{tmp_path}/secrets.properties:password}}\n")
    assert load(path, {}).flows[0].source.properties["ssl.key.password"] == "Grüße-密-é"


def test_references_work_inside_yaml_lists(tmp_path: Path) -> None:
    text = "clusters:\n  A: {bootstrap.servers: 'a:1'}\n  B: {bootstrap.servers: 'b:1'}\nflows:\n  A->B:\n"
    path = write(tmp_path, text + "    topics: ['${env:TOPIC}', b]\n", "mirror.yaml")
    assert load(path, {"TOPIC": "orders"}).flows[0].topics == ("orders", "b")


def test_a_provider_may_have_another_name(tmp_path: Path) -> None:
    path = write(tmp_path, FLOW + (
        "config.providers = s\n"
        "config.providers.s.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "A.client.id = ${s:ID}\n"
    ))
    assert load(path, {"ID": "me"}).flows[0].source.properties["client.id"] == "me"


@pytest.mark.parametrize(
    "reference, sentence",
    [
        ("${env:NOPE}", "A.ssl.key.password: ${env:NOPE} was not found"),
        ("${file:/no/such/file:key}", "${file:/no/such/file:key} was not found"),
        ("${dir:/etc:../passwd}", "${dir:/etc:../passwd} was not found"),
        ("${vault:a:b}", "${vault:a:b} names an unknown provider; take ${env:NAME}"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(tmp_path: Path, reference: str, sentence: str) -> None:
    path = write(tmp_path, FLOW + f"A.ssl.key.password = {reference}\n")
    with pytest.raises(ConfigError) as caught:
        load(path, {"OTHER": CANARY})
    assert sentence in str(caught.value)
    assert f"{path}:5" in str(caught.value)
    assert CANARY not in str(caught.value)


def test_a_dollar_that_is_no_reference_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path, FLOW + "A.ssl.key.password = a${b}$c\n")
    assert load(path, {}).flows[0].source.properties["ssl.key.password"] == "a${b}$c"


def test_a_whole_configuration_prints_without_its_secrets(tmp_path: Path) -> None:
    path = write(tmp_path, FLOW + (
        f"sasl.mechanism = PLAIN\nsasl.jaas.config = {JAAS}\nsecurity.protocol = SASL_PLAINTEXT\n"
        f"A.ssl.key.password = {CANARY} # not a comment\nA.consumer.some.plugin.token = {CANARY}\n"
        f"sasl.jaas.config = {JAAS}\nA->B.consumer.sasl.jaas.config = {JAAS}\nA.admin.sasl.jaas.config = {JAAS} \n"
    ))
    config = load(path, {})
    assert CANARY in config.flows[0].source.properties["sasl.jaas.config"]
    assert CANARY not in repr(config)
    assert CANARY not in "".join(config.warnings)
    assert any("sends the password in clear" in warning for warning in config.warnings)


@pytest.mark.parametrize(
    "line",
    [
        f"A->B.tasks.max = ${{env:SECRET}}\nx = {CANARY}",
        "A->B.tasks.max = ${env:SECRET}",
        "A->B.topics = ${env:SECRET}",
        "A.bootstrap.servers = ${env:SECRET}",
        "trigger = ${env:SECRET}",
        "state = ok\nsync.group.offsets.interval.ms = ${env:SECRET}",
        f"A.sasl.jaas.config = {CANARY}\nA.sasl.mechanism = PLAIN\nA.security.protocol = SASL_SSL",
        f"A.sasl.jaas.config = {JAAS[:-1]}\nA.sasl.mechanism = PLAIN\nA.security.protocol = SASL_SSL",
        f"A.sasl.jaas.config = {JAAS}\nA.sasl.mechanism = SCRAM-SHA-256\nA.security.protocol = SASL_SSL",
        f"A.ssl.pasword = {CANARY}\nA.ssl.key.pasword = {CANARY}\ntasks.max = many",
        f"A.ssl.key.password = {CANARY}\\u00",
    ],
)
def test_no_refusal_repeats_a_secret(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, FLOW + line + "\n")
    with pytest.raises(ConfigError) as caught:
        load(path, {"SECRET": f"*{CANARY}*("})
    assert CANARY not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize(
    "value", [f"*{CANARY}", f"[{CANARY}", f"'{CANARY}", f"&{CANARY} x", f"{{{CANARY}", f"a: {CANARY}"]
)
def test_broken_yaml_does_not_show_the_line_that_is_broken(tmp_path: Path, value: str) -> None:
    path = write(tmp_path, f"clusters:\n  A:\n    ssl.key.password: {value}\n", "mirror.yaml")
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert CANARY not in str(caught.value)
