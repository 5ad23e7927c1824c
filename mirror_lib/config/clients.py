"""One set of Java client properties in; the same for kafka-python (keyword arguments) and Spark (options) out. Pure."""

from __future__ import annotations

import re
from typing import Dict, Mapping

from mirror_lib.config.jaas import sasl_options
from mirror_lib.config.tls import tls_settings
from mirror_lib.errors import ConfigError

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NUMBERS = {
    "request.timeout.ms": "request_timeout_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
}
# Spark sets these itself and refuses a query that brings its own.
_NOT_FOR_SPARK = frozenset(
    ["auto.offset.reset", "enable.auto.commit", "group.id", "interceptor.classes", "key.deserializer", "key.serializer",
     "value.deserializer", "value.serializer"]
)


def kafka_python_options(props: Mapping[str, str]) -> Dict[str, object]:
    """Keyword arguments for kafka-python's admin client and connection manager, from Java names.

    They can be pickled: no store is opened yet, and `tls` and a Kerberos login are for `log.login.ready_options`. They
    may hold passwords. Raises `ConfigError` where a property cannot be honoured.
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
        options["tls"] = tls_settings(props)
    if protocol.startswith("SASL"):
        options.update(sasl_options(props))
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
