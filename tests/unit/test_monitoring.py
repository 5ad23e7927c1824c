"""The dashboard, the alert rules and docs/run/monitoring.md agree with what the exporter exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import pytest
import yaml

from mirror_lib.config.settings import BY_NAME
from mirror_lib.exporter import METRICS, STATES
from tests.lab.checkout import ROOT
from tools.docs.metrics import table

FOLDER = ROOT / "conf" / "monitoring"
PAGE = (ROOT / "docs" / "run" / "monitoring.md").read_text(encoding="utf-8")
LABELS = {metric.name: set(metric.labels) for metric in METRICS}
# Prometheus has these itself: of a scrape, and of a target.
OF_PROMETHEUS = {"up": {"job", "instance"}}
OF_TARGETS = {"job", "instance"}
WORDS = {"and", "or", "on", "by", "unless", "bool", "ignoring", "without", "sum", "max", "min", "avg", "count"}
PROMTOOL = shutil.which("promtool")


def dashboard() -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return found


def rules() -> List[Dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def unknown_names(expr: str) -> List[str]:
    """Metrics of a PromQL expression that the exporter does not have, and labels that such a metric does not have."""
    known = {**LABELS, **OF_PROMETHEUS}
    bare = re.sub(r"\b(on|by|ignoring|without)\s*\([^)]*\)", r"\1", expr)
    bare = re.sub(r"\[[^\]]*\]", "", bare)  # durations
    found: List[str] = []
    for name, _, matchers in re.findall(r"([a-zA-Z_:][\w:]*)\s*(\{([^}]*)\})?(?!\w|\s*\()", bare):
        if name in WORDS:
            continue
        labels = set(re.findall(r"(\w+)\s*[=!]", re.sub(r'"[^"]*"', "", matchers)))
        if name not in known:
            found.append(name)
        found += sorted(labels - known.get(name, labels) - OF_TARGETS)
    return found


def targets() -> Iterator[Dict[str, Any]]:
    return (target for panel in dashboard()["panels"] for target in panel["targets"])


def test_names_of_the_dashboard_are_exported() -> None:
    wrong = {target["expr"]: unknown_names(target["expr"]) for target in targets()}
    assert {expr: names for expr, names in wrong.items() if names} == {}
    variable = dashboard()["templating"]["list"][1]
    ((name, label),) = re.findall(r"^label_values\((\w+), (\w+)\)$", variable["definition"])
    assert label in LABELS[name] and variable["query"]["query"] == variable["definition"]


def test_legends_and_annotations_use_labels_that_the_series_have() -> None:
    for target in targets():
        (name, *_) = re.findall(r"kafka_mirror_\w+", target["expr"])
        assert set(re.findall(r"\{\{\s*(\w+)\s*\}\}", target["legendFormat"])) <= LABELS[name] | OF_TARGETS
    for rule in rules():
        wanted = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        named = re.findall(r"kafka_mirror_\w+", rule["expr"])
        assert wanted <= OF_TARGETS | (LABELS[named[0]] if named else set())


def test_names_of_the_alerts_are_exported() -> None:
    assert {rule["alert"]: unknown_names(rule["expr"]) for rule in rules() if unknown_names(rule["expr"])} == {}


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ("rate(kafka_mirror_records[5m]) > 0", ["kafka_mirror_records"]),
        ('sum by (flow) (kafka_mirror_lag_records{topic="x"})', ["topic"]),
        ('topk(10, kafka_mirror_topic_lag_records{flow=~"$flow"}) and up == 0', []),
        ("time() - kafka_mirror_last_pass_timestamp_seconds", ["kafka_mirror_last_pass_timestamp_seconds"]),
        ('kafka_mirror_lag_records{flow="a{b=c"} > 1', []),
    ],
)
def test_wrong_name_is_seen(expr: str, names: List[str]) -> None:
    assert unknown_names(expr) == names


def test_every_metric_of_a_flow_is_on_the_dashboard_or_in_an_alert() -> None:
    text = (FOLDER / "dashboard.json").read_text() + (FOLDER / "alerts.yaml").read_text()
    # What a reader needs by itself: the version, and how many topics there are.
    alone = {f"kafka_mirror_{name}" for name in ("build_info", "running", "topics", "topic_bytes_total")}
    assert {name for name in LABELS if not re.search(rf"{name}\b", text)} == alone


def test_alerts_have_a_reason_for_their_threshold_and_a_remedy() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) and all(name.startswith("KafkaMirror") for name in names)
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "threshold", "remedy"} and rule["expr"].strip()
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        said = re.sub(r"\{\{.*?\}\}", "", " ".join(rule["annotations"].values()))
        keys = re.findall(r"\b[a-z]+(?:\.[a-z]+)+\b", said)
        assert [key for key in keys if key not in (*BY_NAME, "client.id", "configs.sh")] == []


def overlapping(panels: List[Dict[str, Any]]) -> List[str]:
    """Panels that lie on cells of another, or beyond Grafana's 24 columns."""
    taken: Dict[Any, str] = {}
    found = []
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        if at["x"] + at["w"] > 24 or not cells or taken.keys() & cells:
            found.append(panel["title"])
        taken.update(dict.fromkeys(cells, panel["title"]))
    return found


def test_dashboard_has_what_grafana_requires() -> None:
    found = dashboard()
    assert found["id"] is None and re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", found["uid"])
    assert found["schemaVersion"] >= 38 and found["title"] and found["time"].keys() == {"from", "to"}
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = {f"${{{each['name']}}}" for each in found["templating"]["list"]}
    for panel in panels:
        assert panel["type"] in ("timeseries", "stat", "table", "state-timeline")
        assert panel["title"] and panel["description"] and panel["fieldConfig"].keys() == {"defaults", "overrides"}
        assert panel["gridPos"].keys() == {"x", "y", "w", "h"} and panel["targets"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        assert {each["datasource"]["uid"] for each in (panel, *panel["targets"])} <= variables
    assert overlapping(panels) == []
    assert overlapping([panels[0], {**panels[1], "gridPos": panels[0]["gridPos"]}]) == [panels[1]["title"]]


def test_page_has_the_table_of_the_exporter() -> None:
    assert table() in PAGE, "run python -m tools.docs.metrics, and put the table into docs/run/monitoring.md"
    assert len(PAGE.replace(table(), "").split()) <= 900


def test_page_names_alerts_and_metrics_that_exist() -> None:
    alerts = {rule["alert"] for rule in rules()}
    assert set(re.findall(r"`(KafkaMirror\w+)`", PAGE)) == alerts
    names = {name for name in re.findall(r"kafka_mirror_\w+", PAGE)}
    assert names <= LABELS.keys()


def test_words_of_the_state_label_are_those_of_the_page() -> None:
    (row,) = (line for line in PAGE.splitlines() if line.startswith("|`kafka_mirror_state`"))
    assert ", ".join(STATES) in row


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "words",
    [("check", "rules", "conf/monitoring/alerts.yaml"), ("test", "rules", "tests/unit/data/alerts-test.yaml")],
)
def test_promtool_accepts_the_rules_and_they_fire_as_they_should(words: List[str]) -> None:
    ran = subprocess.run([str(PROMTOOL), *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ran.returncode == 0, ran.stdout


def test_rules_test_names_every_alert() -> None:
    text = Path(ROOT / "tests/unit/data/alerts-test.yaml").read_text(encoding="utf-8")
    named: Set[str] = set(re.findall(r"alertname: (\w+)", text))
    assert named == {rule["alert"] for rule in rules()}
