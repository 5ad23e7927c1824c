"""The page of `mirror report` by what is in it: values in their places, nothing foreign that acts, no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import pytest

from mirror_lib.cli import main
from mirror_lib.commands.report import entries_of, sha256_of, write_page
from mirror_lib.config.document import Entry
from mirror_lib.config.loader import load
from mirror_lib.errors import ConfigError
from mirror_lib.ledger.events import incident_row, verification_row
from mirror_lib.ledger.records import DATA_LOST, Incident, Verification
from mirror_lib.ledger.tables import EVENTS
from mirror_lib.report.charts import BARS, METRICS, Bar, bars
from mirror_lib.report.page import MirrorReport, page, shown
from mirror_lib.report.settings import NOT_SHOWN, cluster_facts, given_settings, shown_state, unset_count
from mirror_lib.status.facts import FlowStatus
from mirror_lib.status.read import with_history
from tests.lab.checkout import ROOT
from tests.lab.sample_report import ATTACKS, HOUR, NOW, flow_report, hostile_report, mirror_report, run_of

DAY = 24 * HOUR
VOID = ("br", "input", "meta")


@dataclass(eq=False)
class Element:
    """Its `text` is also that of the elements in it."""

    name: str
    attributes: Dict[str, str]
    within: Tuple[Element, ...]
    text: str = ""


class Parsed(HTMLParser):
    """The elements of a page, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: List[Element] = []
        self._open: List[Element] = []
        self.feed(text)
        self.close()
        assert not self._open, "an element has no end"

    def handle_starttag(self, name: str, attributes: List[Tuple[str, Optional[str]]]) -> None:
        made = Element(name, {key: value or "" for key, value in attributes}, tuple(self._open))
        self.elements.append(made)
        if name not in VOID:
            self._open.append(made)

    def handle_endtag(self, name: str) -> None:
        assert self._open.pop().name == name

    def handle_data(self, data: str) -> None:
        for each in self._open:
            each.text += data

    def all(self, name: str, cls: str = "") -> List[Element]:
        named = (each for each in self.elements if each.name == name)
        return [each for each in named if not cls or cls in each.attributes.get("class", "").split()]

    def table(self, noun: str) -> List[List[str]]:
        """The rows of the first table of these."""
        grid = next(each for each in self.all("div") if each.attributes.get("data-table") == noun)
        rows: Dict[Element, List[str]] = {}
        for cell in self.all("td"):
            if grid in cell.within:
                rows.setdefault(cell.within[-1], []).append(cell.text)
        return list(rows.values())


def parsed(report: MirrorReport) -> Parsed:
    return Parsed(page(report))


def test_overview_shows_the_state_and_the_problems_of_each_flow() -> None:
    degraded = flow_report("backup", "primary")
    status = replace(degraded.status, blocked={"bills": "it collides with primary_bills"})
    root = parsed(mirror_report([flow_report(), replace(degraded, status=status)]))
    badges = [(each.text, each.attributes["class"]) for each in root.all("span", "state")[:2]]
    assert badges == [("✓ healthy", "state healthy"), ("! degraded", "state degraded")]
    (problem,) = root.all("li", "degraded")
    assert "backup->primary: bills cannot be copied: it collides with primary_bills" in problem.text
    assert "What to do: mirror plan CONFIG" in problem.text
    first, second = root.table("flow")
    assert first == [
        *("primary->backup", "healthy", "3", "6", "60", "10 min", "5 days", "1", "1"),
        "equal, 2026-11-18 10:06:40",
    ]
    assert second[:2] == ["backup->primary", "degraded"]


def test_tables_have_the_values_of_a_flow() -> None:
    root = parsed(mirror_report([flow_report()]))
    assert root.table("topic") == [
        ["topic-2", "primary.topic-2", "2", "99.6 %", "40", "10 min", "5 days", "0"],
        ["topic-1", "primary.topic-1", "2", "99.8 %", "20", "10 min", "5 days", "0"],
        ["topic-0", "primary.topic-0", "2", "all", "0", "-", "-", "-"],
    ]
    of_2 = [each for each in root.table("partition") if each[0] == "topic-2-0"]
    assert of_2 == [["topic-2-0", "0", "4,980", "5,000", "20", "10 min", "5 days", "2026-11-18 11:06:35"]]
    assert root.table("group") == [["billing", "12", "exact", "10", "4,012", "2026-11-18 11:06:10"]]
    incident = ["2026-11-18 02:06:40", "topic recreated", "topic-1", "1", "40", "41", "topic-1 has another id"]
    assert root.table("incident") == [incident]
    equal, differs = root.table("verification")
    assert equal == ["2026-11-18 10:06:40", "equal", "3", "0", "4,711", "whole", "-"]
    assert differs[1:] == ["differs", "3", "1", "9", "whole", "topic-1-0: lost at upstream offset 4"]
    last, first = root.table("run")
    assert last == ["2026-11-18 10:50:00", "-", "17 min", *last[3:6], "running"]
    assert first[2:] == ["30 min", "180,000", "18.0 MB", "etl-3 process 7", "ok"]
    assert root.table("setting") == [["tasks.max", "4", "1", "mirror.yaml:7"]]
    figures = [each.text for each in root.all("figcaption")]
    assert figures == [f"{what} last 24 hours" for what in ("Throughput, records/s", "Lag, offsets", "Lag, seconds")]


