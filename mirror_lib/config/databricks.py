"""What differs on Databricks: the platform owns the Spark context, and shades the classes of its Kafka client."""

from __future__ import annotations

import re
from typing import Mapping

# Set on every Databricks cluster, on the driver and on executors.
RUNTIME = "DATABRICKS_RUNTIME_VERSION"
# The package of Kafka's classes in the runtime's own connector.
SHADED = "kafkashaded."
# Only the first word, as a password behind a login class may contain anything.
_KAFKAS_CLASS = re.compile(rf"^\s*(?:{re.escape(SHADED)})?(?=org\.apache\.kafka\.)")


def on_databricks(environ: Mapping[str, str]) -> bool:
    """Whether this process runs on a Databricks cluster."""
    return RUNTIME in environ


def java_class(value: str, environ: Mapping[str, str]) -> str:
    """A class name, or a JAAS line, which begins with one, for this Spark: Kafka's are shaded on Databricks alone.

    Classes that are not Kafka's, such as Kerberos's, stay as they are. Pure.
    """
    return _KAFKAS_CLASS.sub(SHADED if on_databricks(environ) else "", value, count=1)
