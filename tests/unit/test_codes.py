"""Every refusal and every incident has a code with an entry; errors keep both through Spark; generated pages are up to
date, and the page of MirrorMaker's keys is true."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Set

import pytest

from mirror_lib.cli import main
from mirror_lib.codes import INCIDENT_CODES, PREFIX, REMOVED, entries, entry
from mirror_lib.commands.output import error_json
from mirror_lib.config.settings import BY_NAME
from mirror_lib.copy_job import incomplete_copy
from mirror_lib.errors import (
    ClusterError,
    FencedError,
    MirrorError,
    RefusedError,
    cause_of,
    exit_code_of,
    messages_of,
    worst,
)
from mirror_lib.kafka.log_reader import LostTail
from mirror_lib.ledger.records import INCIDENT_KINDS
from mirror_lib.replication.messages import Stop
from tests.lab.checkout import ROOT
from tests.unit.configs import FLOW, read, refusal, warnings
from tools.docs import cli, json_documents, parity, settings, starts, tables
from tools.docs.parity import key_row, mirrormakers_keys
from tools.kafka_names import LIST, MODULE, module_of

CODES = [each.code for each in entries()]
FILES = [path for path in sorted((ROOT / "mirror_lib").rglob("*.py")) if path.name != "codes.py"]


def named_codes(source: str) -> Set[str]:
    """Codes in string literals."""
    words = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    return {word for word in words if isinstance(word, str) and re.fullmatch(rf"{PREFIX}\d+", word)}


def refusals_without_code(source: str) -> Iterator[int]:
    """Lines that make a plain `RefusedError` without `code=`. A subclass has the code of its class."""
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        made = isinstance(call.func, ast.Name) and call.func.id == "RefusedError"
        if made and not any(keyword.arg == "code" for keyword in call.keywords):
            yield call.lineno


def test_every_refusal_names_a_code() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    assert [f"{path}:{line}" for path, text in texts.items() for line in refusals_without_code(text)] == []


def test_codes_of_the_source_and_of_the_table_are_the_same() -> None:
    named: Set[str] = set().union(*(named_codes(path.read_text(encoding="utf-8")) for path in FILES))
    assert sorted(named | set(INCIDENT_CODES.values())) == CODES
    assert not set(REMOVED) & set(CODES) and tuple(INCIDENT_CODES) == INCIDENT_KINDS


def test_help_prints_an_entry_or_that_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    found = entry("MIR-304")
    assert found is not None
    for word in ("MIR-304", "mir-304", "304"):
        assert main(["help", word]) == 0
        reported = capsys.readouterr().out
        assert reported.startswith(f"MIR-304  {found.title}\n")
        assert all(part in reported for part in (found.cause, found.data, found.remedy))
    assert main(["help", "MIR-3044"]) == 2
    assert "there is no code MIR-3044 (mirror help lists all of them)" in capsys.readouterr().err


def test_error_keeps_its_code_on_the_way_between_processes() -> None:
    found: List[MirrorError] = pickle.loads(pickle.dumps([RefusedError("no", code="MIR-304"), FencedError("gone")]))
    assert [each.code for each in found] == ["MIR-304", "MIR-302"]
    assert LostTail("gone").code == "MIR-312"


def test_run_ends_with_the_code_of_the_first_partition_that_was_refused() -> None:
    failed, refused = Stop("a-0: too large"), Stop("a-1: gone", "MIR-310", refused=True)
    for stopped, code in (([failed, refused], "MIR-310"), ([failed], "MIR-205")):
        flow = SimpleNamespace(name="A->B")
        mirror: Any = SimpleNamespace(flow=flow, stopped=lambda: stopped, blocked=lambda: [])  # noqa: B023
        error = incomplete_copy(mirror)
        assert error is not None and error.code == code and isinstance(error, RefusedError) == (code == "MIR-310")


BEGINS = "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
TRACE = """\
Traceback (most recent call last):
  File "/opt/mirror/mirror_lib/replication/copier.py", line 96, in _persist
    self._connect(deadline)
mirror_lib.kafka.connection.Disconnected: B: no broker answers

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/spark/python/pyspark/worker.py", line 2044, in main
    process()
  File "/opt/mirror/mirror_lib/replication/copier.py", line 104, in _persist
    raise ClusterError(f"{self._plan.flow}: {error}", "check the brokers' logs") from error
