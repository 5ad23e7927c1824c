"""What is made of brokers' answers about topic configs, where they do not agree on which topics there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List, Optional, Sequence, Tuple, cast

import pytest

from mirror_lib.errors import ClusterError
from mirror_lib.facts import readable, unreadable
from mirror_lib.kafka import admin as topics
from mirror_lib.kafka.admin import OK, UNKNOWN_TOPIC, ClusterTopics
from mirror_lib.kafka.connection import LogClient, error_name

TOPIC_AUTHORIZATION_FAILED, REQUEST_TIMED_OUT, UNKNOWN_SERVER_ERROR = 29, 7, -1


class Brokers(ClusterTopics):
    """`answers` are in turn the topics that the broker knows which is asked for configs; `there` are all topics. It
    answers about the topics of `errors` with an error code each."""

    def __init__(self, answers: List[Sequence[str]], there: Sequence[str], **errors: int) -> None:
        self.alias, self._answer_seconds = "B", 1.0
        self._known, self._there, self._errors = answers, there, errors
        self._client = cast(LogClient, SimpleNamespace(exchange=self._exchange))

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


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again() -> None:
    brokers = Brokers([["old"], ["old"], ["old", "new"]], ["old", "new"])
    assert set(brokers.topic_configs(["old", "new"])) == {"old", "new"}


def test_a_topic_that_is_gone_is_left_out() -> None:
    assert set(Brokers([["old"]], ["old"]).topic_configs(["old", "gone"])) == {"old"}


def test_topic_whose_configs_may_not_be_read_does_not_hide_the_others() -> None:
    everything = ["old", "closed"]
    found = Brokers([everything], everything, closed=TOPIC_AUTHORIZATION_FAILED).topic_configs(everything)
    assert found == {"old": {}, "closed": None}
    assert unreadable("B", found) == "B: not allowed to read the configs of closed: grant DescribeConfigs"
    assert readable(found) == {"old": {}} and unreadable("B", {"old": {}}) is None


@pytest.mark.parametrize("code", [REQUEST_TIMED_OUT, UNKNOWN_SERVER_ERROR])
def test_error_of_a_broker_is_not_a_missing_permission(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(topics, "AGREED_SECONDS", 0.2)
    with pytest.raises(ClusterError) as raised:
        Brokers([["old"]], ["old"], old=code).topic_configs(["old"])
    assert raised.value.code == "MIR-201" and error_name(code) in raised.value.message


def test_brokers_that_keep_disagreeing_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "AGREED_SECONDS", 0.2)
    with pytest.raises(ClusterError, match="B: cannot read the configs of new: UNKNOWN_TOPIC_OR_PARTITION"):
        Brokers([["old"]], ["old", "new"]).topic_configs(["old", "new"])


def test_error_of_the_program_ends_a_request_at_once() -> None:
    asked = []

    def wrong() -> None:
        asked.append(1)
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError):
        Brokers([["old"]], ["old"])._ask("list topics", "Describe", wrong)
    assert len(asked) == 1
