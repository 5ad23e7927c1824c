"""Logins by token: OAUTHBEARER with client credentials, and AWS_MSK_IAM.

Turns `sasl.*` properties into a frozen login for `log.tokens` and into the properties of Spark's Kafka client.
Pure. Errors repeat no value that may be secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from mirror_lib.config.jaas import login_line
from mirror_lib.config.security import TlsSettings, tls_settings
from mirror_lib.errors import ConfigError

OAUTHBEARER, MSK_IAM = "OAUTHBEARER", "AWS_MSK_IAM"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_HANDLER = "sasl.login.callback.handler.class"
_JAAS = "sasl.jaas.config"
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_EXAMPLE = f'{_MODULE} required clientId="…" clientSecret="…" scope="…";'
# The options of the login line, and the properties of Kafka 4.1 that mean the same. The property wins, as in Java.
_CREDENTIALS = {
    "clientId": "sasl.oauthbearer.client.credentials.client.id",
    "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_RETRIEVERS = ("ClientCredentialsJwtRetriever", "DefaultJwtRetriever")
_TIMEOUTS = ("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms")
DEFAULT_TIMEOUT_SECONDS = 10.0
_EXTENSION = "extension_"
_EXTENSION_NAME, _EXTENSION_VALUE = re.compile(r"[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
# Spark 3.3 brings Kafka's client 2.8, which has no login with client credentials; Spark 3.4 brings 3.3, which has it
# under its first name.
_FIRST_SPARK, _SPARK_WITH_NEW_NAME = (3, 4), (3, 5)


@dataclass(frozen=True)
class OauthLogin:
    """Client credentials for a token endpoint. `extensions` go to the broker with each token.

    `tls` is for the connection to the endpoint, `None` where its address is `http:`.
    """

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: Optional[str] = None
    extensions: Tuple[Tuple[str, str], ...] = field(default=(), repr=False)
    tls: Optional[TlsSettings] = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    encodes_header: bool = False


@dataclass(frozen=True)
class MskLogin:
    """An IAM login to Amazon MSK. Without `profile` and `role` AWS's default credential chain applies.

    `region` is `None` where the names of the brokers do not contain it.
    """

    region: Optional[str]
    profile: Optional[str] = None
    role: Optional[str] = None
    session: Optional[str] = None


TokenLogin = Union[OauthLogin, MskLogin]


def mechanism_of(props: Mapping[str, str]) -> str:
    """`sasl.mechanism`, in capitals; Kafka's default is GSSAPI."""
    return props.get("sasl.mechanism", "GSSAPI").strip().upper()


def logs_in_by_token(props: Mapping[str, str]) -> bool:
    """Whether these properties describe a login by token."""
    with_sasl = props.get("security.protocol", "").upper().startswith("SASL")
    return with_sasl and mechanism_of(props) in (OAUTHBEARER, MSK_IAM)


