"""Asking the brokers that coordinate groups: many groups a request, each group's answer or failure on its own.

What fails for one group is retried for it alone and at last left to the caller; the others' answers stay.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence, Tuple, TypeVar

from kafka.errors import KafkaError
from kafka.protocol.metadata import FindCoordinatorRequest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.kafka.admin_client import ANSWER_SECONDS, ClusterConnection
from mirror_lib.kafka.group_answers import Failure, may_pass, standing_in_the_way

# A coordinator that moves or loads is mostly back sooner; where it is not, the other groups wait no longer for it.
COORDINATOR_SECONDS = 10.0
GROUPS_PER_REQUEST = 1000
# From this version on one request asks for many groups' coordinators (KIP-699).
MANY_COORDINATORS = 4

Asked = TypeVar("Asked", str, int)
# By group: the caller's reading of the broker's answer, or a Failure.
Outcomes = Mapping[str, Any]
Request = Callable[[Sequence[str]], Any]
Reading = Callable[[Any, Sequence[str]], Outcomes]


class GroupCoordinators(ClusterConnection):
    """A connection that remembers which broker coordinates which group."""

    def __init__(self, config: ClusterConfig, answer_seconds: float = ANSWER_SECONDS) -> None:
        super().__init__(config, answer_seconds)
        self._coordinators: Dict[str, int] = {}

    def _ask_for_groups(
        self,
        asked: str,
        right: str,
        groups: Sequence[str],
        request: Request,
        reading: Reading,
        groups_per_request: int = GROUPS_PER_REQUEST,
        again: Callable[[], bool] = lambda: True,
    ) -> Tuple[Outcomes, Mapping[str, Failure]]:
        """Make a `request` for some groups of one coordinator at a time, and take the answers apart by group.

        The answers by group, and the failures that lasted. `again` is asked before each further attempt.
        """

        def once(waiting: Sequence[str]) -> Outcomes:
            outcomes = dict(self._find_coordinators(waiting))
            shares = list(self._shares([group for group in waiting if group not in outcomes], groups_per_request))
            answers = self._exchange([(node, request(share)) for node, share in shares])
            for (_, share), answer in zip(shares, answers):
                silent = isinstance(answer, KafkaError)
                outcomes.update(_silence(share, answer) if silent else reading(answer, share))
            for group in (each for each, outcome in outcomes.items() if isinstance(outcome, Failure)):
                self._coordinators.pop(group, None)
            return outcomes

        return self._settle(asked, right, list(dict.fromkeys(groups)), once, again)

    def _settle(
        self,
        asked: str,
        right: str,
        names: Sequence[Asked],
        once: Callable[[Sequence[Asked]], Mapping[Asked, Any]],
        again: Callable[[], bool] = lambda: True,
    ) -> Tuple[Mapping[Asked, Any], Mapping[Asked, Failure]]:
        """Repeat `once` for the names that have neither an answer nor a failure that lasts, as long as `again` agrees.

        While every broker is silent up to the connection's deadline, else only for a while: the answers, the failures.
        """
        outcomes: Dict[Asked, Any] = {}
        patient_until = time.monotonic() + COORDINATOR_SECONDS

        def attempt() -> None:
            if outcomes and not again():
                return
            outcomes.update(once([name for name in names if name not in outcomes or may_pass(outcomes[name])]))
            error = standing_in_the_way(list(outcomes.values()), time.monotonic() < patient_until)
            if error is not None:
                raise error

        if names:
            self._ask(asked, right, attempt)
        failed = {name: each for name, each in outcomes.items() if isinstance(each, Failure)}
        return {name: each for name, each in outcomes.items() if name not in failed}, failed

    def _find_coordinators(self, groups: Sequence[str]) -> Mapping[str, Failure]:
        """Learn the coordinators that are not known yet: the groups for which that failed."""
        unknown = [group for group in groups if group not in self._coordinators]
        failures: Dict[str, Failure] = {}
        for share, answer in self._coordinator_answers(unknown):
            if isinstance(answer, KafkaError):
                failures.update(_silence(share, answer))
                continue
            # Before MANY_COORDINATORS the answer is for one group: without a list, without a key.
            for each in answer.coordinators or [answer]:
                group = each.key if answer.coordinators else share[0]
                if each.error_code:
                    failures[group] = Failure.of(each.error_code)
                else:
                    self._coordinators[group] = each.node_id
        return failures

    def _coordinator_answers(self, groups: Sequence[str]) -> Iterable[Tuple[Sequence[str], Any]]:
        many = self._knows(FindCoordinatorRequest, MANY_COORDINATORS)
        shares = _chunks(groups, GROUPS_PER_REQUEST if many else 1)
        requests = [
            FindCoordinatorRequest(coordinator_keys=share, min_version=MANY_COORDINATORS)
            if many
            else FindCoordinatorRequest(key=share[0], max_version=MANY_COORDINATORS - 1)
            for share in shares
        ]
        return zip(shares, self._exchange([(None, request) for request in requests]))

    def _shares(self, groups: Sequence[str], size: int) -> Iterable[Tuple[int, Sequence[str]]]:
        by_node: Dict[int, List[str]] = {}
        for group in groups:
            by_node.setdefault(self._coordinators[group], []).append(group)
        return ((node, share) for node, of_node in by_node.items() for share in _chunks(of_node, size))


def _silence(groups: Sequence[str], error: KafkaError) -> Outcomes:
    return dict.fromkeys(groups, Failure(error, heard=False))


def _chunks(groups: Sequence[str], size: int) -> List[Sequence[str]]:
    return [groups[start : start + size] for start in range(0, len(groups), size)]
