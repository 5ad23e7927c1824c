"""A refused record stops its partition, or is left out alone and written down; what lies next to it is copied."""

from __future__ import annotations

from dataclasses import replace

from mirror_lib.ledger.records import Incident, PartitionKey
from mirror_lib.replication.messages import PartitionReport
from mirror_lib.replication.rejections import Rejections

KEY = PartitionKey("s", "r", "orders", 0)
STOP = Incident("partition stopped", "orders", 0, 10, 30, "too large")


def part(position: int = 10, rejected_from: int = 10, rejected_until: int = 30) -> PartitionReport:
    return PartitionReport(
        topic="orders",
        remote_topic="A.orders",
        partition=0,
        position=position,
        downstream_offset=5,
        sequence=0,
        last_timestamp=-1,
        stopped="orders-0 at offset 10: too large",
        rejected_from=rejected_from,
        rejected_until=rejected_until,
        incidents=(STOP,),
    )


def stopped_for_another_reason() -> PartitionReport:
    return PartitionReport(
        topic="orders",
        remote_topic="A.orders",
        partition=0,
        position=10,
        downstream_offset=5,
        sequence=0,
        last_timestamp=-1,
        stopped="orders-0 at offset 10: cannot fetch",
        incidents=(STOP,),
    )


def test_refused_batch_stops_its_partition_and_is_told_once() -> None:
    rejections = Rejections(skips=False)
    assert not rejections.continues(part())
    assert rejections.position(KEY, part()) == 10
    assert rejections.incidents(KEY, part()) == [STOP]
    assert rejections.after({KEY: part()}).incidents(KEY, part()) == []


def test_partition_that_stops_again_later_is_told_again() -> None:
    rejections = Rejections(skips=False)
    rejections = rejections.after({KEY: part()})
    assert rejections.incidents(KEY, part(position=20)) == [STOP]


def test_refused_batch_is_sent_again_one_record_at_a_time_before_any_is_skipped() -> None:
    rejections = Rejections(skips=True)
    assert rejections.isolate_until(KEY) == -1
    assert rejections.position(KEY, part()) == 10
    assert rejections.incidents(KEY, part()) == []
    assert rejections.continues(part())
    assert rejections.after({KEY: part()}).isolate_until(KEY) == 30


def test_only_the_refused_record_is_skipped_and_written_down() -> None:
    rejections = Rejections(skips=True).after({KEY: part()})
    alone = part(position=17, rejected_from=17, rejected_until=18)
    assert rejections.position(KEY, alone) == 18
    [incident] = rejections.incidents(KEY, alone)
    assert (incident.kind, incident.from_offset, incident.until_offset) == ("offsets skipped", 17, 18)
    assert rejections.continues(alone)
    assert rejections.after({KEY: alone}).isolate_until(KEY) == 30


def test_rows_that_were_left_out_before_a_skipped_record_are_told_with_it() -> None:
    rejections = Rejections(skips=True).after({KEY: part()})
    row = Incident("offsets skipped", "orders", 0, 12, 13, "no number")
    alone = replace(part(position=17, rejected_from=17, rejected_until=18), incidents=(row, STOP))
    assert [each.from_offset for each in rejections.incidents(KEY, alone)] == [12, 17]


def test_other_partitions_are_not_slowed_down() -> None:
    rejections = Rejections(skips=True).after({KEY: part()})
    assert rejections.isolate_until(PartitionKey("s", "r", "orders", 1)) == -1


def test_what_is_no_refusal_of_a_record_is_never_skipped() -> None:
    rejections = Rejections(skips=True)
    assert not rejections.continues(stopped_for_another_reason())
    assert rejections.position(KEY, stopped_for_another_reason()) == 10
    assert rejections.incidents(KEY, stopped_for_another_reason()) == [STOP]
