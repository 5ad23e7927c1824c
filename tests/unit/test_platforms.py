"""Which connectors and options the Java of each Spark is given, and what differs on Databricks."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict
from unittest.mock import Mock

import pytest

from mirror_lib.commands.run import stop_on_signals
from mirror_lib.config.client_options import RUNTIME, SHADED, java_class, kafka_python_options, spark_kafka_options
from mirror_lib.errors import EXIT_OK, EXIT_USAGE, ConfigError
from mirror_lib.spark.java import COLLECTOR, SPARK_LINES, connector_settings, java_settings, packages, require_java
from mirror_lib.spark.session import REMOTE, refuse_without_jvm, running_session
from mirror_lib.threads import BackgroundCall
from mirror_lib.wheel_task import CommandFailedError, main
from tests.compat.spark_lines import LINES
from tests.lab.checkout import ROOT


def test_connectors_are_those_of_the_tested_spark_lines_and_others_are_refused() -> None:
    setup = (ROOT / "tests/lab/setup.sh").read_text()
    lines = re.findall(r"^    (\d\.\d)\) spark=(\S+) delta=(\S+) scala=(\S+)", setup, re.MULTILINE)
    assert tuple(line for line, *_ in lines) == LINES == tuple(SPARK_LINES.split(", "))
    for _, spark, delta, scala in lines:
        kafka, table = packages(spark)
        assert kafka == f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark}"
        assert table.startswith("io.delta:delta-") and table.endswith(f"_{scala}:{delta}")
        assert packages(f"{spark}+amzn.1") == packages(f"{spark}-amzn-1") == [kafka, table]
    with pytest.raises(ConfigError, match=r"Spark 5\.1\.0 .*3\.3, .*MIRROR_JARS_DIR"):
        packages("5.1.0")


def test_jars_come_from_the_folder_that_is_named_then_from_the_checkout_then_from_ivy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert connector_settings("4.0.0", {}, tmp_path) == {"spark.jars.packages": ",".join(packages("4.0.0"))}
    assert "MIRROR_JARS_DIR" in capsys.readouterr().err
    folder = tmp_path / ".cache" / "spark-4.0.0-jars"
    folder.mkdir(parents=True)
    for name in ("b.jar", "a.jar", "notes.txt"):
        (folder / name).touch()
    jars = {"spark.jars": f"{folder}/a.jar,{folder}/b.jar"}
    assert connector_settings("4.0.0", {}, tmp_path) == jars
    assert connector_settings("5.1.0", {"MIRROR_JARS_DIR": str(folder)}) == jars
    with pytest.raises(ConfigError, match="which holds no jars"):
        connector_settings("4.0.0", {"MIRROR_JARS_DIR": str(tmp_path / "missing")}, tmp_path)


def test_class_archive_is_used_with_the_class_path_of_its_creation(tmp_path: Path) -> None:
    """As spark-submit.sh does: what Spark brings stays Spark's, and one who set a class path keeps it."""
    jars, home, kept = tmp_path / "mine", tmp_path / "spark", tmp_path / "kept classes.jsa"
    for jar in (jars / "antlr4-runtime-4.9.4.jar", jars / "a_2.13-1.0.jar", home / "jars" / "antlr4-runtime-4.9.3.jar"):
        jar.parent.mkdir(parents=True, exist_ok=True)
        jar.touch()
    environ = {"MIRROR_JARS_DIR": str(jars), "MIRROR_CLASSES": str(kept)}
    path, options = "spark.driver.extraClassPath", "spark.driver.extraJavaOptions"
    without = java_settings("4.0.0", environ, home)
    assert path not in without and "a_2.13-1.0.jar" in without["spark.jars"] and "Shared" not in without[options]
    kept.touch()
    settings = java_settings("4.0.0", environ, home)
    assert settings[path] == f"{jars}/a_2.13-1.0.jar" and "spark.jars" not in settings
    assert f'-XX:SharedArchiveFile="{kept}"' in settings[options]
    assert java_settings("4.0.0", {**environ, "MIRROR_CLASSES": ""}, home) == without
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text("spark.driver.extraClassPath mine\n")
    assert java_settings("4.0.0", environ, home) == without


