"""A partition's position never passes a record that the target has not accepted, whatever the target answers and when.

The regression: an error answer took its batch out of what is in flight, the partition then counted as drained, and a
driver that was fenced wrote the end of what it had fetched to the ledger. The next driver resumed there: records were
lost without a word. `Drained` is that partition; the same test must fail with it.
"""

from __future__ import annotations

from typing import Dict, List, Tuple, Type

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirror_lib.errors import FencedError
from mirror_lib.kafka.connection import Disconnected
from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.producer import Acknowledgement
from mirror_lib.kafka.record_batch import Producer, read_header
from mirror_lib.replication.partition import PartitionCopy
from tests.lab.drained import Drained
from tests.unit.logs import LogBatch, Rec, batch_of, fetched, marker, task_of, whole

REMOTE = ("A.orders", 0)
FENCED, NOT_LEADER, TIMED_OUT, TOO_LARGE = 47, 6, 7, 10
# What the target does with the oldest batch in flight: the error code, and whether the batch is on its log.
ANSWERS: Dict[str, Tuple[int, bool]] = {
    "accept": (0, True),
    "fence": (FENCED, False),
    "refuse": (TOO_LARGE, False),
    "lose": (NOT_LEADER, False),
    "lose the answer": (TIMED_OUT, True),
}

# A batch of so many records, or, below 0, a transaction's marker and then a gap of so many offsets.
segments = st.lists(st.one_of(st.integers(1, 40), st.integers(-5, -1)), min_size=1, max_size=12)
steps = st.lists(
    st.one_of(st.integers(1, 4), st.just("send"), st.sampled_from(sorted(ANSWERS))), max_size=40
)


class Scene:
    """A source log, a remote log, and the partition between them."""

    def __init__(self, kind: Type[PartitionCopy], sizes: List[int]) -> None:
        self.log: List[LogBatch] = []
        offset = 0
        for size in sizes:
            records = [Rec(b"%d" % n) for n in range(size)]
            self.log.append(batch_of(offset, records) if size > 0 else marker(offset))
            offset = self.log[-1].next + max(0, -size - 1)
        self.end = offset
        self.visible = [at for batch in self.log if not batch.attributes for at, _ in batch.records]
        self.remote: List[int] = []
        self.in_flight: List[List[int]] = []
        self.copy = kind(task_of(end=self.end))
        self.copy.start(Producer(4711, 0))
        self.fenced = False

    def take(self, count: int) -> None:
        at = self.copy.fetch_position
        batches = [batch for batch in self.log if batch.next > at][:count]
        answer = fetched(batches, end=self.end) if batches else Fetched(0, self.end, (), b"")
        self.copy.take(at, not batches, answer)

    def send(self) -> None:
        while self.copy.ready_bytes():
            outgoing = self.copy._queue[0]
            assert read_header(whole(self.copy.take_ready())).record_count == outgoing.record_count
            self.in_flight.append([at + n for at, count in outgoing.runs for n in range(count)])

    def answer(self, code: int, appended: bool) -> None:
        if not self.in_flight:
            return
        batch = self.in_flight.pop(0)
        base = len(self.remote)
        self.remote += batch if appended and self.copy.stopped is None else []
        try:
            self.copy.acknowledge(Acknowledgement(REMOTE, code, base, ""))
        except FencedError:
            self.fenced = True
        except Disconnected:
            self.check()  # a task that gives up reports what it has here
            self.in_flight.clear()
            self.recover()

    def recover(self) -> None:
        """What reconciling finds: each record that the remote log holds past the position."""
        for at in range(self.copy.downstream, len(self.remote)):
            self.copy.recover(self.remote[at], at, 1)
        self.copy.start(Producer(4711, 1))

    def told(self) -> List[int]:
        return [sync.upstream_offset + n for sync in self.copy.syncs for n in range(sync.record_count)]

    def check(self) -> None:
        report = self.copy.report()
        before = [at for at in self.visible if at < report.position]
        assert before == self.remote[: len(before)], "the position passed a record that is not on the remote log"
        assert report.downstream_offset == len(before), "the two halves of the position belong to different records"
        assert self.told() == before, "the ledger rows and the position differ"


def play(kind: Type[PartitionCopy], sizes: List[int], moves: List[object]) -> None:
    scene = Scene(kind, sizes)
    for move in moves:
        if scene.fenced:
            break
        if isinstance(move, int):
            scene.take(move)
        elif move == "send":
            scene.send()
        else:
            scene.answer(*ANSWERS[str(move)])
        scene.check()
    scene.check()
    if scene.fenced or scene.copy.stopped is not None:
        return
    for _ in range(len(sizes) * 3 + 3):  # and a target that accepts everything gets everything
        scene.take(4)
        scene.send()
        while scene.in_flight:
            scene.answer(0, True)
        scene.check()
    assert scene.remote == scene.visible and scene.copy.report().position == scene.end


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(segments, steps)
def test_position_passes_only_what_the_target_accepted(sizes: List[int], moves: List[object]) -> None:
    play(PartitionCopy, sizes, moves)


@pytest.mark.parametrize("answer", ["fence", "lose"])
def test_partition_that_forgets_a_refused_batch_passes_it(answer: str) -> None:
    moves = [1, "send", "accept", 1, "send", answer]
    play(PartitionCopy, [20, 20, 20], list(moves))
    with pytest.raises(AssertionError, match="not on the remote log"):
        play(Drained, [20, 20, 20], list(moves))
