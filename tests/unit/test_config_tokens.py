"""Logins by token: one set of properties for Python's client and for each Spark's Java client, or a refusal by name."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Dict

import pytest

from mirror_lib.config.client_options import kafka_python_options, spark_kafka_options
from mirror_lib.config.security import MskLogin, OauthLogin, Store, login_risks
from mirror_lib.errors import ConfigError
from mirror_lib.spark.session import refuse_logins
from tests.unit.configs import FLOW, read, refusal

SECRET = "canary-secret-93aa"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
ENDPOINT = "https://login.example.com/oauth2/v2.0/token"
LINE = f'{PACKAGE}.OAuthBearerLoginModule required clientId="me" clientSecret="{SECRET}" scope="a b"'
SERVERS = {"bootstrap.servers": "a:9093", "security.protocol": "SASL_SSL"}
TOKENS = {
    **SERVERS, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
    "sasl.jaas.config": f"{LINE};",
    "sasl.login.callback.handler.class": f"{PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
}  # fmt: skip
OF_4_1 = {
    **SERVERS, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
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
    ("props", "sentence"),
    [
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
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused(props: Dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kafka_python_options(props)
    assert sentence in str(caught.value) and SECRET not in str(caught.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "plain", "scram-sha-512", "GSSAPI", "none"])
def test_login_that_a_listener_could_come_to_is_warned_of(mechanism: str) -> None:
    props = {**SERVERS, "sasl.mechanism": mechanism} if mechanism != "none" else {**SERVERS, "security.protocol": "SSL"}
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


def test_no_secret_is_in_a_repr_a_warning_or_a_refusal(tmp_path: Path) -> None:
    for props in (TOKENS, OF_4_1):
        loaded = read(tmp_path, text_of(props))
        shown = [repr(loaded), repr(login(props)), repr(kafka_python_options(props)), *loaded.warnings]
        assert not [text for text in shown if SECRET in text]
    for key in ("sasl.oauthbearer.token.endpoint.url", "sasl.jaas.config"):
        said = refusal(tmp_path, text_of(without(key)))
        assert "cluster A: " in said and "mm2.properties" in said and SECRET not in said


def test_a_run_on_a_spark_without_such_a_login_is_refused_before_it_starts(tmp_path: Path) -> None:
    flows = read(tmp_path, text_of(TOKENS)).flows
    for spark in ("3.3.1", "3.4.4"):
        with pytest.raises(ConfigError, match="cannot log in with OAUTHBEARER"):
            refuse_logins(spark, flows)
    refuse_logins("4.0.0", flows)
