"""`make demo`: two real clusters, a hard data set, one run of the main job, a proof, a table. Exits 0 if all is equal.

All that was started ends with this process, however that ends.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

from mirror_lib.text import aligned, grouped
from tests.lab import dataset
from tests.lab.brokers import KafkaBroker, clusters, end_with_parent
from tests.lab.checkout import CACHE, ROOT, LabError, ended
from tests.lab.flow_lab import write_config
from tests.lab.group_lab import Read, faults_of_move, read_on
from tests.lab.submitted import environment

SOURCE, TARGET = "primary", "backup"
STOPPED = 130
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


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # ends as Ctrl-C does
    began = time.monotonic()
    CACHE.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="demo-", dir=CACHE))
    try:
        code = Demo(directory).run()
        print(f"done in {time.monotonic() - began:.0f} s")
    except KeyboardInterrupt:
        print("\ndemo: stopped", file=sys.stderr)
        code = STOPPED
    if code in (0, STOPPED):  # after a failure the logs stay
        shutil.rmtree(directory, ignore_errors=True)
    return code


if __name__ == "__main__":
    ended("demo", main)
