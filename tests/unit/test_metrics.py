"""What is measured of a flow: its lag, and since when; and what Prometheus gets of it, over HTTP and in a file."""

from __future__ import annotations

import logging
import socket
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple
from unittest.mock import Mock, call

import pytest

from mirror_lib import exporter
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import EXIT_USAGE, ClusterError, ConfigError
from mirror_lib.exporter import STATES, Exporter, FlowSeries
from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.records import Position
from mirror_lib.metrics import ENDED, FlowMetrics, by_topic, farthest_back
from mirror_lib.progress import Outage
from mirror_lib.replication.copy_ranges import Range
from mirror_lib.replication.flow_state import FlowState, Lag, metrics_of
from mirror_lib.replication.messages import CopiedPartition, PartitionReport, Stop, nothing_copied
from mirror_lib.replication.task_plans import rate_limited
from tests.lab.one_flow import until
from tests.unit.configs import AB, FLOW, IN_YAML, YAML, read

DAY = 86_400.0
ARCHIVE, LIVE = ("archive", 0), ("live", 0)


def days_ago(days: float) -> int:
    """Milliseconds since 1970."""
    return int(1000 * (time.time() - days * DAY))


def part(source: TopicPartition, last_timestamp: int) -> PartitionReport:
    return PartitionReport(source[0], f"A.{source[0]}", source[1], 10, 10, 10, last_timestamp, records=10)


def snapshot(left: Mapping[TopicPartition, int], *reports: Sequence[PartitionReport]) -> FlowMetrics:
    lag: Lag = {source: (10, 10 + count) for source, count in left.items()}
    tasks = [replace(nothing_copied(0), partitions=tuple(parts)) for parts in reports]
    return metrics_of("A->B", 0, tasks, lag, 1.0)


def days(seconds: Optional[float]) -> Optional[float]:
    return None if seconds is None else round(seconds / DAY, 1)


OLD, NEW, UNKNOWN = part(ARCHIVE, days_ago(30)), part(LIVE, days_ago(0.1)), part(LIVE, -1)


@pytest.mark.parametrize(
    ("left", "reports", "records", "age"),
    [
        pytest.param({ARCHIVE: 0, LIVE: 5}, [[OLD, NEW]], 5, 0.1, id="old records of a partition without lag"),
        pytest.param({ARCHIVE: 1, LIVE: 5}, [[OLD, NEW]], 6, 30.0, id="the partition that is farthest back"),
        pytest.param({ARCHIVE: 0, LIVE: 0}, [[OLD, NEW]], 0, None, id="no lag"),
        pytest.param({LIVE: 5}, [[part(LIVE, days_ago(30))], [NEW]], 5, 0.1, id="the last report of a task"),
        pytest.param({LIVE: 5}, [[OLD, UNKNOWN]], 5, None, id="no copied record of the partition with lag"),
    ],
)
def test_lag_is_the_rest_and_the_age_of_the_partition_that_is_farthest_back(
    left: Dict[TopicPartition, int], reports: List[List[PartitionReport]], records: int, age: Optional[float]
) -> None:
    found = snapshot(left, *reports)
    assert (found.behind_records, days(found.behind_seconds)) == (records, age)
    assert found.waiting == ("copying" if records else "waiting for records")
    if len(reports) == 1 and UNKNOWN not in reports[0]:  # as a flow that repartitions computes it
        newest = {each.source: each.last_timestamp for each in reports[0]}
        assert days(farthest_back(left, newest)) == age


def reported(position: int, source_end: int) -> PartitionReport:
    return replace(part(LIVE, -1), position=position, downstream_offset=position, source_end=source_end)


