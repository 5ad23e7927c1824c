"""One partition: acknowledged records count; a refused or foreign record stops it, and is reported once."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

import pytest

from mirror_lib.copy_job import way_out
from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.producer import Acknowledgement
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.records import Incident
from mirror_lib.replication.flow_state import PartitionState
from mirror_lib.replication.messages import NO_END, PartitionReport, Stop
from mirror_lib.replication.partition import PartitionCopy
from tests.lab.stops import stop_of
from tests.unit.logs import Rec, batch_of, fetched, task_of

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


STOP = Incident("partition stopped", "orders", 0, 10, 30, "too large")
AT_10 = PartitionReport("orders", "A.orders", 0, 10, 5, 0, -1, incidents=(STOP,))
UNREADABLE = replace(AT_10, stopped=Stop("orders-0 at offset 10: cannot fetch"))


def part(position: int = 10, rejected: Tuple[int, int] = (10, 30)) -> PartitionReport:
    return replace(AT_10, position=position, stopped=Stop("orders-0 at offset 10: too large", rejected=rejected))


def after(*parts: PartitionReport, skips: bool) -> PartitionState:
    state = PartitionState()
    for each in parts:
        state = state.after(each, 1, skips)
    return state


ALONE = part(position=17, rejected=(17, 18))


def test_refused_batch_stops_its_partition_and_is_reported_once() -> None:
    stopped = after(part(), skips=False)
    assert (stopped.stop, stopped.at.upstream_offset) == (part().stopped, 10)
    assert PartitionState().incidents(part(), False) == [STOP]
    assert stopped.incidents(part(), False) == []
    assert stopped.incidents(part(position=20), False) == [STOP]


def test_refused_batch_is_sent_again_one_record_at_a_time_and_only_the_refused_one_is_skipped() -> None:
    assert PartitionState().isolate_until == -1
    assert PartitionState().incidents(part(), True) == []
    again, skipped = after(part(), skips=True), after(part(), ALONE, skips=True)
    assert (again.at.upstream_offset, again.stop, again.isolate_until) == (10, None, 30)
    assert (skipped.at.upstream_offset, skipped.stop, skipped.isolate_until) == (18, None, 30)
    [incident] = again.incidents(ALONE, True)
    assert (incident.kind, incident.from_offset, incident.until_offset) == ("offsets skipped", 17, 18)
    row = Incident("offsets skipped", "orders", 0, 12, 13, "no number")
    both = again.incidents(replace(ALONE, incidents=(row, STOP)), True)
    assert [each.from_offset for each in both] == [12, 17]


def test_what_is_no_refusal_of_a_record_is_never_skipped() -> None:
    stopped = after(UNREADABLE, skips=True)
    assert (stopped.stop, stopped.at.upstream_offset) == (UNREADABLE.stopped, 10)
    assert PartitionState().incidents(UNREADABLE, True) == [STOP]


def test_partition_that_stopped_at_a_record_that_cannot_be_changed_names_what_to_do() -> None:
    """The dead-letter topic takes no record that the target refused."""
    refused = Stop("sales-0 at offset 10: too large")
    failed = Stop("sales-0 at offset 10: where cannot be computed: x > 1", fails=True)
    reported = way_out([refused, failed])
    assert reported is not None and "dead.letter.topic" in reported and "on.error: skip" in reported
    assert way_out([refused]) is None
