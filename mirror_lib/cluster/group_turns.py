"""Whose turn it is among the processes that share a consumer group: members' claims in, one member chosen.

The group's own protocol decides (KIP-62): all processes join, the leader names one, and Kafka's failure detection ends
a turn. No partition is assigned, so no member fetches. Turns save work; that nothing doubles is the fence's doing.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

VERSION = 0
YOUR_TURN, STAND_BY = b"copy", b"stand by"


class Turns(AbstractPartitionAssignor):  # type: ignore[misc]
    """`claim` answers since when this process copies, in milliseconds since 1970, 0 if it does not.

    `told` is called with whether it is this process's turn, after each round.
    """

    # MirrorMaker 1 does not know this protocol: it and these processes cannot be in a group at the same time.
    name = "mirror-turns"

    def __init__(self, claim: Callable[[], int], told: Callable[[bool], None]) -> None:
        self._claim = claim
        self._told = told

    def metadata(self, topics: Sequence[str]) -> Any:
        """What this process says of itself. The topics keep their committed offsets from expiring (KIP-211)."""
        return ConsumerProtocolSubscription(VERSION, sorted(topics), b"%d" % self._claim())

    def assign(self, cluster: Any, members: List[Any]) -> Dict[str, Any]:
        """The leader's decision."""
        chosen = chosen_member({each.member_id: _claim_of(each.metadata.user_data) for each in members})
        return {
            each.member_id: ConsumerProtocolAssignment(
                VERSION, [], YOUR_TURN if each.member_id == chosen else STAND_BY
            )
            for each in members
        }

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """What the leader decided for this process."""
        self._told(assignment.user_data == YOUR_TURN)


def chosen_member(claims: Dict[str, int]) -> str:
    """The member that copies, who began last if several say that they do; else the first of the names.

    A process that stood still and comes back claims its turn as well; who was given it meanwhile has fenced it.
    """
    return min(claims, key=lambda member: (-claims[member], member))


def _claim_of(user_data: Any) -> int:
    text = bytes(user_data or b"")
    return int(text) if text.isdigit() else 0
