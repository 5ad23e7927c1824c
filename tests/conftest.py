"""Fixtures that every test may ask for. They are lazy: a test that asks for none of them needs no Java."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import uuid
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterator

import pytest

from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import CACHE, ROOT, jars_folder
from tests.lab.jvm import COMPILED, INTERPRETED, quick_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.lab.skips", "tests.lab.shared_clusters"]


@pytest.fixture(scope="session")
def lab_directory() -> Iterator[Path]:
    """A folder of this run, deleted at its end."""
    directory = Path(tempfile.mkdtemp(prefix="mirror-lab-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def source_cluster(both_clusters: list[KafkaBroker]) -> KafkaBroker:
    """The cluster that flows read. Tests that stop or kill a broker start one of their own instead."""
    return both_clusters[0]


@pytest.fixture(scope="session")
def target_cluster(both_clusters: list[KafkaBroker]) -> KafkaBroker:
    """The cluster that flows write to."""
    return both_clusters[1]


@pytest.fixture
def topic_name() -> Callable[[str], str]:
    """Make topic names that no other test has: `topic_name("orders")` gives `orders-1a2b3c4d-1`."""
    run, number = uuid.uuid4().hex[:8], itertools.count(1)

    def make(stem: str = "topic") -> str:
        return f"{stem}-{run}-{next(number)}"

    return make


@pytest.fixture(scope="session")
def spark(lab_directory: Path) -> Iterator[SparkSession]:
    """The one Spark session of the run: two cores, four attempts a task, Delta, Kafka, no UI, no network."""
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder().master("local[2,4]").appName("mirror-tests")
    settings = {
        "spark.jars": ",".join(sorted(str(jar) for jar in jars_folder().glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(lab_directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def compiled_statements(spark: SparkSession) -> Iterator[None]:
    """For files about what statements answer, or about many rows: Spark compiles them, as it does for users."""
    from mirror_lib.ledger.delta_table import own_session

    for name in INTERPRETED:
        for session in (spark, own_session(spark)):
            session.conf.set(name, COMPILED[name])
    yield
    for name, value in INTERPRETED.items():
        for session in (spark, own_session(spark)):
            session.conf.set(name, value)


# Spark's Python workers are new processes that must find mirror_lib and this very Python. No session fetches jars.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ.setdefault("MIRROR_JARS_DIR", str(CACHE / f"spark-{version('pyspark')}-jars"))
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
for _name, _value in quick_spark().items():
    os.environ.setdefault(_name, _value)
