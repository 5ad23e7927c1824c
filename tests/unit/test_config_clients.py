"""Java client properties become what kafka-python and Spark understand, or are refused before anything connects."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

from mirror_lib.config.client_options import kafka_python_options, spark_kafka_options
from mirror_lib.config.security import KerberosLogin, Store, TlsSettings, login_risks
from mirror_lib.errors import ConfigError
from tests.lab.checkout import ROOT
from tests.unit.configs import FLOW, read, refusal

SERVERS = {"bootstrap.servers": "a:9092, b:9093"}
SSL = {"security.protocol": "SSL"}
KERBEROS = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/x";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\\"q\\\\ ;=";'


def sasl(mechanism: str, jaas: str) -> Dict[str, str]:
    return {**SERVERS, "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


BARE = "org.apache.kafka.common.security.plain.PlainLoginModule required\n  username=u\n  password='p w' ;\n"
KEYTAB = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true\n"
    'keyTab="/etc/mirror.keytab" serviceName="kafka" principal="mirror/host@EXAMPLE.COM";'
)
TICKET = 'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true ticketCache="/tmp/t";'


@pytest.mark.parametrize(
    ("props", "options"),
    [
        (SERVERS, {"bootstrap_servers": ["a:9092", "b:9093"], "security_protocol": "PLAINTEXT"}),
        ({**SERVERS, "client.id": "me", "request.timeout.ms": "7000", "linger.ms": "5"},
            {"client_id": "me", "request_timeout_ms": 7000, "linger_ms": None}),
        ({**SERVERS, "ssl.truststore.location": "/x.jks"}, {"tls": None}),
        # Escapes are undone; a line may span lines and leave quotes out; a name is written as the protocol wants it.
        (sasl("SCRAM-SHA-512", SCRAM), {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "u",
                                        "sasl_plain_password": 'p"q\\ ;='}),
        (sasl("PLAIN", BARE), {"sasl_plain_username": "u", "sasl_plain_password": "p w"}),
        (sasl("SCRAM-SHA-256", SCRAM.replace('username="u"', 'username="a=b,c"')),
            {"sasl_plain_username": "a=3Db=2Cc"}),
        (sasl("GSSAPI", KEYTAB),
            {"sasl_kerberos_name": KerberosLogin("kafka", "mirror/host@EXAMPLE.COM", "/etc/mirror.keytab")}),
        ({**sasl("GSSAPI", TICKET), "sasl.kerberos.service.name": "broker"},
            {"sasl_kerberos_name": KerberosLogin("broker", ticket_cache="/tmp/t")}),
    ],
)  # fmt: skip
def test_properties_become_these_options(props: Dict[str, str], options: Dict[str, Any]) -> None:
    found = kafka_python_options(props)
    assert {name: found.get(name) for name in options} == options


def tls(**props: str) -> TlsSettings:
    named = {f"ssl.{key.replace('__', '.')}": value for key, value in props.items()}
    settings = kafka_python_options({**SERVERS, "security.protocol": "ssl", **named})["tls"]
    assert isinstance(settings, TlsSettings)
    return settings


def test_stores_are_named_and_not_opened_and_no_secret_is_printed() -> None:
    settings = tls(
        truststore__location="/ca.p12", truststore__type="pkcs12", truststore__password="canary",
        keystore__location="/me.jks", keystore__password="canary", key__password="canary-key",
    )
    assert settings.trusted == Store("PKCS12", "/ca.p12", "canary")
    assert settings.own == Store("JKS", "/me.jks", "canary", "canary-key")
    assert "/me.jks" in repr(settings) and "canary" not in repr(settings)
    assert settings.check_hostname and not tls(endpoint__identification__algorithm="").check_hostname
    assert tls().protocols == ("TLSv1.2", "TLSv1.3")
    assert tls(protocol="TLSv1.2").protocols == ("TLSv1.2",)
    assert tls(enabled__protocols="TLSv1.1, TLSv1.3").protocols == ("TLSv1.3",)


def test_pem_text_may_stand_in_place_and_on_one_line_as_kafka_has_it() -> None:
    block = "-----BEGIN CERTIFICATE----- QUJD REVG -----END CERTIFICATE-----"
    key = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nQUJD\n-----END ENCRYPTED PRIVATE KEY-----"
    settings = tls(
        truststore__type="PEM", truststore__certificates=f"{block} {block}", keystore__type="PEM",
        keystore__key=key, keystore__certificate__chain=block, key__password="z",
    )
    rewritten = "-----BEGIN CERTIFICATE-----\nQUJDREVG\n-----END CERTIFICATE-----\n"
    assert settings.trusted == Store("PEM", certificates=rewritten * 2)
    assert settings.own == Store("PEM", key_password="z", certificates=rewritten, key=key + "\n")


def test_suites_are_for_sparks_client_and_a_warning_says_where_to_limit_the_others() -> None:
    props = {**SERVERS, **SSL, "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}
    assert kafka_python_options(props) == kafka_python_options({**SERVERS, **SSL})
    assert spark_kafka_options(props, "4.0.0")["kafka.ssl.cipher.suites"] == "TLS_AES_256_GCM_SHA384"
    (warning,) = login_risks(props)
    assert "Spark's Kafka client alone" in warning and "ssl.cipher.suites of the brokers" in warning


@pytest.mark.parametrize(
    "props, sentence",
    [
        ({"security.protocol": "TLS"}, "security.protocol must be one of"),
        ({**SSL, "ssl.truststore.certificates": "-----"}, "needs ssl.truststore.type = PEM"),
        ({**SSL, "ssl.truststore.certificates": "x", "ssl.truststore.type": "PEM"}, "must hold PEM text"),
        ({**SSL, "ssl.truststore.certificates": "x", "ssl.truststore.location": "/x"}, "exclude each other"),
        ({**SSL, "ssl.keystore.key": "x", "ssl.keystore.type": "PEM"}, "are needed together"),
        (
            {**SSL, "ssl.keystore.location": "/x", "ssl.keystore.type": "PEM", "ssl.keystore.password": "x"},
            "the private key's password is ssl.key.password",
        ),
        ({**SSL, "ssl.protocol": "TLSv1.1"}, "must allow TLSv1.2 or TLSv1.3"),
        ({**SSL, "ssl.engine.factory.class": "com.example.Mine"}, "names a Java class"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "EXTERNAL"}, "EXTERNAL cannot be used here"),
        (sasl("GSSAPI", f"KafkaClient {{ {KERBEROS} }};"), "leave out KafkaClient and the braces"),
        (sasl("GSSAPI", KERBEROS), "GSSAPI has no service name"),
        ({**sasl("GSSAPI", KERBEROS), "sasl.kerberos.service.name": "kafka"}, "has a keyTab and no principal"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "PLAIN needs sasl.jaas.config"),
        (sasl("PLAIN", SCRAM), "needs PlainLoginModule"),
        (sasl("SCRAM-SHA-256", SCRAM.replace("password", "pass")), "sasl.jaas.config cannot be read"),
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
    assert spark_kafka_options({**props, "group.id": "g", "value.deserializer": "y"}, "4.0.0") == {
        "kafka.bootstrap.servers": "a:9092, b:9093",
        "kafka.sasl.jaas.config": "x",
        "kafka.isolation.level": "read_committed",
    }


EXAMPLE = ROOT / "conf" / "examples" / "mm1" / "hortonworks" / "kerberos"


def test_the_jaas_file_of_kafkas_scripts_serves_every_cluster_without_a_line(tmp_path: Path) -> None:
    sasl = "A.security.protocol = SASL_PLAINTEXT\nB.security.protocol = SASL_PLAINTEXT\n"
    own = f"B.sasl.jaas.config = {KERBEROS[:-1]} serviceName=kafka principal=own;\n"
    environ = {"KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={EXAMPLE}/kafka_mirrormaker_jaas.conf"}
    (flow,) = read(tmp_path, FLOW + sasl + own, environ=environ).flows
    logins = [kafka_python_options(cluster.properties)["sasl_kerberos_name"] for cluster in (flow.source, flow.target)]
    assert logins == [
        KerberosLogin("kafka", "mirrormaker/HOSTNAME@EXAMPLE.COM", "/tmp/mirrormaker.keytab"),
        KerberosLogin("kafka", "own", "/x"),
    ]
    assert "mirrormaker.keytab" in spark_kafka_options(flow.source.properties, "4.0.0")["kafka.sasl.jaas.config"]
    assert "sasl.jaas.config" not in read(tmp_path, FLOW, environ=environ).flows[0].source.properties
    absent = {"KAFKA_OPTS": "-Djava.security.auth.login.config=/no/such.conf"}
    assert "the JAAS file cannot be read" in refusal(tmp_path, FLOW + sasl, environ=absent)


def test_a_jaas_file_may_have_comments_as_java_takes_them(tmp_path: Path) -> None:
    login = tmp_path / "jaas.conf"
    login.write_text(
        "// Who logs in.\n# \"mirror\"\n/* not: Client { x.Y required; };\n */\nKafkaClient {\n"
        "  org.apache.kafka.common.security.plain.PlainLoginModule required // no other\n"
        '  # the user\n  username="a//b" /* its */\n  password="p /* # */ \\"q";\n};\n// The end.\n'
    )
    text = FLOW + "security.protocol = SASL_SSL\nsasl.mechanism = PLAIN\n"
    (flow,) = read(tmp_path, text, environ={"KAFKA_OPTS": f"-Djava.security.auth.login.config={login}"}).flows
    options = kafka_python_options(flow.source.properties)
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("a//b", 'p /* # */ "q')
