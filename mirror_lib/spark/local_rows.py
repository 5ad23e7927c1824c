"""Plain tuples in, a DataFrame of one partition out, made inside the JVM.

`createDataFrame` would start Python workers for a handful of rows; here they travel as JSON text in the plan.
"""

from __future__ import annotations

import json
from typing import List, Sequence, Tuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

# So many rows to one text: a plan with texts of many megabytes is slow to print and to optimise.
ROWS_TO_A_TEXT = 50_000


def local_rows(
    spark: SparkSession, columns: Sequence[Tuple[str, str]], rows: Sequence[Tuple[object, ...]]
) -> DataFrame:
    """`rows` under `columns` (name, Spark SQL type: numbers, booleans, strings). A value of another type fails late."""
    row_type = ", ".join(f"{name}: {type_name}" for name, type_name in columns)
    texts = [_text(columns, rows[first : first + ROWS_TO_A_TEXT]) for first in range(0, len(rows), ROWS_TO_A_TEXT)]
    parsed = F.from_json(F.col("text"), f"array<struct<{row_type}>>", {"mode": "FAILFAST"})
    given = F.array(*(F.lit(text) for text in texts or ["[]"]))
    arrays = spark.range(0, 1, 1, 1).select(F.explode(given).alias("text")).select(parsed.alias("rows"))
    return arrays.selectExpr("inline(rows)")  # PySpark 3.3 has no function of that name


def _text(columns: Sequence[Tuple[str, str]], rows: Sequence[Tuple[object, ...]]) -> str:
    names: List[str] = [name for name, _ in columns]
    return json.dumps([dict(zip(names, row)) for row in rows])
