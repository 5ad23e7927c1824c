"""The page of `mirror report` by what is in it: values in their places, and no secret."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Dict, List
from unittest.mock import Mock

import pytest

from mirror_lib.cli import main
from mirror_lib.commands.report import sha256_of, write_page
from mirror_lib.config.document import Entry
from mirror_lib.errors import ConfigError
from mirror_lib.report.page import page, shown
from mirror_lib.report.settings import NOT_SHOWN, shown_state
from tests.lab.checkout import ROOT
from tests.lab.sample_report import flow_report, mirror_report


def tables(html: str) -> Dict[str, List[List[str]]]:
    """The cells of each table's rows, by what a row is about."""
    found: Dict[str, List[List[str]]] = {}
    for noun, body in re.findall(r'<div data-table="(\w+)">.*?<tbody>(.*?)</tbody>', html, re.DOTALL):
        rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
        found[noun] = [list(map(unescape, re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL))) for row in rows]
    return found


def test_tables_have_the_values_of_a_flow() -> None:
    found = tables(page(mirror_report([flow_report()])))
    assert found["topic"] == [
        ["topic-2", "primary.topic-2", "2", "99.6 %", "40", "10 min", "5 days", "0"],
        ["topic-1", "primary.topic-1", "2", "99.8 %", "20", "10 min", "5 days", "0"],
        ["topic-0", "primary.topic-0", "2", "all", "0", "-", "-", "-"],
    ]
    of_2 = [each for each in found["partition"] if each[0] == "topic-2-0"]
    assert of_2 == [["topic-2-0", "0", "4,980", "5,000", "20", "10 min", "5 days", "2026-11-18 11:06:35"]]
    assert found["group"] == [["billing", "12", "exact", "10", "4,012", "2026-11-18 11:06:10"]]
    incident = ["2026-11-18 02:06:40", "topic recreated", "topic-1", "1", "40", "41", "topic-1 has another id"]
    assert found["incident"] == [incident]
    equal, differs = found["verification"]
    assert equal == ["2026-11-18 10:06:40", "equal", "3", "0", "4,711", "whole", "-"]
    assert differs[1:] == ["differs", "3", "1", "9", "whole", "topic-1-0: lost at upstream offset 4"]
    last, first = found["run"]
    assert last == ["2026-11-18 10:50:00", "-", "17 min", *last[3:6], "running"]
    assert first[2:] == ["30 min", "180,000", "18.0 MB", "etl-3 process 7", "ok"]
    assert found["setting"] == [["tasks.max", "4", "1", "mirror.yaml:7"]]


SECRETS = """\
name: orders
clusters:
  primary:
    bootstrap.servers: 127.0.0.1:9
    security.protocol: SASL_SSL
    sasl.mechanism: PLAIN
    sasl.jaas.config: 'org.apache.kafka.PlainLoginModule required username="u" password="hunter2";'
  backup: {bootstrap.servers: "127.0.0.1:9", ssl.truststore.password: hunter2, consumer.ssl.key.password: hunter2}
flows:
  primary->backup:
    topics: ["orders", "pay.*"]
    max.bytes.per.second: 50 MB
    admin.timeout.ms: 1000
    emit.heartbeats.enabled: false
    topic.filter.class: report_test_filter:Only
    topic.filter.class.only: hunter2
    where: "value IS NOT NULL AND key != '${env:MIRROR_TEST_SECRET}'"
    rename: ["pay[.](.*) -> payments.$1"]
"""
FILTER = """\
class Only:
    def __init__(self, flow, properties): ...
    def why_not(self, name): return None
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with secrets of every kind, clusters that do not answer, and an empty state folder."""
    monkeypatch.setenv("MIRROR_TEST_SECRET", "hunter2")
    path = tmp_path / "mirror.yaml"
    (tmp_path / "report_test_filter.py").write_text(FILTER, encoding="utf-8")
    path.write_text(f"{SECRETS}state: {tmp_path / 'state'}\n", encoding="utf-8")
    return path


ABFSS = "abfss://mirror@account.dfs.core.windows.net/state"


def test_state_folder_that_a_secret_names_is_not_shown() -> None:
    hidden = Entry("", "state", ABFSS, "mirror.yaml:1", hidden=True)
    assert shown_state(ABFSS, [hidden]) == NOT_SHOWN
    assert shown_state(ABFSS, [replace(hidden, key="topics")]) == ABFSS


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("s3a://KEY:hunter2@bucket/state", "s3a://***@bucket/state"),
        (f"could not read {ABFSS}/runs?sig=hunter2 (check it)", f"could not read {ABFSS}/runs?*** (check it)"),
        ("cannot read s3://KEY:hun/ter2@bucket", "cannot read s3://***@bucket"),
        (ABFSS, ABFSS),
        ("who? localhost:9092", "who? localhost:9092"),
    ],
)
def test_logins_and_signatures_in_addresses_are_not_shown(text: str, safe: str) -> None:
    assert shown(text) == safe
    flow = flow_report()
    report = mirror_report([replace(flow, status=replace(flow.status, unread=(text,)))])
    html = page(replace(report, state=text))
    assert html.count(safe) >= 2 and "ter2" not in html


def test_command_writes_a_page_without_secrets_where_no_cluster_answers(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "report.html"
    log = tmp_path / "state/events/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("{", encoding="utf-8")
    assert main(["report", str(config), "-o", str(output)]) == 2
    text = output.read_text(encoding="utf-8")
    assert "hunter2" not in text and "cannot reach the cluster" in text
    assert "could not read the table" in text and "docs/fix/state.md" in text
    assert text.count("No run in the last 30 days.") == 2, "a damaged table hides another one"
    printed = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert (printed["primary->backup"], printed["page"]) == ("unknown", str(output))
    assert printed["sha256"] == sha256_of(str(output)) and sha256_of(str(config)) in text
    assert main(["report", str(config), "-o", str(output), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["flows"], document["page"]) == ({"primary->backup": "unknown"}, str(output))


def test_page_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "report.html"
    write_page(str(output), b"old")
    monkeypatch.setattr(os, "replace", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(ConfigError, match="No space left on device"):
        write_page(str(output), b"new")
    assert output.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("output", ["gone/report.html", "folder", "/dev/null"])
def test_page_that_cannot_be_written_is_refused_with_what_to_do(tmp_path: Path, output: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="with -o") as refused:
        write_page(str(tmp_path / output), b"page")
    assert output in str(refused.value)


def test_a_wheel_has_the_files_of_the_page_and_the_codes(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_py", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    files = {path.name for path in (ROOT / "mirror_lib/report").iterdir() if path.suffix in (".html", ".css", ".js")}
    assert files == {"page.html", "page.css", "page.js"}
    assert files <= {path.name for path in (tmp_path / "mirror_lib/report").iterdir()}
    assert (tmp_path / "mirror_lib/codes.md").read_text() == (ROOT / "docs/fix/codes.md").read_text()
