"""What differs on Databricks: the login class's package, the entry point that raises, the session that is kept."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any, List

import pytest

from mirror_lib.commands.run import stop_on_signals
from mirror_lib.config.client_options import RUNTIME, SHADED, java_class, kafka_python_options, spark_kafka_options
from mirror_lib.errors import EXIT_OK, EXIT_USAGE, ConfigError
from mirror_lib.spark.session import REMOTE, refuse_remote, refuse_without_jvm, running_session
from mirror_lib.wheel_task import CommandFailedError, main

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


@pytest.mark.parametrize("name", REMOTE)
def test_environment_of_a_remote_session_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){name}.*SINGLE_USER"):
        refuse_remote({name: "sc://here"})
    refuse_remote({name: ""})


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
    made: List[threading.Event] = []
    thread = threading.Thread(target=lambda: made.append(stop_on_signals()))
    thread.start()
    thread.join()
    assert len(made) == 1 and not made[0].is_set()


class PlatformSession:
    """A session of the platform's, which notes what is done to its context."""

    version = "4.0.0"

    def __init__(self) -> None:
        self.done: List[str] = []
        self._jvm = "jvm"
        self.conf = SimpleNamespace(get=lambda name, default="": default, set=lambda name, value: None)

    @property
    def sparkContext(self) -> Any:
        return SimpleNamespace(setLogLevel=lambda level: self.done.append(f"log level {level}"))

    def stop(self) -> None:
        self.done.append("stopped")


@pytest.mark.parametrize("found", [True, False])
def test_on_databricks_the_platforms_context_is_neither_stopped_nor_made_silent(
    monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    from pyspark.sql import SparkSession

    session: Any = PlatformSession()
    monkeypatch.setenv(RUNTIME, "16.4")
    for name in (*REMOTE, "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session if found else None)
    monkeypatch.setattr(SparkSession, "builder", SimpleNamespace(getOrCreate=lambda: session))
    python = os.environ.get("PYSPARK_PYTHON")
    with running_session("command") as given:
        same = given is session
    assert same and session.done == [] and os.environ.get("PYSPARK_PYTHON") == python
