"""A fence needs a coordinator and a response for each lane. A leader counts if all brokers name the same one."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import pytest
from kafka.errors import InvalidTopicError, KafkaError, LeaderNotAvailableError, TopicAuthorizationFailedError
from kafka.protocol.metadata import FindCoordinatorResponse

from mirror_lib.errors import ClusterError
from mirror_lib.kafka.connection import TRANSACTION_KEY, Disconnected, LogClient
from mirror_lib.kafka.fencing import _SideBySide, find_coordinators
from mirror_lib.kafka.offsets import agreed_leaders

NODES = {"a": 1, "b": 2, "c": 1}
LOADING, DENIED = 14, 53
NO_ANSWER = Disconnected("target: no answer")


class Brokers(LogClient):
    """A client whose brokers have the coordinators NODES; `errors` are those of the first answers, by name."""

    def __init__(self, many: bool, *errors: Mapping[str, Optional[int]]) -> None:
        self.alias, self.stop = "target", threading.Event()
        self._coordinators = {}
        self._many = many
        self._errors = list(errors)
        self.asked: List[List[str]] = []

    def accepts(self, request: Any, version: int) -> bool:
        return self._many

    def refused(self) -> Optional[str]:
        return None

    def exchange(self, requests: Sequence[Tuple[Optional[int], Any]]) -> List[Any]:
        names = [list(each.coordinator_keys) if self._many else [each.key] for _, each in requests]
        self.asked += names
        errors = self._errors.pop(0) if self._errors else {}
        return [self._answer(of_one, errors) for of_one in names]

    def _answer(self, names: List[str], errors: Mapping[str, Optional[int]]) -> Any:
        if any(errors.get(name, 0) is None for name in names):
            return NO_ANSWER
        found = [{"node_id": NODES[name], "error_code": errors.get(name, 0)} for name in names]
        if not self._many:
            return FindCoordinatorResponse(**found[0], coordinators=[])
        of_one = FindCoordinatorResponse.Coordinator
        return FindCoordinatorResponse(coordinators=[of_one(key=name, **each) for name, each in zip(names, found)])


@pytest.mark.parametrize("many", [True, False], ids=["one-request", "one-by-one"])
def test_those_that_load_or_do_not_answer_are_asked_again_and_the_rest_are_not(many: bool) -> None:
    brokers = Brokers(many, {"b": LOADING}, {"b": None}, {})
    assert find_coordinators(brokers, list(NODES), time.monotonic() + 60) == NODES
    assert brokers.asked == [*([["a", "b", "c"]] if many else [["a"], ["b"], ["c"]]), ["b"], ["b"]]
    brokers.forget_coordinators(["c"], TRANSACTION_KEY)
    assert find_coordinators(brokers, list(NODES), time.monotonic() + 60) == NODES
    assert brokers.asked[-2:] == [["b"], ["c"]]


def test_refusal_is_not_retried_and_has_kafkas_name_and_a_deadline_is_an_error_for_all() -> None:
    for error, words, deadline in (
        (DENIED, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", time.monotonic() + 60),
        (LOADING, "target", 0.0),
    ):
        brokers = Brokers(True, {"b": error})
        with pytest.raises(ClusterError, match=words):
            find_coordinators(brokers, list(NODES), deadline)
        assert len(brokers.asked) == 1


class Lines(Brokers):
    """A client that gets these error codes for the requests by name, one after the other; None is no answer."""

    def __init__(self, codes: Dict[str, List[Optional[int]]]) -> None:
        super().__init__(True)
        self._codes = codes
        self.forgotten: List[str] = []

    def coordinators(self, names: Sequence[str], key_type: int) -> Tuple[Dict[str, int], Dict[str, KafkaError]]:
        return dict.fromkeys(names, 1), {}

    def forget_coordinators(self, names: Iterable[str], key_type: int) -> None:
        self.forgotten += names

    def exchange(self, requests: Sequence[Tuple[Optional[int], Any]]) -> List[Any]:
        codes = [self._codes[name].pop(0) for _, name in requests]
        return [NO_ANSWER if code is None else SimpleNamespace(error_code=code) for code in codes]


def test_only_what_fails_is_sent_again_until_all_are_answered_and_moved_coordinators_are_looked_up_again() -> None:
    client = Lines({"a": [0], "b": [51, None, 0], "c": [None, 47]})
    ask = _SideBySide(client, time.monotonic() + 60)
    found = ask({name: name for name in "abc"})
    assert {name: answer.error_code for name, answer in found.items()} == {"a": 0, "b": 0, "c": 47}
    assert client.forgotten == ["c", "b"] and ask.unanswered == {"b", "c"}
    with pytest.raises(ClusterError, match="CONCURRENT_TRANSACTIONS"):
        _SideBySide(Lines({"a": [0], "b": [51]}), 0.0)({"a": "a", "b": "b"})


@pytest.mark.parametrize(
    ("error", "code", "sentence", "attempts"),
    [
        (LeaderNotAvailableError(), "MIR-201", "target: cannot list topics: LEADER_NOT_AVAILABLE", 2),
        (NO_ANSWER, "MIR-201", "target: cannot list topics: no answer", 2),
        (InvalidTopicError("a name"), "MIR-201", "InvalidTopicError: a name", 1),
        (TopicAuthorizationFailedError(), "MIR-203", "target: not allowed to list topics", 1),
    ],
)
def test_only_a_retriable_error_is_retried_and_none_after_a_stop(
    error: KafkaError, code: str, sentence: str, attempts: int
) -> None:
    client, asked = Brokers(True), []

    def attempt() -> None:
        asked.append(1)
        if len(asked) == 2:
            client.stop.set()
        raise error

    with pytest.raises(ClusterError) as raised:
        client.ask("list topics", "Describe on the topics", attempt, time.monotonic() + 60)
    assert (raised.value.code, len(asked)) == (code, attempts) and sentence in raised.value.message


AT = ("orders", 0)


def says(leader: int, epoch: int, topic_id: str = "an id") -> List[Any]:
    """Of one broker."""
    partition = SimpleNamespace(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return [SimpleNamespace(name="orders", topic_id=topic_id, partitions=[partition])]


@pytest.mark.parametrize(
    ("answers", "leader"),
    [
        # A broker that still takes itself for the leader is outvoted by one with a later epoch.
        ([says(1, 5), says(2, 6), says(1, 5)], 2),
        ([says(2, 6), says(2, 6)], 2),
        ([says(1, -1), says(1, -1)], 1),
        ([[], says(1, 5)], 1),
        ([says(1, 5), says(-1, 6)], None),
        ([says(1, 5, "an id"), says(2, 0, "another")], None),
        ([says(1, -1), says(2, -1)], None),
    ],
)
def test_leader_is_the_one_of_the_latest_epoch_and_none_where_brokers_disagree(
    answers: List[Any], leader: Optional[int]
) -> None:
    assert agreed_leaders(answers) == ({} if leader is None else {AT: leader})
