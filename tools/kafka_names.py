"""The names of keys that a Kafka release has: from its own jars, by `KafkaNames.java`.

`python -m tools.kafka_names` writes them anew: the list that the pages are held to, and the names of client properties
that the loader has.
"""

from __future__ import annotations

import re
import subprocess
import textwrap
from typing import Dict, FrozenSet

from tests.lab.brokers import KAFKA_VERSION, java_command
from tests.lab.checkout import ROOT
from tests.lab.mirrormaker import CONNECT_JARS

LIST = ROOT / "tests" / "unit" / "data" / f"mm2-{KAFKA_VERSION}-keys.txt"
MODULE = ROOT / "mirror_lib" / "config" / "client_names.py"

_CONNECT, _CLIENTS = "org.apache.kafka.connect.", "org.apache.kafka.clients."
CLIENTS = ("ConsumerConfig", "ProducerConfig", "AdminClientConfig")
_CLASSES = (
    *(f"{_CONNECT}mirror.Mirror{part}Config" for part in ("Maker", "Source", "Checkpoint", "Heartbeat")),
    *(f"{_CONNECT}mirror.Mirror{part}TaskConfig" for part in ("Source", "Checkpoint")),
    *(f"{_CONNECT}mirror.Default{part}Filter${part}FilterConfig" for part in ("Topic", "Group", "ConfigProperty")),
    *(f"{_CONNECT}runtime.{part}" for part in ("SourceConnectorConfig", "distributed.DistributedConfig")),
    *(f"{_CLIENTS}{part}Config" for part in ("consumer.Consumer", "producer.Producer", "admin.AdminClient")),
)
_MODULE = '''"""Written by `python -m tools.kafka_names` from the jars of Kafka {version}; not by hand."""

from __future__ import annotations

from typing import FrozenSet

_NAMES = """
{names}
"""

# The properties of Kafka's consumer, producer and admin client.
CLIENT_PROPERTIES: FrozenSet[str] = frozenset(_NAMES.split())
'''


def list_of_jars() -> str:
    """The text of the list, as the jars have it. Needs Java and the jars of `make setup`."""
    program = str(ROOT / "tools" / "KafkaNames.java")
    command = [java_command(), "-cp", f"{CONNECT_JARS}/*", program, *_CLASSES]
    names = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    return f"# Every key that a ConfigDef of Kafka {KAFKA_VERSION} names, by class, printed from its own jars.\n{names}"


def names_by_class(listed: str) -> Dict[str, FrozenSet[str]]:
    """Key names by the class whose ConfigDef has them."""
    sections = re.split(r"^\[(.*)\]$", listed, flags=re.MULTILINE)[1:]
    return {title: frozenset(body.split()) for title, body in zip(sections[::2], sections[1::2])}


def module_of(listed: str) -> str:
    """The text of the loader's module."""
    by_class = names_by_class(listed)
    names = " ".join(sorted(frozenset().union(*(by_class[client] for client in CLIENTS))))
    lines = textwrap.fill(names, 116, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return _MODULE.format(version=KAFKA_VERSION, names=lines)


if __name__ == "__main__":
    found = list_of_jars()
    LIST.write_text(found, encoding="utf-8")
    MODULE.write_text(module_of(found), encoding="utf-8")
