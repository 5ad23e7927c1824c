"""Lanes on real brokers, mostly without Spark: logs full of gaps, sources that expire, remote topics with several
writers, many partitions, quotas, tiered storage. A lane that goes by another transactional id gets another producer id
from the target, as one does whose transactional id the target has forgotten after `transactional.id.expiration.ms`."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, FrozenSet, Iterator, List, Tuple

import pytest
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest

from mirror_lib.kafka.connection import LogClient, Network
from mirror_lib.kafka.fetcher import LAST_EPOCH, SESSION_FROM_PARTITIONS, Asked, FetchSession
from mirror_lib.ledger.intervals import Runs
from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskPlan, TaskReport
from tests.integration.conftest import Names
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.java_class import AT_ONCE, SlowStore, first_local_offset
from tests.lab.one_flow import NewFlow, OneFlow, until
from tests.lab.one_lane import next_plan, task_plans
from tests.lab.readers import differences, lies, read_topic
from tests.lab.stops import stop_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


# --- logs with a gap after each record: a pass ends when it has enough of them to tell; nothing is lost ------------

TRANSACTIONS, FEW = 300, 40
END = 2 * TRANSACTIONS  # each record has a marker behind it
# A pass writes what it has fetched, so what there is must be more than it fetches at once.
VALUE = b"v" * 100_000


@pytest.fixture
def gaps(new_flow: NewFlow) -> OneFlow:
    flow = new_flow("gaps", remote=True)
    producer = flow.source.producer(transactional_id=flow.topic, linger_ms=0)
    producer.init_transactions(30)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        producer.produce(flow.topic, b"%d " % number + VALUE, partition=0)
        producer.commit_transaction(30)
    return flow


def passes_of(flow: OneFlow, most_syncs: int) -> List[TaskReport]:
    """The passes of a driver without a ledger, until all is done: of the partition with all records."""
    (plan,) = task_plans(flow)
    (task,) = (task for task in plan.tasks if task.partition == 0)
    plan = replace(plan, tasks=(replace(task, end=END),), most_syncs=most_syncs)
    passes: List[TaskReport] = []
    while not passes or passes[-1].partitions[0].position < END:
        passes.append(copy_lanes(plan, 0))
        assert passes[-1].records or passes[-1].recovered, passes[-1]
        plan = next_plan(plan, passes[-1], END)
    return passes


@pytest.mark.parametrize("most", [FEW, TRANSACTIONS + 1], ids=["few", "unbounded"])
def test_passes_end_early_and_are_an_exact_copy_together_and_a_driver_without_a_ledger_finds_it_all(
    gaps: OneFlow, most: int
) -> None:
    passes = passes_of(gaps, most)
    syncs = [[(part.partition, *run) for part in each.partitions for run in Runs(part.syncs)] for each in passes]
    assert (len(passes) > 1) == (most == FEW) and all(most <= len(each) < TRANSACTIONS for each in syncs[:-1])
    assert sum(report.records for report in passes) == TRANSACTIONS
    first, *rest = passes_of(gaps, most)
    assert (first.recovered, first.records, rest) == (TRANSACTIONS, 0, [])
    found = [(part.partition, *run) for part in first.partitions for run in Runs(part.syncs)]
    source, remote = read_topic(gaps.source, gaps.topic, "read_committed"), read_topic(gaps.target, gaps.remote_topic)
    assert differences(source, remote) == []
    for rows in ([row for each in syncs for row in each], found):
        assert len(rows) == len(source[0]) == TRANSACTIONS and lies(rows, source, remote) == []


# --- the source's log starts after the ledger's position, and a killed lane wrote what it could not report ---------

COPIED, ALL = 200, 300


@pytest.fixture
def expires(new_flow: NewFlow) -> OneFlow:
    """Of one partition; a lane copied the first records and did not report them."""
    flow = new_flow("expires", partitions=1, records=COPIED, remote=True)
    copy_lanes(task_plans(flow)[0], 0)
    flow.fill(ALL - COPIED)
    return flow


def values(flow: OneFlow, remote: bool = False) -> List[object]:
    broker, topic = (flow.target, flow.remote_topic) if remote else (flow.source, flow.topic)
    return [record.value for record in read_topic(broker, topic)[0].values()]


def test_nothing_is_lost_where_all_that_expired_was_copied(expires: OneFlow) -> None:
    everything = values(expires)
    expires.source.expire(expires.topic, {0: COPIED - 70})
    report = copy_lanes(task_plans(expires)[0], 1)
    assert (report.recovered, report.records) == (COPIED, ALL - COPIED)
    assert report.partitions[0].stopped is None and not report.partitions[0].incidents
    assert values(expires, remote=True) == everything


def test_what_was_not_copied_is_refused_or_reported_before_anything_after_it_is_copied(expires: OneFlow) -> None:
    expires.source.expire(expires.topic, {0: COPIED + 50})
    (plan,) = task_plans(expires)
    (part,) = copy_lanes(plan, 1).partitions
    assert stop_of(part).refused and expires.copies() == COPIED
    assert "offsets 200 to 249 left the source's log before they were copied" in str(part.stopped)
    going_on = replace(plan, on_data_loss="continue")
    report = copy_lanes(going_on, 1)
    (part,) = report.partitions
    assert part.stopped is None and report.records == 0 and expires.copies() == COPIED
    [lost] = part.incidents
    assert (lost.kind, lost.from_offset, lost.until_offset) == ("data lost", COPIED, COPIED + 50)
    assert part.position == COPIED + 50
    after = copy_lanes(next_plan(going_on, report, expires.written), 0)
    assert after.records == ALL - COPIED - 50
    assert values(expires, remote=True)[COPIED:] == values(expires)


# --- remote topics with several writers: a flow knows its own batches by producer ids, also those of its earlier runs

RECORDS = 300
Ids = Dict[int, FrozenSet[int]]


@pytest.fixture
def shared(new_flow: NewFlow) -> OneFlow:
    return new_flow("shared", records=RECORDS, remote=True)


def first_plan(flow: OneFlow, exactly_once: bool = True) -> TaskPlan:
    (plan,) = task_plans(flow, exactly_once=exactly_once)
    return replace(plan, tasks=tuple(replace(task, shared=True) for task in plan.tasks), known_ids={})


def forgotten(plan: TaskPlan) -> TaskPlan:
    names = {lane: f"{name}.second" for lane, name in plan.transactional_ids.items()}
    return replace(plan, transactional_ids=names, producers={})


def ids(report: TaskReport) -> Ids:
    return {lane: frozenset([producer.producer_id]) for lane, producer in report.producers.items()}


def dead_life(flow: OneFlow, exactly_once: bool = True) -> Ids:
    """Copies everything and reports nothing; only the ids of its lanes are known afterwards."""
    plan = first_plan(flow, exactly_once)
    begun = copy_lanes(plan, 0)
    assert begun.records == 0 and flow.copies() == 0
    done = copy_lanes(replace(next_plan(plan, begun, flow.written), known_ids=ids(begun)), 0)
    assert done.records == flow.copies() == RECORDS * flow.partitions
    return ids(begun)


@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly-once", "at-least-once"])
def test_records_of_a_dead_life_are_found_where_the_lane_has_another_producer_id(
    shared: OneFlow, exactly_once: bool
) -> None:
    known = dead_life(shared, exactly_once)
    plan = replace(forgotten(first_plan(shared, exactly_once)), known_ids=known)
    found = copy_lanes(plan, 0)
    assert not any(own & known[lane] for lane, own in ids(found).items())
    assert found.recovered == RECORDS * shared.partitions
    both = {lane: known[lane] | own for lane, own in ids(found).items()}
    shared.fill(50)
    copy_lanes(replace(next_plan(plan, found, shared.written), known_ids=both), 0)
    assert shared.differences() == []


def test_records_of_a_dead_life_whose_ids_are_not_known_would_be_doubled(shared: OneFlow) -> None:
    """The negative control of the test above."""
    dead_life(shared)
    plan = forgotten(first_plan(shared))
    begun = copy_lanes(plan, 0)
    assert begun.recovered == 0
    copy_lanes(replace(next_plan(plan, begun, shared.written), known_ids=ids(begun)), 0)
    assert shared.copies() == 2 * RECORDS * shared.partitions


# --- many partitions ---------------------------------------------------------------------------------------------


def test_after_its_last_epoch_a_session_goes_on_with_the_first() -> None:
    session, wanted = FetchSession(), {("orders", number): 0 for number in range(SESSION_FROM_PARTITIONS)}
    assert session.answered(session.ask(wanted, wanted), 0, session_id=7)
    assert session.answered(session.ask(wanted, wanted)._replace(epoch=LAST_EPOCH), 0, session_id=7)
    assert session.ask(wanted, wanted) == Asked(7, 1, {}, ())


def test_a_lane_of_many_partitions_copies_them_all_and_goes_on(new_flow: NewFlow) -> None:
    """Within a session of fetches, in which a request names only what is new."""
    flow = new_flow("many", partitions=2 * SESSION_FROM_PARTITIONS, records=20, remote=True)
    (plan,) = task_plans(flow)
    report = copy_lanes(plan, 0)
    flow.fill(10)
    again = copy_lanes(next_plan(plan, report, flow.written), 0)
    assert (report.records, again.records) == (flow.partitions * 20, flow.partitions * 10)
    assert flow.differences() == []


# --- quotas ------------------------------------------------------------------------------------------------------


# A lane is fenced when it starts, which takes two epochs, and behind its records, which are old.
ONE_LIFE = 2


def set_quota(broker: KafkaBroker, client_id: str, key: str, value: float) -> None:
    """Give the client id this quota (KIP-546)."""
    entry = AlterClientQuotasRequest.EntryData
    entity = entry.EntityData(entity_type="client-id", entity_name=client_id)
    change = entry.OpData(key=key, value=value, remove=False)
    request = AlterClientQuotasRequest(entries=[entry(entity=[entity], ops=[change])], validate_only=False)
    client = LogClient(Network(), broker.name, {"bootstrap_servers": broker.bootstrap})
    client.connect(time.monotonic() + 30)
    assert [each.error_code for each in client.call(None, request).entries] == [0]
    client.close()


@pytest.mark.parametrize("side", ["source", "target"])
def test_lane_waits_for_a_cluster_that_throttles_it_is_not_fenced_again_and_takes_empty_answers_for_no_gaps(
    new_flow: NewFlow, side: str
) -> None:
    """1.0 MB. The lab's brokers measure over two seconds at least, so a third is more than they take or give at once:
    they put the lane off again and again until three seconds have passed."""
    flow = new_flow("throttled", partitions=1, records=9000, remote=True)
    (plan,) = task_plans(flow)
    name, rate = {"client_id": flow.topic}, "consumer_byte_rate" if side == "source" else "producer_byte_rate"
    source, target = {**plan.source_options, **name}, {**plan.target_options, **name}
    set_quota(getattr(flow, side), flow.topic, rate, 320_000.0)
    report = copy_lanes(replace(plan, source_options=source, target_options=target), 0)
    assert getattr(report, f"{side}_throttled_seconds") > 0
    assert {producer.epoch for producer in report.producers.values()} == {ONE_LIFE}
    assert flow.differences() == []


# --- tiered storage (KIP-405), which at times gives nothing: brokers then answer as if none were there ----------------

# Three empty answers used to be enough, one for a remote log. A broker gives each after half a second.
SLOW_SECONDS = 4.0

Clusters = Tuple[KafkaBroker, KafkaBroker, SlowStore]


@dataclass
class TieredFlow(OneFlow):
    """A flow of one partition whose topics are made by the tests."""

    def __post_init__(self) -> None:
        self.partitions = 1

    def tiered(self, broker: KafkaBroker, topic: str, fill: Callable[[], None]) -> None:
        """Fill three segments of a topic, and wait until the broker has handed the first two to the storage."""
        broker.create_topic(topic, 1, **AT_ONCE)
        for _ in range(3):
            fill()
            time.sleep(1.1)  # the next record then begins a segment
        fill()
        until(lambda: first_local_offset(broker, topic) >= self.written // 2)


@pytest.fixture(scope="module")
def tiered_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    folder = tmp_path_factory.mktemp("tiered")
    store = SlowStore(folder / "store").compiled()
    with clusters(["source", "target"], folder, store.broker_properties()) as (source, target):
        yield source, target, store


def test_what_a_killed_life_wrote_is_found_though_tiered_storage_does_not_give_it_yet(
    tiered_clusters: Clusters, topic_name: Names, tmp_path: Path
) -> None:
    source, target, store = tiered_clusters
    flow = TieredFlow(source, target, topic_name("written"), tmp_path)
    source.create_topic(flow.topic, 1, retention_ms="-1")

    def copy_and_tell_nobody() -> None:
        flow.fill(500)
        (plan,) = task_plans(flow)
        copy_lanes(plan, 0)

    flow.tiered(target, flow.remote_topic, copy_and_tell_nobody)
    before = flow.written
    flow.fill(5)
    (plan,) = task_plans(flow)
    with store.slow(SLOW_SECONDS):
        report = copy_lanes(plan, 0)
    assert (report.recovered, report.records) == (before, 5)
    assert not differences(read_topic(source, flow.topic), read_topic(target, flow.remote_topic))


def test_topic_in_tiered_storage_is_copied_to_a_cluster_without_it(
    tiered_clusters: Clusters, target_cluster: KafkaBroker, topic_name: Names, tmp_path: Path,
    spark: SparkSession,
) -> None:  # fmt: skip
    source, _, _ = tiered_clusters
    flow = TieredFlow(source, target_cluster, topic_name("tiers"), tmp_path)
    flow.tiered(source, flow.topic, lambda: flow.fill(100))
    flow.settings["sync.topic.configs.enabled"] = "true"
    for _ in range(2):
        outcome = flow.run(spark)
        assert outcome.error is None, outcome.error
    flow.assert_exact(spark)
