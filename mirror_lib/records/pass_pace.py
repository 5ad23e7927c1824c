"""Keeps passes that place records anew to the flow's rates: what passes read in, room and waits out."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Dict, Mapping, Optional

from mirror_lib.facts import TopicPartition
from mirror_lib.records.pass_room import Room, RoomToRead, offsets_by_rate, owed
from mirror_lib.records.read_bytes import ReadBytes
from mirror_lib.replicate.flow_rates import FlowRates
from mirror_lib.replicate.lanes import nothing_copied
from mirror_lib.replicate.rates import NO_RATES, Fetching, TaskRates
from mirror_lib.state.row_passes import SOURCE, RowPass

# So long at once, for a stop to be heard.
WAIT_SECONDS = 0.5


class PassPace:
    """One flow's in one driver's life. Not thread-safe. `rates` keeps the account, also of what others fetch."""

    def __init__(self, rates: FlowRates) -> None:
        self._rates = rates
        self._room = RoomToRead()
        self._standing: TaskRates = NO_RATES
        self._offsets: Dict[int, int] = {}
        self._held: Dict[int, float] = {}
        self._waited = 0.0

    def room(self, ends: Mapping[TopicPartition, int], offsets: int) -> Room:
        """How far the next pass over these partitions may go, which is to have at most `offsets`."""
        self._standing = self._rates.standing({topic for topic, _ in ends})
        return self._room.room(self._standing, offsets)

    def holds(self, planned: RowPass, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether what is owed keeps a pass from what there is to be copied."""
        left = any(ends.get(row.place, row.stands) > row.stands for row in planned.of(SOURCE))
        return left and bool(owed(self._standing))

    def wait(self) -> None:
        """Let some of what is owed be paid."""
        debts = owed(self._standing)
        seconds = min([*debts.values(), WAIT_SECONDS])
        time.sleep(seconds)
        self._waited += seconds
        self._hold(seconds)

    def begun(self, planned: RowPass) -> ReadBytes:
        """What is to count the bytes of a pass, which begins."""
        ranges = [(row.topic, row.stands - row.from_offset) for row in planned.of(SOURCE)]
        self._standing = self._rates.standing({topic for topic, _ in ranges})
        self._offsets = offsets_by_rate(ranges, self._standing)
        return ReadBytes(self._standing)

    def pay(self, read: ReadBytes) -> None:
        """Take what an attempt read from the account."""
        nbytes = read.nbytes()
        if nbytes:
            self._room.learn(nbytes, self._offsets)
        self._rates.learn([replace(nothing_copied(0), fetching=Fetching(nbytes))])

    def word(self, seconds: float) -> Optional[str]:
        """What to say of a pass of `seconds`, and of the waits before it; `None` where no rate held the flow back."""
        self._hold(seconds)
        told = replace(nothing_copied(0), fetching=Fetching({}, self._held))
        seconds += self._waited
        self._held, self._waited = {}, 0.0
        return self._rates.word([told], seconds)

    def _hold(self, seconds: float) -> None:
        for number in owed(self._standing):
            self._held[number] = self._held.get(number, 0.0) + seconds
