"""Configures the JVM of a driver that this process starts: connector packages, class archives, options.

`python -m mirror_lib.spark.java VERSION` prints the connector packages for a Spark version; `spark-submit.sh` gives
them to a submitted job.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Tuple

from mirror_lib.errors import ConfigError

JARS_DIR, CLASSES = "MIRROR_JARS_DIR", "MIRROR_CLASSES"
CHECKOUT = Path(__file__).resolve().parents[2]

# Spark's minor version: Scala, Delta artifact, Delta version. `make compat` runs each of them.
_LINES: Mapping[Tuple[int, int], Tuple[str, str, str]] = {
    (3, 3): ("2.12", "delta-core_2.12", "2.3.0"),
    (3, 4): ("2.12", "delta-core_2.12", "2.4.0"),
    (3, 5): ("2.12", "delta-spark_2.12", "3.3.2"),
    (4, 0): ("2.13", "delta-spark_2.13", "4.0.0"),
    (4, 1): ("2.13", "delta-spark_4.1_2.13", "4.1.0"),
    (4, 2): ("2.13", "delta-spark_4.2_2.13", "4.4.0"),
}
SPARK_LINES = ", ".join(f"{major}.{minor}" for major, minor in _LINES)

# The same file that spark-submit.sh passes: it leaves mainly the mirror's own log lines.
LOGGING = Path(__file__).resolve().parents[1] / "log4j2.properties"
# As in spark-submit.sh: Java's second compiler pays off for code that runs a hundred thousand times, such as Spark's
# row processing. For other code it only takes cores from brokers and workers. Twenty times the default thresholds.
LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=12000 -XX:Tier4CompileThreshold=300000 "
    "-XX:Tier4BackEdgeThreshold=800000"
)
# As in spark-submit.sh: rows are short-lived and come by the megabyte, so throughput matters, not pauses.
COLLECTOR = "-XX:+UseParallelGC"
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")


def packages(spark_version: str) -> List[str]:
    """Maven coordinates of Spark's Kafka connector and of Delta for a Spark version, which on EMR has a suffix. Raises
    `ConfigError`."""
    major, minor = (int(part) for part in spark_version.split(".")[:2])
    line = _LINES.get((major, minor))
    if line is None:
        raise ConfigError(
            f"no Kafka connector and Delta are recorded for Spark {spark_version}",
            f"use one of Spark {SPARK_LINES}, or put jars that fit it into a folder and set {JARS_DIR}",
        )
    scala, delta, delta_version = line
    released = re.sub(r"^(\d+\.\d+\.\d+).*", r"\1", spark_version)
    return [f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{released}", f"io.delta:{delta}:{delta_version}"]


def connector_settings(spark_version: str, environ: Mapping[str, str], checkout: Path = CHECKOUT) -> Dict[str, str]:
    """The settings by which Spark finds the connectors: in the folder that the environment names, else in the one that
    `make setup` filled (as spark-submit.sh does), else by Ivy."""
    folder = environ.get(JARS_DIR) or str(checkout / ".cache" / f"spark-{spark_version}-jars")
    if not environ.get(JARS_DIR) and not Path(folder).is_dir():
        print(f"Spark fetches its connectors by Ivy, which says so here; {JARS_DIR}=FOLDER saves that", file=sys.stderr)
        return {"spark.jars.packages": ",".join(packages(spark_version))}
    jars = sorted(str(jar) for jar in Path(folder).glob("*.jar"))
    if not jars:
        raise ConfigError(f"{JARS_DIR} is {folder}, which holds no jars", "run `make setup`, or unset it")
    return {"spark.jars": ",".join(jars)}


def kept_classes(
    spark_version: str, environ: Mapping[str, str], spark_home: Path, checkout: Path = CHECKOUT
) -> Optional[Path]:
    """The archive of Java classes for a quick start, as spark-submit.sh finds it; `None` if none can be used.

    It fits only one class path, so a class path set by the user excludes it.
    """
    found = environ.get(CLASSES, str(checkout / ".cache" / f"spark-{spark_version}-classes.jsa"))
    own = _default("spark.driver.extraClassPath", environ, spark_home)
    return Path(found) if found and Path(found).is_file() and not own else None


def _default(name: str, environ: Mapping[str, str], spark_home: Path) -> str:
    """The line of spark-defaults.conf that sets `name`, or an empty string."""
    defaults = Path(environ.get("SPARK_CONF_DIR") or spark_home / "conf", "spark-defaults.conf")
    return next((line for line in _lines(defaults) if re.match(rf"{re.escape(name)}[\s=]", line)), "")


def _lines(file: Path) -> List[str]:
    """The lines of a file; empty if it does not exist."""
    return [line.strip() for line in file.read_text(errors="replace").splitlines()] if file.is_file() else []


def _collector(environ: Mapping[str, str], spark_home: Path) -> str:
    """The option `COLLECTOR`, unless the user's own settings name one: Java does not start with two."""
    names = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")
    own = [environ.get(name, "") for name in names]
    own.append(_default("spark.driver.defaultJavaOptions", environ, spark_home))
    for name in ("spark-env.sh", "java-opts"):
        lines = _lines(Path(environ.get("SPARK_CONF_DIR") or spark_home / "conf", name))
        own += [line for line in lines if not line.startswith("#")]
    return "" if _COLLECTOR.search(" ".join(own)) else f" {COLLECTOR}"


def on_class_path(connectors: Mapping[str, str], spark_home: Path) -> Dict[str, str]:
    """Put connectors in a folder on Java's class path, where archived classes can be used.

    They come before Spark's own jars there, so a jar that Spark also has is left out.
    """
    jars = [Path(jar) for jar in connectors["spark.jars"].split(",")]
    named = ((jar, re.match(r"(.*)-\d", jar.name)) for jar in jars)
    own = [str(jar) for jar, name in named if not name or not any((spark_home / "jars").glob(f"{name[1]}-[0-9]*.jar"))]
    return {"spark.driver.extraClassPath": ":".join(own)}


def java_settings(spark_version: str, environ: Mapping[str, str], spark_home: Path) -> Dict[str, str]:
    """The options of the local driver's JVM, and its connectors."""
    options = f"-Dlog4j2.configurationFile={LOGGING.as_uri()} {LATE_COMPILER}{_collector(environ, spark_home)}"
    connectors = connector_settings(spark_version, environ)
    classes = kept_classes(spark_version, environ, spark_home)
    if classes is not None and "spark.jars" in connectors:
        # Java checks whether the archive fits, and ignores it otherwise. Without these log options it would print that.
        options += f' -XX:SharedArchiveFile="{classes}" -Xshare:auto -Xlog:cds=off -Xlog:class+path=off'
        connectors = on_class_path(connectors, spark_home)
    return {"spark.driver.extraJavaOptions": options, **connectors}


def require_java(environ: Mapping[str, str]) -> None:
    """Raise `ConfigError` if Spark would find no Java; PySpark itself prints a stack trace."""
    home = environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    if shutil.which(java, path=environ.get("PATH")) is None:
        place = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise ConfigError(f"Spark needs Java, and there is none {place}", "install Java 17, or set JAVA_HOME")


if __name__ == "__main__":
    print(",".join(packages(sys.argv[1])))
