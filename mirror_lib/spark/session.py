"""Provides the Spark session of a command: the one of spark-submit, or a local one with its connectors."""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional, Sequence

from mirror_lib.config.client_options import on_databricks, spark_kafka_options
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import ConfigError, RefusedError, cause_of
from mirror_lib.spark.errors import spark_ended
from mirror_lib.spark.java import java_settings, require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_OPTIONS = "spark.sql.redaction.options.regex"
# An option with a secret in the text of a plan: up to the next option or the end of the options.
PRINTED_SECRET = (
    r"(?is)\b(?:kafka\.)?(?:sasl\.jaas\.config|(?:sasl|ssl)\.[a-z.]*(?:password|secret)|ssl\.keystore\.key) -> "
    r".*?(?=, [\w.]+ -> |\),None|\),Some|$)"
)

# Spark's defaults for these are meant for warehouses; the mirror's tables and stages are small.
SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Rows travel in plans (mirror_lib.spark.jobs), and Spark writes each plan to its UI.
    "spark.sql.maxPlanStringLength": "10000",
    "spark.sql.shuffle.partitions": "2",
    # Each read of rows has its own consumers. By default Spark keeps them, with their last fetched records, for reuse.
    "spark.kafka.consumer.cache.timeout": "1s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "1s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Options have the clients' login secrets; Spark prints options in plans and in its UI.
    "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|keystore[.]key|private.?key|jaas|credential",
    _OPTIONS: r"(?i)url|secret|password|token|keystore[.]key|private.?key|jaas|credential",
}
# Loggers of what fails inside `foreachBatch`, and of expressions that Spark 4 refuses.
REMIND_SECONDS = ("py4j.clientserver", "SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Lines that mean nothing to an operator: of Java at each start, and of Delta's VACUUM.
NOISE = re.compile(rb"WARNING: Using incubator modules: |Deleted \d+ files and directories in a total of \d+ director")
# Plain `local[N]` does not retry a failed task.
LOCAL_MASTER = "local[*,4]"
# How long to wait for what a JVM that did not start has printed.
LAST_WORDS_SECONDS = 2.0
# The pipe that the JVM of this process writes to, once it has started; and what the mirror writes there.
_pipes: List[int] = []
_ENDING, _BEGINNING = b"\x00ending\n", b"\x00beginning\n"
ARTIFACTS = "artifacts"
# Each of these makes every new session a Spark Connect session.
REMOTE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")


def open_session(name: str) -> SparkSession:
    """The active Spark session, or a local one. Under spark-submit its settings apply.

    A session of the user or the platform keeps its context, its settings and its log level. Raises `ConfigError` for a
    session without a driver JVM.
    """
    refuse_remote(os.environ)
    import pyspark  # late: `--help` and `plan` must not wait for it
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    silence_traces()
    _mark_output(_BEGINNING)
    found = SparkSession.getActiveSession()
    if found is not None or on_databricks(os.environ):
        session = found or SparkSession.builder.getOrCreate()
        refuse_without_jvm(session)
        _redact(session)
        return session
    refuse_working_folder(pyspark.__version__, os.getcwd())
    builder, conf = SparkSession.Builder().appName(name), SparkConf().setAppName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Workers are started by name: without this PATH decides, which may find another Python.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        require_java(os.environ)
        spark_home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
        java = java_settings(pyspark.__version__, os.environ, spark_home)
        settings = {"spark.master": LOCAL_MASTER, **SETTINGS, **java}
        for key, value in settings.items():
            builder, conf = builder.config(key, value), conf.set(key, value)
    with _own_interrupt(), _java_filtered():
        SparkContext.getOrCreate(conf)
    session = builder.getOrCreate()
    refuse_without_jvm(session)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        _leave_sigterm_to_python(session)
    session.sparkContext.setLogLevel("ERROR")
    _redact(session)
    return session


@contextmanager
def _java_filtered() -> Iterator[None]:
    """Let a JVM that starts in the block write to standard error, as standard output is for results: JSON documents. It
    writes to a pipe, which is read until this process ends, and NOISE is left out."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        kept = os.dup(1), os.dup(2)
    except OSError:  # one of them is closed: no one reads the JVM's output
        yield
        return
    out, into = os.pipe()
    reader = threading.Thread(target=_pass_on, args=(out, os.dup(2)), name="output of Java", daemon=True)
    reader.start()
    os.dup2(into, 1)
    os.dup2(into, 2)
    started = False
    try:
        yield
        started = True
        _pipes.append(into)
    finally:
        sys.stderr.flush()
        for number, before in enumerate(kept, 1):
            os.dup2(before, number)
            os.close(before)
        if not started:
            os.close(into)
            reader.join(LAST_WORDS_SECONDS)


def _mark_output(mark: bytes) -> None:
    for pipe in _pipes:
        os.write(pipe, mark)


def _pass_on(out: int, to: int) -> None:
    """Write the lines that are read from `out` to `to`, without NOISE, and none from `_ENDING` to `_BEGINNING`. It also
    reads where no one takes them: Java must not wait."""
    passes = True
    with os.fdopen(out, "rb") as lines:
        for line in lines:
            mark = next((each for each in (_ENDING, _BEGINNING) if line.endswith(each)), b"")
            text = line[: -len(mark)] if mark else line
            if passes and text and not NOISE.match(text):
                with suppress(OSError):
                    os.write(to, text)
            passes = mark == _BEGINNING if mark else passes


def refuse_working_folder(spark_version: str, folder: str) -> None:
    """Raise `ConfigError` if Spark would fail at its folder in the working directory. Spark 4.0.0 creates `artifacts`
    there and has no setting for it; later releases use the temporary directory (SPARK-52396)."""
    if spark_version != "4.0.0":
        return
    present = os.path.join(folder, ARTIFACTS)
    try:
        if not os.path.isdir(present):
            os.makedirs(present, exist_ok=True)
            # Spark empties it when it ends, and leaves it there.
            atexit.register(_drop_empty, present)
        writable = os.access(present, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        raise ConfigError(
            f"Spark 4.0.0 needs the folder {present} in the working directory, and it cannot be created or written. "
            "Nothing was read or written",
            "start the command in a folder that this user can write",
        )


def _drop_empty(folder: str) -> None:
    with suppress(OSError):  # it is in use
        os.rmdir(folder)


def refuse_remote(environ: Mapping[str, str]) -> None:
    """Raise `ConfigError` if the environment makes every session a Spark Connect session. Pure."""
    for name in REMOTE:
        if environ.get(name):
            raise _no_jvm(f"{name} is set")


def refuse_without_jvm(session: SparkSession) -> None:
    """Raise `ConfigError` for a session whose context or JVM cannot be reached, as with Spark Connect."""
    try:
        reached: object = session.sparkContext and session._jvm
    except Exception as error:  # each platform and version raises another class
        raise _no_jvm(cause_of(error)) from error
    if reached is None:
        raise _no_jvm("the session has no JVM")


def _no_jvm(reason: str) -> ConfigError:
    return ConfigError(
        f"this Spark session is one of Spark Connect, serverless compute or standard access mode: {reason}. Nothing "
        "was read or written",
        "the mirror needs the driver's JVM, and tasks that may connect to brokers: use spark-submit, or on Databricks "
        "classic compute with dedicated access (data_security_mode: SINGLE_USER)",
    )


def cloned(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session like `session` with `settings` that affect no other query. It shares the context."""
    from pyspark.sql import SparkSession

    java: Any = session._jsparkSession
    made = SparkSession(session.sparkContext, java.cloneSession())
    for key, value in settings.items():
        made.conf.set(key, value)
    return made


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make `session` this thread's active session in the JVM during the block.

    Delta computes a table's log with the settings of the active session, whichever session reads the table. For a
    Python thread the active session is the one that last ran something in it.
    """
    java: Any = session._jsparkSession
    sessions: Any = session._jvm
    for part in str(java.getClass().getName()).split("."):
        sessions = getattr(sessions, part)
    before = sessions.getActiveSession()
    sessions.setActiveSession(java)
    try:
        yield
    finally:
        # An ended context has no sessions; another call reports its end.
        if spark_ended("the session", session) is None:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


def silence_traces() -> None:
    """Log no traces of Spark's errors: the caller reports each error in one sentence."""
    for name in REMIND_SECONDS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def running_session(name: str) -> Iterator[SparkSession]:
    """A session for one command. An existing session, such as a notebook's or Databricks', is not stopped."""
    from pyspark.sql import SparkSession

    refuse_remote(os.environ)
    found = SparkSession.getActiveSession()
    session = open_session(name)
    try:
        yield session
    except Exception as error:
        if _began_with_interrupt(error):
            raise KeyboardInterrupt from error
        raise
    finally:
        if found is None and not on_databricks(os.environ):
            _stop(session)


def _began_with_interrupt(error: BaseException) -> bool:
    """Whether it was raised while a Ctrl-C was handled. Py4J then makes Java close the connection of the open call, and
    Java closes all its connections of that moment: pyspark's next call may use a closed one."""
    before: Optional[BaseException] = error
    while before is not None and not isinstance(before, KeyboardInterrupt):
        before = before.__context__
    return before is not None


def _stop(session: SparkSession) -> None:
    from py4j.protocol import Py4JError

    try:
        # All errors are reported by now. Each task that this interrupts would log a trace, and each query whose end was
        # not waited for would die of it with another one.
        session.sparkContext.setLogLevel("OFF")
        _mark_output(_ENDING)
        session.stop()
    except (Py4JError, OSError):
        # Every caller of Java has already had the error that Java is gone.
        log.debug("Java had ended before", exc_info=True)


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Restore the command's handler of Ctrl-C after the block. A new Spark context installs its own, which asks Java to
    cancel jobs. That fails if a call to Java is open, as it usually is."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    # None: the handler was not installed from Python, and cannot be restored from here.
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _leave_sigterm_to_python(session: SparkSession) -> None:
    """Make the JVM that this process started ignore SIGTERM, which systemd and others send to every process at once.
    Otherwise the JVM would end before the cycle is in the ledger. It always ends with this process, even if that is
    killed.
    """
    jvm: Any = session._jvm
    try:
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("TERM"), jvm.sun.misc.SignalHandler.SIG_IGN)
    except Exception as error:  # Java's option -Xrs, or another JVM
        log.debug("the JVM does not ignore SIGTERM: %s", cause_of(error))


def _redact(session: SparkSession) -> None:
    """Redact options in plans: Spark's own pattern matches no private keys, and in logical plans it redacts nothing."""
    for name, own in {_OPTIONS: SETTINGS[_OPTIONS], "spark.sql.redaction.string.regex": PRINTED_SECRET}.items():
        present = str(session.conf.get(name, ""))
        if own not in present:
            session.conf.set(name, f"{present}|{own}" if present else own)


def refuse_logins(spark_version: str, flows: Sequence[ReplicationFlow]) -> None:
    """Raise `ConfigError` where the Kafka client of this Spark cannot log in to a source, before any flow starts."""
    for flow in flows:
        spark_kafka_options(flow.source.client_properties("consumer"), spark_version)


def refuse_settings(spark: SparkSession) -> None:
    """Raise `RefusedError` for Spark settings under which a lane would run twice at once."""
    if str(spark.conf.get("spark.speculation", "false")).strip().lower() == "true":
        raise RefusedError(
            "spark.speculation would run two attempts of a task at once",
            "set spark.speculation to false",
            code="MIR-306",
        )
