"""The dashboard, the alert rules and docs/run/monitoring.md agree with what the exporter exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any, Dict, List

import pytest
import yaml

from mirror_lib.exporter import METRICS
from tests.lab.checkout import ROOT
from tools.docs.metrics import table

FOLDER = ROOT / "conf" / "monitoring"
LABELS = {metric.name: set(metric.labels) for metric in METRICS}
# Prometheus has these itself: of a scrape, and of a target.
OF_PROMETHEUS = {"up": {"job", "instance"}}
OF_TARGETS = {"job", "instance"}
WORDS = {"and", "or", "on", "by", "unless", "bool", "ignoring", "without", "sum", "max", "min", "avg", "count"}
PROMTOOL = shutil.which("promtool")


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


def test_names_of_the_dashboard_and_of_the_alerts_are_exported() -> None:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    exprs = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    exprs += [rule["expr"] for rule in rules()]
    assert {expr: unknown_names(expr) for expr in exprs if unknown_names(expr)} == {}
    variable = dashboard["templating"]["list"][1]
    ((name, label),) = re.findall(r"^label_values\((\w+), (\w+)\)$", variable["definition"])
    assert label in LABELS[name] and variable["query"]["query"] == variable["definition"]


def test_a_name_that_is_not_exported_is_found() -> None:
    """The control of the one above."""
    assert unknown_names('sum(kafka_mirror_none{flow="a"}) / kafka_mirror_topics{topic="b"}') == [
        *("kafka_mirror_none", "topic"),
    ]


def test_page_has_the_metrics_and_the_alerts() -> None:
    page = (ROOT / "docs" / "run" / "monitoring.md").read_text(encoding="utf-8")
    assert table() in page, "run python -m tools.docs.metrics, and put the table into docs/run/monitoring.md"
    alerts = {rule["alert"] for rule in rules()}
    tested = (ROOT / "tests/unit/data/alerts-test.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"`(KafkaMirror\w+)`", page)) == alerts == set(re.findall(r"alertname: (\w+)", tested))
    assert set(re.findall(r"kafka_mirror_\w+", page)) <= LABELS.keys()


def test_every_metric_of_a_flow_is_on_the_dashboard_or_in_an_alert() -> None:
    text = (FOLDER / "dashboard.json").read_text() + (FOLDER / "alerts.yaml").read_text()
    # What a reader needs by itself: the version, and how many topics there are.
    alone = {f"kafka_mirror_{name}" for name in ("build_info", "running", "topics", "topic_bytes_total")}
    assert {name for name in LABELS if not re.search(rf"{name}\b", text)} == alone


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "words",
    [("check", "rules", "conf/monitoring/alerts.yaml"), ("test", "rules", "tests/unit/data/alerts-test.yaml")],
)
def test_promtool_accepts_the_rules_and_they_fire_as_they_should(words: List[str]) -> None:
    ran = subprocess.run([str(PROMTOOL), *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ran.returncode == 0, ran.stdout
