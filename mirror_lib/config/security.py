"""Reads Java's `ssl.*` and `sasl.*` properties into frozen login settings, for Python and for Spark's Kafka client.

TLS stores, JAAS lines, OAUTHBEARER with client credentials, AWS_MSK_IAM. Pure: no file is opened here. Errors repeat no
value that may be secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from mirror_lib.errors import ConfigError

PEM = "PEM"
_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
# One block of PEM text. Kafka takes it on one line too, with blanks where there were line ends.
_BLOCK = re.compile(r"-+BEGIN ([A-Z0-9 ]+?)-+\s+([A-Za-z0-9+/=\s]+?)\s*-+END \1-+")
_SUITE = re.compile(r"TLS_(?:(ECDHE|DHE)_)?(RSA|ECDSA)_WITH_(AES_128_GCM|AES_256_GCM|CHACHA20_POLY1305)(_SHA\d+)")


@dataclass(frozen=True)
class Store:
    """A key store or trust store. `kind` is Java's word (JKS, PKCS12, PEM, …).

    It is a file at `location`, or PEM text: `certificates`, and `key` in a key store.
    """

    kind: str
    location: Optional[str] = None
    password: Optional[str] = field(default=None, repr=False)
    key_password: Optional[str] = field(default=None, repr=False)
    certificates: Optional[str] = field(default=None, repr=False)
    key: Optional[str] = field(default=None, repr=False)


@dataclass(frozen=True)
class TlsSettings:
    """What to trust (`None`: what the system trusts), who we are (`None`: no principal), and what is spoken.

    `ciphers` are OpenSSL's names of TLS 1.2 suites; empty for the default ones.
    """

    trusted: Optional[Store]
    own: Optional[Store]
    check_hostname: bool
    protocols: Tuple[str, ...] = _PROTOCOLS
    ciphers: Tuple[str, ...] = ()


def tls_settings(props: Mapping[str, str]) -> TlsSettings:
    """The settings in Java client properties. Raises `ConfigError` where Java's client would refuse them too, and for
    an SSL engine of one's own, which only Java could load."""
    algorithm = props.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", ""):
        raise ConfigError("ssl.endpoint.identification.algorithm must be https, or empty to skip the check")
    if props.get("ssl.engine.factory.class"):
        raise ConfigError("ssl.engine.factory.class names a Java class, which the Python side cannot use")
    return TlsSettings(
        trusted=_trusted(props),
        own=_own(props),
        check_hostname=algorithm == "https",
        protocols=_protocols(props),
        ciphers=_ciphers(props.get("ssl.cipher.suites", "")),
    )


def pem_blocks(text: str, kind: str) -> str:
    """Every block of PEM text whose name ends in `kind` (`CERTIFICATE`, `PRIVATE KEY`), in lines as OpenSSL wants them;
    `""` where there is none."""
    found = []
    for match in _BLOCK.finditer(text):
        name, content = match.group(1), re.sub(r"\s+", "", match.group(2))
        if name.endswith(kind):
            lines = [content[at : at + 64] for at in range(0, len(content), 64)]
            found.append("\n".join([f"-----BEGIN {name}-----", *lines, f"-----END {name}-----", ""]))
    return "".join(found)


def _trusted(props: Mapping[str, str]) -> Optional[Store]:
    certificates = props.get("ssl.truststore.certificates")
    store = _store(props, "truststore", certificates is not None, "ssl.truststore.certificates")
    if store is None or certificates is None:
        return store
    return Store(PEM, certificates=_text(certificates, "CERTIFICATE", "ssl.truststore.certificates"))


def _own(props: Mapping[str, str]) -> Optional[Store]:
    key, chain = props.get("ssl.keystore.key"), props.get("ssl.keystore.certificate.chain")
    store = _store(props, "keystore", key is not None or chain is not None, "ssl.keystore.key")
    if store is None or store.location is not None:
        return store
    if key is None or chain is None:
        raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain are needed together")
    return Store(
        PEM,
        key_password=props.get("ssl.key.password") or None,
        certificates=_text(chain, "CERTIFICATE", "ssl.keystore.certificate.chain"),
        key=_text(key, "PRIVATE KEY", "ssl.keystore.key"),
    )


