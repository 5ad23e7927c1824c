"""Spark's session: settings that are refused, what it hides, ships and imports, and what it leaves behind."""

from __future__ import annotations

import os
import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict
from unittest.mock import Mock

import py4j.java_gateway
import pytest
from py4j.version import __version__ as version

from mirror_lib.errors import EXIT_REFUSED, EXIT_USAGE, ConfigError, RefusedError
from mirror_lib.kafka.java_keystore import py4j_jar
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.table_reader import local_folder, local_refusal
from mirror_lib.replication import stage
from mirror_lib.replication.messages import TaskPlan
from mirror_lib.rows import stage as rows_stage
from mirror_lib.rows.partition import LaneTask
from mirror_lib.rows.writer import LaneKey, RowsPlan
from mirror_lib.spark.jobs import SMALL_BYTES
from mirror_lib.spark.session import SETTINGS, refuse_settings, refuse_working_folder, silence_traces
from tests.unit.logs import task_of


@pytest.mark.parametrize("value", ["true", " TRUE "])
def test_speculation_is_refused_however_it_is_spelt(value: str) -> None:
    session: Any = SimpleNamespace(conf={"spark.speculation": value})
    with pytest.raises(RefusedError, match=r"set spark\.speculation to false") as refused:
        refuse_settings(session)
    assert refused.value.exit_code == EXIT_REFUSED
    for accepted in ({}, {"spark.speculation": "false"}):
        session.conf = accepted
        refuse_settings(session)


@pytest.mark.parametrize(
    "name",
    [
        *("kafka.sasl.jaas.config", "kafka.ssl.key.password", "kafka.ssl.keystore.key", "fs.account.key.secret"),
        "kafka.sasl.oauthbearer.client.credentials.client.secret",
    ],
)
def test_spark_hides_what_clients_log_in_with(name: str) -> None:
    assert re.search(SETTINGS["spark.redaction.regex"], name)
    assert re.search(SETTINGS["spark.sql.redaction.options.regex"], name)


def test_refused_expression_is_not_told_by_spark_as_well(capfd: Any, caplog: Any) -> None:
    logger = pytest.importorskip("pyspark.logger").PySparkLogger  # Spark 4
    silence_traces()
    logger.getLogger("SQLQueryContextLogger").exception("no such column", errorClass="UNRESOLVED_COLUMN")
    assert capfd.readouterr().err == "" and not caplog.records


def test_folder_without_a_scheme_is_not_checked_where_it_may_be_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for environ in ({"HADOOP_CONF_DIR": "/etc/hadoop"}, {"PYSPARK_GATEWAY_PORT": "1"}):
        for prefix in ("", "file:", "file://"):
            assert (local_refusal(f"{prefix}{file}/state", environ) is None) == (not prefix)


def test_relative_folder_is_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_folder("./mirror-state", {}) == str(tmp_path / "mirror-state")
    assert local_folder("file:/data/state", {}) == "/data/state"
    assert local_folder("s3a://bucket/state", {}) is local_folder("hdfs:///state", {}) is None


def test_jar_is_found_on_the_class_path_of_a_yarn_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container has no SPARK_HOME, and an archive that is made for a cluster's own Spark has no pyspark."""
    jar = tmp_path / "libs" / f"py4j-{version}.jar"
    jar.parent.mkdir()
    jar.touch()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(py4j.java_gateway, "find_jar_path", lambda: "")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    path = [str(tmp_path), f"{tmp_path}/conf", f"{jar.parent}/*"]
    monkeypatch.setenv("CLASSPATH", os.pathsep.join(path))
    assert py4j_jar() == str(jar)


CANARY = "hunter2"
LOGIN = {"sasl_plain_username": "mirror", "sasl_plain_password": CANARY}
PARTITIONS = 20_000


def test_secrets_are_not_in_what_spark_ships_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    spark: Any = SimpleNamespace()
    tasks = tuple(replace(task_of(end=10), partition=number) for number in range(PARTITIONS))
    batches = TaskPlan(0, "A->B", {0: "m.A->B.0"}, {0: Producer(1, 1)}, tasks, "A", "B", LOGIN, LOGIN)
    lanes: Dict[LaneKey, LaneTask] = {}
    for number in range(PARTITIONS):
        remote, source = ("A.orders", number), ("orders", number)
        lanes[(remote, source)] = LaneTask(remote, source, f"m.A->B.A.orders.{number}", 0, 1 << 20)
    of_rows = RowsPlan("A->B", None, {}, {}, lanes, "A", "B", LOGIN, LOGIN)
    shipped = Mock(side_effect=SystemExit)  # ends a stage where it would begin
    monkeypatch.setattr(stage, "shipped", shipped)
    for plan, run in (
        (batches, lambda: stage.run_tasks(spark, [batches])),
        (of_rows, lambda: rows_stage.append_rows(Mock(), of_rows)),
    ):
        with pytest.raises(SystemExit):
            run()
        bare, secret = map(pickle.dumps, shipped.call_args.args[1:])
        assert len(bare) > SMALL_BYTES and CANARY.encode() not in bare
        assert CANARY.encode() in secret and CANARY.encode() in pickle.dumps(plan)


def test_working_folder_is_refused_where_spark_cannot_have_its_folder_in_it(tmp_path: Path) -> None:
    refuse_working_folder("4.0.0", str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=str(tmp_path / "file")) as refused:
        refuse_working_folder("4.0.0", str(tmp_path / "file"))
    assert refused.value.exit_code == EXIT_USAGE
    refuse_working_folder("4.1.0", str(tmp_path / "file"))
