"""The four ways to copy a topic, each started as a user starts it: a `Copy` in, a process that leads a session out."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping

from tests.bench.cases import Case
from tests.lab.brokers import JARS, KafkaBroker, die_with_parent, java_command
from tests.lab.checkout import CACHE, ROOT, LabError, jars_folder
from tests.lab.flow_lab import write_config
from tests.lab.mirrormaker import MirrorMaker

TASKS = 2
CLASSES = CACHE / "bench" / "classes"
# What Kafka's own start scripts give, and for MirrorMaker their heap.
JVM = ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:MaxInlineLevel=15"]
JVM += ["-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"]
BROKER_JVM = [*JVM, "-Xms1g", "-Xmx1g"]
MIRRORMAKER_JVM = [*JVM, "-Xms256m", "-Xmx2g"]


@dataclass(frozen=True)
class Copy:
    """One copy of a case's topic, read at `source`, into the remote topic that `alias` gives it; files in `folder`."""

    case: Case
    source: str
    brokers: Mapping[str, KafkaBroker]
    alias: str
    folder: Path

    @property
    def target(self) -> KafkaBroker:
        return self.brokers["target"]

    @property
    def remote_topic(self) -> str:
        return f"{self.alias}.{self.case.name}"


Process = Any
Engine = Callable[[Copy], ContextManager[Process]]


def mirror(copy: Copy) -> ContextManager[Process]:
    """The main job, which copies record batches."""
    return _mirror(copy, {"engine": "batches"})


def rows(copy: Copy) -> ContextManager[Process]:
    """The main job through Spark's rows, which stay as they are where the case changes nothing."""
    return _mirror(copy, {"engine": "records"} if copy.case.change is None else copy.case.change.flow)


@contextmanager
def _mirror(copy: Copy, changes: Mapping[str, str]) -> Iterator[Process]:
    """Through spark-submit, all records that are there, then it ends. Java as Spark starts it."""
    servers, topics = {copy.alias: copy.source, "target": copy.target.bootstrap}, copy.case.name.replace(".", "[.]")
    flow = {"topics": f'["{topics}"]', "tasks.max": TASKS, "replication.factor": 1, **changes}
    ends = {"state": copy.folder / "state", "trigger": "availableNow"}
    config = write_config(copy.folder / "mirror.yaml", "mirror", servers, [f"{copy.alias}->target"], flow, **ends)
    command = ["./spark-submit.sh", "jobs/mirror.py", str(config), "--json"]
    with launched(command, copy.folder, submit_environment()) as process:
        yield process


def submit_environment() -> Dict[str, str]:
    """The environment of spark-submit.sh: the jars of the checkout, and Java as Spark starts it."""
    environment = {**os.environ, "MIRROR_JARS_DIR": str(jars_folder()), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("SPARK_SUBMIT_OPTS", None)
    return environment


@contextmanager
def loop(copy: Copy) -> Iterator[Process]:
    """One plain KafkaConsumer that hands each record to one KafkaProducer."""
    case, target = copy.case, copy.target
    target.create_topic(copy.remote_topic, case.partitions)
    arguments = [copy.source, target.bootstrap, case.name, copy.remote_topic, str(case.records)]
    java = [java_command(), *JVM, "-Xmx1g", "-cp", f"{CLASSES}:{JARS}/*", "CopyLoop"]
    with launched([*java, *arguments, case.codec, case.isolation], copy.folder, os.environ) as process:
        yield process


def mm2_at_defaults(copy: Copy) -> ContextManager[Process]:
    """MirrorMaker 2 with nothing set but what one broker a cluster asks for, and the isolation."""
    return _mirrormaker(copy, {})


def mm2_tuned(copy: Copy) -> ContextManager[Process]:
    """MirrorMaker 2 with more tasks, large fetches and batches, and the topic's codec, so that the target keeps it."""
    flow, source, target = f"{copy.alias}->target", copy.alias, "target"
    tuned = {
        f"{flow}.tasks.max": str(TASKS),
        f"{target}.producer.batch.size": "131072",
        f"{target}.producer.linger.ms": "20",
        f"{target}.producer.buffer.memory": "67108864",
        f"{target}.producer.max.request.size": "4194304",
        f"{target}.producer.compression.type": copy.case.codec,
        f"{source}.consumer.fetch.max.bytes": "67108864",
        f"{source}.consumer.max.partition.fetch.bytes": "8388608",
        f"{source}.consumer.max.poll.records": "5000",
        f"{source}.consumer.receive.buffer.bytes": "1048576",
    }
    return _mirrormaker(copy, tuned)


@contextmanager
def _mirrormaker(copy: Copy, properties: Mapping[str, str]) -> Iterator[Process]:
    defaults = {"refresh.topics.interval.seconds": "600", "emit.checkpoints.interval.seconds": "60"}
    transforms = {} if copy.case.change is None else copy.case.change.transforms
    running = MirrorMaker(
        copy.folder,
        {copy.alias: copy.brokers["source"], "target": copy.target},
        {
            **defaults,
            f"{copy.alias}.bootstrap.servers": copy.source,
            f"{copy.alias}->target.enabled": "true",
            f"{copy.alias}->target.topics": copy.case.name.replace(".", "\\."),
            f"{copy.alias}.consumer.isolation.level": copy.case.isolation,
            **properties,
            **{f"{copy.alias}->target.{key}": value for key, value in transforms.items()},
        },
        MIRRORMAKER_JVM,
    ).start()
    try:
        yield running.process
    finally:
        running.kill()


@contextmanager
def launched(command: List[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Process]:
    """A process of the checkout that leads a session, which is gone when the block is left; its output in `folder`."""
    with (folder / "out.log").open("wb") as out, (folder / "errors.log").open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def compiled() -> None:
    """The Java programs of the benchmark, so that none is compiled while it is measured."""
    CLASSES.mkdir(parents=True, exist_ok=True)
    javac = str(Path(java_command()).resolve().with_name("javac"))
    programs = [str(path) for path in sorted((ROOT / "tests" / "bench").glob("*.java"))]
    command = [javac, "-nowarn", "-d", str(CLASSES), "-cp", f"{JARS}/*", *programs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"the Java programs of the benchmark do not compile: {done.stderr.strip()[:300]}")


# Those that end by themselves are waited for; MirrorMaker runs without end.
ENGINES: Mapping[str, Engine] = {
    "mirror": mirror,
    "mm2": mm2_at_defaults,
    "tuned": mm2_tuned,
    "loop": loop,
    "rows": rows,
}
# What the page compares; the others are measured when they are asked for.
COMPARED = ("mirror", "mm2", "tuned", "loop")
COMPARED_CHANGING = ("rows", "mm2", "tuned")
OURS = ("mirror", "rows")
ENDS = (*OURS, "loop")