def test_partition_without_news_keeps_its_lag() -> None:
    copied = [CopiedPartition(topic, f"A.{topic}", number, "a", "b", 1000) for topic, number in (ARCHIVE, LIVE)]
    archive, live = (each.key for each in copied)
    flow: Any = SimpleNamespace(name="A->B", on_error="fail")
    state = FlowState(flow, {archive: Position(10, 10), live: Position(10, 10)})
    ranges = [Range(archive, Position(10, 10), 60), Range(live, Position(10, 10), 10)]
    state.begin({each.key: each for each in copied}, ranges)

    def left(*parts: PartitionReport) -> Dict[TopicPartition, int]:
        state.take(state.apply([replace(nothing_copied(0), partitions=parts)]))
        return {source: end - at for source, (at, end) in state.lag().items()}

    assert left() == {ARCHIVE: 50, LIVE: 0}
    assert left(reported(20, 25)) == {ARCHIVE: 50, LIVE: 5}
    assert left(reported(22, -1)) == {ARCHIVE: 50, LIVE: 3}  # without an answer about its end
    assert left(replace(part(ARCHIVE, -1), stopped=Stop("too large"))) == {LIVE: 3}


CYCLE = FlowMetrics(
    flow="A->B",
    batch_id=7,
    records=100,
    bytes=1000,
    seconds=2.0,
    copy_seconds=1.5,
    behind_records=30,
    behind_seconds=3.5,
    recovered=4,
    stopped=1,
    waiting="copying",
    filtered=3,
    dead_letters=1,
    source_throttled_seconds=0.5,
    target_throttled_seconds=0.25,
    topics=by_topic({("orders", 0): 10, ("orders", 1): 20, ("audit", 0): 0}, [("orders", 90, 900), ("audit", 10, 100)]),
)
Series = Dict[Tuple[str, Tuple[str, ...]], float]


def series_of(
    snapshots: Iterable[FlowMetrics], flow: ReplicationFlow = AB, most: int = 1000, continuous: bool = True
) -> Series:
    """The series of a flow after these cycles, which ended at 101, 102 and so on: by name without prefix, and by the
    labels after flow, source and target."""
    series = FlowSeries(flow, continuous)
    for number, snapshot in enumerate(snapshots):
        series.add(snapshot, 101.0 + number)
    values = list(series.values(most))
    assert {labels[:3] for _, labels, _ in values} == {("A->B", "A", "B")}
    found = {(metric.name[len("kafka_mirror_") :], labels[3:]): value for metric, labels, value in values}
    assert len(found) == len(values), "a series comes twice"
    return found


def test_counters_add_up_and_gauges_are_of_the_last_cycle_or_absent() -> None:
    idle = replace(CYCLE, records=0, bytes=0, recovered=0, stopped=0, behind_records=0, behind_seconds=None, topics=())
    series = series_of([CYCLE, CYCLE, replace(idle, filtered=None, dead_letters=None)])
    assert {name: value for (name, labels), value in series.items() if not labels} == {
        "records_total": 200,
        "bytes_total": 2000,
        "recovered_records_total": 8,
        "filtered_records_total": 6,
        "dead_letter_records_total": 2,
        "cycles_total": 3,
        "cycle_seconds_total": 6.0,
        "last_cycle_timestamp_seconds": 103.0,
        "lag_records": 0,
        "stopped_partitions": 0,
        "blocked_topics": 0,
        "topics": 2,
        "topics_omitted": 0,
    }
    series = series_of([CYCLE, CYCLE])
    assert (series["lag_records", ()], series["lag_seconds", ()], series["stopped_partitions", ()]) == (30, 3.5, 1)
    assert [series["throttled_seconds_total", (side,)] for side in ("source", "target")] == [1.0, 0.5]


def test_cluster_that_does_not_answer_is_1_until_it_answers_and_info_has_whether_a_flow_has_idle_cycles() -> None:
    series = FlowSeries(AB, continuous=True)
    for outage, expected in ((None, [0, 0]), (Outage("A->B", "target", 1.0), [0, 1]),
                             (Outage("A->B", "target", 1.0, 9.0), [0, 0])):  # fmt: skip
        if outage is not None:
            series.outage(outage)
        found = [value for metric, _, value in series.values(1) if metric.name == "kafka_mirror_unreachable"]
        assert found == expected
    bounded = series_of([], continuous=False)
    assert bounded["flow_info", ("once", "no")] == 1 and not [name for name, _ in bounded if name == "unreachable"]
    assert series_of([])["flow_info", ("continuous", "yes")] == 1
    assert series_of([], replace(AB, tail=False))["flow_info", ("continuous", "no")] == 1