@pytest.mark.parametrize(
    ("file", "text", "environ", "ours"),
    [
        ("", "", {"JDK_JAVA_OPTIONS": "-XX:-UseGCOverheadLimit"}, True),
        ("", "", {"JAVA_TOOL_OPTIONS": "-Xss4m -XX:+UseG1GC"}, False),
        ("spark-env.sh", "# für alle: -XX:+UseG1GC\n", {}, True),
        ("spark-env.sh", 'export SPARK_SUBMIT_OPTS="-XX:+UseG1GC"\n', {}, False),
        ("spark-defaults.conf", "spark.driver.defaultJavaOptions=-Xss4m -XX:+UseZGC\n", {}, False),
    ],
)
def test_javas_collector_is_the_users_if_there_is_one(
    tmp_path: Path, file: str, text: str, environ: Dict[str, str], ours: bool
) -> None:
    (tmp_path / "a.jar").touch()
    (tmp_path / "conf").mkdir()
    if file:
        (tmp_path / "conf" / file).write_bytes(text.encode("latin-1"))
    own = {"MIRROR_JARS_DIR": str(tmp_path), "MIRROR_CLASSES": "", **environ}
    assert (COLLECTOR in java_settings("4.0.0", own, tmp_path)["spark.driver.extraJavaOptions"]) is ours


def test_missing_java_is_named_with_what_to_do(tmp_path: Path) -> None:
    for name, place, file in (("PATH", "on the PATH", "java"), ("JAVA_HOME", "in JAVA_HOME=", "bin/java")):
        environ = {name: str(tmp_path / name)}
        with pytest.raises(ConfigError, match=f"Spark needs Java, and there is none {place}.*install Java 17"):
            require_java(environ)
        java = tmp_path / name / file
        java.parent.mkdir(parents=True)
        java.touch(0o755)
        require_java(environ)


THERE, ELSEWHERE = {RUNTIME: "16.4"}, {"PATH": "/usr/bin"}
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{}";'
KERBEROS = 'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true serviceName="org.apache.kafka.";'
# A password that looks like a class must stay as it is.
LINE = PLAIN.format("org.apache.kafka.")


@pytest.mark.parametrize(
    ("given", "there", "elsewhere"),
    [
        *((line, SHADED + LINE, LINE) for line in (LINE, SHADED + LINE, "  " + LINE)),
        (KERBEROS, KERBEROS, KERBEROS),  # the class is not Kafka's
    ],
)
def test_one_line_serves_spark_on_databricks_and_elsewhere(given: str, there: str, elsewhere: str) -> None:
    assert (java_class(given, THERE), java_class(given, ELSEWHERE)) == (there, elsewhere)
    if given != KERBEROS:
        login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": given.strip()}
        assert kafka_python_options(login)["sasl_plain_password"] == "org.apache.kafka."


def test_options_of_sparks_source_have_the_class_of_the_spark_that_runs() -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    given = {"sasl.jaas.config": LINE, "sasl.login.callback.handler.class": handler, "client.id": "org.apache.kafka.c"}
    wanted = {"sasl.jaas.config": SHADED + LINE, "sasl.login.callback.handler.class": SHADED + handler}
    options = spark_kafka_options(given, "4.0.0", THERE)
    assert options == {f"kafka.{key}": value for key, value in {**given, **wanted}.items()}
    assert spark_kafka_options(given, "4.0.0", ELSEWHERE) == {f"kafka.{key}": value for key, value in given.items()}


def test_entry_point_returns_only_where_the_command_succeeded(tmp_path: Any, capsys: Any) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("clusters: 7\n")
    main(["help", "MIR-101"])
    main(["--help"])
    for words in (["plan", str(bad)], ["no-such-command"], ["run", str(tmp_path / "missing.yaml")]):
        with pytest.raises(CommandFailedError) as failed:
            main(words)
        assert failed.value.exit_code == EXIT_USAGE != EXIT_OK


class Forbidden:
    """A session of standard access mode: an error for each private attribute, the JVM's and the context's."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"[JVM_ATTRIBUTE_NOT_SUPPORTED] {name}")


@pytest.mark.parametrize("session", [Forbidden, lambda: SimpleNamespace(sparkContext="context", _jvm=None)])
def test_session_without_a_jvm_is_refused_and_an_ordinary_one_is_not(session: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        refuse_without_jvm(session())
    assert refused.value.exit_code == EXIT_USAGE
    ordinary: Any = SimpleNamespace(sparkContext="context", _jvm="jvm")
    refuse_without_jvm(ordinary)


def test_command_outside_the_main_thread_does_without_signals() -> None:
    assert not BackgroundCall("another thread", stop_on_signals).result().is_set()


@pytest.mark.parametrize("found", [True, False])
def test_on_databricks_the_platforms_context_is_neither_stopped_nor_made_silent(
    monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    from pyspark.sql import SparkSession

    session = Mock(version="4.0.0", _jvm="jvm")
    session.conf.get.side_effect = lambda name, default="": default
    monkeypatch.setenv(RUNTIME, "16.4")
    for name in (*REMOTE, "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session if found else None)
    monkeypatch.setattr(SparkSession, "builder", SimpleNamespace(getOrCreate=lambda: session))
    python = os.environ.get("PYSPARK_PYTHON")
    with running_session("command") as given:
        same = given is session
    assert same and not session.stop.called and not session.sparkContext.mock_calls
    assert os.environ.get("PYSPARK_PYTHON") == python
