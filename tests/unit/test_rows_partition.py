"""A remote partition that rows are written to, driven by hand: read back, fed, answered, reported."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Iterator, List, Optional, Sequence, Set, Tuple
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.errors import RefusedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected
from mirror_lib.kafka.log_reader import Entry, LostTail, entries
from mirror_lib.kafka.producer import Acknowledgement
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.kafka.reencoder import read_records
from mirror_lib.ledger.intervals import Run, Runs
from mirror_lib.ledger.records import PARTITION_STOPPED, Incident
from mirror_lib.replication.lane import Lanes
from mirror_lib.replication.messages import PartitionReport, Stop
from mirror_lib.rows.columns import RowColumns, columns_of
from mirror_lib.rows.origin import Provenance, origin_of
from mirror_lib.rows.partition import LaneReport, LaneTask, Ranges, RowPartition, Written, read_back
from tests.lab.arrow_rows import with_columns
from tests.lab.stops import stop_of
from tests.unit.logs import NOON, LogBatch, Rec, batch_of, fetched, marker, whole
from tests.unit.test_record_rows import Content, rows_of

PRODUCT, LANES = "mirror_lib.rows.partition", "mirror_lib.replication.lane"
SOURCE, OTHER, REMOTE = ("orders", 0), ("orders", 1), ("A.orders", 0)
PROVENANCE = Provenance("A", {"orders": "Qx7f2kLmNo"})
PRODUCER = Producer(7, 1)
TASK = LaneTask(REMOTE, SOURCE, "mirror.A->B.A.orders.0", 100, 1 << 20)
PLACED = replace(TASK, source=None)
RANGES: Ranges = {SOURCE: (10, 20), OTHER: (50, 60)}


def copy(offset: int, partition: int = 0, topic_id: str = "Qx7f2k", cluster: str = "A", topic: str = "orders") -> Rec:
    """A record that some flow wrote to the remote partition."""
    origin = f"{cluster}/{topic}/{partition}/{offset}/{topic_id}"
    return Rec(b"v", headers=(("mirror.origin", origin.encode()),))


def copies(base: int, *offsets: int, partition: int = 0) -> LogBatch:
    return batch_of(base, [copy(offset, partition) for offset in offsets])


def found(log: Sequence[LogBatch], task: LaneTask = TASK, provenance: Provenance = PROVENANCE) -> Written:
    return read_back(entries(fetched(log)), task, provenance, RANGES)


def test_records_before_the_position_are_the_ledgers() -> None:
    """A fetch gives whole batches, so also what lies before the offset that was asked for; even another writer's."""
    log = [batch_of(97, [Rec(b"of another"), copy(8), copy(9), copy(10), copy(11)])]
    assert found(log) == Written({SOURCE: 11}, [Run(10, 100, 2)], 102, 2)
    with pytest.raises(RefusedError):
        found(log, replace(TASK, downstream_offset=97))


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(Rec(b"v"), id="no origin"),
        pytest.param(Rec(b"v", headers=(("mirror.origin", b"?"),)), id="unreadable"),
        pytest.param(copy(12, cluster="eu:A"), id="another mirror"),
        pytest.param(copy(12, topic="payments"), id="another topic"),
        pytest.param(copy(12, partition=1), id="another partition"),
        pytest.param(copy(12, topic_id="zzzzzz"), id="created again"),
    ],
)
def test_record_of_another_writer_is_refused_and_skipped_on_a_shared_topic(record: Rec) -> None:
    log = [copies(100, 10), batch_of(101, [record]), copies(102, 11)]
    with pytest.raises(RefusedError, match=r"the record at offset 101 of A\.orders-0 has "):
        found(log)
    runs = [Run(10, 100, 1), Run(11, 102, 1)]
    assert found(log, replace(TASK, shared=True)) == Written({SOURCE: 11}, runs, 103, 2)