@pytest.mark.parametrize(
    ("snapshots", "state"),
    [
        ([], "starting"),
        ([metrics_of("A->B", 1, [], {}, 1.0)], "waiting_for_records"),
        ([metrics_of("A->B", 1, [], {("orders", 0): (0, 5)}, 1.0)], "copying"),
        ([replace(CYCLE, waiting=rate_limited(5_000_000, 1.5, 2.0) or "")], "rate_limited"),
        ([replace(CYCLE, waiting="something new")], "other"),
        ([CYCLE, replace(CYCLE, waiting=ENDED)], "starting"),
    ],
)
def test_flow_is_in_one_state(snapshots: List[FlowMetrics], state: str) -> None:
    found = {labels[0]: value for (name, labels), value in series_of(snapshots).items() if name == "state"}
    assert found == {each: float(each == state) for each in STATES}


def test_topics_have_sums_and_their_worst_partition_also_where_one_has_stopped() -> None:
    later = replace(CYCLE, topics=by_topic({("orders", 1): 5}, [("orders", 10, 90)]))
    topics = {key: value for key, value in series_of([CYCLE, later]).items() if key[0].startswith("topic_")}
    parts = ("topic_records_total", "topic_bytes_total", "topic_lag_records", "topic_max_partition_lag_records")
    expected = {"orders": (100, 990, 5, 5), "audit": (10, 100, 0, 0)}
    assert topics == {(part, (name,)): n for name, row in expected.items() for part, n in zip(parts, row)}


def test_time_to_retention_is_that_of_topics_with_lag_and_the_least_counts_for_the_flow() -> None:
    series = FlowSeries(AB, True)
    series.add(replace(CYCLE, topics=by_topic({("a", 0): 5, ("b", 0): 5, ("c", 0): 0}, [])), 1.0)
    series.retention = {"a": 50.0, "b": 7.0, "c": 1.0, "gone": 0.0}
    found = [(metric.name, labels[3:], value) for metric, labels, value in series.values(1000)
             if "retention" in metric.name]  # fmt: skip
    assert sorted(found) == [
        ("kafka_mirror_retention_left_seconds", (), 7.0),
        ("kafka_mirror_topic_retention_left_seconds", ("a",), 50.0),
        ("kafka_mirror_topic_retention_left_seconds", ("b",), 7.0),
    ]


def test_beyond_the_bound_topics_with_the_most_lag_are_exported_and_the_others_counted() -> None:
    left: Dict[TopicPartition, int] = {(f"t{number}", 0): number % 50 for number in range(200)}
    series = series_of([replace(CYCLE, topics=by_topic(left, []))], most=8)
    shown = [labels[0] for (name, labels) in series if name == "topic_lag_records"]
    assert shown == ["t149", "t199", "t49", "t99", "t148", "t198", "t48", "t98"]
    assert (series["topics", ()], series["topics_omitted", ()]) == (200, 192)
    assert not [key for key in series_of([CYCLE], most=0) if key[0].startswith("topic_")]


def configured(folder: Path, *lines: str) -> MirrorConfig:
    return read(folder, IN_YAML + "".join(f"{line}\n" for line in lines), YAML)


def exporting(config: MirrorConfig, said: List[str]) -> Exporter:
    return Exporter(config, config.flows, said.append)


def scraped(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode("utf-8"))


def test_server_and_file_show_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "mirror.prom"
    said: List[str] = []
    given = f'A.sasl.jaas.config = x required password="hunter2";\nmetrics.port = 0\nmetrics.textfile = {file}\n'
    with exporting(read(tmp_path, FLOW + given), said) as running:
        running.show(CYCLE)
        shown = scraped(running.address)
    assert said == [f"metrics: {running.address}"] and "kafka_mirror_records_total{" in shown
    assert not [secret for secret in ("hunter2", "jaas", ":9092") if secret in shown + file.read_text()]
    with pytest.raises(OSError):
        scraped(running.address)


