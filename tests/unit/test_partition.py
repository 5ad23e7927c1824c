"""One partition: acknowledged records count, whatever the target answers; a refused record stops it, and is reported
once."""

from __future__ import annotations

from typing import Dict, List, Tuple, Type

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_lib.errors import FencedError
from mirror_lib.kafka.connection import Disconnected
from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.producer import Acknowledgement
from mirror_lib.kafka.record_batch import Producer, read_header
from mirror_lib.replication.flow_state import PartitionState
from mirror_lib.replication.messages import NO_END
from mirror_lib.replication.partition import PartitionCopy
from tests.lab.stops import Drained, stop_of
from tests.unit.logs import LogBatch, Rec, batch_of, fetched, marker, task_of, whole

REMOTE = ("A.orders", 0)


def sent(end: int = 60) -> PartitionCopy:
    """With the first batch on the way, and two that wait for the answer."""
    copy = PartitionCopy(task_of(end=end))
    copy.start(Producer(4711, 0))
    copy.take(0, False, fetched([batch_of(n, [Rec(b"%d" % (n + i)) for i in range(20)]) for n in (0, 20, 40)], end=60))
    send_all(copy)
    return copy


def send_all(copy: PartitionCopy) -> None:
    while copy.ready_bytes():
        copy.take_ready()


def answer(copy: PartitionCopy, base_offset: int, error: int = 0) -> None:
    copy.acknowledge(Acknowledgement(REMOTE, error, base_offset, ""))


def test_first_batch_goes_alone_because_a_broker_without_state_of_the_producer_takes_any_sequence() -> None:
    copy = sent()
    assert copy.waits and copy.busy and copy.ready_bytes() == 0
    answer(copy, 0)
    assert copy.ready_bytes() > 0


def test_stop_for_safety_before_a_rejected_record_skips_nothing() -> None:
    copy = sent()
    copy.drain_then_stop("too large", 60, 61)
    answer(copy, 1)
    report = copy.report()
    assert (stop_of(report).refused, stop_of(report).rejected, report.position) == (True, None, 0)


def test_missing_right_to_write_stops_the_partition_and_leaves_no_record_out() -> None:
    copy = sent()
    answer(copy, -1, 29)
    report = copy.report()
    assert not stop_of(report).refused and "needs Write on the remote topic" in str(report.stopped)
    # Not when it is tried again either.
    state = PartitionState()
    for cycle in (1, 2):
        state = state.after(report, cycle, True)
        assert (state.stop, state.at.upstream_offset, state.isolate_until) == (report.stopped, 0, -1)
    incidents = PartitionState().incidents(report, True)
    assert [(each.kind, each.from_offset) for each in incidents] == [("partition stopped", 0)]


@pytest.mark.parametrize(("code", "words"), [(1, "cannot fetch"), (29, "needs Read on the topic")])
def test_source_that_cannot_be_read_further_stops_it_after_what_was_read(code: int, words: str) -> None:
    copy = sent(end=90)
    copy.take(60, False, Fetched(code, 60, (), b""))
    for base in (0, 20, 40):
        answer(copy, base)
        send_all(copy)
    report = copy.report()
    assert (report.position, report.downstream_offset, report.sequence) == (60, 60, 60)
    assert words in str(report.stopped) and copy.finished(False)


def test_tailed_partition_waits_at_the_end_of_its_log_and_passes_a_gap_below_it() -> None:
    copy = PartitionCopy(task_of(end=NO_END))
    copy.start(Producer(4711, 0))
    copy.take(0, False, Fetched(0, 0, (), b""))
    assert copy.report().position == 0 and copy.hungry() and not copy.finished(False)
    copy.take(0, True, Fetched(0, 60, (), b""))
    assert (copy.report().position, copy.report().source_end) == (60, 60)
    copy.take(60, False, Fetched(0, 60, (), b""))
    assert copy.report().position == 60 and copy.hungry()
    assert copy.finished(True) and not copy.finished(False)
    # A lane that is fenced again resumes there, and after what it found on the remote log.
    copy.start(Producer(4711, 1))
    assert copy.fetch_position == 60
    copy.recover(60, 60, 20)
    copy.start(Producer(4711, 2))
    assert copy.fetch_position == 80


FENCED = (47, 90)
# What the target does with the oldest batch in flight: the error code, and whether the batch is on its log.
ANSWERS: Dict[str, Tuple[int, bool]] = {
    "accept": (0, True),
    **{f"fence by {code}": (code, False) for code in FENCED},
    "refuse as too large": (10, False),
    "lose the leader": (6, False),
    "lose the answer": (7, True),
    "find out of sequence": (45, False),
}

# A batch of so many records, or, below 0, a transaction's marker and then a gap of so many offsets.
segments = st.lists(st.one_of(st.integers(1, 40), st.integers(-5, -1)), min_size=1, max_size=12)
steps = st.lists(st.one_of(st.integers(1, 4), st.just("send"), st.sampled_from(sorted(ANSWERS))), max_size=40)


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
            assert code in FENCED
            self.fenced = True
        except Disconnected:
            assert code not in FENCED
            self.check()  # a task that gives up reports what it has here
            self.in_flight.clear()
            self.recover()

    def recover(self) -> None:
        """What reconciling finds: each record that the remote log holds past the position."""
        for at in range(self.copy.downstream, len(self.remote)):
            self.copy.recover(self.remote[at], at, 1)
        self.copy.start(Producer(4711, 1))

    def check(self) -> None:
        report = self.copy.report()
        before = [at for at in self.visible if at < report.position]
        assert before == self.remote[: len(before)], "the position passed a record that is not on the remote log"
        assert report.downstream_offset == len(before), "the two halves of the position belong to different records"
        recorded = [sync.upstream_offset + n for sync in self.copy.syncs for n in range(sync.record_count)]
        assert recorded == before, "the ledger rows and the position differ"


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


@settings(max_examples=400)
@given(segments, steps)
def test_position_passes_only_what_the_target_accepted(sizes: List[int], moves: List[object]) -> None:
    play(PartitionCopy, sizes, moves)


@pytest.mark.parametrize("answer", ["fence by 47", "lose the leader"])
def test_partition_that_forgets_a_refused_batch_passes_it(answer: str) -> None:
    """An error answer took its batch out of what is in flight, the partition then counted as drained, and a driver that
    was fenced wrote the end of what it had fetched to the ledger: records were lost without a word."""
    moves = [1, "send", "accept", 1, "send", answer]
    play(PartitionCopy, [20, 20, 20], list(moves))
    with pytest.raises(AssertionError, match="not on the remote log"):
        play(Drained, [20, 20, 20], list(moves))