@pytest.mark.parametrize(("there", "now"), [("", "Qx7f2kLmNo"), ("Qx7f2k", ""), ("", "")])
def test_record_of_a_broker_without_topic_ids_is_taken_for_the_flows_own(there: str, now: str) -> None:
    log = [batch_of(100, [copy(10, topic_id=there)])]
    assert found(log, provenance=Provenance("A", {"orders": now} if now else {})).highest == {SOURCE: 10}


class Log(Iterator[Entry]):
    """Stands for `LogEntries`. `start` is where the log begins that was asked for from offset 100 on."""

    def __init__(self, log: Sequence[LogBatch], start: int = 100, lost: bool = False) -> None:
        self.end = log[-1].next if log else start
        self.start, self.expired, self._lost = start, start > 100, lost
        self._entries = entries(fetched(log))

    def begin(self) -> int:
        if self._lost:
            raise LostTail("it ends before")
        return self.start

    def __next__(self) -> Entry:
        self.begin()
        return next(self._entries)


class Driven:
    """A lane, and the records that its log takes, by downstream and upstream offset."""

    def __init__(self, task: LaneTask = TASK, ranges: Ranges = RANGES) -> None:
        self.lane = RowPartition(task, ranges, False)
        self.written: List[Tuple[int, int]] = []

    def take_over(self, log: Log) -> Driven:
        client: Any = None
        self.lane.sequence = 0
        self.lane.fenced()
        ends = patch(f"{PRODUCT}.required_ends", lambda client, remotes: {REMOTE: log.end})
        with ends, patch(f"{PRODUCT}.LogEntries", lambda *given: log):
            self.lane.recover(client, PROVENANCE)
        self.lane.start(PRODUCER)
        return self

    def go_on(self, end: int = 100) -> Driven:
        assert self.lane.continues(end)
        self.lane.start(PRODUCER)
        return self

    def feed(self, *offsets: int, source: TopicPartition = SOURCE, failures: Sequence[Tuple[int, str]] = ()) -> Driven:
        self.lane.take(source, rows(*offsets, source=source), failures)
        return self

    def answer(self, moved: int = 0) -> None:
        """Send one batch, and answer it with an offset that is so far from where it should be."""
        data = whole(self.lane.take_ready())
        base = self.lane._in_flight[-1][1] + moved
        self.written += [(base + at, offset) for at, offset in enumerate(upstream(data))]
        self.lane.acknowledge(Acknowledgement(REMOTE, 0, base, ""))

    def drain(self) -> Driven:
        while self.lane.ready_bytes():
            self.answer()
        return self

    def report(self, broken: bool = False) -> LaneReport:
        return self.lane.lane_report(broken, self.lane.producer)

    @property
    def part(self) -> PartitionReport:
        return self.report().part


def rows(*offsets: int, source: TopicPartition = SOURCE, large: Sequence[int] = ()) -> RowColumns:
    """Those at the offsets `large` have 2000 bytes."""
    contents: List[Content] = [(NOON + at, b"k", bytes(2000 if at in large else 10), ()) for at in offsets]
    made = rows_of([(*source, *REMOTE)] * len(offsets), contents)
    return columns_of(with_columns(made, source_offset=pa.array(offsets, pa.int64())), PROVENANCE)


def upstream(data: bytes) -> List[int]:
    found = [origin_of(bytes(record.body)) for record in read_records(memoryview(data))]
    return [each.offset for each in found if each is not None]


KNOWN = replace(TASK, producer=PRODUCER, sequence=5)


def test_rows_outside_of_the_micro_batch_are_left_out() -> None:
    assert Driven(KNOWN).go_on().feed(8, 9, 10, 19, 20, 21).drain().written == [(100, 10), (101, 19)]


