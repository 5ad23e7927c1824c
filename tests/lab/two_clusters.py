"""`make clusters`: two real clusters where conf/mirror.yaml looks for them, with records and a group, until Ctrl-C.

PORTS="9092 9192" are the ports of primary and backup. What they hold goes with them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import List, Mapping

from tests.lab.brokers import JARS, KafkaBroker, start_together
from tests.lab.checkout import CACHE, ROOT, LabError
from tests.lab.dataset import flushed, producer_of
from tests.lab.group_lab import read_on
from tests.lab.ports import free_ports

NAMES = ("primary", "backup")
GROUP, GROUP_READ = "billing", 300
ORDERS, PAYMENTS = 1000, 200
EXAMPLE = ROOT / "conf" / "mirror.yaml"

NEXT = """\
{primary}: primary, with orders (2 partitions, {orders} records) and payments.card ({payments} records);
                the group {group} has read {read} orders
{backup}: backup, empty

In another terminal:
  .venv/bin/mirror plan {file}
To write orders, one a line, and to read their copies:
  java -cp '{jars}/*' org.apache.kafka.tools.ConsoleProducer --bootstrap-server {primary} --topic orders
  java -cp '{jars}/*' org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server {backup} \\
      --topic primary.orders --from-beginning
Ctrl-C ends both and removes their data. Then remove ./mirror-state too: it describes these clusters."""


def wanted_ports() -> List[int]:
    words = os.environ.get("PORTS", "").split() or ["9092", "9192"]
    if len(words) != 2 or not all(word.isdigit() for word in words):
        raise LabError(f'PORTS="{" ".join(words)}" is not two ports, as in PORTS="9092 9192"')
    return [int(word) for word in words]


def file_for(servers: Mapping[str, str], directory: Path) -> Path:
    """conf/mirror.yaml, or where the clusters are at other `servers`, by name, a copy in `directory` that says so."""
    text = EXAMPLE.read_text(encoding="utf-8")
    for name, address in servers.items():
        text = re.sub(rf"(\b{name}:\n +bootstrap\.servers: )\S+", rf"\g<1>{address}", text)
    if text == EXAMPLE.read_text(encoding="utf-8"):
        return EXAMPLE
    path = directory / EXAMPLE.name
    path.write_text(text, encoding="utf-8")
    return path


def start(directory: Path) -> List[KafkaBroker]:
    """Both clusters, with their data under `directory`; they end with this process."""
    ports = zip(NAMES, wanted_ports(), free_ports(2))
    return start_together([KafkaBroker(name, directory / name, port, controller) for name, port, controller in ports])


def fill(broker: KafkaBroker) -> None:
    """Orders and payments of now, and a group that has read a part of the orders."""
    producer = producer_of(broker)
    for topic, partitions, count in (("orders", 2, ORDERS), ("payments.card", 1, PAYMENTS)):
        broker.create_topic(topic, partitions)
        for n in range(count):
            producer.produce(topic, json.dumps({"id": n}).encode(), b"customer-%d" % (n % 50))
    flushed(producer)
    read_on(broker, GROUP, ["orders"], GROUP_READ)


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGINT):  # SIGINT too: a shell's background job ignores it
        signal.signal(number, signal.default_int_handler)
    CACHE.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="clusters-", dir=CACHE))
    brokers: List[KafkaBroker] = []
    try:
        brokers = start(directory)
        fill(brokers[0])
        where = {broker.name: broker.bootstrap.replace("127.0.0.1", "localhost") for broker in brokers}
        counts = {"orders": ORDERS, "payments": PAYMENTS, "group": GROUP, "read": GROUP_READ}
        paths = {"file": file_for(where, directory), "jars": JARS}
        print(NEXT.format(**where, **counts, **{n: os.path.relpath(p, ROOT) for n, p in paths.items()}), flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print("\nboth clusters have ended", file=sys.stderr)
    except LabError as error:
        print(f"clusters: {error}", file=sys.stderr)
        return 1
    finally:
        for broker in brokers:
            broker.kill()
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
