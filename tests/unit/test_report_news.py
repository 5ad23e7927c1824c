"""A report travels without the partitions that stand as planned, and the driver has all of them again."""

from __future__ import annotations

from dataclasses import replace

from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.replication.messages import (
    NO_END,
    PartitionTask,
    TaskPlan,
    nothing_copied,
    only_news,
    with_unmoved,
)
from mirror_lib.replication.partition import PartitionCopy

SEQUENCE = 7


def task(number: int) -> PartitionTask:
    return PartitionTask("orders", "A.orders", number, "", "", 1_000_000, 100, 90, NO_END, SEQUENCE)


def fetched(end: int) -> Fetched:
    return Fetched(error_code=0, end=end, log_start=0, aborted=(), data=b"")


def test_only_partitions_with_news_travel_and_the_driver_has_all_again() -> None:
    tasks = [task(number) for number in range(6)]
    plan = TaskPlan(0, "A->B", {}, {}, tuple(tasks), "A", "B", {}, {}, tails=True)
    idle, behind, silent, fenced, stopped, unknown = copies = [PartitionCopy(each) for each in tasks]
    for each in copies:
        each.start(Producer(1, 0))
    for each in (idle, fenced, stopped, unknown):
        each.take(100, False, fetched(100))
    behind.take(100, False, fetched(120))
    fenced.sequence = 0
    stopped.stop("refused", 100)
    parts = (*(each.report() for each in (idle, behind, silent, fenced, stopped)), unknown.report(known=False))
    report = replace(nothing_copied(0), partitions=parts)
    sent = only_news(report, plan)
    assert [part.partition for part in sent.partitions] == [1, 2, 3, 4, 5]
    again = with_unmoved(sent, plan)
    assert sorted(again.partitions, key=lambda part: part.partition) == list(parts)