def token_options(props: Mapping[str, str]) -> Dict[str, object]:
    """kafka-python's SASL arguments; the provider is a `TokenLogin`, which can be pickled.

    MSK takes the token of an IAM login under the mechanism OAUTHBEARER. Raises `ConfigError`.
    """
    login = _oauth_login(props) if mechanism_of(props) == OAUTHBEARER else _msk_login(props)
    return {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": login}


def java_properties(props: Mapping[str, str], spark_version: str) -> Dict[str, str]:
    """The same properties for the Kafka client of this Spark version.

    That client may be older than the properties: credentials move into the login line, and the callback handler gets
    the name that this client knows. Raises `ConfigError` where the client has no such login.
    """
    if mechanism_of(props) == MSK_IAM:
        handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
        return {"sasl.client.callback.handler.class": handler, **props}
    release = tuple(int(part) for part in spark_version.split(".")[:2])
    if release < _FIRST_SPARK:
        raise ConfigError(
            f"the Kafka client of Spark {spark_version} cannot log in with OAUTHBEARER and client credentials; nothing "
            "was read or written",
            "use Spark 3.4 or newer, or another sasl.mechanism for this cluster",
        )
    module, options = _line(props)
    credentials = {name: value for name, value in _credentials(props, options).items() if value is not None}
    line = " ".join(f'{name}="{_escaped(value)}"' for name, value in {**options, **credentials}.items())
    package = module.rpartition(".")[0] + (".secured" if release < _SPARK_WITH_NEW_NAME else "")
    kept = {key: value for key, value in props.items() if key not in _CREDENTIALS.values()}
    return {**kept, _JAAS: f"{module} required {line};", _HANDLER: f"{package}.OAuthBearerLoginCallbackHandler"}


def sends_token_in_clear(props: Mapping[str, str]) -> bool:
    """Whether these properties send a client secret or a token over a connection that is not encrypted."""
    endpoint = props.get(ENDPOINT, "").strip().lower() if mechanism_of(props) == OAUTHBEARER else ""
    in_clear = props.get("security.protocol", "").upper() == "SASL_PLAINTEXT" or endpoint.startswith("http:")
    return logs_in_by_token(props) and in_clear


def _oauth_login(props: Mapping[str, str]) -> OauthLogin:
    _check_classes(props)
    _, options = _line(props)
    credentials = _credentials(props, options)
    client_id, secret = credentials["clientId"], credentials["clientSecret"]
    if not client_id or not secret:
        raise ConfigError(f"OAUTHBEARER needs clientId and clientSecret in {_JAAS}: {_EXAMPLE}")
    endpoint = _endpoint(props)
    stores = {key: value for key, value in options.items() if key.startswith("ssl.")}
    return OauthLogin(
        endpoint=endpoint,
        client_id=client_id,
        client_secret=secret,
        scope=credentials["scope"] or None,
        extensions=_extensions(options),
        # As in Java, the endpoint has stores of its own, named in the login line: it often has a public certificate.
        tls=tls_settings(stores) if urlsplit(endpoint).scheme.lower() == "https" else None,
        timeout_seconds=_timeout(props),
        encodes_header=props.get("sasl.oauthbearer.header.urlencode", "").strip().lower() == "true",
    )


def _line(props: Mapping[str, str]) -> Tuple[str, Mapping[str, str]]:
    """The class and the options of the login line. Kafka 4.1's properties need no line."""
    jaas = props.get(_JAAS) or None
    if jaas is None and all(props.get(_CREDENTIALS[name]) for name in ("clientId", "clientSecret")):
        return _MODULE, {}
    return login_line(jaas, OAUTHBEARER, _MODULE.rpartition(".")[2], _EXAMPLE)


def _credentials(props: Mapping[str, str], options: Mapping[str, str]) -> Dict[str, Optional[str]]:
    return {name: props.get(key) or options.get(name) for name, key in _CREDENTIALS.items()}


def _check_classes(props: Mapping[str, str]) -> None:
    handler = props.get(_HANDLER, "").strip()
    if handler and not re.fullmatch(r"(?:\w+\.)*OAuthBearerLoginCallbackHandler", handler):
        raise ConfigError(
            f"{_HANDLER} names a Java class that the Python side cannot use",
            f"leave it out and set {ENDPOINT}; for Amazon MSK set sasl.mechanism = {MSK_IAM}",
        )
    retriever = props.get(_RETRIEVER, "").strip()
    if retriever and retriever.rpartition(".")[2] not in _RETRIEVERS:
        raise ConfigError(
            f"{_RETRIEVER} names a grant other than client credentials, which cannot be used here",
            "leave it out and give a client id and a client secret",
        )


def _endpoint(props: Mapping[str, str]) -> str:
    endpoint = props.get(ENDPOINT, "").strip()
    parts = urlsplit(endpoint)
    if parts.scheme.lower() not in ("https", "http") or not parts.hostname:
        raise ConfigError(
            f"OAUTHBEARER needs {ENDPOINT} = https://…; unsecured tokens and tokens in files cannot be used here"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{ENDPOINT} must not contain a user or password")
    return endpoint


def _extensions(options: Mapping[str, str]) -> Tuple[Tuple[str, str], ...]:
    """What the broker is told with the token, such as Confluent Cloud's logicalCluster. Java's rules for names."""
    found = {key[len(_EXTENSION) :]: value for key, value in options.items() if key.startswith(_EXTENSION)}
    for name, value in found.items():
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
            raise ConfigError(
                f"{_JAAS}: a SASL extension has a name of letters other than 'auth' and a printable value; "
                f"{_EXTENSION}{name[:40]} does not"
            )
    return tuple(found.items())


def _timeout(props: Mapping[str, str]) -> float:
    """Java has two timeouts. The longer one limits each step of a request."""
    given = [props[key].strip() for key in _TIMEOUTS if props.get(key, "").strip()]
    if not all(re.fullmatch(r"[1-9]\d{0,8}", each) for each in given):
        raise ConfigError(f"{' and '.join(_TIMEOUTS)} must be whole numbers of milliseconds above 0")
    return max(int(each) for each in given) / 1000 if given else DEFAULT_TIMEOUT_SECONDS


def _msk_login(props: Mapping[str, str]) -> MskLogin:
    if props.get("security.protocol", "").upper() != "SASL_SSL":
        raise ConfigError(f"{MSK_IAM} needs security.protocol = SASL_SSL")
    options = login_line(
        props.get(_JAAS), MSK_IAM, "IAMLoginModule", "software.amazon.msk.auth.iam.IAMLoginModule required;"
    )[1]
    found = _REGION.search(props.get("bootstrap.servers", ""))
    return MskLogin(
        region=found.group(1) if found else None,
        profile=options.get("awsProfileName"),
        role=options.get("awsRoleArn"),
        session=options.get("awsRoleSessionName"),
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
