"""Which of Spark's settings are refused, what Spark hides, and what it does not tell a second time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict

import pytest

from mirror_lib.errors import EXIT_REFUSED, EXIT_USAGE, ConfigError, RefusedError
from mirror_lib.spark.session import SETTINGS, refuse_settings, refuse_working_folder, silence_traces


class Session:
    """Only settings."""

    def __init__(self, **settings: str) -> None:
        self._settings: Dict[str, str] = {name.replace("_", "."): value for name, value in settings.items()}

    @property
    def conf(self) -> Dict[str, str]:
        return self._settings


@pytest.mark.parametrize("value", ["true", "True", " TRUE "])
def test_speculation_is_refused_however_it_is_spelt(value: str) -> None:
    session: Any = Session(spark_speculation=value)
    with pytest.raises(RefusedError, match=r"set spark\.speculation to false") as refused:
        refuse_settings(session)
    assert refused.value.exit_code == EXIT_REFUSED


def test_ordinary_sessions_are_accepted() -> None:
    for session in (Session(), Session(spark_speculation="false")):
        accepted: Any = session
        refuse_settings(accepted)


def test_working_folder_is_refused_where_spark_cannot_have_its_folder_in_it(tmp_path: Path) -> None:
    refuse_working_folder("4.0.0", str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=str(tmp_path / "file")) as refused:
        refuse_working_folder("4.0.0", str(tmp_path / "file"))
    assert refused.value.exit_code == EXIT_USAGE
    refuse_working_folder("4.1.0", str(tmp_path / "file"))


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
