"""One set of Java client properties in; the same for kafka-python (keyword arguments) and Spark (options) out. Pure."""

from __future__ import annotations

import re
from typing import Dict, Mapping, Optional, Tuple

from mirror_lib.errors import ConfigError

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PASSWORD_MECHANISMS = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_PEM_IN_PLACE = {
    "truststore": ("ssl.truststore.certificates",),
    "keystore": ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
}
_NUMBERS = {
    "request.timeout.ms": "request_timeout_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
}
_JAAS = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\s*(.*?)\s*;\s*", re.IGNORECASE | re.DOTALL)
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"';]+)\s*""")
# Spark sets these itself and refuses a query that brings its own.
_NOT_FOR_SPARK = frozenset(
    ["auto.offset.reset", "enable.auto.commit", "group.id", "interceptor.classes", "key.deserializer", "key.serializer",
     "value.deserializer", "value.serializer"]
)


def kafka_python_options(props: Mapping[str, str]) -> Dict[str, object]:
    """Keyword arguments for kafka-python's admin client and connection manager, from Java names.

    The result may hold passwords. Raises `ConfigError` where a property cannot be honoured: JKS or PKCS12 stores,
    PEM text in place, a JAAS line without user and password, a mechanism beyond PLAIN, SCRAM and GSSAPI.
    """
    protocol = props.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"security.protocol must be one of {', '.join(_PROTOCOLS)}")
    options: Dict[str, object] = {"security_protocol": protocol}
    servers = [server.strip() for server in props.get("bootstrap.servers", "").split(",")]
    options["bootstrap_servers"] = [server for server in servers if server]
    if props.get("client.id"):
        options["client_id"] = props["client.id"]
    options.update({name: _number(props, key) for key, name in _NUMBERS.items() if key in props})
    if protocol.endswith("SSL"):
        options.update(_tls(props))
    if protocol.startswith("SASL"):
        options.update(_sasl(props))
    return options


def spark_kafka_options(props: Mapping[str, str]) -> Dict[str, str]:
    """Options of Spark's Kafka source: every property as `kafka.<name>`, but for those that Spark sets itself."""
    return {f"kafka.{key}": value for key, value in props.items() if key not in _NOT_FOR_SPARK}


def sends_password_in_clear(props: Mapping[str, str]) -> bool:
    """Whether these properties send a password over a connection that is not encrypted."""
    return props.get("security.protocol", "").upper() == "SASL_PLAINTEXT" and props.get("sasl.mechanism") == "PLAIN"


def _number(props: Mapping[str, str], key: str) -> int:
    if not re.fullmatch(r"\d{1,12}", props[key].strip()):
        raise ConfigError(f"{key} must be a whole number of milliseconds")
    return int(props[key])


def _tls(props: Mapping[str, str]) -> Dict[str, object]:
    algorithm = props.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", ""):
        raise ConfigError("ssl.endpoint.identification.algorithm must be https, or empty to skip the check")
    options: Dict[str, object] = {"ssl_check_hostname": algorithm == "https"}
    trusted, own = _pem(props, "truststore"), _pem(props, "keystore")
    if trusted:
        options["ssl_cafile"] = trusted
    if own:
        # In Kafka's PEM form one file holds the private key and its certificates.
        options.update(ssl_certfile=own, ssl_keyfile=own)
    if own and props.get("ssl.key.password"):
        options["ssl_password"] = props["ssl.key.password"]
    return options


def _pem(props: Mapping[str, str], store: str) -> Optional[str]:
    for key in _PEM_IN_PLACE[store]:
        if key in props:
            raise ConfigError(f"{key} cannot be used yet; put the PEM text into a file and set ssl.{store}.location")
    location, kind = props.get(f"ssl.{store}.location"), props.get(f"ssl.{store}.type", "JKS").upper()
    if location and kind != "PEM":
        raise ConfigError(
            f"ssl.{store}.location is a {kind} store, which cannot be read yet; "
            f"export it as PEM and set ssl.{store}.type = PEM"
        )
    return location or None


def _sasl(props: Mapping[str, str]) -> Dict[str, object]:
    mechanism = props.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism in _PASSWORD_MECHANISMS:
        username, password = _credentials(props.get("sasl.jaas.config"), mechanism)
        return {"sasl_mechanism": mechanism, "sasl_plain_username": username, "sasl_plain_password": password}
    if mechanism == "GSSAPI":
        service = props.get("sasl.kerberos.service.name") or _jaas_options(props).get("serviceName") or "kafka"
        return {"sasl_mechanism": mechanism, "sasl_kerberos_service_name": service}
    known = ", ".join([*_PASSWORD_MECHANISMS, "GSSAPI"])
    raise ConfigError(f"sasl.mechanism must be one of {known}; others cannot be used yet")


def _credentials(jaas: Optional[str], mechanism: str) -> Tuple[str, str]:
    module = _PASSWORD_MECHANISMS[mechanism]
    example = f'{module} required username="…" password="…";'
    if not jaas:
        raise ConfigError(f"{mechanism} needs sasl.jaas.config: {example}")
    match = _JAAS.fullmatch(jaas)
    options = _options(match.group(3)) if match else None
    # Never repeat the line: it holds the password.
    if match is None or options is None or not options.get("username") or "password" not in options:
        raise ConfigError(f"sasl.jaas.config cannot be read; it must be one line like {example}")
    if match.group(1).rpartition(".")[2] != module:
        raise ConfigError(f"sasl.jaas.config does not fit sasl.mechanism = {mechanism}, which needs {module}")
    if options.get("tokenauth", "").lower() == "true":
        raise ConfigError("delegation tokens (tokenauth in sasl.jaas.config) cannot be used; give a user and password")
    return options["username"], options["password"]


def _jaas_options(props: Mapping[str, str]) -> Mapping[str, str]:
    match = _JAAS.fullmatch(props.get("sasl.jaas.config", ""))
    return (_options(match.group(3)) if match else None) or {}


def _options(text: str) -> Optional[Dict[str, str]]:
    """`name="value"` pairs of a JAAS line, quotes and backslashes undone; `None` where it holds anything else."""
    options = {match.group(1): _unquoted(match.group(2)) for match in _JAAS_OPTION.finditer(text)}
    return None if _JAAS_OPTION.sub("", text).strip() else options


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] in "\"'" else text
