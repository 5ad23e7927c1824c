"""The command line without a cluster or a JVM: help, usage errors, exit codes, and what goes to which stream."""

from __future__ import annotations

import argparse
import functools
import json
import logging
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pyspark
import pytest

from mirror_lib import __version__, cli
from mirror_lib.cli import command_line, main
from mirror_lib.commands import run
from mirror_lib.commands.arguments import brief
from mirror_lib.commands.output import chosen_flows, json_words, print_progress, wants_screen
from mirror_lib.config.loader import load
from mirror_lib.config.model import ClusterConfig, MirrorConfig
from mirror_lib.errors import ClusterError, MirrorError, RefusedError
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.replication.totals import FlowOutcome, TopicTotal
from tests.lab.checkout import ROOT

TWO_FLOWS = """\
clusters:
  A: {bootstrap.servers: "127.0.0.1:1"}
  B: {bootstrap.servers: "127.0.0.1:2"}
flows:
  A->B: {topics: [orders]}
  B->A: {topics: [orders]}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "mirror.yaml"
    path.write_text(TWO_FLOWS)
    return str(path)


def ended(arguments: List[str]) -> Any:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["plan", "--help"], ["verify", "--help"]])
def test_help_lists_the_exit_codes(arguments: List[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(arguments) == 0
    reported = capsys.readouterr().out
    for code in ("0 ", "1 ", "2 ", "3 ", "143 "):
        assert f"\n  {code}" in reported
    assert "refused for safety" in reported


def test_help_and_version_need_neither_spark_nor_kafka() -> None:
    code = (
        "import sys, mirror_lib.cli as cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(' '.join(m for m in ('pyspark', 'kafka', 'pyarrow') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == "\n" or done.stderr == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(["--version"]) == 0
    assert capsys.readouterr().out == f"mirror {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [[], ["run"], ["copy", "x.yaml"], ["run", "x.yaml", "--fast"], ["plan", "x.yaml", "--once"]]
)
def test_wrong_usage_ends_with_2(arguments: List[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: mirror")


@pytest.mark.parametrize("name", cli.REPLACED)
def test_command_that_is_gone_names_what_replaces_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*name.split(), "mirror.yaml", "--execute"]) == 2
    reported = capsys.readouterr().err
    assert f"`mirror {name}`" in reported and cli.REPLACED[name] in reported and reported.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "way_out"),
    [("run --until caught-up", "--once"), ("verify --sample 5%", "--since TIME"), ("verify --seed 7", "no random")],
)
def test_option_that_is_gone_names_what_replaces_it(
    words: str, way_out: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *options = words.split()
    assert ended([command, config, *options]) == 2
    assert way_out in capsys.readouterr().err


def test_file_that_was_taken_for_a_cluster_is_told_its_place(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(["run", "--clusters", "backup", config]) == 2
    assert "CONFIG; it has to stand before --clusters" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "plan", "verify"])
def test_unknown_flow_is_named_beside_the_known_ones(
    command: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, config, "--flow", "A->C"]) == 2
    reported = capsys.readouterr()
    assert reported.out == ""
    assert reported.err == "error: MIR-101: there is no flow A->C to run; the file has A->B, B->A\n"


def test_clusters_names_the_targets_of_the_flows_to_run(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = cli.command_line().parse_args(["run", config, "--clusters", "B", "C"])
    assert [flow.name for flow in chosen_flows(chosen, load(config))] == ["A->B"]
    assert main(["run", config, "--clusters", "C", "D"]) == 2
    assert capsys.readouterr().err == "error: MIR-101: no flow goes into C, D; the file has A->B, B->A\n"


def test_file_without_an_enabled_flow_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text("clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n")
    assert main(["run", str(path)]) == 2
    assert "no flow is enabled; write A->B.enabled = true" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("none.yaml", None, "the file cannot be read"),
        ("mirror.txt", "x", "no clusters are given"),
        ("mirror.yaml", TWO_FLOWS.replace("topics:", "topcis:", 1), "topics"),
    ],
)
def test_wrong_configuration_ends_with_2_and_one_line(
    name: str, text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    assert main(["run", str(path)]) == 2
    reported = capsys.readouterr().err
    assert reported.startswith("error: ") and reported.count("\n") == 1
    assert name in reported and sentence in reported


def test_warnings_go_to_standard_error_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "A->B.enabled = true\ngroup.id = old-worker\n"
    )
    assert main(["run", str(path), "--flow", "none", "--json"]) == 2
    reported = capsys.readouterr()
    assert reported.out == ""
    warnings = [line for line in reported.err.splitlines() if line.startswith("warning: ")]
    assert warnings == [f"warning: 1 key without effect here; `mirror plan {path} --all` lists them"]
    assert main(["plan", str(path), "--flow", "none", "--all"]) == 2
    assert capsys.readouterr().err.startswith("warning: group.id: ignored: ")


def test_warnings_about_keys_are_one_line_and_others_are_printed_in_full() -> None:
    idle = ("k: ignored (f:1)", "n: ignored; did you mean m? (f:2)")
    corrected = ("l is read as m (f:3)", "l: without quotes (f:3)")
    config = MirrorConfig((), "state", warnings=("risk", *corrected, *idle), idle=idle, corrected=corrected)
    keys = "2 keys without effect here and 1 key read otherwise than written, perhaps misspelt: n"
    shown = ["risk", f"{keys}; `x` lists them"]
    assert brief(config, "x") == shown
    assert brief(MirrorConfig((), "state"), "x") == []


def test_job_for_spark_submit_takes_the_arguments_of_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "jobs" / "mirror.py"), str(tmp_path / "none.yaml")],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "none.yaml" in done.stderr and "Traceback" not in done.stderr


def test_ctrl_c_ends_a_command_with_one_line(config: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = Path(config)
        file.write_text(file.read_text().replace("127.0.0.1:1", f"127.0.0.1:{silent.getsockname()[1]}"))
        command = [sys.executable, "-m", "mirror_lib.cli", "plan", config]
        # A shell's background job ignores Ctrl-C, and so would its children.
        heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=heard) as plan:
            silent.accept()
            plan.send_signal(signal.SIGINT)
            assert plan.communicate()[1] == "error: stopped by Ctrl-C\n"
    assert plan.returncode == 143


def test_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "mirror_lib.cli", "help"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as printing:
        assert printing.stdout is not None and printing.stderr is not None
        printing.stdout.close()
        assert printing.stderr.read() == ""


def run_without(module: str, config: str) -> str:
    """The error of a run where `import module` fails."""
    code = f"import sys; sys.modules['{module}'] = None; from mirror_lib.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, "run", config], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("package", ["pyspark", "delta"])
def test_missing_spark_is_named_with_what_to_do(config: str, package: str) -> None:
    assert f"package {package} is missing (pip install '.[spark]'; for a Spark that is" in run_without(package, config)


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


@pytest.mark.parametrize("module", ["pyspark.sql.types", "delta.tables"])
def test_package_that_lacks_a_module_is_not_called_missing(config: str, module: str) -> None:
    """Spark 3.3 without `pyspark.sql.streaming.query` was reported as a missing pyspark, and a second one installed."""
    error = run_without(module, config)
    assert module in error and "is installed" in error and "pip install" not in error


@pytest.fixture
def own_level() -> Iterator[logging.Logger]:
    """Of what the product logs; it is put back."""
    logger = logging.getLogger("mirror_lib")
    before = logger.level
    yield logger
    logger.setLevel(before)


def test_environment_says_how_much_is_logged_of_us_and_not_of_libraries(
    config: str, own_level: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_LOG", "Debug")
    assert main(["run", config, "--flow", "none"]) == 2
    assert logging.getLogger("mirror_lib.supervisor").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("py4j.clientserver").isEnabledFor(logging.DEBUG)


def test_level_that_is_none_is_told_in_one_sentence(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MIRROR_LOG", "loud")
    assert main(["run", config]) == 2
    reported = "error: MIR-101: MIRROR_LOG=loud is no level: take one of debug, info, warning, error\n"
    assert capsys.readouterr().err == reported


def test_json_is_one_document_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    from mirror_lib.commands.output import print_json

    print_json({"topic": "größe", "text": "two\nlines"})
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"topic": "größe", "text": "two\nlines"}
    ]


def test_an_unreachable_cluster_is_one_sentence_and_no_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    nobody = ClusterConfig("A", {"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(ClusterError, match=re.escape("cannot reach the cluster A at 127.0.0.1:1")):
        KafkaCluster(nobody, answer_seconds=1)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_plan_that_meets_what_nobody_foresaw_ends_with_a_sentence(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: KafkaCluster, *_: object) -> None:
        raise KeyError("endpoint_type")

    monkeypatch.setattr(KafkaCluster, "__init__", broken)
    assert main(["plan", config]) == 1
    reported = capsys.readouterr().err
    assert "A->B" in reported and "endpoint_type" in reported and "Traceback" not in reported


def test_json_goes_to_the_file_behind_the_sign_and_no_other_word_is_taken_for_one(config: str, tmp_path: Path) -> None:
    given = [command_line().parse_args(json_words(["plan", word, config])) for word in ("--json=out.json", "--json")]
    assert [(each.json, each.config) for each in given] == [("out.json", [config]), ("-", [config])]
    assert main(["plan", f"--json={tmp_path / 'none' / 'out.json'}", config]) == 2


def test_reports_go_to_the_file_and_as_lines_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mirror_lib.commands.output import json_to, watcher
    from mirror_lib.control.service import ControlReport, control_json, control_line

    file = tmp_path / "out.json"
    file.write_text("of an earlier run\n")
    with json_to(str(file)):
        watcher(True, control_line, control_json)(ControlReport("A->B", 1))
    assert [json.loads(line) for line in file.read_text().splitlines()] == [control_json(ControlReport("A->B", 1))]
    shown, line = capsys.readouterr(), control_line(ControlReport("A->B", 1)) + "\n"
    assert shown.out == "" and re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d " + re.escape(line), shown.err)


def test_lines_have_a_time_in_a_log_and_none_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    print_progress("A->B: caught up")
    assert capsys.readouterr().err == "A->B: caught up\n"


@pytest.mark.parametrize(
    ("words", "environment", "shown"),
    [
        ([], {}, True),
        (["--json=out.json"], {}, True),
        (["--json"], {}, False),
        (["--plain"], {}, False),
        ([], {"MIRROR_SCREEN": "off"}, False),
        ([], {"TERM": "dumb"}, False),
    ],
)
def test_terminal_gets_the_live_table_unless_it_was_declined(
    words: List[str], environment: Dict[str, str], shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    arguments = command_line().parse_args(json_words(["run", "mirror.yaml", *words]))
    assert wants_screen(arguments, {"TERM": "xterm", **environment}) == shown
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert not wants_screen(arguments, {"TERM": "xterm", **environment})


def test_terminal_without_rich_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "rich", None)  # as where it is not installed
    arguments = command_line().parse_args(["run", "mirror.yaml"])
    assert not wants_screen(arguments, {"TERM": "xterm"})


PLAIN = command_line().parse_args(["run", "mirror.yaml"])


def test_run_of_nothing_names_a_command_that_takes_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, command in ((PLAIN, "mirror plan"), (command_line().parse_args(["mm1"]), "kafka-consumer-groups")):
        run._show([FlowOutcome("A->B", 0, 0, (), None)], {"A->B": []}, arguments, False, False)
        assert command in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["mm1", "--whitelst", "orders"], "--whitelist"),
        (["run", "mirror.yaml", "--ones"], "--once"),
        (["groups", "plan", "mirror.yaml", "--exceute"], "--execute"),
    ],
)
def test_misspelt_option_is_named_with_the_one_that_is_meant(
    words: List[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(words) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_end_of_a_run_names_the_filtered_records_of_a_flow_with_a_filter(capsys: pytest.CaptureFixture[str]) -> None:
    total = TopicTotal("orders", "A.orders", 1, 2, 3, 0.5)
    outcomes = [
        FlowOutcome("A->B", 2, 3, (total,), None, filtered=1204),
        FlowOutcome("B->A", 0, 0, (), None, filtered=5678),
        FlowOutcome("C->D", 2, 3, (total,), None),
    ]
    run._show(outcomes, {each.flow: [] for each in outcomes}, PLAIN, False, False)
    printed = capsys.readouterr()
    assert "1,204" in printed.out and "5,678" in printed.out + printed.err
    assert (printed.out + printed.err).count("filtered") == 2


def test_each_flow_of_a_run_has_its_own_exit_code_in_its_document(capsys: pytest.CaptureFixture[str]) -> None:
    away, refused = ClusterError("B->A: away"), RefusedError("C->D: no", code="MIR-304")
    outcomes = [FlowOutcome("A->B", 1, 10, (), None), FlowOutcome("B->A", 0, 0, (), away)]
    errors: Dict[str, List[MirrorError]] = {"A->B": [], "B->A": [away], "C->D": [refused]}
    run._show(outcomes, errors, argparse.Namespace(json="-"), False, False)
    printed = capsys.readouterr()
    documents = [json.loads(line) for line in printed.out.splitlines()]
    assert [(each["flow"], each["exit_code"], each["code"]) for each in documents] == [
        ("A->B", 0, None),
        ("B->A", 1, "MIR-201"),
        ("C->D", 3, "MIR-304"),
    ]
    lines = [line.partition("error: ")[2] for line in printed.err.splitlines()]
    assert lines == ["MIR-201: B->A: away", "MIR-304: C->D: no; mirror help MIR-304 explains it"]
