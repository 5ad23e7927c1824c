"""`python -m tests.lab.class_archives`: class archives of Spark, brokers and the job, made once for a quick start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from mirror_lib.config.model import ClusterConfig
from mirror_lib.facts import CommittedOffset
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.brokers import JARS, clusters
from tests.lab.checkout import CACHE, ROOT
from tests.lab.flow_lab import write_config
from tests.lab.jvm import QUICK, QUIET, job_archive, kafka_archive, spark_archive

WARM_UP = """
import sys
from pyspark.sql import SparkSession
spark, table = SparkSession.builder.getOrCreate(), sys.argv[1]
for _ in range(2):
    spark.range(100).selectExpr("id", "cast(id as string) as text").write.format("delta").mode("append").save(table)
rows = spark.read.format("delta").load(table)
rows.join(rows.groupBy("id").count(), "id", "full_outer").where("id > 5").orderBy("id").collect()
spark.stop()
"""

SETTINGS = {"topics": ["archive"], "groups": ["archive"], "sync.group.offsets.enabled": "true", "replication.factor": 1}


def make_spark_archive() -> None:
    """Run a job that writes and reads a Delta table, and keep the classes it loaded."""
    archive = spark_archive()
    part = archive.with_suffix(".part")
    options = " ".join([*QUICK, *QUIET, f"-XX:ArchiveClassesAtExit={part}"])
    with tempfile.TemporaryDirectory(prefix="jvm-", dir=CACHE) as folder:
        job = Path(folder, "warm_up.py")
        job.write_text(WARM_UP)
        command = ["./spark-submit.sh", str(job), f"{folder}/table"]
        environment = {**os.environ, "MIRROR_VENV": sys.prefix, "MIRROR_CLASSES": "", "SPARK_SUBMIT_OPTS": options}
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
    part.replace(archive)


def make_job_archive() -> None:
    """Run the job that copies a topic and translates a group, and keep the classes it loaded for later jobs."""
    with tempfile.TemporaryDirectory(prefix="jvm-", dir=CACHE) as folder, clusters(
        ["primary", "backup"], Path(folder)
    ) as (source, target):
        source.create_topic("archive")
        source.write("archive", b"x")
        with KafkaCluster(ClusterConfig("primary", {"bootstrap.servers": source.bootstrap})) as cluster:
            cluster.commit_offsets("archive", {("archive", 0): CommittedOffset(1)})
        servers = {"primary": source.bootstrap, "backup": target.bootstrap}
        ends = {"state": f"{folder}/state", "trigger": "availableNow"}
        config = write_config(Path(folder, "mirror.yaml"), "archive", servers, ["primary->backup"], SETTINGS, **ends)
        command = ["./spark-submit.sh", "--keep-classes", "jobs/mirror.py", str(config)]
        environment = {**os.environ, "MIRROR_VENV": sys.prefix, "MIRROR_CLASSES": str(job_archive())}
        subprocess.run(command, cwd=ROOT, env=environment, check=True)


def make_kafka_archive() -> None:
    """Run a broker until it answers, and keep the classes it loaded."""
    archive = kafka_archive(JARS)
    part = archive.with_suffix(".part")
    with tempfile.TemporaryDirectory(prefix="jvm-", dir=CACHE) as folder:
        options = [*QUICK, *QUIET, f"-XX:ArchiveClassesAtExit={part}"]
        with clusters(["archive"], Path(folder), java_options=options) as (broker,):
            broker.create_topic("archive")
            assert broker.process is not None
            os.kill(broker.pid, signal.SIGTERM)  # a killed one would keep nothing
            broker.process.wait(60)
    part.replace(archive)


if __name__ == "__main__":
    if not spark_archive().exists():
        make_spark_archive()
    if not kafka_archive(JARS).exists():
        make_kafka_archive()
    if not job_archive().exists():
        make_job_archive()
