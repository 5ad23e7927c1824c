"""Topic configs as brokers answer them, may not tell them, or limit records by them."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from mirror_lib.errors import ClusterError
from mirror_lib.facts import NewTopic, TopicConfigEntry, TopicDescription, readable, unreadable
from mirror_lib.kafka import admin as topics
from mirror_lib.kafka.admin import OK, UNKNOWN_TOPIC, ClusterTopics
from mirror_lib.kafka.connection import LogClient, error_name
from mirror_lib.ledger.records import OFFSETS_SKIPPED, Incident
from mirror_lib.replication.copied_topics import TopicWatch, recheck_size_limits
from mirror_lib.replication.messages import PartitionReport, Stop, TaskReport
from tests.unit.configs import AB

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


def test_topic_whose_configs_may_not_be_read_does_not_hide_the_others() -> None:
    everything = ["old", "closed"]
    found = Brokers([everything], everything, closed=TOPIC_AUTHORIZATION_FAILED).topic_configs(everything)
    assert found == {"old": {}, "closed": None}
    assert unreadable("B", found) == "B: not allowed to read the configs of closed: grant DescribeConfigs"
    assert readable(found) == {"old": {}} and unreadable("B", {"old": {}}) is None


LIMIT = "max.message.bytes"


class Topics:
    """A cluster of topics that take so many bytes; the configs of the `closed` ones may not be read."""

    alias = "B"

    def __init__(self, **limits: int) -> None:
        self.limits = {name.replace("_", "."): limit for name, limit in limits.items()}
        self.closed: Sequence[str] = ()
        self.away = False

    def topics(self) -> Mapping[str, TopicDescription]:
        return {name: TopicDescription(name, f"id-{name}", 1) for name in self.limits}

    def topic_configs(self, names: Sequence[str], keys: Any = None) -> Mapping[str, Any]:
        if self.away:
            raise ClusterError("B: no answer")
        known = [name for name in names if name in self.limits]
        entries = {name: {LIMIT: TopicConfigEntry(str(self.limits[name]), "DYNAMIC_TOPIC_CONFIG", False)}
                   for name in known}  # fmt: skip
        return {**entries, **dict.fromkeys(set(known) & set(self.closed))}

    def topic_config_keys(self) -> Any:
        return frozenset()

    def broker_count(self) -> int:
        return 1

    def create_topics(self, specs: Sequence[NewTopic]) -> Mapping[str, Optional[str]]:
        self.limits.update(dict.fromkeys((each.name for each in specs), 3000))
        return {each.name: None for each in specs}

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, str]]) -> Mapping[str, Optional[str]]:
        self.limits.update({name: int(change[LIMIT]) for name, change in changes.items()})
        return dict.fromkeys(changes)


def watch(source: Topics, target: Topics, **settings: Any) -> TopicWatch:
    """Of topics that it has seen."""
    flow = replace(AB, replication_factor=1, **settings)
    made = TopicWatch(flow, (flow,), source, target)  # type: ignore[arg-type]
    made.refresh()
    return made


def test_remote_topic_whose_configs_may_not_be_read_keeps_the_limit_that_was_read_before() -> None:
    source, target = Topics(orders=2000), Topics(A_orders=2000)
    watched = watch(source, target)
    target.closed = ["A.orders", "A.new"]
    source.limits["new"] = 2000
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
    ],
)
def test_partition_resumes_where_the_size_limit_has_another_value_and_stays_stopped_elsewhere(
    at_source: int, at_target: int, settings: Mapping[str, Any], limit: Optional[int]
) -> None:
    """Records that were skipped before the refused one are reported in either case."""
    skipped = Incident(OFFSETS_SKIPPED, "orders", 0, 1, 2, "value cannot be computed")
    refused = replace(REFUSED, incidents=(skipped, *REFUSED.incidents))
    source, target = Topics(orders=at_source), Topics(A_orders=2000)
    watched = watch(source, target, **settings)
    target.limits["A.orders"] = at_target
    resumed = replace(REFUSED, stopped=None, incidents=(skipped,))
    assert after(watched, refused) == (refused if limit is None else resumed)
    assert [each.max_message_bytes for each in watched.partitions.values()] == [limit or 2000]
    assert target.limits == {"A.orders": limit or at_target}


def test_limits_are_not_read_where_nothing_was_refused_and_no_answer_leaves_the_partition_stopped() -> None:
    target = Topics(A_orders=2000)
    watched = watch(Topics(orders=5000), target)
    target.away = True
    other = replace(REFUSED, stopped=Stop("not authorised"))
    assert (after(watched, other), after(watched)) == (other, REFUSED)
