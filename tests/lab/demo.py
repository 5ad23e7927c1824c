"""`make demo`: two real clusters, a hard data set, one run of the main job, a proof, a table. Exits 0 if all is equal.

KEEP=1 leaves both clusters running. Everything else that was started ends with this process, however that ends.
"""

from __future__ import annotations

import contextlib
import errno
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
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from mirror_lib.metrics import FlowMetrics
from mirror_lib.progress import FlowProgress, after, is_news, status_line
from mirror_lib.text import aligned, grouped, size
from tests.lab import dataset
from tests.lab.brokers import KafkaBroker, end_with_parent, start_clusters
from tests.lab.checkout import CACHE, ROOT, LabError, jars_folder
from tests.lab.flow_lab import write_config
from tests.lab.group_lab import Read, faults_of_move, read_on
from tests.lab.jvm import quick_spark

SOURCE, TARGET = "primary", "backup"
NEEDED_BYTES = 1_000_000_000
STOPPED = 130
# A consumer group that reads these, stops after so many records and resumes on the other cluster.
GROUP, GROUP_TOPICS, GROUP_STOPS_AFTER = "billing", ("compacted", "json.zstd", "odd.records", "transactions"), 3500


@dataclass
class Demo:
    """One demonstration in `directory`."""

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
            self.brokers = start_clusters([SOURCE, TARGET], self.directory, keep=self.keep)
        with step("the source is filled with records that are hard to copy"):
            made, transaction = dataset.fill(self.brokers[0], self.brokers[1], (SOURCE, TARGET))
        with step(f"the group {GROUP} read some of it and stopped"):
            before = read_on(self.brokers[0], GROUP, GROUP_TOPICS, GROUP_STOPS_AFTER)
        self.write_config()
        with step("the main job copied what it found"):
            self.mirror()
        transaction.abort()
        with step("both sides were compared"):
            report = self.verify()
        print(f"\n{table(report['topics'], self.rates, self.rate)}\n")
        with step(f"the offsets of {GROUP} were translated and committed on {TARGET}"):
            moves = self.move_group()
        print("\n" + "\n".join(moves) + "\n")
        with step(f"{GROUP} resumed on {TARGET}"):
            after = read_on(self.brokers[1], GROUP, [f"{SOURCE}.{topic}" for topic in GROUP_TOPICS])
        code = max(self.conclude(report, made), self.conclude_group(before, after))
        if self.keep:
            self.say_where()
        return code

    def write_config(self) -> None:
        excluded = json.dumps([r"mm2.*\.internal", r".*\.replica", "__.*", *dataset.EXCLUDED])
        flow = {"topics": '[".*"]', "topics.exclude": excluded, "tasks.max": 2, "replication.factor": 1}
        servers = {broker.name: broker.bootstrap for broker in self.brokers}
        ends = {"state": self.directory / "state", "trigger": "availableNow"}
        write_config(self.config, "mirror", servers, [f"{SOURCE}->{TARGET}"], flow, **ends)

    def mirror(self) -> None:
        """Run the main job as a user does, and show its status lines."""
        arguments = ["./spark-submit.sh", "jobs/mirror.py", str(self.config.relative_to(ROOT)), "--json"]
        progress: Optional[FlowProgress] = None
        shown: Optional[FlowProgress] = None
        for document in self.documents(arguments, "mirror.log"):
            if "batch_id" in document:
                rate = document.pop("records_per_second", None)
                snapshot = FlowMetrics(**document)
                progress = after(snapshot, progress, time.monotonic())
                if is_news(progress, shown):
                    shown = progress
                    print(f"         {status_line(progress)}", flush=True)
                self.records += snapshot.records
                self.seconds += snapshot.seconds if rate and snapshot.records else 0.0
            for topic in document.get("topics", []):
                self.rates[topic["topic"]] = topic["records_per_second"]

    @property
    def rate(self) -> float:
        """Records copied a second, over all passes that copied something."""
        return self.records / self.seconds if self.seconds else 0.0

    def verify(self) -> Dict[str, Any]:
        arguments = [sys.executable, "-m", "mirror_lib.cli", "verify", str(self.config.relative_to(ROOT)), "--json"]
        reports = [document for document in self.documents(arguments, "verify.log") if "topics" in document]
        if not reports:
            raise LabError(f"mirror verify reported nothing (log: {self.directory / 'verify.log'})")
        return reports[-1]

    def move_group(self) -> List[str]:
        """Run `mirror groups plan --execute`, and give its table."""
        config = str(self.config.relative_to(ROOT))
        arguments = [sys.executable, "-m", "mirror_lib.cli", "groups", "plan", config, "--group", GROUP, "--execute"]
        with (self.directory / "groups.log").open("w") as errors, started(
            arguments, errors, **quick_spark()
        ) as process:
            self.say(arguments)
            assert process.stdout is not None
            lines = process.stdout.read().splitlines()
        if process.returncode:
            raise LabError(f"mirror groups plan ended with exit code {process.returncode} (log: {errors.name})")
        return [line for line in lines if line.startswith(("GROUP", GROUP))]

    @staticmethod
    def say(arguments: Sequence[str]) -> None:
        shown = ["mirror" if a == "mirror_lib.cli" else a for a in arguments if a not in (sys.executable, "-m")]
        print(f"         $ {shlex.join(shown)}", flush=True)

    def conclude_group(self, before: Read, after: Read) -> int:
        """Both halves of the group's work together are the topics, each record once. Prints what is wrong."""
        wrong = faults_of_move(self.brokers[1], {topic: f"{SOURCE}.{topic}" for topic in GROUP_TOPICS}, before, after)
        halves = [grouped(sum(map(len, half.values()))) for half in (before, after)]
        if wrong:
            print(f"{GROUP} did not resume where it stopped:", *wrong, sep="\n  ")
        else:
            print(f"{GROUP} read {halves[0]} records on {SOURCE} and {halves[1]} on {TARGET}: all of them, none twice")
        return 1 if wrong else 0

    def documents(self, arguments: Sequence[str], log_name: str) -> Iterator[Dict[str, Any]]:
        """Run a command of the checkout and give what it prints, one JSON document a line; fails where it does."""
        log, count = self.directory / log_name, 0
        self.say(arguments)
        with log.open("w") as errors, started(arguments, errors, **quick_spark()) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    count += 1
                    yield json.loads(line)
        # Exit code 1 of `mirror verify` is a finding, if it comes with a report.
        if process.returncode not in (0, 1) or (process.returncode and (not count or "verify" not in arguments)):
            tail = "\n".join(log.read_text().splitlines()[-5:])
            code = process.returncode
            raise LabError(f"{arguments[0]} ended with exit code {code}, last words (log: {log}):\n{tail}")

    def conclude(self, report: Dict[str, Any], made: Sequence[dataset.MadeTopic]) -> int:
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

    def say_where(self) -> None:
        """For who wants to use both clusters."""
        pids = " ".join(str(broker.pid) for broker in self.brokers)
        print(f"both clusters keep running: {SOURCE} {self.brokers[0].bootstrap}, {TARGET} {self.brokers[1].bootstrap}")
        print(f"configuration: {self.config.relative_to(ROOT)}\nto stop them: kill {pids}; rm -r {self.directory}")

    def end(self) -> None:
        for broker in self.brokers:
            broker.kill()


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    before = time.monotonic()
    yield
    print(f"{time.monotonic() - before:6.1f} s {what}", flush=True)


