"""What is kept in step next to the copy: heartbeats, turns that fail, and topic configs as brokers answer, hide, refuse
or limit records by them."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple
from unittest.mock import Mock

import pytest

from mirror_lib.config.model import MirrorConfig
from mirror_lib.config.record_change import RecordChange
from mirror_lib.control.heartbeats import beating_pairs
from mirror_lib.control.service import RETRY_SECONDS, Duty, pause_after, read_once, refuse_other_clusters
from mirror_lib.control.sync import Synced, sync_topic_configs
from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import NewTopic, OffsetRange, TopicConfigEntry, TopicDescription
from mirror_lib.kafka import admin as topics
from mirror_lib.kafka.admin import OK, UNKNOWN_TOPIC, ClusterTopics
from mirror_lib.kafka.connection import LogClient, error_name
from mirror_lib.ledger.records import OFFSETS_SKIPPED, Incident, MirrorRun
from mirror_lib.replication.copied_topics import TopicWatch, recheck_size_limits
from mirror_lib.replication.messages import PartitionReport, Stop, TaskReport
from mirror_lib.threads import running
from tests.lab.one_flow import until
from tests.unit.configs import AB, FLOW, IN_YAML, YAML, read

C = '  C: {bootstrap.servers: "c:9092"}\n'
THREE = IN_YAML.replace("flows:\n  A->B:\n", C + "flows:\n")
BACK = "  B->A: {enabled: false, emit.heartbeats.enabled: true}\n"


def pairs(config: MirrorConfig) -> List[str]:
    return [pair.name for pair in config.heartbeat_pairs]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["B->A"]),
        ("A->B.emit.heartbeats.enabled = false\n", ["B->A"]),
        ("B->A.emit.heartbeats.enabled = false\n", []),
        ("emit.heartbeats.enabled = false\n", []),
        ("B->A.enabled = true\n", []),
        ("B->A.enabled = false\nB->A.emit.heartbeats.enabled = true\n", ["B->A"]),
        # In YAML only where the file asks for them, and only to clusters that are copied from.
        (THREE + "  A->B: {}\n", []),
        (THREE + "  A->B: {}\n" + BACK, ["B->A"]),
        (THREE + "  A->B: {}\n  C->B: {}\nemit.heartbeats.enabled: true\n", ["B->A", "C->A", "A->C", "B->C"]),
        (THREE + "  A->B: {}\n  B->A: {}\nemit.heartbeats.enabled: true\n", []),
    ],
)
def test_pairs_that_copy_nothing_have_heartbeats_by_the_rules_of_the_file(
    tmp_path: Path, text: str, expected: List[str]
) -> None:
    config = read(tmp_path, text, YAML) if text.startswith("clusters:") else read(tmp_path, FLOW + text)
    assert pairs(config) == expected
    off = text in ("emit.heartbeats.enabled = false\n", "A->B.emit.heartbeats.enabled = false\n")
    assert config.flows[0].emit_heartbeats_interval == (None if off else 1.0)


def test_pair_that_is_asked_by_name_has_heartbeats_also_where_no_flow_reads_them(tmp_path: Path) -> None:
    text = THREE + "  A->B: {}\n  C->A: {}\n  A->C: {enabled: false}\n"
    assert pairs(read(tmp_path, text, YAML)) == []
    asked = "  C->B: {enabled: false, emit.heartbeats.enabled: true}\n"
    assert pairs(read(tmp_path, text + asked, YAML)) == ["C->B"]
    config = read(tmp_path, text + asked + BACK, YAML)
    beating = {flow.name: [pair.name for pair in beating_pairs(config, [flow])] for flow in config.flows}
    assert beating == {"A->B": ["B->A", "C->B"], "C->A": ["C->B"]}, "A's are written by the run that reads A"


def test_turn_that_fails_is_reported_and_the_next_turn_comes() -> None:
    turn = Mock(side_effect=chain([ClusterError("B is away"), ValueError("unheard of")], repeat(Synced())))
    reported: List[Synced] = []
    with running([Duty("control of a test", 1e-9, turn, reported.append)], 30):
        until(lambda: len(reported) > 2, 30)
    assert [each.problems for each in reported[:3]] == [("B is away",), ("ValueError: unheard of",), ()]


def test_login_that_was_refused_is_not_tried_again_every_second() -> None:
    refused = Synced(problems=("cannot log in",), refused=True)
    assert pause_after(1.0, refused, 0.5) == pause_after(9999.0, refused, 0.5) == RETRY_SECONDS - 0.5
    assert pause_after(1.0, Synced(problems=("B is away",)), 0.5) == 0.5
    assert pause_after(None, refused, 0.5) is None


def last_run(flow: str) -> Optional[MirrorRun]:
    """The last run of `A->B`, which copied between two clusters with these ids."""
    return MirrorRun("7", flow, 1, "exactly-once", "of A", "of B") if flow == "A->B" else None


@pytest.mark.parametrize(
    ("ids", "other"),
    [
        ({"A": "of A", "B": "of B"}, None),
        ({"A": "of C", "B": "of B"}, "A->B: the source cluster has id of C, and the ledger was written for of A"),
        ({"B": "of C"}, "A->B: the target cluster has id of C, and the ledger was written for of B"),
        ({"C": "of B"}, None),
    ],
)
def test_another_cluster_than_that_of_the_last_run_is_refused_before_topics_and_groups_change(
    tmp_path: Path, ids: Mapping[str, str], other: Optional[str]
) -> None:
    config = read(tmp_path, THREE + "  A->B: {}\n  C->A: {}\n", YAML)
    if other is None:
        refuse_other_clusters(last_run, config.flows, ids)
        return
    with pytest.raises(RefusedError) as refused:
        refuse_other_clusters(last_run, config.flows, ids)
    assert refused.value.message == other


def test_last_run_of_a_flow_is_read_until_there_is_one() -> None:
    """A flow that had no run when a process began has one later, with which other clusters are refused too."""
    found: List[Optional[MirrorRun]] = [last_run("A->B"), None]
    asked = read_once(lambda flow: found.pop())
    assert asked("A->B") is None
    assert asked("A->B") == asked("A->B") == last_run("A->B") and not found


TOPIC_AUTHORIZATION_FAILED, REQUEST_TIMED_OUT, UNKNOWN_SERVER_ERROR = 29, 7, -1


class Brokers(ClusterTopics):
    """`answers` are in turn the topics that the broker knows which is asked for configs; `there` are all topics. It
    answers about the topics of `errors` with an error code each."""

    def __init__(self, answers: List[Sequence[str]], there: Sequence[str], **errors: int) -> None:
        self.alias, self._answer_seconds = "B", 1.0
        self._known, self._there, self._errors = answers, there, errors
        client: Any = object.__new__(LogClient)
        client.alias, client.stop, client.exchange = "B", threading.Event(), self._exchange
        client.refused = lambda: None
        self._client = client

    def _exchange(self, requests: Sequence[Tuple[Optional[int], Any]]) -> List[Any]:
        ((_, request),) = requests
        known = self._known.pop(0) if len(self._known) > 1 else self._known[0]
        codes = {
            name: self._errors.get(name, OK) if name in known else UNKNOWN_TOPIC
            for _, name, _ in request.resources
        }
        results = [SimpleNamespace(resource_name=name, error_code=code, configs=[]) for name, code in codes.items()]
        return [SimpleNamespace(results=results)]

    def _describe_topics(self, names: Optional[Sequence[str]]) -> Any:
        codes = {name: OK if name in self._there else UNKNOWN_TOPIC for name in names or ()}
        return [SimpleNamespace(name=name, error_code=code) for name, code in codes.items()]


def test_broker_that_does_not_know_a_new_topic_yet_is_asked_again_and_one_that_is_gone_is_left_out() -> None:
    brokers = Brokers([["old"], ["old"], ["old", "new"]], ["old", "new"])
    assert set(brokers.topic_configs(["old", "new"])) == {"old", "new"}
    assert set(Brokers([["old"]], ["old"]).topic_configs(["old", "gone"])) == {"old"}


@pytest.mark.parametrize("code", [REQUEST_TIMED_OUT, UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC])
def test_error_of_a_broker_is_not_a_missing_permission(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(topics, "AGREED_SECONDS", 0.2)
    with pytest.raises(ClusterError, match="B: cannot read the configs of new: ") as raised:
        Brokers([["old", "new"]], ["old", "new"], new=code).topic_configs(["old", "new"])
    assert raised.value.code == "MIR-201" and error_name(code) in raised.value.message


LIMIT = "max.message.bytes"


class Topics:
    """A cluster of topics with these configs. Those of the `closed` topics may not be read, and none takes a
    `segment.ms`."""

    alias = "B"

    def __init__(self, **configs: Dict[str, str]) -> None:
        self.configs = {name.replace("A_", "A."): own for name, own in configs.items()}
        self.closed: Sequence[str] = ()
        self.away = False
        self.records = 3

    def topics(self) -> Mapping[str, TopicDescription]:
        return {name: TopicDescription(name, f"id-{name}", 1, name.startswith("__")) for name in self.configs}

    def topic_configs(self, names: Sequence[str], keys: Any = None) -> Mapping[str, Any]:
        if self.away:
            raise ClusterError("B: no answer")
        entries = {
            name: {key: TopicConfigEntry(value, "DYNAMIC_TOPIC_CONFIG", False) for key, value in own.items()}
            for name, own in self.configs.items()
            if name in names
        }
        return {**entries, **dict.fromkeys(set(entries) & set(self.closed))}

    def topic_config_keys(self, _: str) -> Any:
        return frozenset()

    def broker_count(self) -> int:
        return 1

    def offsets(self, places: Sequence[Tuple[str, int]], _: str) -> Mapping[Tuple[str, int], OffsetRange]:
        return dict.fromkeys(places, OffsetRange(0, self.records))

    def create_topics(self, specs: Sequence[NewTopic]) -> Mapping[str, Optional[str]]:
        self.configs.update({each.name: limited(3000) for each in specs})
        return {each.name: None for each in specs}

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, str]]) -> Mapping[str, Optional[str]]:
        refused = {name: "no segments here" for name, change in changes.items() if "segment.ms" in change}
        for name in changes.keys() - refused.keys():
            self.configs[name].update(changes[name])
        return {**dict.fromkeys(changes), **refused}


def limited(size: int) -> Dict[str, str]:
    return {LIMIT: str(size)}


def watch(source: Topics, target: Topics, **settings: Any) -> TopicWatch:
    """Of topics that it has seen."""
    flow = replace(AB, replication_factor=1, **settings)
    made = TopicWatch(flow, (flow,), source, target)  # type: ignore[arg-type]
    made.refresh()
    return made


def test_remote_topic_whose_configs_may_not_be_read_keeps_the_limit_that_was_read_before() -> None:
    source, target = Topics(orders=limited(2000)), Topics(A_orders=limited(2000))
    watched = watch(source, target)
    target.closed = ["A.orders", "A.new"]
    source.configs["new"] = limited(2000)
    limits = {each.topic: each.max_message_bytes for each in watched.refresh().values()}
    assert limits == {"orders": 2000, "new": 1048588}  # Kafka's default where none was ever read


REFUSED = PartitionReport(
    *("orders", "A.orders", 0, 3, 3, 3, 1),
    stopped=Stop("too large", rejected=(3, 4)),
    incidents=(Incident("partition stopped", "orders", 0, 3, 4, "too large"),),
)


def after(topics: TopicWatch, part: PartitionReport = REFUSED) -> PartitionReport:
    (report,) = recheck_size_limits("A->B", topics, [TaskReport(0, {}, False, (part,), 0.0)])
    (found,) = report.partitions
    return found


SYNC_OFF: Dict[str, Any] = {"sync_topic_configs_interval": None}
CHOSEN: Dict[str, Any] = {"remote_topic_configs": (("retention.ms", "5000"),)}
EXCLUDED: Dict[str, Any] = {"config_properties_exclude": (r"max\.message\.bytes",)}


@pytest.mark.parametrize(
    ("at_source", "at_target", "settings", "limit"),
    [
        pytest.param(5000, 2000, {}, 5000, id="raised on the source"),
        pytest.param(2000, 5000, SYNC_OFF, 5000, id="raised on the target by hand"),
        pytest.param(1000, 1000, {}, 1000, id="lowered, so batches have to be split"),
        pytest.param(2000, 2000, {}, None, id="the source takes no more"),
        pytest.param(5000, 2000, SYNC_OFF, None, id="topic configs are not synchronized"),
        pytest.param(5000, 2000, EXCLUDED, None, id="this config is excluded"),
        pytest.param(2000, 2000, CHOSEN, None, id="the flow chooses another config"),
    ],
)
def test_partition_resumes_where_the_size_limit_has_another_value_and_stays_stopped_elsewhere(
    at_source: int, at_target: int, settings: Mapping[str, Any], limit: Optional[int]
) -> None:
    """Records that were skipped before the refused one are reported in either case."""
    skipped = Incident(OFFSETS_SKIPPED, "orders", 0, 1, 2, "value cannot be computed")
    refused = replace(REFUSED, incidents=(skipped, *REFUSED.incidents))
    source, target = Topics(orders=limited(at_source)), Topics(A_orders=limited(2000))
    watched = watch(source, target, **settings)
    target.configs["A.orders"] = limited(at_target)
    resumed = replace(REFUSED, stopped=None, incidents=(skipped,))
    assert after(watched, refused) == (refused if limit is None else resumed)
    assert [each.max_message_bytes for each in watched.partitions.values()] == [limit or 2000]
    assert target.configs == {"A.orders": limited(limit or at_target)}


def test_limits_are_not_read_where_nothing_was_refused_and_no_answer_leaves_the_partition_stopped() -> None:
    target = Topics(A_orders=limited(2000))
    watched = watch(Topics(orders=limited(5000)), target)
    target.away = True
    other = replace(REFUSED, stopped=Stop("not authorised"))
    assert (after(watched, other), after(watched)) == (other, REFUSED)


OLD, NEW = ({"retention.ms": value, "segment.ms": value} for value in "17")


def test_config_that_is_refused_does_not_hold_up_the_others() -> None:
    cluster: Any = Topics(orders=dict(NEW), A_orders=dict(OLD))
    synced = sync_topic_configs(AB, (AB,), cluster, cluster)
    assert synced == Synced(changed=1, problems=("B refuses segment.ms for A.orders: no segments here",))
    assert cluster.configs["A.orders"] == {"retention.ms": "7", "segment.ms": "1"}


BEFORE, NOW = ("orders", "of-before", "id-A.orders"), ("orders", "id-orders", "id-A.orders")


@pytest.mark.parametrize(
    ("recorded", "records", "left"),
    [([BEFORE], 3, True), ([BEFORE], 0, False), ([BEFORE, NOW], 3, False), ([], 3, True), ([], 0, False)],
)
def test_configs_of_a_topic_that_may_hold_the_only_copy_of_records_are_left_alone(
    recorded: Sequence[Tuple[str, str, str]], records: int, left: bool
) -> None:
    """Those of a source topic that was re-created, or of somebody else."""
    cluster: Any = Topics(orders={"retention.ms": "7"}, A_orders={"retention.ms": "1"})
    cluster.records = records
    synced = sync_topic_configs(AB, (AB,), cluster, cluster, lambda: recorded)
    assert (synced.changed, bool(synced.notes)) == (int(not left), left)
    assert cluster.configs["A.orders"] == {"retention.ms": "1" if left else "7"}


@pytest.mark.parametrize(
    "change",
    [
        # As it is where a part of the name comes from the topic's.
        pytest.param(RecordChange(rename=(("orders", "__of_B"),)), id="internal"),
        pytest.param(RecordChange(dead_letter_topic="A.orders"), id="dead letters"),
        pytest.param(RecordChange(partitioner=12), id="other partition count"),
    ],
)
def test_configs_of_a_topic_that_the_flow_must_not_write_to_are_left_alone(change: RecordChange) -> None:
    cluster: Any = Topics(orders=dict(NEW), A_orders=dict(OLD), __of_B=dict(OLD))
    flow = replace(AB, topics=("orders",), change=change)
    assert sync_topic_configs(flow, (flow,), cluster, cluster) == Synced()
    assert cluster.configs == {"orders": NEW, "A.orders": OLD, "__of_B": OLD}
