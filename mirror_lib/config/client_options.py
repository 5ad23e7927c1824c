"""Translates one set of Java client properties into kafka-python's arguments and into options of Spark's Kafka source.

Databricks shades the classes of its Kafka client, so their names differ there. Pure.
"""

from __future__ import annotations

import os
import re
from typing import Dict, Mapping

from mirror_lib.config.security import java_properties, sasl_options, tls_settings
from mirror_lib.errors import ConfigError

# Set on every Databricks cluster, on the driver and on executors.
RUNTIME = "DATABRICKS_RUNTIME_VERSION"
# The package of Kafka's classes in the runtime's own connector.
SHADED = "kafkashaded."
# Only the first word, as a password behind a login class may contain anything.
_KAFKAS_CLASS = re.compile(rf"^\s*(?:{re.escape(SHADED)})?(?=org\.apache\.kafka\.)")


def on_databricks(environ: Mapping[str, str]) -> bool:
    return RUNTIME in environ


def java_class(value: str, environ: Mapping[str, str]) -> str:
    """A class name, or a JAAS line, which begins with one, for this Spark: Kafka's are shaded on Databricks alone.

    Classes that are not Kafka's, such as Kerberos's, stay as they are. Pure.
    """
    return _KAFKAS_CLASS.sub(SHADED if on_databricks(environ) else "", value, count=1)


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NUMBERS = ("request.timeout.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "connections.max.idle.ms",
            "metadata.max.age.ms")
# Spark sets these itself and refuses a query that brings its own.
_NOT_FOR_SPARK = frozenset(
    ["auto.offset.reset", "enable.auto.commit", "group.id", "interceptor.classes", "key.deserializer", "key.serializer",
     "value.deserializer", "value.serializer"]
)
# Their values begin with the name of a class.
_CLASS = re.compile(r"^sasl\.jaas\.config$|\.class$")


def kafka_python_options(props: Mapping[str, str]) -> Dict[str, object]:
    """Keyword arguments for kafka-python's connection manager, from Java names.

    They can be pickled: no store is opened and no token requested yet. `tls`, a Kerberos login and a token login are
    for `log.login.ready_options`. They may hold passwords. Raises `ConfigError` where a property cannot be honoured.
    """
    protocol = props.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"security.protocol must be one of {', '.join(_PROTOCOLS)}")
    options: Dict[str, object] = {"security_protocol": protocol}
    servers = [server.strip() for server in props.get("bootstrap.servers", "").split(",")]
    options["bootstrap_servers"] = [server for server in servers if server]
    if props.get("client.id"):
        options["client_id"] = props["client.id"]
    # Java's -1 keeps idle connections for ever. kafka-python connects again where it needs one.
    given = [key for key in _NUMBERS if key in props and (key, props[key].strip()) != ("connections.max.idle.ms", "-1")]
    options.update({key.replace(".", "_"): _number(props, key) for key in given})
    if protocol.endswith("SSL"):
        options["tls"] = tls_settings(props)
    if protocol.startswith("SASL"):
        options.update(sasl_options(props))
    return options


def spark_kafka_options(
    props: Mapping[str, str], spark_version: str, environ: Mapping[str, str] = os.environ
) -> Dict[str, str]:
    """Options of this Spark's Kafka source: every property as `kafka.<name>`, but for those that Spark sets itself.

    Kafka's own classes are named as this Spark has them. Raises `ConfigError` where the Kafka client of this Spark
    version has no such login.
    """
    given = {key: value for key, value in java_properties(props, spark_version).items() if key not in _NOT_FOR_SPARK}
    return {f"kafka.{key}": java_class(value, environ) if _CLASS.search(key) else value for key, value in given.items()}


def _number(props: Mapping[str, str], key: str) -> int:
    if not re.fullmatch(r"\d{1,19}", props[key].strip()):
        raise ConfigError(f"{key} must be a whole number of milliseconds")
    return min(int(props[key]), 10**12)
