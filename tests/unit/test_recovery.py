"""What an interrupted attempt left is looked for up to where the remote log's leader says that it ends."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, List, Optional, Sequence, Tuple, cast

import pytest
from kafka.protocol.consumer import ListOffsetsRequest

from mirror_lib.errors import ClusterError
from mirror_lib.kafka.connection import Disconnected, LogClient
from mirror_lib.kafka.fetcher import READ_COMMITTED
from mirror_lib.ledger.intervals import Run
from mirror_lib.replication.partition import PartitionCopy
from mirror_lib.replication.recovery import Recovery
from tests.lab.stops import stop_of
from tests.unit.leader import part_answer
from tests.unit.logs import NOON, LogBatch, Rec, batch_of, marker, task_of
from tests.unit.test_reconcile import cleaned, interrupted

TOPIC_AUTHORIZATION_FAILED = 29
RECORDS = [Rec(b"%d" % number) for number in range(20)]
WRITTEN = [batch_of(0, RECORDS), marker(20)]


class Broker:
    """Has one partition: reads show `batches`, while the leader reports that it ends at `reported`. It answers a read
    after what it shows with `error_code`."""

    alias = "B"
    error_code = 0

    def __init__(self, batches: Sequence[LogBatch], reported: List[int]) -> None:
        self.batches, self.reported = list(batches), reported

    def leader(self, partition: object) -> int:
        return 1

    def calls(self, requests: Sequence[Tuple[int, Any]]) -> List[Any]:
        return [self.call(node, request) for node, request in requests]

    exchange = calls

    def call(self, node: int, request: Any) -> Any:
        (topic,) = request.topics
        if isinstance(request, ListOffsetsRequest):
            if topic.partitions[0].timestamp != -1:
                return SimpleNamespace(version=5)
            parts = [SimpleNamespace(partition_index=0, error_code=0, offset=end) for end in self.reported]
            return SimpleNamespace(topics=[SimpleNamespace(name=topic.name, partitions=parts)])
        at, shown = topic.partitions[0].fetch_offset, self.batches[-1].next if self.batches else 0
        end = self.reported[0] if self.error_code else shown
        records = b"".join(batch.raw() for batch in self.batches if batch.next > at)
        part = part_answer(0, end, records, error_code=self.error_code if at >= shown else 0)
        topics = [SimpleNamespace(topic=topic.topic, topic_id=None, partitions=[part])]
        return SimpleNamespace(throttle_time_ms=0, responses=topics)


def fresh(end: int = 20) -> PartitionCopy:
    return PartitionCopy(task_of(end=end, sequence=None))


@pytest.mark.parametrize("shown", [[], WRITTEN[:1]], ids=["nothing of it", "a part of it"])
def test_remote_log_that_shows_less_than_its_leader_tells_is_looked_at_again(shown: List[LogBatch]) -> None:
    remote, copy = Broker(shown, [21]), fresh()
    with pytest.raises(Disconnected, match="its leader reports 21"):
        recovered(copy, remote)
    assert copy.stopped is None
    remote.batches = WRITTEN
    recovered(copy, remote)
    assert list(copy.syncs) == [Run(0, 0, 20)]
    assert (copy.acknowledged, copy.downstream) == (20, 21)


def test_remote_log_of_which_no_leader_tells_the_end_is_looked_at_again() -> None:
    with pytest.raises(Disconnected, match=r"A\.orders-0 does not tell the end of its log"):
        recovered(fresh(), Broker(WRITTEN, []))


def test_remote_log_to_which_others_append_meanwhile_is_looked_at_once() -> None:
    copy = recovered(fresh(), Broker(WRITTEN, [3]))
    assert (copy.stopped, copy.acknowledged, copy.downstream) == (None, 20, 21)


def doubtful() -> Tuple[Broker, Broker]:
    """A record and its tombstone were copied; then the source was cleaned to a later record that equals the first: only
    the tombstone shows that another record was there."""
    again = Rec(b"a", b"2", NOON)
    later = [again, Rec(b"z", b"3", NOON), Rec(b"y", b"1", NOON), Rec(b"w", b"3", NOON)]
    case = interrupted([batch_of(0, [again, again._replace(value=None)]), batch_of(2, later)], 0, 2, limit=80)
    assert case.pairs == {0: 0, 1: 1}
    source = cleaned(case.source, 6, False)
    assert [offset for batch in source for offset, _ in batch.records] == [2, 4, 5]
    return Broker(source, [6]), Broker(case.remote, [case.remote[-1].next])


def recovered(copy: PartitionCopy, remote: Broker, source: Optional[Broker] = None) -> PartitionCopy:
    clients = cast(LogClient, source or Broker([batch_of(0, RECORDS)], [20])), cast(LogClient, remote)
    Recovery(*clients, READ_COMMITTED, "fail").recover([copy], lambda _: None)
    return copy


def test_what_was_equal_before_a_refusal_does_not_count_so_that_the_next_start_refuses_it_again() -> None:
    source, remote = doubtful()
    copy = fresh(6)
    whole, remote.batches = remote.batches, remote.batches[:1]
    # What was equal before a connection broke, or before Read was revoked, is compared again with the rest.
    for remote.error_code, error in ((0, Disconnected), (TOPIC_AUTHORIZATION_FAILED, ClusterError)):
        with pytest.raises(error):
            recovered(copy, remote, source)
        assert (copy.acknowledged, copy.downstream, len(copy.syncs), copy.incidents) == (0, 0, 0, [])
    remote.batches, remote.error_code = whole, 0
    recovered(copy, remote, source)
    assert stop_of(copy).refused and "equals one of the source, and compaction removed" in str(copy.stopped)
    assert (copy.acknowledged, copy.downstream, len(copy.syncs)) == (0, 0, 0)
    # The control: a position after the equal ones shows no doubt.
    later = PartitionCopy(replace(task_of(end=6, sequence=None), upstream_offset=3, downstream_offset=1))
    recovered(later, remote, source)
    assert later.stopped is None and later.acknowledged == 4