def _store(props: Mapping[str, str], store: str, in_place: bool, key: str) -> Optional[Store]:
    """The store at `ssl.<store>.location`, an empty one where PEM text stands in place; Java's rules about both."""
    location, password = props.get(f"ssl.{store}.location") or None, props.get(f"ssl.{store}.password") or None
    kind = props.get(f"ssl.{store}.type", "JKS").upper()
    if in_place and location:
        raise ConfigError(f"{key} and ssl.{store}.location exclude each other")
    if in_place and kind != PEM:
        raise ConfigError(f"{key} needs ssl.{store}.type = PEM")
    if not in_place and not location:
        return None
    if kind == PEM and password:
        word = "; the private key's password is ssl.key.password" if store == "keystore" else ""
        raise ConfigError(f"ssl.{store}.password cannot be set for a PEM store{word}")
    key_password = (props.get("ssl.key.password") or None) if store == "keystore" else None
    return Store(kind, location, password, key_password)


def _text(text: str, kind: str, key: str) -> str:
    blocks = pem_blocks(text, kind)
    if not blocks:
        raise ConfigError(f"{key} must hold PEM text: -----BEGIN {kind}----- and so on")
    return blocks


def _protocols(props: Mapping[str, str]) -> Tuple[str, ...]:
    enabled = [name.strip() for name in props.get("ssl.enabled.protocols", "").split(",") if name.strip()]
    highest = props.get("ssl.protocol", "TLSv1.3").strip()
    names = [name for name in _PROTOCOLS if not enabled or name in enabled]
    if highest == "TLSv1.2":
        names = [name for name in names if name == highest]
    elif highest not in ("TLSv1.3", "TLS"):
        names = []
    if not names:
        raise ConfigError("ssl.protocol and ssl.enabled.protocols must allow TLSv1.2 or TLSv1.3; older ones are unsafe")
    return tuple(names)


def _ciphers(suites: str) -> Tuple[str, ...]:
    """OpenSSL's names of the TLS 1.2 suites among `suites`; Python has no choice of the TLS 1.3 suites."""
    names, unusable = _names(suites), unusable_suites(suites)
    if unusable and len(unusable) == len(names):
        raise ConfigError("ssl.cipher.suites: only the GCM and CHACHA20 suites can be used on the Python side")
    found = []
    for match in filter(None, map(_SUITE.fullmatch, names)):
        exchange, signature, cipher, digest = match.groups()
        named = cipher.replace("AES_", "AES").replace("_", "-")
        tail = "" if cipher.startswith("CHACHA") else digest.replace("_", "-")
        found.append("-".join(filter(None, [exchange, signature if exchange else "", named])) + tail)
    return tuple(found)


def unusable_suites(suites: str) -> Tuple[str, ...]:
    older = (name for name in _names(suites) if "_WITH_" in name or not name.startswith("TLS_"))
    return tuple(name for name in older if not _SUITE.fullmatch(name))


def _names(suites: str) -> List[str]:
    return [name.strip() for name in suites.split(",") if name.strip()]


_PASSWORD_MECHANISMS = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_KERBEROS_MODULE = "Krb5LoginModule"
_KERBEROS_LINE = (
    f'com.sun.security.auth.module.{_KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="…" principal="…" '
    'serviceName="kafka";'
)
_SECTION = re.compile(r"\s*[\w.]+\s*\{.*", re.DOTALL)
_LINE = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\s*(.*?)\s*;\s*", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"';]+)\s*""")


@dataclass(frozen=True)
class KerberosLogin:
    """Who logs in to which Kerberos service. `keytab`, `ticket_cache` are paths; with neither, the user's tickets."""

    service: str
    principal: Optional[str] = None
    keytab: Optional[str] = None
    ticket_cache: Optional[str] = None


def sasl_options(props: Mapping[str, str]) -> Dict[str, object]:
    """`sasl_mechanism` and what goes with it; for GSSAPI `sasl_kerberos_name` is a `KerberosLogin`.

    Raises `ConfigError` for a login line that cannot be read or does not fit the mechanism, and for a mechanism beyond
    PLAIN, SCRAM and GSSAPI; the logins with tokens are below.
    """
    mechanism = props.get("sasl.mechanism", "GSSAPI").upper()
    jaas = props.get("sasl.jaas.config")
    if mechanism in _PASSWORD_MECHANISMS:
        username, password = _username_and_password(jaas, mechanism)
        return {"sasl_mechanism": mechanism, "sasl_plain_username": username, "sasl_plain_password": password}
    if mechanism == "GSSAPI":
        return {"sasl_mechanism": mechanism, "sasl_kerberos_name": _kerberos(props, jaas)}
    known = ", ".join([*_PASSWORD_MECHANISMS, "GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM"])
    raise ConfigError(f"sasl.mechanism must be one of {known}; {mechanism[:40]} cannot be used here")


