"""Java options for processes that live for seconds: half of their time would go into loading and compiling classes.

Class archives (JEP 350) are made by `tests.lab.class_archives`; without them, or with another Java, Java only starts
slower. Benchmarks take none of this but what `spark-submit.sh` takes for everybody.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Dict, List

from tests.lab.checkout import CACHE

# The first compiler alone: what the second one would make is ready when the process ends. With it Java reserves 48 MB
# for compiled code, which Spark fills in a few hundred tests; Java then drops code and compiles it again all the time.
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC"]
# Spark writes Java for each statement and compiles it. Over a few rows that takes a third of the whole time.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
# Java would say on standard output that an archive does not fit.
QUIET = ["-Xlog:disable", "-Xlog:all=error:stderr"]


def spark_archive() -> Path:
    return CACHE / f"spark-{version('pyspark')}.jsa"


def job_archive() -> Path:
    """Where `spark-submit.sh` looks for the classes of a job."""
    return CACHE / f"spark-{version('pyspark')}-classes.jsa"


def kafka_archive(jars: Path) -> Path:
    return jars.with_name(jars.name + ".jsa")


def quick_options(archive: Path) -> List[str]:
    """For a process of these classes that runs for seconds."""
    kept = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    return [*QUICK, *QUIET, *kept]


def quick_spark(interpreted: bool = True) -> Dict[str, str]:
    """The same as environment variables, for whatever starts a Spark driver; its statements answer the same."""
    settings = [f"-D{name}={value}" for name, value in INTERPRETED.items()] if interpreted else []
    # The job's own archive was made with another collector, so Java would take neither.
    return {"SPARK_SUBMIT_OPTS": " ".join([*quick_options(spark_archive()), *settings]), "MIRROR_CLASSES": ""}