@pytest.mark.parametrize(
    ("log", "end", "fed", "written"),
    [
        pytest.param([marker(100)], 101, (10, 11), [(101, 10), (102, 11)], id="no copy there"),
        pytest.param([copies(100, 8, 9)], 102, (10,), [(102, 10)], id="copies of another micro-batch"),
        pytest.param([copies(100, 10)], 105, (10, 11), [(105, 11)], id="compaction emptied the end"),
        # What a filter that depends on chance took the first time counts: no row comes after a later one's place.
        pytest.param([copies(100, 10, 14)], 102, (10, 11, 15), [(102, 15)], id="filtered out before"),
    ],
)
def test_rows_after_the_last_copy_on_the_log_are_written(
    log: List[LogBatch], end: int, fed: Sequence[int], written: List[Tuple[int, int]]
) -> None:
    there = Log(log)
    there.end = end
    assert Driven().take_over(there).feed(*fed).drain().written == written


def test_log_that_holds_more_than_the_micro_batch_is_looked_at_again_by_the_next_one() -> None:
    log = Log([copies(100, 18, 19, 20, 21)])
    lane = Driven().take_over(log).feed(18, 19).drain()
    report, part = lane.report(), lane.part
    assert (lane.written, report.ahead, part.sequence) == ([], True, None)
    assert (part.position, part.downstream_offset, *Runs(part.syncs)) == (20, 102, (18, 100, 2))
    task = replace(TASK, downstream_offset=part.downstream_offset, producer=report.producer)
    later = Driven(task, ranges={SOURCE: (20, 30)})
    later.take_over(Log([copies(102, 20, 21), marker(104)])).feed(20, 21, 22).drain()
    assert (later.written, later.part.position, later.report().ahead) == ([(105, 22)], 30, False)


def test_lane_of_several_source_partitions_goes_on_behind_the_highest_of_each() -> None:
    log = Log([copies(100, 11), copies(101, 52, partition=1)])
    lane = Driven(PLACED).take_over(log)
    lane.feed(51, 52, 53, source=OTHER).feed(10, 11, 12).drain()
    assert lane.written == [(102, 53), (103, 12)]
    report, part = lane.report(), lane.part
    assert (report.source, part.position, part.downstream_offset, report.part.syncs) == (None, -1, 104, b"")
    assert report.newest == (("orders", 1, NOON + 53), ("orders", 0, NOON + 12))
    # Found and written, of this micro-batch.
    assert (report.part.recovered, part.records) == (2, 2)


def test_records_of_another_micro_batch_do_not_count_for_this_one() -> None:
    log = Log([copies(100, 8, 9, 10), copies(103, 60, partition=1)])
    report = Driven(PLACED).take_over(log).feed(11).drain().report()
    assert (report.part.recovered, report.part.records, report.ahead) == (1, 1, True)


def test_log_that_retention_cut_behind_the_position_is_refused_unless_it_tells_more() -> None:
    lane = Driven().take_over(Log([marker(103)], start=103))
    stopped = lane.part.stopped
    assert stop_of(lane.part).refused and "retention has removed offsets 100 to 102" in str(stopped)
    reported = Driven().take_over(Log([copies(103, 13)], start=103)).feed(12, 13, 14).drain()
    assert (reported.written, reported.part.stopped) == ([(104, 14)], None)
    shared = Driven(replace(TASK, shared=True)).take_over(Log([marker(103)], start=103)).feed(10).drain()
    assert shared.written == [(104, 10)]
    other = Driven(PLACED).take_over(Log([copies(103, 52, partition=1)], start=103))
    assert stop_of(other.part).code == "MIR-315", "a remaining record of one partition proves nothing about another"


def test_log_that_lost_its_tail_stops_the_lane() -> None:
    lane = Driven().take_over(Log([], lost=True)).feed(10).drain()
    part = lane.part
    assert (lane.written, stop_of(part).lost_tail, part.position) == ([], True, 10)


