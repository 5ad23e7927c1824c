"""A real session of Spark Connect, as on serverless compute: each command that needs Spark is refused and leaves it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mirror_lib.errors import EXIT_USAGE
from tests.lab.checkout import ROOT

# Spark Connect's own needs, which classic Spark has not.
pytest.importorskip("grpc", reason="pip install '.[connect]' brings it")
pytest.importorskip("grpc_status")

REFUSED = """
import json, os, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[1]").getOrCreate()
from mirror_lib.cli import main
codes = {}
for words in (["run", "--once"], ["verify"], ["translate", "--once"], ["groups", "plan"]):
    codes[" ".join(words)] = main([*words, sys.argv[1]])
for name in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"):
    os.environ.pop(name, None)
from mirror_lib.errors import ConfigError
from mirror_lib.spark.session import refuse_without_jvm
try:
    refuse_without_jvm(spark)
    own = None
except ConfigError as error:
    own = str(error)
rows = spark.range(3).collect()
print(json.dumps({"kind": type(spark).__module__, "codes": codes, "own": own, "rows": len(rows)}))
"""
CONFIG = """
name: connect
clusters:
  A: {bootstrap.servers: "127.0.0.1:1"}
  B: {bootstrap.servers: "127.0.0.1:1"}
flows:
  A->B: {topics: ".*"}
state: STATE
"""


@pytest.mark.long
def test_each_command_is_refused_at_once_and_the_session_lives_on(tmp_path: Path) -> None:
    config = tmp_path / "mirror.yaml"
    config.write_text(CONFIG.replace("STATE", str(tmp_path / "state")))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    ran = subprocess.run(
        [sys.executable, "-c", REFUSED, str(config)], env=environ, capture_output=True, text=True, timeout=300
    )

    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["kind"] == "pyspark.sql.connect.session"
    assert set(found["codes"].values()) == {EXIT_USAGE}
    assert "dedicated access" in found["own"]
    assert found["rows"] == 3
    assert ran.stderr.count("SPARK_") >= len(found["codes"])
    assert not (tmp_path / "state").exists()
