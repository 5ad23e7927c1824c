"""A folder in, a Spark session out that has the Kafka connector and Delta and reaches for no network."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.lab.checkout import jars_folder


def build_session(directory: Path, master: str = "local[2,4]") -> SparkSession:
    builder = SparkSession.Builder().master(master).appName("mirror-tests")
    settings = {
        "spark.jars": ",".join(sorted(str(jar) for jar in jars_folder().glob("*.jar"))),
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
