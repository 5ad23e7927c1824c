"""The function that transform.yaml names. It is called on the driver, once a pass, and says what Spark is to do."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def in_celsius(rows: DataFrame) -> DataFrame:
    """Add `sensor` and `celsius`, which is null where a record has no number. All that it is given stays."""
    read = F.from_json(F.col("value").cast("string"), "sensor string, fahrenheit double")
    celsius = F.round((read["fahrenheit"] - 32) * 5 / 9, 1)
    return rows.withColumn("sensor", read["sensor"]).withColumn("celsius", celsius)
