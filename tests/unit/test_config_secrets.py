"""References are resolved from where they point to, and no secret shows in an error, a warning or a repr."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.configs import FLOW, IN_YAML, MM2, YAML, read, refusal

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
        ("x${env:PART}y${dir:FOLDER:token}", "x2ythree\n"),
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
        ("${vault:a:b}", "${vault:a:b} names an unknown provider; take ${env:NAME}"),
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