def _username_and_password(jaas: Optional[str], mechanism: str) -> Tuple[str, str]:
    module = _PASSWORD_MECHANISMS[mechanism]
    _, options = login_line(jaas, mechanism, module, f'{module} required username="…" password="…";')
    if not options.get("username") or "password" not in options:
        raise ConfigError(f"sasl.jaas.config cannot be read; {module} needs username and password in quotes")
    if options.get("tokenauth", "").lower() == "true":
        raise ConfigError("delegation tokens (tokenauth in sasl.jaas.config) cannot be used; give a user and password")
    username = options["username"]
    if mechanism != "PLAIN":
        username = username.replace("=", "=3D").replace(",", "=2C")  # RFC 5802, saslname; Java's client does the same
    return username, options["password"]


def _kerberos(props: Mapping[str, str], jaas: Optional[str]) -> KerberosLogin:
    _, options = login_line(jaas, "GSSAPI", _KERBEROS_MODULE, _KERBEROS_LINE)
    services = {props.get("sasl.kerberos.service.name"), options.get("serviceName")} - {None, ""}
    if len(services) != 1:
        problem = "two different service names" if services else "no service name"
        raise ConfigError(f"GSSAPI has {problem}: set sasl.kerberos.service.name, or serviceName in sasl.jaas.config")
    keytab = options.get("keyTab") if options.get("useKeyTab", "").lower() == "true" else None
    if keytab is not None and not options.get("principal"):
        raise ConfigError("sasl.jaas.config has a keyTab and no principal")
    cache = options.get("ticketCache") if options.get("useTicketCache", "").lower() == "true" else None
    return KerberosLogin(str(services.pop()), options.get("principal"), keytab, cache)


def login_line(jaas: Optional[str], mechanism: str, module: str, example: str) -> Tuple[str, Mapping[str, str]]:
    """The class and the options of the login line; `module` is the class without its package.

    Raises `ConfigError`. The line is never repeated in it, because it may contain the password.
    """
    if not jaas:
        raise ConfigError(
            f"{mechanism} needs sasl.jaas.config: {example} (or a file with a KafkaClient section, named by "
            "-Djava.security.auth.login.config in KAFKA_OPTS or JDK_JAVA_OPTIONS)"
        )
    if _SECTION.fullmatch(jaas):
        raise ConfigError("sasl.jaas.config takes one login line: leave out KafkaClient and the braces around it")
    match = _LINE.fullmatch(jaas)
    options = _options(match.group(3)) if match else None
    if match is None or options is None:
        raise ConfigError(f"sasl.jaas.config cannot be read; it must be one line like {example}")
    if match.group(1).rpartition(".")[2] != module:
        raise ConfigError(f"sasl.jaas.config does not fit sasl.mechanism = {mechanism}, which needs {module}")
    return match.group(1), options


def _options(text: str) -> Optional[Dict[str, str]]:
    """`name="value"` pairs, quotes and backslashes undone; `None` where the text holds anything else."""
    options = {match.group(1): _unquoted(match.group(2)) for match in _OPTION.finditer(text)}
    return None if _OPTION.sub("", text).strip() else options


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] in "\"'" else text


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
    return props.get("sasl.mechanism", "GSSAPI").strip().upper()


def logs_in_by_token(props: Mapping[str, str]) -> bool:
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
    credentials = {name: value for name, value in _client_credentials(props, options).items() if value is not None}
    line = " ".join(f'{name}="{_escaped(value)}"' for name, value in {**options, **credentials}.items())
    package = module.rpartition(".")[0] + (".secured" if release < _SPARK_WITH_NEW_NAME else "")
    kept = {key: value for key, value in props.items() if key not in _CREDENTIALS.values()}
    return {**kept, _JAAS: f"{module} required {line};", _HANDLER: f"{package}.OAuthBearerLoginCallbackHandler"}


def sends_token_in_clear(props: Mapping[str, str]) -> bool:
    endpoint = props.get(ENDPOINT, "").strip().lower() if mechanism_of(props) == OAUTHBEARER else ""
    in_clear = props.get("security.protocol", "").upper() == "SASL_PLAINTEXT" or endpoint.startswith("http:")
    return logs_in_by_token(props) and in_clear


def _oauth_login(props: Mapping[str, str]) -> OauthLogin:
    _check_classes(props)
    _, options = _line(props)
    credentials = _client_credentials(props, options)
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


def _client_credentials(props: Mapping[str, str], options: Mapping[str, str]) -> Dict[str, Optional[str]]:
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
    """What the broker gets with the token, such as Confluent Cloud's logicalCluster. Java's rules for names."""
    found = {key[len(_EXTENSION) :]: value for key, value in options.items() if key.startswith(_EXTENSION)}
    for name, value in found.items():
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
            raise ConfigError(
                f"{_JAAS}: a SASL extension has a name of a-z and A-Z other than 'auth' and a printable value; "
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
