"""The jars of a Kafka release: fetched by Ivy on first use, kept in .cache/kafka-VERSION, shared by every test process.

`python -m tests.lab.kafka_jars 2.4.1 3.6.2` fetches these releases and prints their folders.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Tuple

from tests.lab.checkout import LabError
from tests.lab.ivy import Module, fetched

# Kafka 4 logs with Log4j 2, earlier brokers with Log4j 1, which reload4j maintains.
LOG4J2 = [Module("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")]
LOG4J1 = [Module("ch.qos.reload4j", "reload4j", "1.2.25"), Module("org.slf4j", "slf4j-reload4j", "1.7.36")]


def release(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def client_of(version: str) -> str:
    """The release of MirrorMaker's client that goes with it: the first one in Maven Central is 2.6.0's."""
    return version if release(version) >= (2, 6) else "2.6.0"


def kafka_jars(version: str) -> Path:
    """The folder of this release's broker and MirrorMaker client. Raises `LabError` where it cannot be fetched."""
    # Kafka 2.4 to 3.9 were built for Scala 2.13 as well, so one name serves all.
    wanted = [
        Module("org.apache.kafka", "kafka_2.13", version),
        Module("org.apache.kafka", "connect-mirror-client", client_of(version), False),
        *([Module("org.apache.kafka", "kafka-tools", version, False)] if release(version) >= (3,) else []),
        *(LOG4J2 if release(version) >= (4,) else LOG4J1),
    ]
    return fetched(f"kafka-{version}", wanted, f"connect-mirror-client-{client_of(version)}.jar")


if __name__ == "__main__":
    try:
        for each in sys.argv[1:]:
            print(kafka_jars(each))
    except LabError as error:
        sys.exit(f"kafka_jars: {error}")
