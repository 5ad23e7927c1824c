"""Topic configs as brokers answer them, may not tell them, or limit records by them."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from mirror_lib.errors import ClusterError
from mirror_lib.facts import NewTopic, TopicConfigEntry, TopicDescription, readable, unreadable
from mirror_lib.kafka import admin as topics
from mirror_lib.kafka.admin import OK, UNKNOWN_TOPIC, ClusterTopics
from mirror_lib.kafka.connection import LogClient, error_name
from mirror_lib.ledger.records import OFFSETS_SKIPPED, Incident
from mirror_lib.replication.copied_topics import TopicWatch, recheck_size_limits
from mirror_lib.replication.messages import CopiedPartition, PartitionReport, Stop, TaskReport
from mirror_lib.topics.plan import CopiedTopic, TopicPlan
from tests.unit.configs import AB

TOPIC_AUTHORIZATION_FAILED, REQUEST_TIMED_OUT, UNKNOWN_SERVER_ERROR = 29, 7, -1


class Client(LogClient):
    """A client that answers by `exchange`."""

    def __init__(self, exchange: Callable[[Sequence[Tuple[Optional[int], Any]]], List[Any]]) -> None:
        self.alias, self.stop = "B", threading.Event()
        self.exchange = exchange  # type: ignore[assignment, method-assign]

    def refused(self) -> Optional[str]:
        return None


class Brokers(ClusterTopics):
    """`answers` are in turn the topics that the broker knows which is asked for configs; `there` are all topics. It
    answers about the topics of `errors` with an error code each."""

    def __init__(self, answers: List[Sequence[str]], there: Sequence[str], **errors: int) -> None:
        self.alias, self._answer_seconds = "B", 1.0
        self._known, self._there, self._errors = answers, there, errors
        self._client = Client(self._exchange)

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


def test_topic_whose_configs_may_not_be_read_does_not_hide_the_others() -> None:
    everything = ["old", "closed"]
    found = Brokers([everything], everything, closed=TOPIC_AUTHORIZATION_FAILED).topic_configs(everything)
    assert found == {"old": {}, "closed": None}
    assert unreadable("B", found) == "B: not allowed to read the configs of closed: grant DescribeConfigs"
    assert readable(found) == {"old": {}} and unreadable("B", {"old": {}}) is None


LIMIT = "max.message.bytes"


class Topics:
    """A cluster of topics with a limit of 2000 bytes; the configs of the `closed` ones may not be read."""

    def __init__(self, alias: str, *names: str) -> None:
        self.alias = alias
        self.closed: Sequence[str] = ()
        self.listed: Dict[str, TopicDescription] = {}
        self.add(*names)

    def add(self, *names: str) -> None:
        self.listed.update({name: TopicDescription(name, f"id-{name}", 1) for name in names})

    def topics(self) -> Mapping[str, TopicDescription]:
        return dict(self.listed)

    def topic_configs(self, names: Sequence[str], keys: Any = None) -> Mapping[str, Any]:
        entries = {LIMIT: TopicConfigEntry("2000", "DYNAMIC_TOPIC_CONFIG", False)}
        return {name: None if name in self.closed else entries for name in names if name in self.listed}

    def topic_config_keys(self) -> Any:
        return frozenset()

    def broker_count(self) -> int:
        return 1

    def create_topics(self, specs: Sequence[NewTopic]) -> Mapping[str, Optional[str]]:
        self.add(*(each.name for each in specs))
        return {each.name: None for each in specs}


def test_remote_topic_whose_configs_may_not_be_read_keeps_the_limit_that_was_read_before() -> None:
    source, target = Topics("A", "orders"), Topics("B", "A.orders")
    flow = replace(AB, replication_factor=1)
    watch = TopicWatch(flow, (flow,), source, target)  # type: ignore[arg-type]
    assert [each.max_message_bytes for each in watch.refresh().values()] == [2000]
    target.closed = ["A.orders", "A.new"]
    source.add("new")
    limits = {each.topic: each.max_message_bytes for each in watch.refresh().values()}
    assert limits == {"orders": 2000, "new": 1048588}  # Kafka's default where none was ever read


REFUSED = PartitionReport(
    *("orders", "A.orders", 0, 3, 3, 3, 1),
    stopped=Stop("too large", rejected=(3, 4)),
    incidents=(Incident("partition stopped", "orders", 0, 3, 4, "too large"),),
)


class Limits:
    """A cluster whose topics take so many bytes."""

    def __init__(self, **limits: int) -> None:
        self.limits = {name.replace("_", "."): limit for name, limit in limits.items()}
        self.away = False

    def topic_configs(self, names: Sequence[str], keys: Sequence[str]) -> Mapping[str, Any]:
        if self.away:
            raise ClusterError("B: no answer")
        source = "DYNAMIC_TOPIC_CONFIG"
        return {name: {LIMIT: TopicConfigEntry(str(self.limits[name]), source, False)} for name in names}

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, str]]) -> Mapping[str, Optional[str]]:
        self.limits.update({name: int(change[LIMIT]) for name, change in changes.items()})
        return dict.fromkeys(changes)


def watch(at_source: int, at_target: Limits, known: int, settings: Mapping[str, Any]) -> TopicWatch:
    sides: Any = (Limits(orders=at_source), at_target)
    flow = replace(AB, **settings)
    made = TopicWatch(flow, (flow,), *sides)
    made.plan = TopicPlan((CopiedTopic(TopicDescription("orders", "id", 1), "A.orders", "remote id", 1),), ())
    copied = CopiedPartition("orders", "A.orders", 0, "id", "remote id", known)
    made.partitions = {copied.key: copied}
    return made


def after(topics: TopicWatch, part: PartitionReport = REFUSED) -> PartitionReport:
    (report,) = recheck_size_limits("A->B", topics, [TaskReport(0, {}, False, (part,), 0.0)])
    (found,) = report.partitions
    return found


SYNC_OFF: Dict[str, Any] = {"sync_topic_configs_interval": None}
EXCLUDED: Dict[str, Any] = {"config_properties_exclude": (r"max\.message\.bytes",)}


def test_records_skipped_before_the_refused_one_are_reported_of_a_partition_that_resumes() -> None:
    skipped = Incident(OFFSETS_SKIPPED, "orders", 0, 1, 2, "value cannot be computed")
    topics = watch(5000, Limits(A_orders=2000), 2000, {})
    found = after(topics, replace(REFUSED, incidents=(skipped, *REFUSED.incidents)))
    assert (found.stopped, found.incidents) == (None, (skipped,))


@pytest.mark.parametrize(
    ("at_source", "at_target", "known", "settings", "limit"),
    [
        pytest.param(5000, 2000, 2000, {}, 5000, id="raised on the source"),
        pytest.param(2000, 5000, 2000, SYNC_OFF, 5000, id="raised on the target by hand"),
        pytest.param(1000, 1000, 2000, {}, 1000, id="lowered, so batches have to be split"),
        pytest.param(2000, 2000, 2000, {}, None, id="the source takes no more"),
        pytest.param(5000, 2000, 2000, SYNC_OFF, None, id="topic configs are not synchronized"),
        pytest.param(5000, 2000, 2000, EXCLUDED, None, id="this config is excluded"),
    ],
)
def test_partition_resumes_where_the_size_limit_has_another_value_and_stays_stopped_elsewhere(
    at_source: int, at_target: int, known: int, settings: Mapping[str, Any], limit: Optional[int]
) -> None:
    target = Limits(A_orders=at_target)
    topics = watch(at_source, target, known, settings)
    assert after(topics) == (REFUSED if limit is None else replace(REFUSED, stopped=None, incidents=()))
    assert [each.max_message_bytes for each in topics.partitions.values()] == [limit or known]
    assert target.limits == {"A.orders": limit or at_target}


def test_limits_are_not_read_where_nothing_was_refused_and_no_answer_leaves_the_partition_stopped() -> None:
    target = Limits(A_orders=2000)
    target.away = True
    topics = watch(5000, target, 2000, {})
    other = replace(REFUSED, stopped=Stop("not authorised"))
    assert (after(topics, other), after(topics)) == (other, REFUSED)
