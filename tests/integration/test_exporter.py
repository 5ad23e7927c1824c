"""What Prometheus gets of a real run: scraped while it copies, and read from the textfile after it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator

import pytest
from prometheus_client.openmetrics import parser

from tests.lab.checkout import ROOT
from tests.lab.crash import mirror
from tests.lab.dataset import set_configs
from tests.lab.flow_lab import NOON
from tests.lab.one_flow import NewFlow, OneFlow, until
from tests.lab.ports import free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 200
PROMETHEUS = shutil.which("prometheus")
parse: Any = parser.text_string_to_metric_families


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("exported", records=RECORDS)


def configured(flow: OneFlow, *lines: str) -> Path:
    path = flow.config
    path.write_text(path.read_text() + "\n".join(lines) + "\n")
    return path


def values(text: str) -> Dict[str, float]:
    """By name without prefix, with the topic or the side behind it where there is one."""
    found = {}
    for sample in (sample for family in parse(text) for sample in family.samples):
        last = sample.labels.get("topic") or sample.labels.get("side") or sample.labels.get("state")
        found[sample.name[len("kafka_mirror_") :] + (f" {last}" if last else "")] = sample.value
    return found


def scraped(port: int) -> Dict[str, float]:
    """Empty while nothing listens there."""
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=accept)
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=30) as answer:
        return values(answer.read().decode("utf-8"))
    return {}


def test_scrape_of_a_continuous_run_counts_what_was_written_until_sigterm_ends_it(
    flow: OneFlow, spark: SparkSession
) -> None:
    flow.trigger = "1 second"
    (port,) = free_ports(1)
    textfile = flow.directory / "mirror.prom"
    config = configured(flow, f"metrics.port: {port}", f"metrics.textfile: {textfile}")
    with mirror("run", config) as running:
        until(lambda: scraped(port).get("records_total") == RECORDS * flow.partitions, 180, "the first records")
        flow.fill(RECORDS)
        until(lambda: scraped(port).get("records_total") == 2 * RECORDS * flow.partitions, 60, "the later records")
        until(lambda: scraped(port)["lag_records"] == 0, 60, "no lag")
        found = scraped(port)
        running.process.terminate()
        assert running.wait(60) == 0
    assert found[f"topic_records_total {flow.topic}"] == found["records_total"]
    assert found[f"topic_bytes_total {flow.topic}"] == found["bytes_total"] > 0
    assert found[f"topic_lag_records {flow.topic}"] == found["stopped_partitions"] == 0
    assert (found["running"], found["topics"], found["topics_omitted"]) == (1, 1, 0)
    assert found["cycles_total"] >= 2 and "lag_seconds" not in found
    # Of the older format, which node_exporter reads, names of counters are not understood by the newer parser.
    lines, labels = textfile.read_text().splitlines(), 'flow="source->target",source="source",target="target"'
    assert f"kafka_mirror_records_total{{{labels}}} {found['records_total']}" in lines
    assert "kafka_mirror_running 0.0" in lines
    flow.assert_exact(spark)


@contextlib.contextmanager
def prometheus(directory: Path, mirror: int) -> Iterator[Callable[[str], Any]]:
    """A Prometheus that scrapes the mirror each second, with the project's rules. Yields a question to its HTTP API."""
    (port,) = free_ports(1)
    scrape = {"job_name": "mirror", "static_configs": [{"targets": [f"127.0.0.1:{mirror}"]}]}
    rules = str(ROOT / "conf" / "monitoring" / "alerts.yaml")
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config = directory / "prometheus.json"  # JSON is YAML
    config.write_text(json.dumps({"global": every, "rule_files": [rules], "scrape_configs": [scrape]}))
    options = (f"--config.file={config}", f"--storage.tsdb.path={directory / 'tsdb'}")
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [str(PROMETHEUS), *options, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
        )
    try:

        def ask(path: str) -> Any:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=30) as answer:
                return json.load(answer)["data"]

        yield ask
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.long
@pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is not installed")
def test_every_panel_of_the_dashboard_has_data_of_a_run_with_a_lag(flow: OneFlow, tmp_path: Path) -> None:
    # The source may delete in ten hours what a rate limit leaves uncopied.
    kept = round((time.time() - NOON / 1000 + 36_000) * 1000)
    set_configs(flow.source, flow.topic, {"retention.ms": str(kept)})
    flow.settings.update({"max.bytes.per.second": 1000, "where": "offset % 2 = 0"})
    flow.trigger = "1 second"
    panels = json.loads((ROOT / "conf" / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    queries = {
        target["expr"].replace("$flow", ".*").replace("$__rate_interval", "20s")
        for panel in panels
        for target in panel["targets"]
    }
    (port,) = free_ports(1)
    config = configured(flow, f"metrics.port: {port}")
    with prometheus(tmp_path, port) as ask, mirror("run", config):
        until(lambda: "retention_left_seconds" in scraped(port), 120, "the time to retention")
        assert 35_000 < scraped(port)["retention_left_seconds"] <= 36_000

        def empty() -> list[str]:
            return [each for each in queries if not ask(f"query?{urllib.parse.urlencode({'query': each})}")["result"]]

        until(lambda: not empty(), 60, "data of every panel")
        health = {rule["name"]: rule["health"] for group in ask("rules")["groups"] for rule in group["rules"]}
    assert health and set(health.values()) == {"ok"}, health
