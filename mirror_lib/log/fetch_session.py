"""A fetch session with one broker (KIP-227): wanted positions in, what a request has to name out; then short answers
in, whole ones out.

The broker remembers what is asked for, so that a request names only what changed, and an answer only what is new.
"""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Tuple

from mirror_lib.log.connection import Partition

# Below it a session would save nothing, and a broker keeps few of them (max.incremental.fetch.session.cache.slots).
SESSION_FROM_PARTITIONS = 50
# FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR, INCONSISTENT_TOPIC_ID
FORGOTTEN = (70, 71, 106, 103)
NO_SESSION, NO_EPOCH, FIRST_EPOCH, LAST_EPOCH = 0, -1, 0, 2**31 - 1


class Asked(NamedTuple):
    """One request: the session's id and epoch, the partitions to name, those that are not wanted any more."""

    session_id: int = NO_SESSION
    epoch: int = NO_EPOCH
    positions: Mapping[Partition, int] = {}
    forgotten: Tuple[Partition, ...] = ()


class FetchSession:
    """Not thread-safe; one request at a time. What `ask` wants without the session does not disturb it."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known: Dict[Partition, Tuple[int, int]] = {}

    def ask(self, wanted: Mapping[Partition, int], limits: Mapping[Partition, int] = {}) -> Asked:
        """What a request for `wanted` (partition to position) has to say; the answer is about these alone. `limits` are
        the most bytes of each."""
        if len(wanted) < SESSION_FROM_PARTITIONS:
            return Asked(positions=wanted)
        before, self._known = self._known, {each: (at, limits.get(each, -1)) for each, at in wanted.items()}
        if self._id == NO_SESSION:
            return Asked(NO_SESSION, FIRST_EPOCH, wanted)
        changed = {each: at for each, at in wanted.items() if before.get(each) != self._known[each]}
        return Asked(self._id, self._epoch, changed, tuple(each for each in before if each not in wanted))

    def answered(self, asked: Asked, error_code: int, session_id: int) -> bool:
        """Take the head of the answer to `asked`. False where the broker has forgotten the session, and told nothing
        else: the next `ask` says everything again."""
        if asked.epoch == NO_EPOCH:
            return True
        if error_code in FORGOTTEN or session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, FIRST_EPOCH
            return error_code not in FORGOTTEN
        self._id = session_id
        self._epoch = asked.epoch + 1 if asked.epoch < LAST_EPOCH else 1
        return True
