"""The command line and the log without a cluster or a JVM: usage errors, exit codes, and what goes to which stream."""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List
from unittest.mock import Mock

import pyspark
import pytest

from mirror_lib import cli
from mirror_lib.cli import command_line, main
from mirror_lib.commands.output import chosen_flows, print_end, print_progress, print_warning, wants_screen
from mirror_lib.config.loader import load
from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.ledger.runs import RunTable
from mirror_lib.log_lines import EntryFormatter, in_flow, json_line, of_this_flow
from mirror_lib.plan import read
from mirror_lib.threads import BackgroundCall, repeated
from tests.lab.checkout import ROOT
from tests.unit.configs import FLOW, IN_YAML


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "mirror.yaml"
    path.write_text(IN_YAML.replace("a:9092", "127.0.0.1:1").replace("b:9092", "127.0.0.1:2") + "  B->A:\n")
    return str(path)


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        *((words, "usage: mirror") for words in ("", "run", "copy CONFIG", "run CONFIG --fast", "plan CONFIG --once")),
        *((f"{name} CONFIG --execute", instead) for name, instead in cli.REPLACED.items()),
        ("run CONFIG --until caught-up", "--once"),
        ("verify CONFIG --sample 5%", "--since TIME"),
        ("cutover run CONFIG --fence-source", "kafka-acls.sh"),
        ("run --clusters backup CONFIG", "CONFIG; it has to stand before --clusters"),
        ("mm1 --whitelst orders", "did you mean --whitelist?"),
        ("run CONFIG --ones", "did you mean --once?"),
        ("plan CONFIG --json=out.json", "redirect standard output"),
        ("groups plan CONFIG --exceute", "did you mean --execute?"),
    ],
)
def test_wrong_usage_ends_with_2_and_names_what_is_meant(
    words: str, reported: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        sys.exit(main(words.replace("CONFIG", config, 1).split()))
    assert end.value.code == 2 and reported in capsys.readouterr().err


def test_flows_are_chosen_by_name_or_target_and_unknown_ones_named_with_the_known(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = cli.command_line().parse_args(["run", config, "--clusters", "B", "C"])
    assert [flow.name for flow in chosen_flows(chosen, load(config))] == ["A->B"]
    for words in (["run", "--flow", "A->C"], ["plan", "--flow", "A->C"], ["run", "--clusters", "C", "D"]):
        assert main([words[0], config, *words[1:]]) == 2
        reported = capsys.readouterr()
        assert reported.out == "" and reported.err.endswith("; the file has A->B, B->A\n")


def test_wrong_configuration_ends_with_2_and_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mirror.yaml").write_text(IN_YAML + "    topcis: orders\n")
    for name, words in (("none.yaml", "the file cannot be read"), ("mirror.yaml", "topcis is not a setting")):
        assert main(["run", str(tmp_path / name)]) == 2
        reported = capsys.readouterr().err
        assert reported.startswith("error: ") and reported.count("\n") == 1
        assert name in reported and words in reported


@pytest.mark.parametrize("command", ["status", "doctor", "cutover plan", "cutover run --execute", "failover"])
def test_nothing_is_said_to_be_well_of_a_flow_that_copies_nothing(
    config: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(config)
    path.write_text(path.read_text().replace("  B->A:\n", "    copy.enabled: false\n"))
    assert main([*command.split(), config]) == 2
    assert "A->B: no records are copied" in capsys.readouterr().err


def test_warnings_go_to_standard_error_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(FLOW + "group.id = old-worker\n")
    assert main(["run", str(path), "--flow", "none", "--json"]) == 2
    reported = capsys.readouterr()
    assert reported.out == "" and reported.err.count("warning: ") == 1 and f"mirror plan {path} --all" in reported.err
    assert main(["plan", str(path), "--flow", "none", "--all"]) == 2
    assert capsys.readouterr().err.startswith("warning: group.id: ignored: ")


def test_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "mirror_lib.cli", "help"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as printing:
        assert printing.stdout is not None and printing.stderr is not None
        printing.stdout.close()
        assert printing.stderr.read() == ""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("pyspark", "package pyspark is missing (pip install '.[spark]'; for a Spark that is"),
        # Spark 3.3 without `pyspark.sql.streaming.query` was reported as a missing pyspark.
        ("pyspark.sql.types", "is installed"),
    ],
)
def test_package_that_is_missing_or_lacks_a_module_is_named(config: str, module: str, words: str) -> None:
    code = f"import sys; sys.modules['{module}'] = None; from mirror_lib.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, "run", config], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert module in done.stderr and words in done.stderr and ("pip install" in done.stderr) == ("pip" in words)


def test_delta_may_come_with_the_jars_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is imported only once there is one, and its lack is named then."""
    code = "import sys; sys.modules['delta'] = None; import mirror_lib.copy_job, mirror_lib.commands.verify"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    monkeypatch.setitem(sys.modules, "delta.tables", None)
    with pytest.raises(ImportError, match="delta"):
        RunTable(Mock(), "/state")


@pytest.mark.parametrize("with_spark_home", [True, False])
def test_platforms_spark_is_found_by_spark_home(tmp_path: Path, with_spark_home: bool) -> None:
    """In a Python without PySpark, as `pip install '.[platform]'` leaves it. Py4J comes as an archive there."""
    installed = Path(pyspark.__file__).parents[1]
    packages, home = tmp_path / "packages", tmp_path / "spark"
    packages.mkdir()
    (home / "python" / "lib").mkdir(parents=True)
    for each in installed.iterdir():
        if not each.name.startswith(("pyspark", "py4j")):
            (packages / each.name).symlink_to(each)
    (home / "python" / "pyspark").symlink_to(installed / "pyspark")
    shutil.make_archive(str(home / "python" / "lib" / "py4j-0.10.9-src"), "zip", installed, "py4j")
    code = "import os, mirror_lib.cli as cli; cli.find_spark(os.environ.get('SPARK_HOME')); import pyspark.sql"
    env = {"PYTHONPATH": f"{ROOT}:{packages}", **({"SPARK_HOME": str(home)} if with_spark_home else {})}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True)
    assert (done.returncode == 0) is with_spark_home, done.stderr


def test_environment_says_how_much_is_logged_of_us_and_not_of_libraries(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = logging.getLogger("mirror_lib")
    monkeypatch.setattr(ours, "level", ours.level)  # it is put back
    monkeypatch.setenv("MIRROR_LOG", "Debug")
    assert main(["run", config, "--flow", "none"]) == 2
    assert logging.getLogger("mirror_lib.supervisor").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("py4j.clientserver").isEnabledFor(logging.DEBUG)
    for name, value in (("MIRROR_LOG", "loud"), ("MIRROR_LOG_FORMAT", "xml")):
        monkeypatch.setenv(name, value)
        assert main(["run", config]) == 2
        assert f"MIR-101: {name}={value}" in capsys.readouterr().err


def test_unexpected_exception_of_a_plan_ends_with_a_sentence(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(read, "answering", Mock(side_effect=KeyError("endpoint_type")))
    assert main(["plan", config]) == 1
    reported = capsys.readouterr().err
    assert "A->B" in reported and "endpoint_type" in reported and "Traceback" not in reported


def test_terminal_gets_the_live_table_unless_it_was_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    for tty in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: tty)  # noqa: B023
        for words, environment, shown in (
            ([], {}, True),
            (["--json"], {}, False),
            (["--plain"], {}, False),
            ([], {"TERM": "dumb"}, False),
        ):
            arguments = command_line().parse_args(["run", "mirror.yaml", *words])
            assert wants_screen(arguments, {"TERM": "xterm", **environment}) == (shown and tty)


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
    monkeypatch.setenv("MIRROR_LOG_FORMAT", " JSON ")
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
