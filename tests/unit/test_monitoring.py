"""The dashboard, the alert rules and docs/run/monitoring.md agree with what the exporter exports."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import List

import pytest

from mirror_lib.exporter import METRICS
from tests.lab.checkout import ROOT
from tools.docs.metrics import table

FILES = [ROOT / "conf" / "monitoring" / name for name in ("dashboard.json", "alerts.yaml")]
TEXT = "".join(each.read_text(encoding="utf-8") for each in FILES)
NAMES = {metric.name for metric in METRICS}
PROMTOOL = shutil.which("promtool")


def test_names_and_labels_of_the_dashboard_and_of_the_alerts_are_exported() -> None:
    assert set(re.findall(r"kafka_mirror_\w+", TEXT)) <= NAMES
    labels = {metric.name: {*metric.labels, "job", "instance"} for metric in METRICS}
    asked = re.findall(r"(kafka_mirror_\w+)\{([^}]*)\}", TEXT)
    assert asked and all(set(re.findall(r"(\w+)\s*[=!]", matchers)) <= labels[name] for name, matchers in asked)


def test_page_has_the_metrics_and_the_alerts() -> None:
    page = (ROOT / "docs" / "run" / "monitoring.md").read_text(encoding="utf-8")
    assert table() in page, "run python -m tools.docs.metrics, and put the table into docs/run/monitoring.md"
    alerts = set(re.findall(r"- alert: (\w+)", TEXT))
    tested = (ROOT / "tests/unit/data/alerts-test.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"`(KafkaMirror\w+)`", page)) == alerts == set(re.findall(r"alertname: (\w+)", tested))
    assert set(re.findall(r"kafka_mirror_\w+", page)) <= NAMES


def test_every_metric_of_a_flow_is_on_the_dashboard_or_in_an_alert() -> None:
    # What a reader needs by itself: the version, and how many topics there are.
    alone = {f"kafka_mirror_{name}" for name in ("build_info", "running", "topics", "topic_bytes_total")}
    assert {name for name in NAMES if not re.search(rf"{name}\b", TEXT)} == alone


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "words",
    [("check", "rules", "conf/monitoring/alerts.yaml"), ("test", "rules", "tests/unit/data/alerts-test.yaml")],
)
def test_promtool_accepts_the_rules_and_they_fire_as_they_should(words: List[str]) -> None:
    ran = subprocess.run([str(PROMTOOL), *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ran.returncode == 0, ran.stdout