@contextlib.contextmanager
def started(arguments: Sequence[str], errors: Any, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process of the checkout in a group of its own, which is gone when the block is left."""
    process = subprocess.Popen(
        arguments,
        cwd=ROOT,
        env={**os.environ, "MIRROR_JARS_DIR": str(jars_folder()), "SPARK_LOCAL_IP": "127.0.0.1", **environment},
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


def table(topics: Sequence[Dict[str, Any]], rates: Mapping[str, float], rate: float) -> str:
    """One row a topic and one for all, whose rate counts the fixed cost of the passes too."""
    rows = [["topic", "partitions", "records", "records/s", "verified"]]
    for t in topics:
        speed = grouped(round(rates.get(t["topic"], 0.0)))
        rows.append([t["topic"], str(len(t["partitions"])), grouped(t["records"]), speed, t["verdict"]])
    partitions, records = sum(len(t["partitions"]) for t in topics), sum(t["records"] for t in topics)
    equal = sum(t["verdict"] == "equal" for t in topics)
    rows.append(["all", str(partitions), grouped(records), grouped(round(rate)), f"{equal} of {len(topics)}"])
    return "\n".join(aligned(rows, right=(1, 2, 3)))


def one_line(error: BaseException) -> Optional[str]:
    """What a user can act on; None for what only a developer can."""
    if isinstance(error, LabError):
        return str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk that holds {CACHE} is full: make room"
    return None


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
    except Exception as error:
        if one_line(error) is None:
            raise
        print(f"demo: {one_line(error)}", file=sys.stderr)
    finally:
        if code or not demo.keep:
            demo.end()
        if code == STOPPED or not (code or demo.keep):  # after a failure the logs stay
            shutil.rmtree(demo.directory, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
