"""Reads Java's `ssl.*` and `sasl.*` properties into frozen login settings, for Python and for Spark's Kafka client.

TLS stores, JAAS lines, OAUTHBEARER with client credentials, AWS_MSK_IAM. Pure: no file is opened here. Errors repeat no
value that may be secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

from mirror_lib.errors import ConfigError

# Java client properties, by name.
Properties = Mapping[str, str]
PEM = "PEM"
_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
# One block of PEM text. Kafka takes it on one line too, with blanks where there were line ends.
_BLOCK = re.compile(r"-+BEGIN ([A-Z0-9 ]+?)-+\s+([A-Za-z0-9+/=\s]+?)\s*-+END \1-+")


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
    """What to trust (`None`: what the system trusts), who we are (`None`: no principal), and what is spoken."""

    trusted: Optional[Store]
    own: Optional[Store]
    check_hostname: bool
    protocols: Tuple[str, ...] = _PROTOCOLS


def tls_settings(props: Properties) -> TlsSettings:
    """The settings in Java client properties. Raises `ConfigError` where Java's client would refuse them too, and for
    an SSL engine of one's own, which only Java could load."""
    algorithm = props.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", ""):
        raise ConfigError("ssl.endpoint.identification.algorithm must be https, or empty to skip the check")
    if props.get("ssl.engine.factory.class"):
        raise ConfigError("ssl.engine.factory.class names a Java class, which the Python side cannot use")
    return TlsSettings(
        trusted=_store(props, "truststore"),
        own=_store(props, "keystore"),
        check_hostname=algorithm == "https",
        protocols=_protocols(props),
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


# PEM text in place of a file: by store, its properties and the kinds of their blocks.
_IN_PLACE = {
    "truststore": {"ssl.truststore.certificates": "CERTIFICATE"},
    "keystore": {"ssl.keystore.certificate.chain": "CERTIFICATE", "ssl.keystore.key": "PRIVATE KEY"},
}


def _store(props: Properties, store: str) -> Optional[Store]:
    """The store at `ssl.<store>.location`, or the PEM text in place of it; Java's rules about both."""
    in_place, location = _IN_PLACE[store], props.get(f"ssl.{store}.location") or None
    given, password = [key for key in in_place if key in props], props.get(f"ssl.{store}.password") or None
    kind = props.get(f"ssl.{store}.type", "JKS").upper()
    *_, named = in_place
    if given and location:
        raise ConfigError(f"{named} and ssl.{store}.location exclude each other; take one of them out")
    if given and kind != PEM:
        raise ConfigError(f"{named} needs ssl.{store}.type = PEM")
    if not given and not location:
        return None
    if kind == PEM and password:
        word = "; the private key's password is ssl.key.password" if store == "keystore" else ""
        raise ConfigError(f"ssl.{store}.password cannot be set for a PEM store; take it out{word}")
    key_password = (props.get("ssl.key.password") or None) if store == "keystore" else None
    if location:
        return Store(kind, location, password, key_password)
    if len(given) < len(in_place):
        raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain are needed together")
    certificates, *key = (_blocks(props, name, block) for name, block in in_place.items())
    return Store(PEM, key_password=key_password, certificates=certificates, key=key[0] if key else None)


def _blocks(props: Properties, key: str, kind: str) -> str:
    blocks = pem_blocks(props[key], kind)
    if not blocks:
        raise ConfigError(f"{key} must hold PEM text: -----BEGIN {kind}----- and so on")
    return blocks


def _protocols(props: Properties) -> Tuple[str, ...]:
    enabled = [name.strip() for name in props.get("ssl.enabled.protocols", "").split(",") if name.strip()]
    highest = props.get("ssl.protocol", "TLSv1.3").strip()
    allowed = {"TLSv1.2": _PROTOCOLS[:1], "TLSv1.3": _PROTOCOLS, "TLS": _PROTOCOLS}.get(highest, ())
    names = tuple(name for name in allowed if not enabled or name in enabled)
    if not names:
        raise ConfigError("ssl.protocol and ssl.enabled.protocols must allow TLSv1.2 or TLSv1.3; older ones are unsafe")
    return names


_SECTION = re.compile(r"\s*[\w.]+\s*\{.*", re.DOTALL)
_LINE = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\s*(.*?)\s*;\s*", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"';]+)\s*""")

OAUTHBEARER, MSK_IAM = "OAUTHBEARER", "AWS_MSK_IAM"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_HANDLER = "sasl.login.callback.handler.class"
_JAAS = "sasl.jaas.config"
_OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
# The options of the login line, and the properties of Kafka 4.1 that mean the same. The property wins, as in Java.
_CREDENTIALS = {
    "clientId": "sasl.oauthbearer.client.credentials.client.id",
    "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_TIMEOUTS = ("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms")
DEFAULT_TIMEOUT_SECONDS = 10.0
_EXTENSION = "extension_"
_EXTENSION_NAME, _EXTENSION_VALUE = re.compile(r"[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
# Spark 3.3 brings Kafka's client 2.8, which has no such login, Spark 3.4 the client 3.3, which lacks this class.
_HANDLER_OF_KAFKA = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_FIRST_SPARK = (3, 5)


@dataclass(frozen=True)
class KerberosLogin:
    """Who logs in to which Kerberos service. `keytab`, `ticket_cache` are paths; with neither, the user's tickets."""

    service: str
    principal: Optional[str] = None
    keytab: Optional[str] = None
    ticket_cache: Optional[str] = None


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


def mechanism_of(props: Properties) -> str:
    return props.get("sasl.mechanism", "GSSAPI").strip().upper()


def sasl_options(props: Properties) -> Dict[str, object]:
    """kafka-python's SASL arguments, which can be pickled: a user and a password, for GSSAPI a `KerberosLogin`, for
    tokens an `OauthLogin` or a `MskLogin`.

    Raises `ConfigError` for a login line that cannot be read or does not fit the mechanism, and for other mechanisms.
    """
    mechanism = mechanism_of(props)
    if mechanism not in _LOGINS:
        raise ConfigError(f"sasl.mechanism must be one of {', '.join(_LOGINS)}; {mechanism[:40]} cannot be used here")
    return {"sasl_mechanism": mechanism, **_LOGINS[mechanism].read(props)}


def java_properties(props: Properties, spark_version: str) -> Properties:
    """The same properties for the Kafka client of this Spark version.

    That client may be older than the properties: credentials move into the login line, and the callback handler gets
    the name that this client has. Raises `ConfigError` where the client has no such login.
    """
    if not _by_token(props):
        return props
    if mechanism_of(props) == MSK_IAM:
        handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
        return {"sasl.client.callback.handler.class": handler, **props}
    release = tuple(int(part) for part in spark_version.split(".")[:2])
    if release < _FIRST_SPARK:
        raise ConfigError(
            f"the Kafka client of Spark {spark_version} cannot log in with OAUTHBEARER and client credentials; nothing "
            "was read or written",
            "use Spark 3.5 or newer, or another sasl.mechanism for this cluster",
        )
    module, options = _line(props)
    credentials = {name: value for name, value in _client_credentials(props, options).items() if value is not None}
    line = " ".join(f'{name}="{_escaped(value)}"' for name, value in {**options, **credentials}.items())
    kept = {key: value for key, value in props.items() if key not in _CREDENTIALS.values()}
    return {**kept, _JAAS: f"{module} required {line};", _HANDLER: _HANDLER_OF_KAFKA}


def login_risks(props: Properties) -> Iterator[str]:
    """What these properties show to a listener on the network, which peer they trust, or what is not used of them; and
    what to set instead."""
    protocol, mechanism = props.get("security.protocol", "").upper(), mechanism_of(props)
    clear = protocol == "SASL_PLAINTEXT"
    endpoint = props.get(ENDPOINT, "").strip().lower() if mechanism == OAUTHBEARER else ""
    if _by_token(props) and (clear or endpoint.startswith("http:")):
        yield "a token or its client secret is sent in clear; use SASL_SSL, and https for the token endpoint"
    elif clear and mechanism == "PLAIN":
        yield "SASL_PLAINTEXT with PLAIN sends the password in clear; use SASL_SSL"
    elif clear and mechanism.startswith("SCRAM"):
        yield f"SASL_PLAINTEXT with {mechanism}: passwords can be guessed from the traffic; use SASL_SSL"
    elif protocol.endswith("SSL") and not props.get("ssl.endpoint.identification.algorithm", "https").strip():
        yield (
            "ssl.endpoint.identification.algorithm is empty: any server with a certificate that is trusted passes for "
            "a broker; leave the property out"
        )
    if props.get("ssl.cipher.suites", "").strip():
        yield (
            "ssl.cipher.suites is for Spark's Kafka client alone; the clients that copy offer Python's default suites. "
            "Limit them by ssl.cipher.suites of the brokers"
        )


def _by_token(props: Properties) -> bool:
    with_sasl = props.get("security.protocol", "").upper().startswith("SASL")
    return with_sasl and mechanism_of(props) in (OAUTHBEARER, MSK_IAM)


def _line(props: Properties) -> Tuple[str, Mapping[str, str]]:
    """The class and the options of the login line, which must fit the mechanism. Kafka 4.1's properties need no line.

    Raises `ConfigError`. The line is never repeated in it, because it may contain the password.
    """
    jaas, mechanism = props.get(_JAAS), mechanism_of(props)
    module, example = _LOGINS[mechanism].module, _LOGINS[mechanism].example
    needed = [_CREDENTIALS[name] for name in ("clientId", "clientSecret")]
    if not jaas and mechanism == OAUTHBEARER and all(map(props.get, needed)):
        return _OAUTH_MODULE, {}
    if not jaas:
        raise ConfigError(
            f"{mechanism} needs sasl.jaas.config: {example} (or a file with a KafkaClient section, named by "
            "-Djava.security.auth.login.config in KAFKA_OPTS or JDK_JAVA_OPTIONS)"
        )
    if _SECTION.fullmatch(jaas):
        raise ConfigError("sasl.jaas.config takes one login line: leave out KafkaClient and the braces around it")
    match = _LINE.fullmatch(jaas)
    if match is None or _OPTION.sub("", match.group(3)).strip():
        raise ConfigError(f"sasl.jaas.config cannot be read; it must be one line like {example}")
    if match.group(1).rpartition(".")[2] != module:
        raise ConfigError(f"sasl.jaas.config does not fit sasl.mechanism = {mechanism}, which needs {module}")
    return match.group(1), {name: _unquoted(text) for name, text in _OPTION.findall(match.group(3))}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] in "\"'" else text


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _password(props: Properties) -> Dict[str, object]:
    _, options = _line(props)
    if not options.get("username") or "password" not in options:
        module = _LOGINS[mechanism_of(props)].module
        raise ConfigError(f"sasl.jaas.config cannot be read; {module} needs username and password in quotes")
    if options.get("tokenauth", "").lower() == "true":
        raise ConfigError("delegation tokens (tokenauth in sasl.jaas.config) cannot be used; give a user and password")
    username = options["username"]
    if mechanism_of(props) != "PLAIN":
        username = username.replace("=", "=3D").replace(",", "=2C")  # RFC 5802, saslname; Java's client does the same
    return {"sasl_plain_username": username, "sasl_plain_password": options["password"]}


def _kerberos(props: Properties) -> Dict[str, object]:
    _, options = _line(props)
    services = {props.get("sasl.kerberos.service.name"), options.get("serviceName")} - {None, ""}
    if len(services) != 1:
        problem = "two different service names" if services else "no service name"
        raise ConfigError(f"GSSAPI has {problem}: set sasl.kerberos.service.name, or serviceName in sasl.jaas.config")
    keytab = options.get("keyTab") if options.get("useKeyTab", "").lower() == "true" else None
    if keytab is not None and not options.get("principal"):
        raise ConfigError("sasl.jaas.config has a keyTab and no principal; add principal")
    cache = options.get("ticketCache") if options.get("useTicketCache", "").lower() == "true" else None
    return {"sasl_kerberos_name": KerberosLogin(str(services.pop()), options.get("principal"), keytab, cache)}


def _oauth(props: Properties) -> Dict[str, object]:
    _check_classes(props)
    _, options = _line(props)
    credentials = _client_credentials(props, options)
    client_id, secret = credentials["clientId"], credentials["clientSecret"]
    if not client_id or not secret:
        example = _LOGINS[OAUTHBEARER].example
        raise ConfigError(f"OAUTHBEARER needs clientId and clientSecret in {_JAAS}: {example}")
    endpoint = _endpoint(props)
    stores = {key: value for key, value in options.items() if key.startswith("ssl.")}
    login = OauthLogin(
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
    return {"sasl_oauth_token_provider": login}


def _client_credentials(props: Properties, options: Mapping[str, str]) -> Dict[str, Optional[str]]:
    return {name: props.get(key) or options.get(name) for name, key in _CREDENTIALS.items()}


def _check_classes(props: Properties) -> None:
    handler = props.get(_HANDLER, "").strip()
    if handler and not re.fullmatch(r"(?:\w+\.)*OAuthBearerLoginCallbackHandler", handler):
        raise ConfigError(
            f"{_HANDLER} names a Java class that the Python side cannot use",
            f"leave it out and set {ENDPOINT}; for Amazon MSK set sasl.mechanism = {MSK_IAM}",
        )
    retriever = props.get(_RETRIEVER, "").strip()
    if retriever and retriever.rpartition(".")[2] not in ("ClientCredentialsJwtRetriever", "DefaultJwtRetriever"):
        raise ConfigError(
            f"{_RETRIEVER} names a grant other than client credentials, which cannot be used here",
            "leave it out and give a client id and a client secret",
        )


def _endpoint(props: Properties) -> str:
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


def _timeout(props: Properties) -> float:
    """Java has two timeouts. The longer one limits each step of a request."""
    given = [props[key].strip() for key in _TIMEOUTS if props.get(key, "").strip()]
    if not all(re.fullmatch(r"[1-9]\d{0,8}", each) for each in given):
        raise ConfigError(f"{' and '.join(_TIMEOUTS)} must be whole numbers of milliseconds above 0")
    return max(int(each) for each in given) / 1000 if given else DEFAULT_TIMEOUT_SECONDS


def _msk(props: Properties) -> Dict[str, object]:
    if props.get("security.protocol", "").upper() != "SASL_SSL":
        raise ConfigError(f"{MSK_IAM} needs security.protocol = SASL_SSL")
    _, options = _line(props)
    region = _REGION.search(props.get("bootstrap.servers", ""))
    names = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")
    unread = next((name for name in sorted(options.keys() - {*names}) if name.startswith("awsRole")), None)
    if unread is not None:
        way_out = "put role and credentials into an AWS profile, and name it by awsProfileName"
        raise ConfigError(f"{unread} in sasl.jaas.config is not read here; {way_out}")
    # MSK takes the token of an IAM login under another mechanism.
    login = MskLogin(region.group(1) if region else None, *map(options.get, names))
    return {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": login}


class _Login(NamedTuple):
    """The login module of a mechanism, without its package; a line for it; what reads the properties."""

    module: str
    example: str
    read: Callable[[Properties], Dict[str, object]]


_PLAIN, _SCRAM = (
    _Login(module, f'{module} required username="…" password="…";', _password)
    for module in ("PlainLoginModule", "ScramLoginModule")
)
_LOGINS: Mapping[str, _Login] = {
    "PLAIN": _PLAIN,
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
    "GSSAPI": _Login("Krb5LoginModule", "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
                     'storeKey=true keyTab="…" principal="…" serviceName="kafka";', _kerberos),
    OAUTHBEARER: _Login("OAuthBearerLoginModule",
                        f'{_OAUTH_MODULE} required clientId="…" clientSecret="…" scope="…";', _oauth),
    MSK_IAM: _Login("IAMLoginModule", "software.amazon.msk.auth.iam.IAMLoginModule required;", _msk),
}
