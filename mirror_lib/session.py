"""The Spark session a command runs in: the one that spark-submit made, or a local one with the connectors it needs.

`python -m mirror_lib.session` prints the packages for the Spark that runs, for `spark-submit.sh`.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Tuple

from mirror_lib.errors import ConfigError, RefusedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS_DIR, CLASSES = "MIRROR_JARS_DIR", "MIRROR_CLASSES"
CHECKOUT = Path(__file__).resolve().parents[1]

# Spark's minor version: Scala, Delta artifact, Delta version (docs.delta.io, "Compatibility with Apache Spark").
_LINES: Mapping[Tuple[int, int], Tuple[str, str, str]] = {
    (3, 3): ("2.12", "delta-core_2.12", "2.3.0"),
    (3, 4): ("2.12", "delta-core_2.12", "2.4.0"),
    (3, 5): ("2.12", "delta-spark_2.12", "3.3.2"),
    (4, 0): ("2.13", "delta-spark_2.13", "4.0.0"),
    (4, 1): ("2.13", "delta-spark_4.1_2.13", "4.1.0"),
    (4, 2): ("2.13", "delta-spark_4.2_2.13", "4.4.0"),
}

_OPTIONS = "spark.sql.redaction.options.regex"
# An option that holds a secret, as a plan's text has it: up to the next option or the end of them.
PRINTED_SECRET = (
    r"(?is)\b(?:kafka\.)?(?:sasl\.jaas\.config|(?:sasl|ssl)\.[a-z.]*(?:password|secret)|ssl\.keystore\.key) -> "
    r".*?(?=, [\w.]+ -> |\),None|\),Some|$)"
)

# Small tables, small stages: Spark's defaults for these are made for warehouses.
SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    # Its tables are read whole, and planning by each file's statistics is most of a first read. Parquet's own stay.
    "spark.databricks.delta.stats.skipping": "false",
    # Rows travel in plans (mirror_lib.local_rows), and Spark writes each plan down for its UI.
    "spark.sql.maxPlanStringLength": "10000",
    "spark.sql.shuffle.partitions": "2",
    # Each read of rows has consumers of its own. Spark keeps them, and the last that each fetched, for the next read.
    "spark.kafka.consumer.cache.timeout": "1s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "1s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Options hold what clients need to log in; Spark prints options in plans and in its UI.
    "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|keystore[.]key|private.?key|jaas|credential",
    _OPTIONS: r"(?i)url|secret|password|token|keystore[.]key|private.?key|jaas|credential",
}
# The same that spark-submit.sh gives: the mirror's own lines are what an operator wants to see.
LOGGING = Path(__file__).resolve().with_name("log4j2.properties")
# As spark-submit.sh does: what Java's second compiler would make comes too late.
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
# Plain `local[N]` gives a task no second chance.
LOCAL_MASTER = "local[*,4]"


def packages(spark_version: str) -> List[str]:
    """Maven coordinates of Spark's Kafka connector and of Delta for a Spark version. Raises `ConfigError`."""
    major, minor = (int(part) for part in spark_version.split(".")[:2])
    line = _LINES.get((major, minor))
    if line is None:
        known = ", ".join(f"{a}.{b}" for a, b in _LINES)
        raise ConfigError(f"Spark {spark_version} is not one of {known}", f"or put the jars into a folder: {JARS_DIR}")
    scala, delta, delta_version = line
    return [f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark_version}", f"io.delta:{delta}:{delta_version}"]


def connector_settings(spark_version: str, environ: Mapping[str, str], checkout: Path = CHECKOUT) -> Dict[str, str]:
    """Where Spark gets the connectors from: the folder that the environment names, else the one that `make setup`
    filled (as spark-submit.sh does), else Ivy."""
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
    """The archive of Java classes for a quick start, as spark-submit.sh finds it; `None` where none can be used.

    It holds classes of one class path alone, so a path of the user's own goes without it.
    """
    found = environ.get(CLASSES, str(checkout / ".cache" / f"spark-{spark_version}-classes.jsa"))
    defaults = Path(environ.get("SPARK_CONF_DIR") or spark_home / "conf", "spark-defaults.conf")
    own = defaults.is_file() and re.search(r"(?m)^\s*spark\.driver\.extraClassPath[\s=]", defaults.read_text())
    return Path(found) if found and Path(found).is_file() and not own else None


