"""`python -m tests.lab.class_archives`: class archives of Spark, brokers and the job, made once for a quick start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from mirror_lib.config.model import ClusterConfig
from mirror_lib.facts import CommittedOffset
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.brokers import JARS, KafkaBroker, clusters
from tests.lab.checkout import CACHE, ROOT
from tests.lab.flow_lab import write_config
from tests.lab.jvm import QUICK, QUIET, job_archive, kafka_archive, spark_archive

SETTINGS = {"topics": ["archive"], "groups": ["archive"], "sync.group.offsets.enabled": "true", "replication.factor": 1}


def submit(folder: Path, source: KafkaBroker, target: KafkaBroker, *options: str, **environment: str) -> None:
    """A job that copies a topic and translates a group, in a new state folder."""
    servers = {"primary": source.bootstrap, "backup": target.bootstrap}
    ends = {"state": folder / f"state{len(options)}", "trigger": "availableNow"}
    config = write_config(folder / "mirror.yaml", "archive", servers, ["primary->backup"], SETTINGS, **ends)
    command = ["./spark-submit.sh", *options, "jobs/mirror.py", str(config)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "MIRROR_VENV": sys.prefix, **environment}, check=True)


def make(folder: Path) -> None:
    """Run one broker and two jobs, and keep the classes that they loaded."""
    keeping = {part: [*QUICK, *QUIET, f"-XX:ArchiveClassesAtExit={folder}/{part}.jsa"] for part in ("kafka", "spark")}
    with clusters(["primary"], folder, java_options=keeping["kafka"]) as (source,), clusters(["backup"], folder) as (
        target,
    ):
        source.create_topic("archive")
        source.write("archive", b"x")
        with KafkaCluster(ClusterConfig("primary", {"bootstrap.servers": source.bootstrap})) as cluster:
            cluster.commit_offsets("archive", {("archive", 0): CommittedOffset(1)})
        submit(folder, source, target, MIRROR_CLASSES="", SPARK_SUBMIT_OPTS=" ".join(keeping["spark"]))
        submit(folder, source, target, "--keep-classes", MIRROR_CLASSES=str(job_archive()))
        assert source.process is not None
        os.kill(source.pid, signal.SIGTERM)  # a killed one would keep nothing
        source.process.wait(60)
    (folder / "kafka.jsa").replace(kafka_archive(JARS))
    (folder / "spark.jsa").replace(spark_archive())


if __name__ == "__main__":
    if not all(archive.exists() for archive in (spark_archive(), kafka_archive(JARS), job_archive())):
        with TemporaryDirectory(prefix="jvm-", dir=CACHE) as name:
            make(Path(name))
