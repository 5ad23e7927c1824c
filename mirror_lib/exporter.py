"""Exports the metrics of a run to Prometheus: on a port of the driver, and in a file for node_exporter.

Every value is computed from the flows' `FlowMetrics`. `METRICS` is the table of all metrics: docs/run/monitoring.md,
and the dashboard and the alert rules in conf/monitoring, are checked against it. prometheus_client is imported only if
a setting asks for metrics.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from errno import EADDRNOTAVAIL
from pathlib import Path
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from mirror_lib import __version__
from mirror_lib.config.document import config_error
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.settings import METRICS_HOST, METRICS_PORT, METRICS_TEXTFILE
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.errors import ConfigError, MirrorError
from mirror_lib.facts import TopicPartition
from mirror_lib.metrics import COPYING, ENDED, RATE_LIMITED, WAITING, FlowMetrics, TopicMetrics
from mirror_lib.progress import Outage
from mirror_lib.threads import repeated

log = logging.getLogger(__name__)

PREFIX = "kafka_mirror_"
COUNTER, GAUGE, INFO = "counter", "gauge", "info"
_FLOW = ("flow", "source", "target")
_TOPIC = (*_FLOW, "topic")
SIDES = ("source", "target")
# The flow's activity as a label with few values; FlowMetrics has it as text with figures.
STARTING, LIMITED, OTHER = "starting", "rate_limited", "other"
_STATES = {COPYING: "copying", WAITING: "waiting_for_records"}
STATES = (STARTING, *_STATES.values(), LIMITED, OTHER)

# How often the textfile is written. Prometheus reads it at most once per scrape of node_exporter.
TEXTFILE_SECONDS = 10.0
# How often the driver reads how long the source keeps what is not copied. A read fetches a record of each partition: of
# a flow with more partitions with lag, the first by name are read. One that waits for a cluster does not delay the end.
RETENTION_SECONDS, PARTITIONS_READ, END_SECONDS = 60.0, 2000, 2.0
_NOTHING_COPIED = "Nothing was copied"


@dataclass(frozen=True)
class Metric:
    """One exported metric: its name as a query has it, its type, its meaning and its labels."""

    name: str
    kind: str
    means: str
    labels: Tuple[str, ...] = _FLOW


class Value(NamedTuple):
    """One series of a metric, with the values of its labels in the metric's order."""

    metric: Metric
    labels: Tuple[str, ...]
    value: float


METRICS: List[Metric] = []


def _metric(name: str, kind: str, means: str, labels: Tuple[str, ...] = _FLOW) -> Metric:
    METRICS.append(Metric(PREFIX + name, kind, means, labels))
    return METRICS[-1]


BUILD = _metric("build_info", INFO, "The version. Always 1", ("version",))
RUNNING = _metric("running", GAUGE, "1 while the run is under way. 0 in the textfile after its end", ())
START = _metric("start_timestamp_seconds", GAUGE, "When the run started, in seconds since 1970", ())
FLOW_INFO = _metric(
    "flow_info",
    INFO,
    "Always 1. trigger is once or continuous. idle_cycles is yes if the flow has cycles without new records",
    (*_FLOW, "trigger", "idle_cycles"),
)
RECORDS = _metric("records_total", COUNTER, "Records copied")
BYTES = _metric("bytes_total", COUNTER, "Bytes written to the target, after compression")
RECOVERED = _metric("recovered_records_total", COUNTER, "Records found on the target that the ledger did not have")
FILTERED = _metric(
    "filtered_records_total", COUNTER, "Records read that where or transform dropped. Absent if the flow has neither"
)
DEAD_LETTERS = _metric(
    "dead_letter_records_total", COUNTER, "Records written to dead.letter.topic. Absent if the flow has none"
)
CYCLES = _metric("cycles_total", COUNTER, "Cycles that ended")
CYCLE_SECONDS = _metric("cycle_seconds_total", COUNTER, "Their time")
LAST_CYCLE = _metric("last_cycle_timestamp_seconds", GAUGE, "When the last cycle ended, in seconds since 1970")
LAG_RECORDS = _metric("lag_records", GAUGE, "Source offsets still to copy, at the end of the last cycle")
LAG_SECONDS = _metric(
    "lag_seconds",
    GAUGE,
    "Age of the oldest last-copied record among the partitions with lag. Absent without lag or if unknown",
)
RETENTION = _metric(
    "retention_left_seconds", GAUGE, "How long the source keeps uncopied records, of the topic with the least time left"
)
STOPPED = _metric(
    "stopped_partitions", GAUGE, "Partitions no longer copied. The table events has the reason"
)
BLOCKED = _metric("blocked_topics", GAUGE, "Selected topics that cannot be copied. The table events has the reason")
THROTTLED = _metric(
    "throttled_seconds_total",
    COUNTER,
    "Time for which broker quotas of this side throttled the flow: in each cycle of the task throttled longest",
    (*_FLOW, "side"),
)
UNREACHABLE = _metric(
    "unreachable",
    GAUGE,
    "1 while no broker of this side answers the driver, else 0. Continuous runs only",
    (*_FLOW, "side"),
)
STATE = _metric(
    "state", GAUGE, f"1 for the present state of the flow, 0 for the others of {', '.join(STATES)}", (*_FLOW, "state")
)
RUN_SUCCESS = _metric(
    "run_success",
    GAUGE,
    "In the textfile after a run: 1 if the flow ended without an error and was not interrupted, else 0",
)
TOPICS = _metric("topics", GAUGE, "Topics that the flow copied from, or that have lag")
OMITTED = _metric("topics_omitted", GAUGE, "Topics beyond metrics.topics.max, which have no metrics of their own")
TOPIC_RECORDS = _metric("topic_records_total", COUNTER, "Records copied of the topic", _TOPIC)
TOPIC_BYTES = _metric("topic_bytes_total", COUNTER, "Bytes written of the topic", _TOPIC)
TOPIC_LAG = _metric("topic_lag_records", GAUGE, "Offsets of the source topic still to copy", _TOPIC)
TOPIC_PARTITION_LAG = _metric(
    "topic_max_partition_lag_records", GAUGE, "Offsets still to copy of its partition with the most", _TOPIC
)
TOPIC_RETENTION = _metric(
    "topic_retention_left_seconds",
    GAUGE,
    "How long the source keeps uncopied records: at least, by retention.ms, or about, by retention.bytes. Read once a "
    "minute. 0 if they may be deleted at any moment. Absent without lag or deletion",
    _TOPIC,
)


