"""Fixtures of tests that run flows between the two clusters of the suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Tuple

import pytest

from tests.lab.brokers import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ground = Tuple[KafkaBroker, KafkaBroker, "SparkSession", Path]


@pytest.fixture
def ground(source_cluster: KafkaBroker, target_cluster: KafkaBroker, spark: SparkSession, tmp_path: Path) -> Ground:
    """What a lab stands on: source, target, Spark, and a folder of this test alone."""
    return source_cluster, target_cluster, spark, tmp_path