def test_what_cannot_be_read_is_named_where_it_is_missing() -> None:
    flow = flow_report()
    status = replace(flow.status, partitions=(), groups=(), unread=("cannot reach the cluster backup",))
    status = replace(status, runs=None, incidents=(), verifications=None)
    root = parsed(mirror_report([replace(flow, status=status)]))
    assert root.all("body")[0].text.count("Not available: see the problems in the overview.") == 5
    assert "primary->backup: cannot reach the cluster backup" in root.all("li", "unknown")[0].text
    assert root.table("flow") == [["primary->backup", "unknown", "-", "-", "-", "-", "-", "-", "0", "-"]]


def test_history_is_that_of_30_days() -> None:
    times = [NOW - days * DAY for days in (10, 20, 40)]
    lost = incident_row("A->B", "run", -1, Incident(DATA_LOST, "orders", 0, 1, 2, "expired"))
    verified = verification_row(Verification("A->B", "equal", 1, 2, 0, "", "whole"))
    names = [name for name, _ in EVENTS.given()]
    events = [{**dict(zip(names, row)), "at": at} for at in times for row in (lost, verified)]
    now = FlowStatus("A->B", NOW, True)
    found = with_history(now, None, events)
    assert found.runs is None and [each.at for each in found.losses] == [NOW - 20 * DAY, NOW - 10 * DAY]
    assert [each.at for each in found.verifications or ()] == times[::-1]
    assert with_history(now, [], []) == now


def test_rates_are_of_each_interval_and_many_are_averaged() -> None:
    rate, lag, _ = METRICS
    run = run_of(1, NOW, 2, step=100.0)
    assert bars([run], rate, NOW + 150) == [Bar(NOW + 150, NOW + 200, 100.0), Bar(NOW + 200, NOW + 210, 0.0)]
    assert [each.value for each in bars([run], lag, NOW)] == [1000, 2000]
    many = [run_of(number, NOW + 1000 * number, 1, step=10.0) for number in range(BARS)]
    joined = bars(many, rate, NOW)
    assert len(joined) == BARS and {each.value for each in joined} == {50.0}


def test_hostile_names_and_reasons_are_text_and_nothing_more() -> None:
    text = page(hostile_report())
    root = Parsed(text)
    assert len(root.all("script")) == 1
    for each in root.elements:
        assert each.name not in ("img", "iframe", "object", "embed", "link", "base", "form")
        for name, value in each.attributes.items():
            leads_out = name in ("href", "src", "action", "xlink:href") and not value.startswith("#")
            assert not (name.startswith("on") or name == "style" or leads_out), f"{each.name} {name}={value}"
    hidden = {char for char in text if not char.isprintable() and char != "\n"}
    assert hidden == set(), "a terminal obeys a character of the page"
    (body,) = (each.text for each in root.all("body"))
    for attack in ATTACKS:
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in attack)
        assert body.count(shown) > 8, attack


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


def test_settings_of_the_file_are_listed_without_secrets_and_with_their_place(config: Path) -> None:
    (flow,) = load(str(config)).flows
    found = {each.name: each for each in given_settings(flow, entries_of([str(config)]))}
    assert {name: each.value for name, each in found.items()} == {
        "topics": "orders, pay.*",
        "max.bytes.per.second": "50 MB",
        "where": NOT_SHOWN,
        "rename": "pay[.](.*) -> payments.$1",
        "emit.heartbeats.enabled": "false",
        "admin.timeout.ms": "1000",
        "topic.filter.class": "report_test_filter:Only",
        "topic.filter.class.only": "not shown: it is for a class of yours",
    }
    assert (found["admin.timeout.ms"].default, found["admin.timeout.ms"].place) == ("60000", f"{config}:13")
    assert unset_count(list(found.values())) > 30
    assert cluster_facts(flow.source, "consumer") == ("primary", "127.0.0.1:9 (SASL_SSL)")
    hidden = Entry("", "state", ABFSS, "mirror.yaml:1", hidden=True)
    assert shown_state(ABFSS, [hidden]) == NOT_SHOWN
    assert shown_state(ABFSS, [replace(hidden, key="topics")]) == ABFSS


ABFSS = "abfss://mirror@account.dfs.core.windows.net/state"


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
    problems = Parsed(text).all("ul", "problems")[0].text
    assert "could not read the table" in problems and "docs/fix/state.md" in problems
    assert text.count("No run in the last 30 days.") == 2, "a damaged table hides another one"
    printed = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert (printed["primary->backup"], printed["page"]) == ("unknown", str(output))
    assert printed["sha256"] == sha256_of(str(output)) and sha256_of(str(config)) in text
    assert main(["report", str(config), "-o", str(output), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["flows"], document["page"]) == ({"primary->backup": "unknown"}, str(output))


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_without_the_extra_the_command_names_what_to_install(
    package: str, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mirror_lib.commands.report", "mirror_lib.report.page", "mirror_lib.report.charts"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["report", str(config), "-o", str(tmp_path / "report.html")]) == 2
    error = capsys.readouterr().err
    assert "MIR-101" in error and package in error and "pip install 'spark-kafka-mirror[report]'" in error
    assert not (tmp_path / "report.html").exists()


def test_page_replaces_an_older_one_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, link = tmp_path / "report.html", tmp_path / "still open"
    write_page(str(output), b"old")
    os.link(str(output), str(link))
    write_page(str(output), b"new")
    assert (output.read_bytes(), link.read_bytes()) == (b"new", b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        write_page(str(output), b"newer")
    assert output.read_bytes() == b"new" and len(list(tmp_path.iterdir())) == 2


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
