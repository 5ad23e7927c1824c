"""A folder in, a Spark session out that has the Kafka connector and Delta and reaches for no network."""

from __future__ import annotations

from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from tests.lab.brokers import ROOT
from tests.lab.ports import LabError


def spark_jars() -> str:
    """Comma list of the jars that `make setup` fetched for the Spark that runs."""
    folder = ROOT / ".cache" / f"spark-{pyspark.__version__}-jars"
    jars = sorted(str(jar) for jar in folder.glob("*.jar"))
    if not jars:
        raise LabError(f"no connector jars in {folder}: run `make setup`")
    return ",".join(jars)


def build_session(directory: Path, master: str = "local[2,4]") -> SparkSession:
    builder = SparkSession.Builder().master(master).appName("mirror-tests")
    settings = {
        "spark.jars": spark_jars(),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
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
    return session