# Reads from the source for how many seconds it keeps the next records of each topic.
ReadRetention = Callable[[ReplicationFlow, Mapping[TopicPartition, int]], Mapping[str, float]]


class FlowSeries:
    """The series of one flow: sums over its cycles, and what the last cycle measured. It has no clock.

    `retention`: by topic the seconds for which the source keeps what is not copied, as of the last read. A topic
    without lag or without retention has none, nor has one after a failed read.
    """

    def __init__(self, flow: ReplicationFlow, continuous: bool) -> None:
        self._flow = flow
        self.retention: Mapping[str, float] = {}
        self._labels = (flow.name, flow.source.alias, flow.target.alias)
        steady = continuous and flow.tails
        self._info = ("continuous" if continuous else "once", "yes" if steady else "no")
        self._sums = dict.fromkeys((RECORDS, BYTES, RECOVERED, CYCLES, CYCLE_SECONDS), 0.0)
        self._throttled = dict.fromkeys(SIDES, 0.0)
        self._unreachable = dict.fromkeys(SIDES if continuous else (), False)
        self._copied: Dict[str, Tuple[int, int]] = {}
        self._last: Optional[FlowMetrics] = None
        self._last_cycle: Optional[float] = None

    def add(self, snapshot: FlowMetrics, now: float) -> None:
        """`now` is in seconds since 1970. A flow that has failed gets the state that it had before its first cycle."""
        if snapshot.waiting == ENDED:
            self._last = None
            return
        self._last = snapshot
        self._throttled["source"] += snapshot.source_throttled_seconds
        self._throttled["target"] += snapshot.target_throttled_seconds
        self._sums[RECORDS] += snapshot.records
        self._sums[BYTES] += snapshot.bytes
        self._sums[RECOVERED] += snapshot.recovered
        for metric, number in ((FILTERED, snapshot.filtered), (DEAD_LETTERS, snapshot.dead_letters)):
            if number is not None:
                self._sums[metric] = self._sums.get(metric, 0.0) + number
        self._sums[CYCLES] += 1
        self._sums[CYCLE_SECONDS] += snapshot.seconds
        self._last_cycle = now
        for topic in snapshot.topics:
            records, nbytes = self._copied.get(topic.topic, (0, 0))
            self._copied[topic.topic] = records + topic.records, nbytes + topic.bytes

    def outage(self, outage: Outage) -> None:
        self._unreachable[outage.side] = outage.seconds is None

    def read_retention(self, read: ReadRetention) -> None:
        next_offsets = {} if self._last is None else self._last.next_offsets
        found: Mapping[str, float] = {}
        try:
            if next_offsets:
                found = read(self._flow, dict(sorted(next_offsets.items())[:PARTITIONS_READ]))
        except MirrorError as error:
            log.info("%s: the time to retention is unknown: %s", self._flow.name, error)
        except Exception as error:  # a failed metric must not end the copy
            log.warning("%s: the time to retention is unknown: %s: %s", self._flow.name, type(error).__name__, error)
        self.retention = found

    def values(self, topics_max: int, succeeded: Optional[bool] = None) -> Iterator[Value]:
        """All series, with at most `topics_max` topics. `succeeded` is the result of the run, `None` before its end."""
        yield Value(FLOW_INFO, (*self._labels, *self._info), 1)
        yield from (Value(metric, self._labels, total) for metric, total in self._sums.items())
        yield from (Value(THROTTLED, (*self._labels, side), self._throttled[side]) for side in SIDES)
        for side, unreachable in self._unreachable.items():
            yield Value(UNREACHABLE, (*self._labels, side), float(unreachable))
        state = STARTING if self._last is None else state_of(self._last)
        yield from (Value(STATE, (*self._labels, each), float(each == state)) for each in STATES)
        if succeeded is not None:
            yield Value(RUN_SUCCESS, self._labels, float(succeeded))
        if self._last_cycle is not None:
            yield Value(LAST_CYCLE, self._labels, self._last_cycle)
        if self._last is not None:
            yield Value(LAG_RECORDS, self._labels, self._last.behind_records)
            if self._last.behind_seconds is not None:
                yield Value(LAG_SECONDS, self._labels, self._last.behind_seconds)
            yield Value(STOPPED, self._labels, self._last.stopped)
            yield Value(BLOCKED, self._labels, self._last.blocked)
            # A topic that was copied since the read has no records left to expire.
            left = {each.topic: self.retention[each.topic] for each in self._last.topics
                    if each.behind_records and each.topic in self.retention}  # fmt: skip
            if left:
                yield Value(RETENTION, self._labels, min(left.values()))
            yield from self._of_topics(self._last.topics, topics_max, left)

    def _of_topics(
        self, topics: Iterable[TopicMetrics], topics_max: int, retention: Mapping[str, float]
    ) -> Iterator[Value]:
        # A topic that is not in the last cycle had nothing to copy.
        lag = {each.topic: (each.behind_records, each.worst_records) for each in topics}
        by_lag = sorted(self._copied, key=lambda name: (-lag.get(name, (0, 0))[0], name))
        shown = by_lag[:topics_max]
        yield Value(TOPICS, self._labels, len(by_lag))
        yield Value(OMITTED, self._labels, len(by_lag) - len(shown))
        for name in shown:
            labels, copied, (records, worst) = (*self._labels, name), self._copied[name], lag.get(name, (0, 0))
            yield Value(TOPIC_RECORDS, labels, copied[0])
            yield Value(TOPIC_BYTES, labels, copied[1])
            yield Value(TOPIC_LAG, labels, records)
            yield Value(TOPIC_PARTITION_LAG, labels, worst)
            if name in retention:
                yield Value(TOPIC_RETENTION, labels, retention[name])