@pytest.mark.parametrize("end", [99, 101])
def test_lane_whose_log_ends_elsewhere_is_left_to_be_fenced(end: int) -> None:
    with pytest.raises(Disconnected, match=rf"A\.orders-0 ends at {end}, not at 100 as was acknowledged"):
        Driven(KNOWN).go_on(end)
    assert Driven(replace(KNOWN, shared=True)).go_on(end).feed(10).drain().written == [(100, 10)]


def test_batch_that_the_target_refuses_stops_the_partition_and_names_its_rows() -> None:
    lane = Driven(KNOWN).go_on().feed(10, 11).feed(12, 13).feed(14)
    lane.answer()
    lane.lane.take_ready()
    lane.lane.take_ready()
    lane.lane.acknowledge(Acknowledgement(REMOTE, 87, -1, "no key"))
    lane.lane.acknowledge(Acknowledgement(REMOTE, 45, -1, ""))  # behind it: out of sequence
    part = lane.part
    assert str(part.stopped).endswith("compacted topic: no key")
    assert (part.position, part.downstream_offset, part.sequence) == (12, 102, None)
    assert (stop_of(part).rejected, stop_of(part).fails) == ((12, 14), False)
    assert lane.feed(15).lane.ready_bytes() == 0 and not lane.lane.busy
    assert [*Runs(part.syncs)] == [(10, 100, 2)]


def test_batch_that_lies_behind_somebody_elses_is_refused_where_nobody_else_may_write() -> None:
    lane = Driven(KNOWN).go_on().feed(10)
    lane.answer(moved=1)
    assert stop_of(lane.part).refused and "was written at 101" in str(lane.part.stopped)
    shared = Driven(replace(KNOWN, shared=True)).go_on().feed(10)
    shared.answer(moved=1)
    assert (shared.part.stopped, shared.part.downstream_offset) == (None, 102)
    assert [*Runs(shared.part.syncs)] == [(10, 101, 1)]


def test_failed_row_stops_a_partition_behind_the_rows_before_it() -> None:
    lane = Driven(KNOWN).go_on().feed(10, 11, 13, 14, failures=[(12, "no number")])
    assert lane.lane.stopped is None  # the rows before it are still to be acknowledged
    lane.drain().feed(15).drain()
    part = lane.part
    assert lane.written == [(100, 10), (101, 11)]
    assert (part.position, part.stopped) == (12, Stop("orders-0 at offset 12: no number", fails=True))
    assert part.incidents == (Incident(PARTITION_STOPPED, "orders", 0, 12, -1, "no number"),)


@pytest.mark.parametrize("pieces", [[[10, 11, 12, 13]], [[10, 11], [12], [13]]])
def test_record_that_is_too_large_stops_the_lane_after_those_before_it(pieces: List[List[int]]) -> None:
    for limit, written in ((1000, [10, 11]), (TASK.max_message_bytes, [10, 11, 12, 13])):
        lane = Driven(replace(KNOWN, max_message_bytes=limit)).go_on()
        for piece in pieces:
            lane.lane.take(SOURCE, rows(*piece, large=[12]), ())
        part = lane.drain().part
        assert [at for _, at in lane.written] == written
        if limit == 1000:
            assert (part.position, stop_of(part).rejected) == (12, (12, 13))
            assert str(part.stopped).startswith("orders-0 at offset 12: ")


def test_rows_that_were_refused_before_go_one_by_one() -> None:
    lane = Driven(replace(KNOWN, isolate_until=12)).go_on().feed(10, 11, 12, 13)
    sizes: List[int] = []
    while lane.lane.ready_bytes():
        before = len(lane.written)
        lane.answer()
        sizes.append(len(lane.written) - before)
    assert sizes == [1, 1, 2] and [at for _, at in lane.written] == [10, 11, 12, 13]


