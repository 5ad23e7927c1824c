"""What is made of brokers' answers about topic configs, where they do not agree on which topics there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import pytest

from mirror_lib.errors import ClusterError
from mirror_lib.facts import TopicConfigs
from mirror_lib.kafka import admin as topics
from mirror_lib.kafka.admin import OK, UNKNOWN_TOPIC, ClusterTopics

CONFIGS: TopicConfigs = {}


class Brokers(ClusterTopics):
    """`answers` are in turn the topics that the broker knows which is asked for configs; `there` are all topics, and
    of those `closed` it answers nothing."""

    def __init__(self, answers: List[Sequence[str]], there: Sequence[str], closed: Sequence[str] = ()) -> None:
        self.alias = "B"
        self._known, self._there, self._closed = answers, there, closed

    def _topic_configs(
        self, names: Sequence[str], keys: Optional[Sequence[str]]
    ) -> Tuple[Mapping[str, TopicConfigs], Sequence[str]]:
        known = self._known.pop(0) if len(self._known) > 1 else self._known[0]
        found = {name: CONFIGS for name in names if name in known and name not in self._closed}
        return found, [name for name in names if name not in known]

    def _describe_topics(self, names: Optional[Sequence[str]]) -> Any:
        codes = {name: OK if name in self._there else UNKNOWN_TOPIC for name in names or ()}
        return [SimpleNamespace(name=name, error_code=code) for name, code in codes.items()]


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again() -> None:
    brokers = Brokers([["old"], ["old"], ["old", "new"]], ["old", "new"])
    assert set(brokers.topic_configs(["old", "new"])) == {"old", "new"}


def test_a_topic_that_is_gone_is_left_out() -> None:
    assert set(Brokers([["old"]], ["old"]).topic_configs(["old", "gone"])) == {"old"}


def test_a_topic_of_which_nothing_is_told_is_closed_to_us() -> None:
    with pytest.raises(ClusterError, match=r"B: not allowed to read the configs of closed .*grant DescribeConfigs"):
        Brokers([["old", "closed"]], ["old", "closed"], ["closed"]).topic_configs(["old", "closed"])


def test_brokers_that_keep_disagreeing_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "AGREED_SECONDS", 0.2)
    with pytest.raises(ClusterError, match="B: one broker knows new and another does not"):
        Brokers([["old"]], ["old", "new"]).topic_configs(["old", "new"])
