"""`make demo`: two real clusters, a hard data set, one run of the main job, a proof, a table. Exits 0 if all is equal.

`make clusters`: two real clusters where conf/mirror.yaml looks for them, with records and a group, until Ctrl-C.
PORTS="19092 19192" are other ports for primary and backup. What they hold goes with them.

All that was started ends with this process, however that ends.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence

from mirror_lib.text import aligned, grouped
from tests.lab import dataset
from tests.lab.brokers import JARS, KafkaBroker, clusters, end_with_parent, free_ports, running
from tests.lab.checkout import CACHE, ROOT, LabError, ended
from tests.lab.flow_lab import write_config
from tests.lab.group_lab import Read, faults_of_move, read_on
from tests.lab.submitted import environment

SOURCE, TARGET = "primary", "backup"
STOPPED = 130
EXAMPLE = ROOT / "conf" / "mirror.yaml"
ORDERS, PAYMENTS, GROUP_READ = 1000, 200, 300
# A consumer group that reads these, stops after so many records and resumes on the other cluster.
GROUP, GROUP_TOPICS, GROUP_STOPS_AFTER = "billing", ("compacted", "json.zstd", "odd.records", "transactions"), 3500


@dataclass
class Demo:
    """One demonstration in `directory`. `rates` are records a second, by topic."""

    directory: Path
    seconds: float = 0.0
    records: int = 0
    rates: Dict[str, float] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.directory / "mirror.yaml"

    def run(self) -> int:
        """Every step, each with a line that says how long it took."""
        with ExitStack() as stack:
            with step("two Kafka clusters are up"):
                source, target = stack.enter_context(clusters([SOURCE, TARGET], self.directory))
            return self.copied_and_compared(source, target)

    def copied_and_compared(self, source: KafkaBroker, target: KafkaBroker) -> int:
        with step("the source is filled with records that are hard to copy"):
            made, transaction = dataset.fill(source, target, (SOURCE, TARGET))
        with step(f"the group {GROUP} read some of it and stopped"):
            before = read_on(source, GROUP, GROUP_TOPICS, GROUP_STOPS_AFTER)
        self.write_config(source, target)
        config = str(self.config.relative_to(ROOT))
        with step("the main job copied what it found"):
            self.copy(config)
        transaction.abort_transaction(30)
        with step("both sides were compared"):
            *_, report = [each for each in self.documents("mirror", "verify", config, "--json") if "topics" in each]
        print(f"\n{self.table(report['topics'])}\n")
        with step(f"the offsets of {GROUP} were translated and committed on {TARGET}"):
            moves = self.lines("mirror", "groups", "plan", config, "--group", GROUP, "--execute")
        print("", *(line for line in moves if line.startswith(("GROUP", GROUP))), "", sep="\n")
        with step(f"{GROUP} resumed on {TARGET}"):
            after = read_on(target, GROUP, [f"{SOURCE}.{topic}" for topic in GROUP_TOPICS])
        return max(conclude(report, made), conclude_group(target, before, after))

    def write_config(self, source: KafkaBroker, target: KafkaBroker) -> None:
        excluded = json.dumps([r"mm2.*\.internal", r".*\.replica", "__.*", *dataset.EXCLUDED])
        flow = {"topics": '[".*"]', "topics.exclude": excluded, "tasks.max": 2, "replication.factor": 1}
        servers = {SOURCE: source.bootstrap, TARGET: target.bootstrap}
        ends = {"state": self.directory / "state", "trigger": "availableNow"}
        write_config(self.config, "mirror", servers, [f"{SOURCE}->{TARGET}"], flow, **ends)

    def copy(self, config: str) -> None:
        for document in self.documents("./spark-submit.sh", "jobs/mirror.py", config, "--json"):
            if "batch_id" in document and document["records"] and document.get("records_per_second"):
                self.records += document["records"]
                self.seconds += document["seconds"]
            for topic in document.get("topics", []):
                self.rates[topic["topic"]] = topic["records_per_second"]

    def documents(self, *command: str) -> List[Dict[str, Any]]:
        return [json.loads(line) for line in self.lines(*command) if line.startswith("{")]

    def lines(self, *command: str) -> List[str]:
        """Run a command of the checkout and give what it prints; fails where it does."""
        print(f"         $ {shlex.join(command)}", flush=True)
        real = [sys.executable, "-m", "mirror_lib.cli", *command[1:]] if command[0] == "mirror" else command
        streams: Dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
        log = self.directory / "commands.log"
        with log.open("a") as errors:
            done = subprocess.run(
                real, cwd=ROOT, env=environment(), stderr=errors, preexec_fn=end_with_parent, **streams
            )
        # Exit code 1 of `mirror verify` is a finding, if it comes with a report.
        if done.returncode and not (done.returncode == 1 and done.stdout and "verify" in command):
            tail = "\n".join(log.read_text().splitlines()[-5:])
            raise LabError(f"{command[0]} ended with exit code {done.returncode}, last words (log: {log}):\n{tail}")
        return list(done.stdout.splitlines())

    def table(self, topics: Sequence[Dict[str, Any]]) -> str:
        """One row a topic and one for all, whose rate counts the fixed cost of the cycles too."""
        rows = [["topic", "partitions", "records", "records/s", "verified"]]
        for t in topics:
            speed = grouped(round(self.rates.get(t["topic"], 0.0)))
            rows.append([t["topic"], str(len(t["partitions"])), grouped(t["records"]), speed, t["verdict"]])
        partitions, records = sum(len(t["partitions"]) for t in topics), sum(t["records"] for t in topics)
        rate, equal = self.records / (self.seconds or 1.0), sum(t["verdict"] == "equal" for t in topics)
        rows.append(["all", str(partitions), grouped(records), grouped(round(rate)), f"{equal} of {len(topics)}"])
        return "\n".join(aligned(rows, right=(1, 2, 3)))


def conclude_group(target: KafkaBroker, before: Read, after: Read) -> int:
    """Both halves of the group's work together are the topics, each record once. Prints what is wrong."""
    wrong = faults_of_move(target, {topic: f"{SOURCE}.{topic}" for topic in GROUP_TOPICS}, before, after)
    halves = [grouped(sum(map(len, half.values()))) for half in (before, after)]
    if wrong:
        print(f"{GROUP} did not resume where it stopped:", *wrong, sep="\n  ")
    else:
        print(f"{GROUP} read {halves[0]} records on {SOURCE} and {halves[1]} on {TARGET}: all of them, none twice")
    return 1 if wrong else 0


