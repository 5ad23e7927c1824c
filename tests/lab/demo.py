"""`make demo`: two real clusters, a hard data set, one run of the main job, a proof, a table. Exits 0 if all is equal.

KEEP=1 leaves both clusters running. Everything else that was started ends with this process, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

from mirror_lib.text import aligned, grouped, size
from tests.lab import dataset
from tests.lab.brokers import KafkaBroker, end_with_parent, planned, start_together
from tests.lab.checkout import CACHE, ROOT, LabError, jars_folder
from tests.lab.flow_lab import write_config
from tests.lab.group_lab import Read, faults_of_move, read_on
from tests.lab.jvm import quick_spark

SOURCE, TARGET = "primary", "backup"
NEEDED_BYTES = 1_000_000_000
STOPPED = 130
# A consumer group that reads these, stops after so many records and resumes on the other cluster.
GROUP, GROUP_TOPICS, GROUP_STOPS_AFTER = "billing", ("compacted", "json.zstd", "odd.records", "transactions"), 3500
MIRROR = (sys.executable, "-m", "mirror_lib.cli")


@dataclass
class Demo:
    """One demonstration in `directory`. `rates` are records a second, by topic."""

    directory: Path
    keep: bool = False
    brokers: List[KafkaBroker] = field(default_factory=list)
    seconds: float = 0.0
    records: int = 0
    rates: Dict[str, float] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.directory / "mirror.yaml"

    def run(self) -> int:
        """Every step, each with a line that says how long it took."""
        with step("two Kafka clusters are up"):
            self.brokers = start_together(planned([SOURCE, TARGET], self.directory, keep=self.keep))
        with step("the source is filled with records that are hard to copy"):
            made, transaction = dataset.fill(self.brokers[0], self.brokers[1], (SOURCE, TARGET))
        with step(f"the group {GROUP} read some of it and stopped"):
            before = read_on(self.brokers[0], GROUP, GROUP_TOPICS, GROUP_STOPS_AFTER)
        self.write_config()
        config = str(self.config.relative_to(ROOT))
        with step("the main job copied what it found"):
            self.copy(config)
        transaction.abort_transaction(30)
        with step("both sides were compared"):
            *_, report = [each for each in self.documents(*MIRROR, "verify", config, "--json") if "topics" in each]
        print(f"\n{self.table(report['topics'])}\n")
        with step(f"the offsets of {GROUP} were translated and committed on {TARGET}"):
            moves = list(self.lines(*MIRROR, "groups", "plan", config, "--group", GROUP, "--execute"))
        print("\n" + "".join(line for line in moves if line.startswith(("GROUP", GROUP))))
        with step(f"{GROUP} resumed on {TARGET}"):
            after = read_on(self.brokers[1], GROUP, [f"{SOURCE}.{topic}" for topic in GROUP_TOPICS])
        code = max(conclude(report, made), self.conclude_group(before, after))
        if self.keep:
            pids, (source, target) = " ".join(str(each.pid) for each in self.brokers), self.brokers
            print(f"both clusters keep running: {SOURCE} {source.bootstrap}, {TARGET} {target.bootstrap}")
            print(f"configuration: {config}\nto stop them: kill {pids}; rm -r {self.directory}")
        return code

    def write_config(self) -> None:
        excluded = json.dumps([r"mm2.*\.internal", r".*\.replica", "__.*", *dataset.EXCLUDED])
        flow = {"topics": '[".*"]', "topics.exclude": excluded, "tasks.max": 2, "replication.factor": 1}
        servers = {broker.name: broker.bootstrap for broker in self.brokers}
        ends = {"state": self.directory / "state", "trigger": "availableNow"}
        write_config(self.config, "mirror", servers, [f"{SOURCE}->{TARGET}"], flow, **ends)

    def copy(self, config: str) -> None:
        for document in self.documents("./spark-submit.sh", "jobs/mirror.py", config, "--json"):
            if "batch_id" in document and document["records"] and document.get("records_per_second"):
                self.records += document["records"]
                self.seconds += document["seconds"]
            for topic in document.get("topics", []):
                self.rates[topic["topic"]] = topic["records_per_second"]

    def documents(self, *command: str) -> Iterator[Dict[str, Any]]:
        return (json.loads(line) for line in self.lines(*command) if line.startswith("{"))

    def lines(self, *command: str) -> Iterator[str]:
        """Run a command of the checkout and give what it prints; fails where it does."""
        shown = ["mirror", *command[len(MIRROR) :]] if command[: len(MIRROR)] == MIRROR else command
        print(f"         $ {shlex.join(shown)}", flush=True)
        log, found = self.directory / "commands.log", False
        with log.open("a") as errors, started(command, errors) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found = True
                yield line
        # Exit code 1 of `mirror verify` is a finding, if it comes with a report.
        if process.returncode and not (process.returncode == 1 and found and "verify" in command):
            tail = "\n".join(log.read_text().splitlines()[-5:])
            raise LabError(f"{shown[0]} ended with exit code {process.returncode}, last words (log: {log}):\n{tail}")

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

    def conclude_group(self, before: Read, after: Read) -> int:
        """Both halves of the group's work together are the topics, each record once. Prints what is wrong."""
        wrong = faults_of_move(self.brokers[1], {topic: f"{SOURCE}.{topic}" for topic in GROUP_TOPICS}, before, after)
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


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    before = time.monotonic()
    yield
    print(f"{time.monotonic() - before:6.1f} s {what}", flush=True)


@contextlib.contextmanager
def started(command: Sequence[str], errors: Any) -> Iterator[subprocess.Popen[str]]:
    """A process of the checkout in a group of its own, which is gone when the block is left."""
    own = {"MIRROR_JARS_DIR": str(jars_folder()), "SPARK_LOCAL_IP": "127.0.0.1", **quick_spark()}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )
    try:
        yield process
        process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # ends as Ctrl-C does
    began = time.monotonic()
    CACHE.mkdir(exist_ok=True)
    if shutil.disk_usage(CACHE).free < NEEDED_BYTES:
        print(f"demo: the disk that holds {CACHE} has less than {size(NEEDED_BYTES)} free: make room", file=sys.stderr)
        return 1
    demo = Demo(Path(tempfile.mkdtemp(prefix="demo-", dir=CACHE)), keep=bool(os.environ.get("KEEP")))
    code = 1
    try:
        code = demo.run()
        print(f"done in {time.monotonic() - began:.0f} s")
    except KeyboardInterrupt:
        print("\ndemo: stopped", file=sys.stderr)
        code = STOPPED
    except LabError as error:
        print(f"demo: {error}", file=sys.stderr)
    finally:
        if code or not demo.keep:
            for broker in demo.brokers:
                broker.kill()
        if code == STOPPED or not (code or demo.keep):  # after a failure the logs stay
            shutil.rmtree(demo.directory, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
