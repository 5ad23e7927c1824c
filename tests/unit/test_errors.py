"""What is reported of an error that came through Spark: the sentence that a client raised, and no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mirror_lib.commands.output import error_json
from mirror_lib.errors import ClusterError, RefusedError, cause_of, exit_code_of, messages_of, worst

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
