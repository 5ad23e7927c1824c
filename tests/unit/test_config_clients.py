"""Java client properties become what kafka-python and Spark understand, or are refused before anything connects."""

from __future__ import annotations

from typing import Dict

import pytest
from kafka import KafkaAdminClient
from kafka.net.manager import KafkaConnectionManager

from mirror_lib.config.clients import kafka_python_options, spark_kafka_options
from mirror_lib.errors import ConfigError

SERVERS = {"bootstrap.servers": "a:9092, b:9093"}
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\\"q\\\\ ;=";'


def sasl(mechanism: str, jaas: str) -> Dict[str, str]:
    return {**SERVERS, "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def test_plaintext_needs_servers_only() -> None:
    assert kafka_python_options(SERVERS) == {
        "bootstrap_servers": ["a:9092", "b:9093"],
        "security_protocol": "PLAINTEXT",
    }


def test_kafka_pythons_clients_know_every_option() -> None:
    jaas = sasl("SCRAM-SHA-512", SCRAM)
    stores = {f"ssl.{s}store.{k}": v for s in ("trust", "key") for k, v in (("type", "PEM"), ("location", "/x.pem"))}
    waits = ("request.timeout.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "metadata.max.age.ms")
    every = {**jaas, **stores, "ssl.key.password": "x", "client.id": "me", **dict.fromkeys(waits, "1")}
    kerberos = {**SERVERS, "security.protocol": "SASL_SSL", "connections.max.idle.ms": "1"}
    for props in (every, kerberos):
        assert set(kafka_python_options(props)) <= set(KafkaAdminClient.DEFAULT_CONFIG)
        assert set(kafka_python_options(props)) <= set(KafkaConnectionManager.DEFAULT_CONFIG)


def test_timeouts_and_client_id_are_passed_on_as_numbers_and_text() -> None:
    options = kafka_python_options({**SERVERS, "client.id": "me", "request.timeout.ms": "7000", "linger.ms": "5"})
    assert (options["client_id"], options["request_timeout_ms"]) == ("me", 7000)
    assert "linger_ms" not in options


def test_a_scram_line_gives_user_and_password_with_escapes_undone() -> None:
    options = kafka_python_options(sasl("SCRAM-SHA-512", SCRAM))
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("u", 'p"q\\ ;=')


def test_a_plain_line_may_span_lines_and_leave_quotes_out() -> None:
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required\n  username=u\n  password='p w' ;\n"
    options = kafka_python_options(sasl("PLAIN", jaas))
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("u", "p w")


def test_pem_stores_become_files() -> None:
    options = kafka_python_options({
        **SERVERS, "security.protocol": "ssl", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.type": "PEM", "ssl.keystore.location": "/me.pem", "ssl.key.password": "x",
        "ssl.endpoint.identification.algorithm": "",
    })
    assert options == {
        "bootstrap_servers": ["a:9092", "b:9093"], "security_protocol": "SSL", "ssl_check_hostname": False,
        "ssl_cafile": "/ca.pem", "ssl_certfile": "/me.pem", "ssl_keyfile": "/me.pem", "ssl_password": "x",
    }


def test_host_names_are_checked_unless_switched_off() -> None:
    assert kafka_python_options({**SERVERS, "security.protocol": "SSL"})["ssl_check_hostname"] is True


def test_stores_are_not_looked_at_where_nothing_is_encrypted() -> None:
    assert "ssl_cafile" not in kafka_python_options({**SERVERS, "ssl.truststore.location": "/x.jks"})


def test_kerberos_takes_its_service_name_from_either_place() -> None:
    props = {**SERVERS, "security.protocol": "SASL_PLAINTEXT"}
    jaas = 'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true serviceName="broker";'
    assert kafka_python_options(props)["sasl_kerberos_service_name"] == "kafka"
    assert kafka_python_options({**props, "sasl.jaas.config": jaas})["sasl_kerberos_service_name"] == "broker"


@pytest.mark.parametrize(
    "props, sentence",
    [
        ({"security.protocol": "TLS"}, "security.protocol must be one of"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/x"}, "is a JKS store, which cannot be read"),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "/x", "ssl.keystore.type": "PKCS12"},
            "set ssl.keystore.type = PEM",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "-----"}, "put the PEM text into a file"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "others cannot be used yet"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "PLAIN needs sasl.jaas.config"),
        (sasl("PLAIN", SCRAM), "needs PlainLoginModule"),
        (sasl("SCRAM-SHA-256", SCRAM.replace("password", "pass")), "sasl.jaas.config cannot be read"),
        (sasl("SCRAM-SHA-256", SCRAM[:-1]), "sasl.jaas.config cannot be read"),
        (sasl("SCRAM-SHA-256", SCRAM.replace(' username="u"', ' username="u" tokenauth="true"')), "delegation tokens"),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms must be a whole number"),
    ],
)
def test_what_cannot_be_honoured_is_refused(props: Dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kafka_python_options({**SERVERS, **props})
    assert sentence in str(caught.value)


def test_spark_gets_every_property_but_those_it_sets_itself() -> None:
    props = {**SERVERS, "sasl.jaas.config": "x", "isolation.level": "read_committed", "auto.offset.reset": "latest"}
    assert spark_kafka_options({**props, "group.id": "g", "value.deserializer": "y"}) == {
        "kafka.bootstrap.servers": "a:9092, b:9093",
        "kafka.sasl.jaas.config": "x",
        "kafka.isolation.level": "read_committed",
    }