@pytest.mark.parametrize("succeeded", [["A->B"], [], None])
def test_file_has_how_the_run_ended(succeeded: Optional[List[str]], tmp_path: Path) -> None:
    file = tmp_path / "mirror.prom"
    with exporting(configured(tmp_path, f"metrics.textfile: {file}"), []) as running:
        assert "run_success" not in file.read_text() and "kafka_mirror_running 1.0" in file.read_text()
        if succeeded is not None:
            running.end(succeeded)
    value = float(bool(succeeded))
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".yaml"] == [file.name]
    assert file.stat().st_mode & 0o777 == 0o644  # node_exporter is another user
    assert f'kafka_mirror_run_success{{flow="A->B",source="A",target="B"}} {value}\n' in file.read_text()


def test_run_without_these_settings_needs_no_package_opens_no_port_and_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)  # Python then refuses to import it
    said: List[str] = []
    with exporting(configured(tmp_path), said) as running:
        running.show(CYCLE)
    assert (said, running.address, [path.name for path in tmp_path.iterdir()]) == ([], "", ["mirror.yaml"])


@pytest.mark.parametrize(
    ("lines", "package", "key"),
    [
        (["metrics.port: {port}"], True, "metrics.port"),
        (["metrics.host: 192.0.2.1", "metrics.port: 0"], True, "metrics.host"),
        (["metrics.textfile: {folder}/none/mirror.prom", "metrics.port: 0"], True, "metrics.textfile"),
        (["metrics.port: 0"], False, "metrics.port"),
        (["metrics.textfile: /tmp/mirror.prom"], False, "metrics.textfile"),
        (["metrics.port: 80"], True, "metrics.port"),
        (["metrics.textfile: /a/b.txt"], True, "metrics.textfile"),
    ],
    ids=["taken port", "another's address", "no folder", "no package", "none for the file", "root's port", "not .prom"],
)
def test_metrics_that_cannot_be_exported_are_refused_with_their_line_and_free_the_port(
    lines: List[str], package: bool, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: List[str] = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        written = [each.format(port=port, folder=tmp_path) for each in lines]
        if not package:
            monkeypatch.setitem(sys.modules, "prometheus_client", None)  # Python then refuses to import it
        with pytest.raises(ConfigError) as error, exporting(configured(tmp_path, *written), said):
            pass
    assert (error.value.exit_code, error.value.hint) == (EXIT_USAGE, f"{tmp_path}/mirror.yaml:6")
    assert str(error.value).startswith(f"{key} ")
    for line in said:
        with pytest.raises(OSError):
            scraped(line.split()[1])


def test_textfile_that_can_no_longer_be_written_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exporter, "TEXTFILE_SECONDS", 0.01)
    folder = tmp_path / "collector"
    folder.mkdir()
    with exporting(configured(tmp_path, f"metrics.textfile: {folder}/mirror.prom"), []) as running:
        (folder / "mirror.prom").unlink()
        until(lambda: (folder / "mirror.prom").exists(), what="the file is written again")
        folder.rename(tmp_path / "away")
        until(lambda: bool(caplog.records), what="a warning")
        running.show(CYCLE)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_read_that_fails_is_followed_by_others_and_a_flow_without_lag_is_not_read() -> None:
    read = Mock(side_effect=[ValueError("unforeseen"), ClusterError("no broker answers"), {"orders": 5.0}])
    series = FlowSeries(AB, True)
    series.add(replace(CYCLE, next_offsets={("orders", 0): 7}), 1.0)
    found = []
    for _ in range(3):
        series.read_retention(read)
        found.append(series.retention)
    assert found == [{}, {}, {"orders": 5.0}] and read.mock_calls == [call(AB, {("orders", 0): 7})] * 3
    series.add(CYCLE, 2.0)
    series.read_retention(read)
    assert series.retention == {} and read.call_count == 3
