"""Java client properties, logins by token among them, become what kafka-python and each Spark's Java client understand,
or are refused before anything connects; and which failures to connect are a refusal."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path
from typing import Any, Dict, Optional

import pytest
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError

from mirror_lib.config.client_options import kafka_python_options, spark_kafka_options
from mirror_lib.config.security import KerberosLogin, MskLogin, OauthLogin, Store, TlsSettings, login_risks
from mirror_lib.errors import ConfigError
from mirror_lib.kafka import security
from mirror_lib.kafka.security import LoginRefused
from mirror_lib.kafka.wire import ScramMechanism
from mirror_lib.spark.session import refuse_logins
from tests.lab.checkout import ROOT
from tests.unit.configs import FLOW, read, refusal

SERVERS = {"bootstrap.servers": "a:9092, b:9093"}
SSL, SASL_SSL = {"security.protocol": "SSL"}, {"security.protocol": "SASL_SSL"}
KERBEROS = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/x";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\\"q\\\\ ;=";'


def sasl(mechanism: str, jaas: str) -> Dict[str, str]:
    return {**SERVERS, **SASL_SSL, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


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
        ({**SERVERS, "connections.max.idle.ms": "-1"}, {"connections_max_idle_ms": None}),
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


SECRET = "canary-secret-93aa"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
ENDPOINT = "https://login.example.com/oauth2/v2.0/token"
LINE = f'{PACKAGE}.OAuthBearerLoginModule required clientId="me" clientSecret="{SECRET}" scope="a b"'
TOKENS = {
    **SERVERS, **SASL_SSL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
    "sasl.jaas.config": f"{LINE};",
    "sasl.login.callback.handler.class": f"{PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
}  # fmt: skip
OF_4_1 = {
    **SERVERS, **SASL_SSL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": SECRET,
    "sasl.oauthbearer.scope": "a b",
}  # fmt: skip
MSK = {
    "bootstrap.servers": "b-1.demo.x1.c2.kafka.eu-central-1.amazonaws.com:9098", "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
}  # fmt: skip


def login(props: Dict[str, str]) -> OauthLogin:
    options = kafka_python_options(props)
    assert options["sasl_mechanism"] == "OAUTHBEARER"
    provider = options["sasl_oauth_token_provider"]
    assert isinstance(provider, OauthLogin)
    return provider


def without(key: str) -> Dict[str, str]:
    return {name: value for name, value in TOKENS.items() if name != key}


@pytest.mark.parametrize("props", [TOKENS, OF_4_1, without("sasl.login.callback.handler.class")])
def test_client_credentials_are_read_from_the_line_and_from_kafka_4_1_s_properties(props: Dict[str, str]) -> None:
    found = login(props)
    assert (found.endpoint, found.client_id, found.client_secret, found.scope) == (ENDPOINT, "me", SECRET, "a b")
    assert found.tls is not None and found.tls.trusted is None
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_property_beats_the_line_and_a_line_for_java_is_read_back_as_it_was_meant() -> None:
    both = {**TOKENS, "sasl.oauthbearer.client.credentials.client.id": "other"}
    assert login(both).client_id == "other"
    assert 'clientId="other"' in spark_kafka_options(both, "4.0.0")["kafka.sasl.jaas.config"]
    props = {**OF_4_1, "sasl.oauthbearer.client.credentials.client.secret": 'p"q\\ ;='}
    line = spark_kafka_options(props, "4.0.0")["kafka.sasl.jaas.config"]
    assert login({**TOKENS, "sasl.jaas.config": line}).client_secret == 'p"q\\ ;='


def test_extensions_stores_and_timeouts_of_the_endpoint() -> None:
    more = ' extension_logicalCluster="lkc-1" extension_identityPoolId="pool-1" ssl.truststore.type=PEM ' \
           'ssl.truststore.location="/etc/issuer.pem";'  # fmt: skip
    props = {**TOKENS, "sasl.jaas.config": LINE + more, "sasl.login.read.timeout.ms": "2500",
             "ssl.truststore.location": "/etc/broker.jks"}  # fmt: skip
    found = login(props)
    assert found.extensions == (("logicalCluster", "lkc-1"), ("identityPoolId", "pool-1"))
    assert found.tls is not None and found.tls.trusted == Store("PEM", "/etc/issuer.pem")
    assert found.timeout_seconds == 2.5


@pytest.mark.parametrize("spark", ["3.5.0", "4.0.0"])
@pytest.mark.parametrize("props", [TOKENS, OF_4_1])
def test_spark_gets_the_handler_that_its_kafka_client_has(spark: str, props: Dict[str, str]) -> None:
    options = spark_kafka_options(props, spark)
    assert options["kafka.sasl.login.callback.handler.class"] == f"{PACKAGE}.OAuthBearerLoginCallbackHandler"
    assert options["kafka.sasl.jaas.config"].startswith(f'{PACKAGE}.OAuthBearerLoginModule required clientId="me" ')
    assert not [key for key in options if "client.credentials" in key or key.endswith("oauthbearer.scope")]


def test_msk_takes_an_iam_login_as_a_token() -> None:
    line = MSK["sasl.jaas.config"].replace(";", ' awsRoleArn="arn:aws:iam::1:role/m" awsRoleSessionName="s";')
    for props, expected in (
        (MSK, MskLogin("eu-central-1")),
        ({**MSK, "bootstrap.servers": "kafka.example.com:9098"}, MskLogin(None)),
        ({**MSK, "bootstrap.servers": "b.c1.kafka-serverless.us-east-1.amazonaws.com:9098"}, MskLogin("us-east-1")),
        ({**MSK, "sasl.jaas.config": line}, MskLogin("eu-central-1", None, "arn:aws:iam::1:role/m", "s")),
    ):
        options = kafka_python_options(props)
        assert (options["sasl_mechanism"], options["sasl_oauth_token_provider"]) == ("OAUTHBEARER", expected)
    java = spark_kafka_options(MSK, "3.3.1")
    assert java["kafka.sasl.mechanism"] == "AWS_MSK_IAM"
    assert java["kafka.sasl.client.callback.handler.class"] == "software.amazon.msk.auth.iam.IAMClientCallbackHandler"


@pytest.mark.parametrize(
    "props, sentence",
    [
        ({"security.protocol": "TLS"}, "security.protocol must be one of"),
        ({**SSL, "ssl.truststore.certificates": "-----"}, "needs ssl.truststore.type = PEM"),
        ({**SSL, "ssl.truststore.certificates": "x", "ssl.truststore.type": "PEM"}, "must hold PEM text"),
        ({**SSL, "ssl.truststore.certificates": "x", "ssl.truststore.location": "/x"}, "exclude each other"),
        ({**SSL, "ssl.keystore.key": "x", "ssl.keystore.type": "PEM"}, "are needed together"),
        ({**SSL, "ssl.keystore.location": "/x", "ssl.keystore.type": "PEM", "ssl.keystore.password": "x"},
            "the private key's password is ssl.key.password"),
        ({**SSL, "ssl.protocol": "TLSv1.1"}, "must allow TLSv1.2 or TLSv1.3"),
        ({**SSL, "ssl.engine.factory.class": "com.example.Mine"}, "names a Java class"),
        ({**SASL_SSL, "sasl.mechanism": "EXTERNAL"}, "EXTERNAL cannot be used here"),
        (sasl("GSSAPI", f"KafkaClient {{ {KERBEROS} }};"), "leave out KafkaClient and the braces"),
        (sasl("GSSAPI", KERBEROS), "GSSAPI has no service name"),
        ({**sasl("GSSAPI", KERBEROS), "sasl.kerberos.service.name": "kafka"}, "has a keyTab and no principal"),
        ({**SASL_SSL, "sasl.mechanism": "PLAIN"}, "PLAIN needs sasl.jaas.config"),
        (sasl("PLAIN", SCRAM), "needs PlainLoginModule"),
        (sasl("SCRAM-SHA-256", SCRAM.replace("password", "pass")), "sasl.jaas.config cannot be read"),
        (sasl("SCRAM-SHA-256", SCRAM.replace(' username="u"', ' username="u" tokenauth="true"')), "delegation tokens"),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms must be a whole number"),
        (without("sasl.oauthbearer.token.endpoint.url"), "needs sasl.oauthbearer.token.endpoint.url = https://"),
        ({**TOKENS, "sasl.oauthbearer.token.endpoint.url": "file:///token"}, "tokens in files cannot be used here"),
        ({**TOKENS, "sasl.oauthbearer.token.endpoint.url": f"https://u:{SECRET}@x/t"}, "must not contain a user"),
        (without("sasl.jaas.config"), "OAUTHBEARER needs sasl.jaas.config"),
        ({**TOKENS, "sasl.jaas.config": LINE.replace("clientSecret", "s") + ";"}, "needs clientId and clientSecret"),
        ({**TOKENS, "sasl.jaas.config": f'{LINE} extension_auth="x";'}, "a SASL extension has a name of a-z and A-Z"),
        ({**TOKENS, "sasl.login.callback.handler.class": "io.strimzi.kafka.oauth.client.JaasClientOauthLogin"
                                                         "CallbackHandler"}, "names a Java class"),
        ({**TOKENS, "sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}.JwtBearerJwtRetriever"}, "names a grant"),
        ({**TOKENS, "sasl.login.connect.timeout.ms": "soon"}, "must be whole numbers of milliseconds"),
        ({**MSK, "security.protocol": "SASL_PLAINTEXT"}, "AWS_MSK_IAM needs security.protocol = SASL_SSL"),
        ({**MSK, "sasl.jaas.config": f"{LINE};"}, "which needs IAMLoginModule"),
        ({**MSK, "sasl.jaas.config": MSK["sasl.jaas.config"].replace(";", ' awsRoleExternalId="x";')},
            "awsRoleExternalId in sasl.jaas.config is not read here"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused(props: Dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kafka_python_options({**SERVERS, **props})
    assert sentence in str(caught.value) and SECRET not in str(caught.value)


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


@pytest.mark.parametrize("mechanism", ["PLAIN", "plain", "scram-sha-512", "GSSAPI", "none"])
def test_login_that_a_listener_could_come_to_is_warned_of(mechanism: str) -> None:
    props = {**SERVERS, **SASL_SSL, "sasl.mechanism": mechanism} if mechanism != "none" else {**SERVERS, **SSL}
    assert not [*login_risks(props)]
    assert not [*login_risks({**props, "ssl.endpoint.identification.algorithm": "HTTPS"})]
    assert [*login_risks({**props, "ssl.endpoint.identification.algorithm": " "})]
    if mechanism != "none":  # Kerberos's tickets give a listener no password
        assert bool([*login_risks({**props, "security.protocol": "sasl_plaintext"})]) is (mechanism != "GSSAPI")


def test_token_that_a_listener_could_come_to_is_warned_of() -> None:
    assert not [*login_risks(TOKENS)]
    assert [*login_risks({**TOKENS, "security.protocol": "SASL_PLAINTEXT"})]
    assert [*login_risks({**TOKENS, "sasl.oauthbearer.token.endpoint.url": "http://x/token"})]


def text_of(props: Dict[str, str]) -> str:
    return FLOW + "".join(f"A.{key} = {value}\n" for key, value in props.items())


def test_no_secret_is_in_a_repr_or_a_warning(tmp_path: Path) -> None:
    for props in (TOKENS, OF_4_1):
        loaded = read(tmp_path, text_of(props))
        shown = [repr(loaded), repr(login(props)), repr(kafka_python_options(props)), *loaded.warnings]
        assert not [text for text in shown if SECRET in text]


def test_a_run_on_a_spark_without_such_a_login_is_refused_before_it_starts(tmp_path: Path) -> None:
    flows = read(tmp_path, text_of(TOKENS)).flows
    for spark in ("3.3.1", "3.4.4"):
        with pytest.raises(ConfigError, match="cannot log in with OAUTHBEARER"):
            refuse_logins(spark, flows)
    refuse_logins("4.0.0", flows)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (KafkaConnectionError("socket disconnected"), None),
        (KafkaConnectionError(ConnectionResetError(104, "Connection reset by peer")), None),
        (KafkaConnectionError(ssl.SSLEOFError(8, "EOF occurred in violation of protocol")), None),
        (KafkaConnectionError(ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF)")), None),
        (SaslAuthenticationFailedError("SaslAuthenticationFailedError: Invalid username or password"),
         "the broker refused the login: Invalid username or password"),
        (UnsupportedSaslMechanismError(), "the broker does not take this sasl.mechanism"),
        (KafkaConnectionError(ssl.SSLError(1, "[SSL] unsupported protocol")), "no TLS connection: no reason given"),
    ],
)  # fmt: skip
def test_refusal_has_the_brokers_message_and_a_connection_that_breaks_is_none(
    error: Exception, sentence: Optional[str]
) -> None:
    assert security.refusal(error) == sentence


def scram(server_first: str) -> ScramMechanism:
    """A login up to what the server says first; `N` stands for the client's nonce."""
    mechanism = ScramMechanism(
        sasl_plain_username="mirror", sasl_plain_password="canary", sasl_mechanism="SCRAM-SHA-256"
    )
    nonce = mechanism.auth_bytes().decode().rpartition("r=")[2]
    mechanism.receive(server_first.replace("N", nonce).encode())
    return mechanism


@pytest.mark.parametrize("iterations", [0, 1, 4095])
def test_server_that_asks_for_few_iterations_of_scram_gets_no_proof(iterations: int) -> None:
    with pytest.raises(LoginRefused) as caught:
        scram(f"r=N1,s=c2FsdA==,i={iterations}")
    reported = security.refusal(caught.value) or ""
    assert f"asks for {iterations} iterations" in reported and "canary" not in reported
    assert b",p=" in scram("r=N1,s=c2FsdA==,i=4096").auth_bytes()