%s
"""
JAVA = """\

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/spark/python/pyspark/worker.py", line 2044, in main
ValueError: found behind Java's stack
"""
RAISED = "mirror_lib.errors.ClusterError: A->B: B: no broker answers (check the brokers' logs)"
SENTENCE = "A->B: B: no broker answers (check the brokers' logs)"
ABORTED = "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3: "


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        pytest.param(BEGINS + TRACE % RAISED + "\n\nJVM stacktrace:\norg.apache" + JAVA, SENTENCE, id="Spark 3.5, 4.0"),
        pytest.param(f"{ABORTED}api.python.PythonException: {TRACE % RAISED}{JAVA}", SENTENCE, id="a job's words"),
        pytest.param(BEGINS + TRACE % "pyarrow.lib.ArrowInvalid: no: such", "ArrowInvalid: no: such", id="a library's"),
        pytest.param(BEGINS + TRACE % "tests.x.<locals>.Boom", "Boom", id="nothing said"),
        pytest.param(BEGINS + TRACE % "OSError: first\nsecond line", "OSError: first", id="many lines"),
    ],
)
def test_error_of_an_executor_is_reported_with_the_message_that_was_raised_there(text: str, reported: str) -> None:
    assert cause_of(RuntimeError(text)) == reported


def test_exception_of_java_is_reported_by_its_innermost_cause_or_by_what_python_raised() -> None:
    def thrown(*texts: str) -> Any:
        """As Py4J shows an exception with causes."""
        return texts and SimpleNamespace(toString=lambda: texts[0], getCause=lambda: thrown(*texts[1:]) or None)

    error = RuntimeError("An error occurred while calling o42.collect")
    for texts, reported in (
        (["SparkException: failed", "java.io.IOException: no space\nmore"], "java.io.IOException: no space"),
        (["SparkException: failed", f"PythonException: {TRACE % RAISED}", "java.io.IOException"], SENTENCE),
    ):
        error.java_exception = thrown(*texts)  # type: ignore[attr-defined]
        assert cause_of(error) == reported


def test_exit_code_is_the_one_that_needs_most_from_the_operator() -> None:
    for codes, expected in (([], 0), ([0, 143], 143), ([143, 1], 1), ([1, 3, 0], 3), ([3, 2, 143], 2)):
        assert worst(codes) == worst(reversed(codes)) == expected
    assert exit_code_of([]) == 0 and exit_code_of([], interrupted=True) == 143
    error = RefusedError("A->B: no", "ask", code="MIR-304")
    assert exit_code_of([ClusterError("away"), error], interrupted=True) == 3
    assert error_json([error, ClusterError("away")]) == {"error": "A->B: no (ask)", "code": "MIR-304", "exit_code": 3}
    assert error_json([], interrupted=True) == {"error": None, "code": None, "exit_code": 143}


def test_messages_have_no_lines_of_a_trace() -> None:
    """Java's own package `java.util.concurrent` in a trace once made any failed read an edit by another process."""
    said = "Job aborted: Lost task\n\tat java.base/java.util.concurrent.Pool.run(Pool.java:1)\n\nDriver stacktrace:"
    assert messages_of(RuntimeError(said)) == ["Job aborted: Lost task\n\n\nDriver stacktrace:"]


# By the file, its text; the page of tables keeps what it does not generate.
WRITTEN: Dict[str, Callable[[str], str]] = {
    "docs/reference/cli.md": lambda _: cli.page(),
    "docs/reference/json.md": lambda _: json_documents.page(),
    "docs/reference/mirrormaker-keys.md": lambda _: parity.page(),
    "docs/reference/settings.md": lambda _: settings.page(),
    "docs/reference/tables.md": tables.page,
    "docs/project/starts.md": lambda _: starts.page(),
    str(MODULE.relative_to(ROOT)): lambda _: module_of(LIST.read_text("utf-8")),
}
ROWS = mirrormakers_keys()


@pytest.mark.parametrize("name", WRITTEN)
def test_generated_file_is_up_to_date(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text == WRITTEN[name](text), "make the file again, see tools/docs and tools/kafka_names.py"


# Read by the reader of connectors, or what every file needs.
ELSEWHERE = ("clusters", "name", "connector.class", "source.cluster.alias", "target.cluster.alias", "config.providers*")
EXAMPLES = {"ssl.*": "ssl.protocol", "sasl.*": "sasl.mechanism"}
VALUES = {"bootstrap.servers": "a:9092", "security.protocol": "PLAINTEXT", "enabled": "true"}


@pytest.mark.parametrize("key", [row for row in ROWS if row not in ELSEWHERE])
def test_what_the_page_says_of_a_key_is_what_the_loader_does(key: str, tmp_path: Path) -> None:
    name = EXAMPLES.get(key, key.replace(".*", ".x").rstrip("*"))
    value = VALUES.get(key) or (BY_NAME[name].default if name in BY_NAME else "") or "x"
    text = f"{FLOW}{name} = {value}\n"
    if key_row(key)[1] == "refused":
        assert f"{name} cannot be honoured" in refusal(tmp_path, text)
    else:
        ignored = f"{name}: ignored: " in warnings(read(tmp_path, text))
        assert ignored == (key_row(key)[1] == "ignored")
