"""`make clusters`: two real clusters where conf/mirror.yaml looks for them, with records and a group, until Ctrl-C.

PORTS="19092 19192" are other ports for primary and backup. What they hold goes with them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lab.brokers import JARS, KafkaBroker, free_ports, running
from tests.lab.checkout import CACHE, ROOT, LabError, ended
from tests.lab.dataset import flushed, producer_of
from tests.lab.group_lab import read_on

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


def fill(broker: KafkaBroker) -> None:
    """Orders and payments of now, and a group that has read a part of the orders."""
    producer = producer_of(broker)
    for topic, partitions, count in (("orders", 2, ORDERS), ("payments.card", 1, PAYMENTS)):
        broker.create_topic(topic, partitions)
        for n in range(count):
            producer.produce(topic, json.dumps({"id": n}).encode(), b"customer-%d" % (n % 50))
    flushed(producer)
    read_on(broker, GROUP, ["orders"], GROUP_READ)


def run(directory: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    usual = re.findall(r"localhost:(\d+)", text)
    wanted = os.environ.get("PORTS", "").split() or usual
    if len(wanted) != 2 or not all(port.isdigit() for port in wanted):
        raise LabError(f'PORTS="{" ".join(wanted)}" is not two ports, as in PORTS="19092 19192"')
    file = EXAMPLE
    if wanted != usual:
        file = directory / EXAMPLE.name
        ports = iter(wanted)
        file.write_text(re.sub(r"(?<=localhost:)\d+", lambda _: next(ports), text), encoding="utf-8")
    places = zip(NAMES, map(int, wanted), free_ports(2))
    brokers = [KafkaBroker(name, directory / name, port, controller) for name, port, controller in places]
    with running(*brokers) as (primary, _):
        fill(primary)
        facts = {"orders": ORDERS, "payments": PAYMENTS, "group": GROUP, "read": GROUP_READ}
        where = {name: f"localhost:{port}" for name, port in zip(NAMES, wanted)}
        paths = {"file": os.path.relpath(file, ROOT), "jars": os.path.relpath(JARS, ROOT)}
        print(NEXT.format(**where, **facts, **paths), flush=True)
        signal.pause()


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGINT):  # SIGINT too: a shell's background job ignores it
        signal.signal(number, signal.default_int_handler)
    CACHE.mkdir(exist_ok=True)
    try:
        with TemporaryDirectory(prefix="clusters-", dir=CACHE) as directory:
            run(Path(directory))
    except KeyboardInterrupt:
        print("\nboth clusters have ended", file=sys.stderr)
    return 0


if __name__ == "__main__":
    ended("clusters", main)
