"""Log lines have a time, a level, a flow and a message, and a code where there is an error, as text or as JSON."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
from typing import Any, Dict, List

import pytest

from mirror_lib.cli import main
from mirror_lib.commands.output import print_end, print_progress, print_warning
from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.log_lines import EntryFormatter, in_flow, json_line, of_this_flow, wants_json
from mirror_lib.threads import BackgroundCall, repeated

AWAY = ClusterError("A->B: no broker answers", "is it up?")


def record(message: str, *arguments: object, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("mirror_lib.some", logging.WARNING, "", 1, message, arguments, more.get("exc_info"))
    made.created, made.msecs = 1767225600.25, 250.0
    return made


def as_text(made: logging.LogRecord) -> str:
    return EntryFormatter().format(made).partition(" WARNING ")[2]


def as_object(made: logging.LogRecord) -> Dict[str, str]:
    line = EntryFormatter(json_lines=True).format(made)
    assert "\n" not in line
    found: Dict[str, str] = json.loads(line)
    return found


def test_text_names_time_level_and_flow_once() -> None:
    line = EntryFormatter().format(record("%s: caught up", "A->B"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING A->B: caught up", line)
    with in_flow("A->B"):
        assert as_text(record("the ledger waits")) == "A->B: the ledger waits"
        assert as_text(record("A->B: the ledger waits")) == "A->B: the ledger waits"
    assert as_text(record("the ledger waits")) == "the ledger waits"


def test_task_that_tries_again_prints_the_time() -> None:
    program = (
        "import logging; from mirror_lib.log_lines import format_worker_entries as given; given(); given();"
        "logging.getLogger('mirror_lib.kafka.fetcher').warning('%s; trying again', 'A->B task 1: no broker answers')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \S+ WARNING A->B task 1: no broker answers; trying again\n", done.stderr)


def test_json_has_the_fields_of_the_text_and_a_trace_and_none_that_a_library_adds() -> None:
    with in_flow("A->B"):
        made = record("%s; it starts again", AWAY)
        made.password = "hunter2"
        assert as_object(made) == {
            "time": "2026-01-01T00:00:00.250Z",
            "level": "WARNING",
            "flow": "A->B",
            "message": "A->B: no broker answers (is it up?); it starts again",
            "code": "MIR-201",
        }
        assert as_text(made).startswith("MIR-201: A->B: no broker answers")
    assert as_object(record("no flow"))["flow"] is None
    try:
        raise ValueError("two\nlines")
    except ValueError:
        trace = as_object(record("A->B failed", exc_info=sys.exc_info()))["trace"]
    assert trace.startswith("Traceback") and trace.endswith("two\nlines")


def test_threads_of_a_flow_log_for_it_and_two_flows_stay_apart() -> None:
    seen: Dict[str, List[object]] = {}

    def note(name: str) -> None:
        seen.setdefault(name, []).append(json.loads(json_line("INFO", "x"))["flow"])

    def live(flow: str) -> None:
        with in_flow(flow):
            BackgroundCall("inner", lambda: note(flow)).result()
            with repeated(0.001, "often", lambda: note(flow)):
                threading.Event().wait(0.05)
            other = threading.Thread(target=of_this_flow(note), args=(flow,))
            other.start()
            other.join()

    flows = [threading.Thread(target=live, args=(name,)) for name in ("A->B", "B->A")]
    for each in flows:
        each.start()
    for each in flows:
        each.join()
    assert {name: set(found) for name, found in seen.items()} == {"A->B": {"A->B"}, "B->A": {"B->A"}}
    assert all(len(found) >= 3 for found in seen.values())


def test_progress_and_errors_of_commands_are_objects_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_LOG_FORMAT", "JSON")
    print_progress("A->B 100% copied")
    print_end(RefusedError("A->B: no", "ask", code="MIR-304"))
    print_warning("remark")
    assert main(["help", "999"]) == 2
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(each["level"], each["flow"], each.get("code")) for each in found] == [
        ("INFO", "A->B", None),
        ("ERROR", "A->B", "MIR-304"),
        ("WARNING", None, None),
        ("ERROR", None, "MIR-101"),
    ]
    assert found[1]["message"] == "A->B: no (ask)"


def test_format_that_does_not_exist_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_LOG_FORMAT", "xml")
    assert main(["help"]) == 2
    assert capsys.readouterr().err == "error: MIR-101: MIRROR_LOG_FORMAT=xml is no format: take one of text, json\n"
    for value, wanted in ((None, False), ("text", False), (" json ", True)):
        assert wants_json({} if value is None else {"MIRROR_LOG_FORMAT": value}) is wanted