def on_class_path(connectors: Mapping[str, str], spark_home: Path) -> Dict[str, str]:
    """Connectors that lie in a folder as a part of Java's class path, where archived classes are of use.

    They come before Spark's own jars there, so what Spark brings stays Spark's.
    """
    jars = [Path(jar) for jar in connectors["spark.jars"].split(",")]
    named = ((jar, re.match(r"(.*)-\d", jar.name)) for jar in jars)
    own = [str(jar) for jar, name in named if not name or not any((spark_home / "jars").glob(f"{name[1]}-[0-9]*.jar"))]
    return {"spark.driver.extraClassPath": ":".join(own)}


def java_settings(spark_version: str, environ: Mapping[str, str], spark_home: Path) -> Dict[str, str]:
    """The options of the local driver's Java, and its connectors."""
    options = f"-Dlog4j2.configurationFile={LOGGING.as_uri()} {FIRST_COMPILER}"
    connectors = connector_settings(spark_version, environ)
    classes = kept_classes(spark_version, environ, spark_home)
    if classes is not None and "spark.jars" in connectors:
        # Java checks whether it fits, and does without it where not. It would say so on standard output.
        options += f' -XX:SharedArchiveFile="{classes}" -Xshare:auto -Xlog:cds=off -Xlog:class+path=off'
        connectors = on_class_path(connectors, spark_home)
    return {"spark.driver.extraJavaOptions": options, **connectors}


def require_java(environ: Mapping[str, str]) -> None:
    """Raise `ConfigError` where Spark would find no Java; PySpark's own words for it are a stack trace."""
    home = environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    if shutil.which(java, path=environ.get("PATH")) is None:
        place = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise ConfigError(f"Spark needs Java, and there is none {place}", "install Java 17, or set JAVA_HOME")


def open_session(name: str) -> SparkSession:
    """The active Spark session, or a local one. Under spark-submit its settings are the ones that count."""
    import pyspark  # late: `--help` and `plan` must not wait for it
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # What fails inside `foreachBatch` is told in one sentence by who started the query, not as a trace as well.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    builder, conf = SparkSession.Builder().appName(name), SparkConf().setAppName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkSession.getActiveSession() is None:
        # Workers are started by name: without this the PATH decides, and its Python may not be this one.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        require_java(os.environ)
        spark_home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
        java = java_settings(pyspark.__version__, os.environ, spark_home)
        settings = {"spark.master": LOCAL_MASTER, **SETTINGS, **java}
        for key, value in settings.items():
            builder, conf = builder.config(key, value), conf.set(key, value)
    with _own_interrupt():
        SparkContext.getOrCreate(conf)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    _redact(session)
    return session


@contextmanager
def running_session(name: str) -> Iterator[SparkSession]:
    """A session for one command. One that was there before, such as a notebook's, goes on afterwards."""
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    session = open_session(name)
    try:
        yield session
    finally:
        if found is None:
            session.stop()


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """A new Spark context takes Ctrl-C over, asks Java to cancel its jobs, and fails where a question to Java is open
    already, as it mostly is. Our commands end by KeyboardInterrupt, or by a handler of their own."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    # None: it was not installed from Python, and cannot be put back from here.
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _redact(session: SparkSession) -> None:
    """Spark hides options by its own pattern, which knows no private keys, and in logical plans it hides none."""
    for name, own in {_OPTIONS: SETTINGS[_OPTIONS], "spark.sql.redaction.string.regex": PRINTED_SECRET}.items():
        present = str(session.conf.get(name, ""))
        if own not in present:
            session.conf.set(name, f"{present}|{own}" if present else own)


def refuse_settings(spark: SparkSession) -> None:
    """Raise `RefusedError` for Spark settings under which a lane would run twice at once."""
    if str(spark.conf.get("spark.speculation", "false")).strip().lower() == "true":
        raise RefusedError("spark.speculation runs a lane twice at once", "set spark.speculation to false")


if __name__ == "__main__":
    print(",".join(packages(sys.argv[1])))