def state_of(snapshot: FlowMetrics) -> str:
    limited = LIMITED if snapshot.waiting.startswith(RATE_LIMITED) else OTHER
    return _STATES.get(snapshot.waiting, limited)


class Exporter:
    """Serves and writes the metrics of `flows` while the block runs, as the configuration says; else it does nothing.

    Entering raises `ConfigError`, with the place of the setting, where prometheus_client is missing, the port cannot be
    opened or the textfile cannot be written. A textfile that cannot be written later is one warning, and copying is
    unaffected. `say` gets the address of the metrics, `read_retention` is called once a minute in a thread.
    """

    def __init__(
        self,
        config: MirrorConfig,
        flows: Sequence[ReplicationFlow],
        say: Callable[[str], None],
        read_retention: ReadRetention = lambda flow, next_offsets: {},
    ) -> None:
        self._config, self._say, self._read = config, say, read_retention
        continuous = config.trigger != AVAILABLE_NOW
        self._series = {flow.name: FlowSeries(flow, continuous) for flow in flows}
        self._started, self._running, self._warned = time.time(), True, False
        self._succeeded: Collection[str] = ()
        self._lock, self._writing = threading.Lock(), ExitStack()
        self._registry: Any = None
        self._server: Any = None
        self.address = ""

    def show(self, snapshot: FlowMetrics) -> None:
        """May be called by several threads, and does no I/O."""
        if self._registry is not None:
            with self._lock:
                self._series[snapshot.flow].add(snapshot, time.time())

    def outage(self, outage: Outage) -> None:
        """May be called by several threads, and does no I/O."""
        with self._lock:
            self._series[outage.flow].outage(outage)

    def end(self, succeeded: Collection[str]) -> None:
        """Without this call, every flow of the run counts as failed."""
        with self._lock:
            self._succeeded = succeeded

    def values(self) -> List[Value]:
        with self._lock:
            found = [Value(BUILD, (__version__,), 1), Value(RUNNING, (), float(self._running))]
            found.append(Value(START, (), self._started))
            for name, series in self._series.items():
                succeeded = None if self._running else name in self._succeeded
                found += series.values(self._config.metrics_topics_max, succeeded)
            return found

    def collect(self) -> Iterable[Any]:
        """The registry's families at each scrape, in the order of their first value."""
        found: Dict[Metric, Any] = {}
        for metric, labels, value in self.values():
            if metric not in found:
                found[metric] = _family(metric)
            if metric.kind == INFO:
                found[metric].add_metric((), dict(zip(metric.labels, labels)))
            else:
                found[metric].add_metric(labels, value)
        return found.values()

    def describe(self) -> Iterable[Any]:
        """The names of all families; with them the registry answers a query for some families."""
        return map(_family, METRICS)

    def __enter__(self) -> Exporter:
        if self._config.metrics_port is not None:
            self._registry = self._registered(METRICS_PORT)
            self._serve(self._config.metrics_port)
        if self._config.metrics_textfile:
            self._registry = self._registry or self._registered(METRICS_TEXTFILE)
            try:
                self._write()
            except OSError as error:
                self._close()
                path, why = self._config.metrics_textfile, error.strerror or str(error)
                raise self._refused(METRICS_TEXTFILE, f"{path} cannot be written: {why}. {_NOTHING_COPIED}") from None
            self._writing.enter_context(repeated(TEXTFILE_SECONDS, "metrics textfile", self._try_to_write))
        if self._registry is not None:
            watching = repeated(RETENTION_SECONDS, "retention", self._read_retention, END_SECONDS)
            self._writing.enter_context(watching)
        return self

    def _read_retention(self) -> None:
        for series in self._series.values():
            series.read_retention(self._read)

    def __exit__(self, *_: object) -> None:
        self._writing.close()
        with self._lock:
            self._running = False
        if self._config.metrics_textfile:
            self._try_to_write()
        self._close()

    def _registered(self, key: str) -> Any:
        try:
            from prometheus_client import CollectorRegistry

            registry = CollectorRegistry()
            registry.register(self)
            return registry
        except ImportError as error:
            if error.name is None or error.name.partition(".")[0] != "prometheus_client":
                raise
            what = f"needs the Python package prometheus_client, which is missing. {_NOTHING_COPIED}"
            raise self._refused(key, f"{what}. Install it: pip install '.[metrics]'") from None

    def _serve(self, port: int) -> None:
        from prometheus_client import start_http_server

        host = self._config.metrics_host
        try:
            self._server, _ = start_http_server(port, host, registry=self._registry)
        except OSError as error:
            why = error.strerror or str(error)
            if isinstance(error, socket.gaierror) or error.errno == EADDRNOTAVAIL:
                sentence = f"{host} is no address of the driver's machine: {why}. {_NOTHING_COPIED}"
                raise self._refused(METRICS_HOST, sentence) from None
            sentence = f"{port} cannot be opened on {host}: {why}. {_NOTHING_COPIED}. Set another port, or 0 for any"
            raise self._refused(METRICS_PORT, sentence) from None
        bound = self._server.server_address[1]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{bound}/metrics"
        self._say(f"metrics: {self.address}")

    def _refused(self, key: str, sentence: str) -> ConfigError:
        return config_error(f"{key} {sentence}", self._config.places.get(key, f"the default of {key}"))

    def _try_to_write(self) -> None:
        try:
            self._write()
        except OSError as error:
            if not self._warned:
                path, why = self._config.metrics_textfile, error.strerror or error
                log.warning("%s %s cannot be written: %s. Copying is unaffected", METRICS_TEXTFILE, path, why)
            self._warned = True

    def _write(self) -> None:
        from prometheus_client import generate_latest

        # With the mode for every user: node_exporter is another one.
        write_whole(Path(self._config.metrics_textfile), generate_latest(self._registry))

    def _close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace the file in one step: a reader sees the old content or the new. On `OSError` the file is as before."""
    # In the same folder: only within one file system is a replacement one step.
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=str(path.parent))
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(content)
        os.chmod(name, mode)
        os.replace(name, str(path))
    except OSError:
        os.unlink(name)
        raise


def _family(metric: Metric) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

    if metric.kind == INFO:
        return InfoMetricFamily(metric.name[: -len("_info")], metric.means)
    family = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
    return family(metric.name, metric.means, labels=metric.labels)