def conclude(report: Dict[str, Any], made: Sequence[dataset.MadeTopic]) -> int:
    """Equal is not enough: every topic that should be there is, and no other. Prints what is wrong."""
    verdicts = {topic["topic"]: topic["verdict"] for topic in report["topics"]}
    wanted = {topic.name for topic in made if topic.copied}
    wrong = [f"{name}: {verdict}" for name, verdict in verdicts.items() if verdict != "equal"]
    wrong += [f"{name}: not copied" for name in sorted(wanted - set(verdicts))]
    wrong += [f"{name}: copied, but should be skipped" for name in sorted(set(verdicts) - wanted)]
    if wrong:
        print("the copy is not exact:", *wrong, sep="\n  ")
    else:
        skipped = ", ".join(topic.name for topic in made if not topic.copied)
        print(f"{len(wanted)} topics are equal; rightly skipped: {skipped}")
    return 1 if wrong else 0


@contextmanager
def step(what: str) -> Iterator[None]:
    before = time.monotonic()
    yield
    print(f"{time.monotonic() - before:6.1f} s {what}", flush=True)


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
    producer = dataset.producer_of(broker)
    for topic, partitions, count in (("orders", 2, ORDERS), ("payments.card", 1, PAYMENTS)):
        broker.create_topic(topic, partitions)
        for n in range(count):
            producer.produce(topic, json.dumps({"id": n}).encode(), b"customer-%d" % (n % 50))
    dataset.flushed(producer)
    read_on(broker, GROUP, ["orders"], GROUP_READ)


def until_stopped(directory: Path) -> int:
    """Both clusters with their data, until a signal."""
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
    places = zip((SOURCE, TARGET), map(int, wanted), free_ports(2))
    brokers = [KafkaBroker(name, directory / name, port, controller) for name, port, controller in places]
    with running(*brokers) as (primary, _):
        fill(primary)
        facts = {"orders": ORDERS, "payments": PAYMENTS, "group": GROUP, "read": GROUP_READ}
        where = {name: f"localhost:{port}" for name, port in zip((SOURCE, TARGET), wanted)}
        paths = {"file": os.path.relpath(file, ROOT), "jars": os.path.relpath(JARS, ROOT)}
        print(NEXT.format(**where, **facts, **paths), flush=True)
        signal.pause()
    return 0


COMMANDS: Mapping[str, Callable[[Path], int]] = {
    "demo": lambda directory: Demo(directory).run(),
    "clusters": until_stopped,
}


def main(command: str) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):  # SIGINT too: a shell's background job ignores it
        signal.signal(number, signal.default_int_handler)
    began, code = time.monotonic(), 1
    CACHE.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{command}-", dir=CACHE))
    try:
        code = COMMANDS[command](directory)
        print(f"done in {time.monotonic() - began:.0f} s")
    except KeyboardInterrupt:
        print(f"\n{command}: stopped", file=sys.stderr)
        code = STOPPED if command == "demo" else 0
    finally:
        if command == "clusters" or code in (0, STOPPED):  # after a failure of the demo its logs stay
            shutil.rmtree(directory, ignore_errors=True)
    return code


if __name__ == "__main__":
    ended(sys.argv[1], partial(main, sys.argv[1]))
