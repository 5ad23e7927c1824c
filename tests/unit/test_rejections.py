"""A refused record stops its partition, or is left out alone and written down; what lies next to it is copied."""

from __future__ import annotations

from dataclasses import replace

from mirror_lib.ledger.records import Incident
from mirror_lib.replication.flow_state import PartitionState
from mirror_lib.replication.messages import PartitionReport, Stop

STOP = Incident("partition stopped", "orders", 0, 10, 30, "too large")


AT_10 = PartitionReport("orders", "A.orders", 0, 10, 5, 0, -1, incidents=(STOP,))
UNREADABLE = replace(AT_10, stopped=Stop("orders-0 at offset 10: cannot fetch"))


def part(position: int = 10, rejected_from: int = 10, rejected_until: int = 30) -> PartitionReport:
    stop = Stop("orders-0 at offset 10: too large", rejected=(rejected_from, rejected_until))
    return replace(AT_10, position=position, stopped=stop)


def after(*parts: PartitionReport, skips: bool) -> PartitionState:
    state = PartitionState()
    for each in parts:
        state = state.after(each, 1, skips)
    return state


def upstream(state: PartitionState) -> int:
    return state.at.upstream_offset


def test_refused_batch_stops_its_partition_and_is_reported_once() -> None:
    stopped = after(part(), skips=False)
    assert stopped.stop == part().stopped and upstream(stopped) == 10
    assert PartitionState().incidents(part(), False) == [STOP]
    assert stopped.incidents(part(), False) == []


def test_partition_that_stops_again_later_is_reported_again() -> None:
    assert after(part(), skips=False).incidents(part(position=20), False) == [STOP]


def test_refused_batch_is_sent_again_one_record_at_a_time_before_any_is_skipped() -> None:
    assert PartitionState().isolate_until == -1
    assert PartitionState().incidents(part(), True) == []
    again = after(part(), skips=True)
    assert (upstream(again), again.stop, again.isolate_until) == (10, None, 30)


def test_only_the_refused_record_is_skipped_and_written_down() -> None:
    alone = part(position=17, rejected_from=17, rejected_until=18)
    [incident] = after(part(), skips=True).incidents(alone, True)
    assert (incident.kind, incident.from_offset, incident.until_offset) == ("offsets skipped", 17, 18)
    skipped = after(part(), alone, skips=True)
    assert (upstream(skipped), skipped.stop, skipped.isolate_until) == (18, None, 30)


def test_rows_that_were_skipped_before_a_refused_record_are_reported_with_it() -> None:
    row = Incident("offsets skipped", "orders", 0, 12, 13, "no number")
    alone = replace(part(position=17, rejected_from=17, rejected_until=18), incidents=(row, STOP))
    assert [each.from_offset for each in after(part(), skips=True).incidents(alone, True)] == [12, 17]


def test_what_is_no_refusal_of_a_record_is_never_skipped() -> None:
    stopped = after(UNREADABLE, skips=True)
    assert stopped.stop == UNREADABLE.stopped and upstream(stopped) == 10
    assert PartitionState().incidents(UNREADABLE, True) == [STOP]