@pytest.mark.parametrize("second", [[11, 12], [12, 12], [10]])
def test_rows_that_come_twice_or_out_of_order_are_refused(second: Sequence[int]) -> None:
    lane = Driven(KNOWN).go_on().feed(10, 11)
    lane.feed(*second)
    part = lane.part
    assert stop_of(part).refused and "more than one record of it for A.orders-0, or out of order" in str(part.stopped)


def fenced_again(lane: RowPartition, end: Optional[int]) -> None:
    """Behind a record at offset 100, where the log then ends at `end`."""
    client: Any = SimpleNamespace(alias="B")

    def recover(those: Sequence[RowPartition]) -> None:
        for each in those:
            each.recover(client, PROVENANCE)

    lanes = Lanes[RowPartition](client, recover, held={lane.lane: PRODUCER}, producers={lane.lane: PRODUCER})
    lanes.partitions.append(lane)
    ends = [{REMOTE: 101}, {} if end is None else {REMOTE: end}]
    refreshed = patch(f"{LANES}.refresh", lambda *given: {TASK.transactional_id: Producer(7, 2)})
    with refreshed, patch(f"{LANES}.log_ends", lambda *given: ends.pop(0)):
        assert lanes.refence() == [lane]
    assert lanes.held == lanes.producers == {lane.lane: Producer(7, 2)}


@pytest.mark.parametrize(
    ("shared", "end", "wanted"),
    [
        pytest.param(False, 102, (0, 102), id="marker"),
        pytest.param(False, 103, (None, 101), id="more than a marker"),
        pytest.param(True, 103, (0, 102), id="records of others"),
    ],
)
def test_next_task_goes_on_behind_the_marker_or_looks(
    shared: bool, end: int, wanted: Tuple[Optional[int], int]
) -> None:
    lane = Driven(replace(KNOWN, shared=shared)).go_on().feed(10).drain()
    fenced_again(lane.lane, end)
    assert (lane.part.sequence, lane.part.downstream_offset) == wanted


@pytest.mark.parametrize("end", [101, None], ids=["marker not shown yet", "end not reported"])
def test_task_whose_marker_nobody_shows_ends_for_the_next_to_look(end: Optional[int]) -> None:
    lane = Driven(KNOWN).go_on().feed(10).drain()
    with pytest.raises(Disconnected):
        fenced_again(lane.lane, end)
    assert lane.report(broken=True).part.sequence is None


@given(
    attempts=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2), st.booleans()), max_size=6),
    gaps=st.sets(st.integers(10, 19), max_size=9),
)
def test_rows_are_there_once_and_in_order_wherever_attempts_are_killed(
    attempts: List[Tuple[int, int, bool]], gaps: Set[int]
) -> None:
    """Each attempt has some batches taken, and dies with one in flight that the log took, or did not."""
    offsets, log = [at for at in range(10, 20) if at not in gaps], [marker(100)]
    for done, cut, lands in [*attempts, (99, 1, False)]:
        lane = Driven().take_over(Log(log))
        for at in range(0, len(offsets), cut + 1):
            lane.feed(*offsets[at : at + cut + 1])
        for _ in range(done):
            if lane.lane.ready_bytes():
                lane.answer()
        landed = list(lane.written)
        if lands and lane.lane.ready_bytes():
            base = landed[-1][0] + 1 if landed else log[-1].next
            landed += [(base + at, each) for at, each in enumerate(upstream(whole(lane.lane.take_ready())))]
        log += [batch_of(at, [copy(each)]) for at, each in landed]
        log.append(marker(log[-1].next))
    records = [record for batch in log if not batch.attributes for record in read_records(batch.raw())]
    origins = [origin_of(bytes(record.body)) for record in records]
    assert [each.offset for each in origins if each is not None] == offsets
    report, part = lane.report(), lane.part
    assert (part.position, part.stopped) == (20, None)
    pairs = {record.offset: each.offset for record, each in zip(records, origins) if each is not None}
    assert {down + n: up + n for up, down, count in Runs(report.part.syncs) for n in range(count)} == pairs
