"""Java options for processes that live for seconds: half of their time would go into loading and compiling classes.

`python -m tests.lab.jvm` makes the class archives (JEP 350) once; without them, or with another Java, all goes on as
without. Benchmarks take none of this.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Dict, List

from tests.lab.checkout import CACHE, ROOT

# The first compiler alone: what the second one would make is ready when the process ends.
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
# Java would say on standard output that an archive does not fit.
QUIET = ["-Xlog:disable", "-Xlog:all=error:stderr"]

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


def spark_archive() -> Path:
    """Where the classes of this environment's Spark are kept."""
    return CACHE / f"spark-{version('pyspark')}.jsa"


def kafka_archive(jars: Path) -> Path:
    """Where the classes of the brokers in `jars` are kept."""
    return jars.with_name(jars.name + ".jsa")


def quick_options(archive: Path) -> List[str]:
    """For a process of these classes that lives for seconds."""
    kept = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    return [*QUICK, *QUIET, *kept]


def quick_spark() -> Dict[str, str]:
    """The same as environment variables, for whatever starts a Spark driver."""
    return {"SPARK_SUBMIT_OPTS": " ".join(quick_options(spark_archive()))}


def make_spark_archive() -> None:
    """Run a job that writes and reads a Delta table, and keep the classes it loaded."""
    archive = spark_archive()
    part = archive.with_suffix(".part")
    options = " ".join([*QUICK, *QUIET, f"-XX:ArchiveClassesAtExit={part}"])
    with tempfile.TemporaryDirectory(prefix="jvm-", dir=CACHE) as folder:
        job = Path(folder, "warm_up.py")
        job.write_text(WARM_UP)
        command = ["./spark-submit.sh", str(job), f"{folder}/table"]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "SPARK_SUBMIT_OPTS": options}, check=True)
    part.replace(archive)


def make_kafka_archive() -> None:
    """Run a broker until it answers, and keep the classes it loaded."""
    from tests.lab.brokers import JARS, clusters

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
    from tests.lab.brokers import JARS

    if not spark_archive().exists():
        make_spark_archive()
    if not kafka_archive(JARS).exists():
        make_kafka_archive()
