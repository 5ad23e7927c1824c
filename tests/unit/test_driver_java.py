"""Which connectors a Spark needs, where they come from, and what else its driver's Java is given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirror_lib.errors import EXIT_USAGE, ConfigError
from mirror_lib.spark.java import (
    CHECKOUT,
    COLLECTOR,
    LOGGING,
    SPARK_LINES,
    connector_settings,
    java_settings,
    packages,
    require_java,
)
from tests.compat.spark_lines import LINES
from tests.lab.checkout import ROOT


def test_files_of_the_package_and_of_the_checkout_are_where_java_is_sent() -> None:
    assert LOGGING.is_file()
    assert CHECKOUT == ROOT


def test_connectors_follow_the_spark_that_runs() -> None:
    assert packages("4.0.0") == [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
        "io.delta:delta-spark_2.13:4.0.0",
    ]
    assert packages("3.3.2")[1] == "io.delta:delta-core_2.12:2.3.0"


def test_recorded_connectors_are_those_that_the_lines_are_run_with() -> None:
    setup = (ROOT / "tests/lab/setup.sh").read_text()
    lines = re.findall(r"^    (\d\.\d)\) spark=(\S+) delta=(\S+) scala=(\S+)", setup, re.MULTILINE)
    assert tuple(line for line, *_ in lines) == LINES == tuple(SPARK_LINES.split(", "))
    for _, spark, delta, scala in lines:
        kafka, table = packages(spark)
        assert kafka == f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark}"
        assert table.startswith("io.delta:delta-") and table.endswith(f"_{scala}:{delta}")


def test_spark_that_nobody_tried_is_named_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"Spark 5\.1\.0 .*3\.3, .*MIRROR_JARS_DIR") as refused:
        packages("5.1.0")
    assert refused.value.exit_code == EXIT_USAGE


def test_folder_of_jars_is_taken_where_one_is_named(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "notes.txt"):
        (tmp_path / name).touch()
    assert connector_settings("5.1.0", {"MIRROR_JARS_DIR": str(tmp_path)}) == {
        "spark.jars": f"{tmp_path}/a.jar,{tmp_path}/b.jar"
    }


def test_folder_without_jars_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which holds no jars"):
        connector_settings("4.0.0", {"MIRROR_JARS_DIR": str(tmp_path / "missing")})


def test_jars_that_the_checkout_has_are_taken_unasked(tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "spark-4.0.0-jars"
    folder.mkdir(parents=True)
    (folder / "a.jar").touch()
    assert connector_settings("4.0.0", {}, tmp_path) == {"spark.jars": f"{folder}/a.jar"}


def test_without_a_folder_ivy_is_asked_and_its_noise_is_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert connector_settings("4.0.0", {}, tmp_path) == {"spark.jars.packages": ",".join(packages("4.0.0"))}
    assert "MIRROR_JARS_DIR" in capsys.readouterr().err


def test_kept_classes_are_used_with_the_class_path_that_they_were_kept_for(tmp_path: Path) -> None:
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


def test_javas_collector_is_the_users_if_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()
    environ, options = {"MIRROR_JARS_DIR": str(tmp_path), "MIRROR_CLASSES": ""}, "spark.driver.extraJavaOptions"
    other, own = {"JDK_JAVA_OPTIONS": "-XX:-UseGCOverheadLimit"}, {"JAVA_TOOL_OPTIONS": "-Xss4m -XX:+UseG1GC"}
    assert COLLECTOR in java_settings("4.0.0", {**environ, **other}, tmp_path)[options]
    assert COLLECTOR not in java_settings("4.0.0", {**environ, **own}, tmp_path)[options]
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-env.sh").write_text("# -XX:+UseG1GC\n")
    assert COLLECTOR in java_settings("4.0.0", environ, tmp_path)[options]
    (tmp_path / "conf" / "spark-env.sh").write_text('export SPARK_SUBMIT_OPTS="-XX:+UseG1GC"\n')
    assert COLLECTOR not in java_settings("4.0.0", environ, tmp_path)[options]
    (tmp_path / "conf" / "spark-env.sh").write_bytes("# für alle".encode("latin-1"))
    assert COLLECTOR in java_settings("4.0.0", environ, tmp_path)[options]
    (tmp_path / "conf" / "java-opts").write_text("-XX:+UseSerialGC")
    assert COLLECTOR not in java_settings("4.0.0", environ, tmp_path)[options]
    (tmp_path / "conf" / "java-opts").unlink()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.driver.defaultJavaOptions=-Xss4m -XX:+UseZGC\n")
    assert COLLECTOR not in java_settings("4.0.0", environ, tmp_path)[options]


@pytest.mark.parametrize(("name", "place"), [("PATH", "on the PATH"), ("JAVA_HOME", "in JAVA_HOME=")])
def test_missing_java_is_named_with_what_to_do(name: str, place: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"Spark needs Java, and there is none {place}.*install Java 17"):
        require_java({name: str(tmp_path)})
    java = tmp_path / ("java" if name == "PATH" else "bin/java")
    java.parent.mkdir(exist_ok=True)
    java.touch(0o755)
    require_java({name: str(tmp_path)})
