"""Verify on real brokers: an equal copy is green, each planted difference red, with its kind and both offsets.

Both logs are filled by hand and the ledger gets what a copier would have reported, so no code that copies takes part.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.record_change import KEY, RecordChange
from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import TopicDescription
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow
from mirror_lib.text import as_json
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.flow import FlowComparison
from mirror_lib.verify.ranges import EVERYTHING, Scope
from mirror_lib.verify.verdicts import TopicVerdict, VerifyReport, report_lines
from tests.lab.brokers import KafkaBroker
from tests.lab.murmur2 import partition_of_key

pytestmark = pytest.mark.usefixtures("compiled_statements")

Header = Tuple[str, Optional[bytes]]
Run = Tuple[int, int, int]


@dataclass(frozen=True)
class Rec:
    """One record to write."""

    value: Optional[bytes]
    key: Optional[bytes] = b"k"
    headers: Tuple[Header, ...] = (("h", b"1"),)
    timestamp: int = 1_700_000_000_000


def numbered(count: int = 10, prefix: str = "v") -> List[Rec]:
    return [Rec(f"{prefix}{n}".encode(), f"k{n}".encode(), timestamp=1_700_000_000_000 + n) for n in range(count)]


TEN = numbered()
HARD = [
    Rec(b"", b""),
    Rec(None, None, ()),
    Rec(b"", None, (("", b""), ("h", None), ("h", b""), ("h", b"2"), ("h", b"1"))),
    Rec(b"x" * 50_000, b"k", (("n\u00e4me", b"\x00\xff"),), 0),
    Rec(b"\x00", b"\xff", (), -1),
    Rec(b"old", b"k", (), -5_000_000_000),
    Rec(b"future", b"k", (), 4_102_444_800_000),
]


@dataclass(frozen=True)
class Case:
    """A topic of both clusters. `runs` of partition 0; partition 1, if filled, is said to be copied in order.

    The difference expected in partition 0: kind and both offsets; nothing where the copy is equal.
    """

    source: Sequence[Rec]
    remote: Sequence[Rec]
    runs: Sequence[Run] = ((0, 0, 10),)
    expected: Optional[Tuple[str, Optional[int], Optional[int]]] = None
    other_source: Sequence[Rec] = ()
    other_remote: Sequence[Rec] = ()
    other_expected: Optional[Tuple[str, Optional[int], Optional[int]]] = None


def with_nth(n: int, **changes: object) -> List[Rec]:
    return [*TEN[:n], replace(TEN[n], **changes), *TEN[n + 1 :]]  # type: ignore[arg-type]


LONG = numbered(12, "p")
CASES: Mapping[str, Case] = {
    "equal": Case(TEN, TEN),
    "equal-hard": Case(HARD, HARD, [(0, 0, len(HARD))]),
    "equal-in-runs": Case(TEN, TEN, [(4, 4, 6), (0, 0, 4)]),
    "equal-partitions": Case(TEN, TEN, other_source=LONG, other_remote=LONG),
    "equal-empty": Case([], [], []),
    "partly-copied": Case(TEN, TEN[:6], [(0, 0, 6)]),
    "ahead-of-ledger": Case(TEN, TEN[:8], [(0, 0, 6)]),
    "never-in-ledger": Case(TEN, TEN[:3], []),
    "lost": Case(TEN, [*TEN[:4], *TEN[5:]], expected=("lost", 4, 4)),
    "lost-first": Case(TEN, TEN[1:], [(1, 0, 9)], ("lost", 0, None)),
    "lost-last": Case(TEN, TEN[:9], expected=("lost", 9, 9)),
    "lost-between-runs": Case(TEN, [*TEN[:4], *TEN[5:]], [(0, 0, 4), (5, 4, 5)], ("lost", 4, None)),
    "doubled": Case(TEN, [*TEN[:5], TEN[4], *TEN[5:]], expected=("doubled", 5, 5)),
    "doubled-last": Case(TEN, [*TEN, TEN[9]], expected=("doubled", None, 10)),
    "doubled-between-runs": Case(TEN, [*TEN[:5], TEN[4], *TEN[5:]], [(0, 0, 5), (5, 6, 5)], ("doubled", None, 5)),
    "doubled-first": Case(TEN, [TEN[0], *TEN], expected=("doubled", 1, 1)),
    "swapped": Case(TEN, [*TEN[:3], TEN[4], TEN[3], *TEN[5:]], expected=("swapped", 3, 3)),
    "swapped-far": Case(TEN, [TEN[9], *TEN[1:9], TEN[0]], expected=("swapped", 0, 0)),
    "key": Case(TEN, with_nth(2, key=b"other"), expected=("changed key", 2, 2)),
    "value": Case(TEN, with_nth(2, value=b"other"), expected=("changed value", 2, 2)),
    "header-value": Case(TEN, with_nth(2, headers=(("h", b"2"),)), expected=("changed headers", 2, 2)),
    "header-name": Case(TEN, with_nth(2, headers=(("g", b"1"),)), expected=("changed headers", 2, 2)),
    "header-null": Case(
        with_nth(2, headers=(("h", None),)), with_nth(2, headers=(("h", b""),)), expected=("changed headers", 2, 2)
    ),
    "header-lost": Case(TEN, with_nth(2, headers=()), expected=("changed headers", 2, 2)),
    "header-order": Case(
        with_nth(2, headers=(("h", b"1"), ("h", b"2"))),
        with_nth(2, headers=(("h", b"2"), ("h", b"1"))),
        expected=("changed headers", 2, 2),
    ),
    "timestamp": Case(TEN, with_nth(2, timestamp=1_700_000_000_003), expected=("changed timestamp", 2, 2)),
    "timestamp-none": Case(with_nth(2, timestamp=-1), with_nth(2, timestamp=0), expected=("changed timestamp", 2, 2)),
    "key-null": Case(with_nth(2, key=None), with_nth(2, key=b""), expected=("changed key", 2, 2)),
    "value-null": Case(with_nth(2, value=b""), with_nth(2, value=None), expected=("changed value", 2, 2)),
    "boundary": Case(
        with_nth(2, key=b"ab", value=b"c"), with_nth(2, key=b"a", value=b"bc"), expected=("changed key, value", 2, 2)
    ),
    "wrong-partition": Case(
        TEN,
        [*TEN[:4], *TEN[5:]],
        expected=("wrong partition", 4, 4),
        other_source=LONG,
        other_remote=[*LONG[:7], TEN[4], *LONG[7:]],
        other_expected=("wrong partition", 7, 7),
    ),
    "foreign": Case(
        TEN, [*TEN[:5], Rec(b"stranger"), *TEN[5:]], [(0, 0, 5), (5, 6, 5)], ("not on the source", None, 5)
    ),
    "foreign-behind": Case(TEN, [*TEN, Rec(b"stranger")], expected=("not on the source", None, 10)),
    "foreign-before-more": Case(TEN, [*TEN[:6], Rec(b"stranger")], [(0, 0, 6)], ("not on the source", 6, 6)),
    "not-in-ledger": Case(TEN, TEN, [(0, 0, 4), (6, 6, 4)], ("ledger is wrong", 4, 4)),
    "contradiction": Case(TEN, TEN, [(0, 0, 10), (3, 7, 1)], ("ledger is wrong", None, None)),
}


ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}


def refuse_failure(error: object, _message: object) -> None:
    assert error is None, error


class Lab:
    """Two clusters and a ledger, filled by hand."""

    def __init__(self, spark: SparkSession, source: KafkaBroker, target: KafkaBroker, state: Path) -> None:
        self.spark = spark
        self.flow = ReplicationFlow(
            ClusterConfig("primary", {"bootstrap.servers": source.bootstrap}),
            ClusterConfig("backup", {"bootstrap.servers": target.bootstrap}),
        )
        self.source, self.target = KafkaCluster(self.flow.source), KafkaCluster(self.flow.target)
        self.ledger = OffsetSyncTable(spark, str(state))

    def create(
        self, bootstrap: str, names: Sequence[str], config: Optional[Dict[str, str]] = None, partitions: int = 2
    ) -> None:
        topics = [NewTopic(name, partitions, replication_factor=1, config=config or {}) for name in names]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for created in admin.create_topics(topics).values():
            created.result()

    def write(self, bootstrap: str, records: Mapping[Tuple[str, int], Sequence[Rec]]) -> None:
        """Write in order. librdkafka takes a timestamp of 0 or less for "now", so kafka-python writes those."""
        # Idempotent: a batch that is sent again must not come behind the next one.
        usual = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        odd = KafkaProducer(bootstrap_servers=bootstrap)
        for (topic, partition), written in records.items():
            for record in written:
                headers: List[Any] = list(record.headers)
                if record.timestamp > 0:
                    when = record.timestamp
                    usual.produce(
                        topic, record.value, record.key, partition, refuse_failure, headers=headers, timestamp=when
                    )
                    continue
                usual.flush()
                odd.send(topic, record.value, record.key, headers, partition, record.timestamp).get(timeout=30)
        usual.flush()
        odd.close()

    def enter(self, topics: Sequence[CopiedTopic], runs: Mapping[Tuple[str, int], Sequence[Run]]) -> None:
        rows = [
            LedgerRow(topic.source.name, topic.remote_topic, p, topic.source.topic_id, topic.remote_topic_id, *run)
            for topic in topics
            for p in range(2)
            for run in runs.get((topic.source.name, p), ())
        ]
        self.append(rows)

    def append(self, rows: Sequence[LedgerRow]) -> None:
        self.ledger.append(self.flow.name, rows, run_id="by hand", query_id="", batch_id=-1)

    def copied(self, names: Sequence[str]) -> List[CopiedTopic]:
        sources, remotes = self.source.topics(), self.target.topics()
        return [CopiedTopic(sources[n], f"primary.{n}", remotes[f"primary.{n}"].topic_id, 2) for n in names]

    def verify(
        self, names: Sequence[str], flow: Optional[ReplicationFlow] = None, scope: Scope = EVERYTHING
    ) -> VerifyReport:
        return self.compare(flow or self.flow, self.copied(names), scope=scope)

    def compare(self, flow: ReplicationFlow, copied: Sequence[CopiedTopic], **more: Any) -> VerifyReport:
        clusters = self.source, self.target
        return FlowComparison(self.spark, flow, self.ledger, copied, *clusters, **more).report()


@pytest.fixture(scope="module")
def lab(
    spark: SparkSession,
    source_cluster: KafkaBroker,
    target_cluster: KafkaBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lab]:
    lab = Lab(spark, source_cluster, target_cluster, tmp_path_factory.mktemp("verify") / "state")
    yield lab
    lab.source.close()
    lab.target.close()


def topic_of(case: str) -> str:
    return f"verify.{case}"


@pytest.fixture(scope="module")
def filled(lab: Lab) -> List[str]:
    """Every case planted; the topics' names."""
    names = [topic_of(case) for case in CASES]
    lab.create(lab.flow.source.bootstrap_servers, names, ANY_TIME)
    lab.create(lab.flow.target.bootstrap_servers, [f"primary.{name}" for name in names], ANY_TIME)
    upstream: Dict[Tuple[str, int], Sequence[Rec]] = {}
    downstream: Dict[Tuple[str, int], Sequence[Rec]] = {}
    runs: Dict[Tuple[str, int], Sequence[Run]] = {}
    for name, case in CASES.items():
        topic = topic_of(name)
        upstream[topic, 0], upstream[topic, 1] = case.source, case.other_source
        downstream[f"primary.{topic}", 0], downstream[f"primary.{topic}", 1] = case.remote, case.other_remote
        runs[topic, 0] = case.runs
        runs[topic, 1] = [(0, 0, len(case.other_source))] if case.other_source else []
    lab.write(lab.flow.source.bootstrap_servers, upstream)
    lab.write(lab.flow.target.bootstrap_servers, downstream)
    lab.enter(lab.copied(names), runs)
    return names


BY_RECORD = pytest.param(True, id="by-record", marks=pytest.mark.long)


@pytest.fixture(scope="module", params=[pytest.param(False, id="by-batch"), BY_RECORD])
def planted(lab: Lab, filled: List[str], request: pytest.FixtureRequest) -> VerifyReport:
    """One verification of all cases."""
    return lab.verify(filled, scope=Scope(by_record=request.param))


def verdict_of(report: VerifyReport, case: str) -> TopicVerdict:
    (found,) = [topic for topic in report.topics if topic.topic == topic_of(case)]
    return found


def unknown(topic: TopicVerdict) -> List[str]:
    return [reason for partition in topic.partitions for reason in partition.unknown]


@pytest.mark.parametrize("case", [name for name, case in CASES.items() if case.expected is None])
def test_an_equal_copy_is_green(planted: VerifyReport, case: str) -> None:
    topic = verdict_of(planted, case)

    assert (topic.verdict, topic.differences) == ("equal", ())


@pytest.mark.parametrize("case", [name for name, case in CASES.items() if case.expected is not None])
def test_a_planted_difference_is_red_with_its_kind_and_both_offsets(planted: VerifyReport, case: str) -> None:
    topic = verdict_of(planted, case)
    found = {d.partition: (d.kind, d.upstream_offset, d.downstream_offset) for d in topic.differences}
    expected = {0: CASES[case].expected, 1: CASES[case].other_expected}

    assert topic.verdict == "differs"
    assert found == {partition: difference for partition, difference in expected.items() if difference}


def test_records_are_counted_once(planted: VerifyReport) -> None:
    equal, both = verdict_of(planted, "equal"), verdict_of(planted, "equal-partitions")

    # Each record: key k0, value v0, header h=1.
    assert equal.records == 10
    assert both.records == 22
    assert verdict_of(planted, "partly-copied").records == 6
    assert [verdict_of(planted, case).not_copied for case in ("equal", "partly-copied", "ahead-of-ledger")] == [0, 4, 2]
    assert verdict_of(planted, "equal-empty").records == 0


def test_what_was_written_but_not_yet_entered_is_compared_and_said(planted: VerifyReport) -> None:
    topic = verdict_of(planted, "ahead-of-ledger")

    assert topic.records == 8
    (sentence,) = unknown(topic)
    assert sentence.startswith("2 records in the remote log are after the ledger's last row: compared")
    assert verdict_of(planted, "never-in-ledger").records == 3


def test_the_report_is_red_as_a_whole_and_says_the_same_as_lines_and_as_json(planted: VerifyReport) -> None:
    assert not planted.equal
    lines = report_lines(planted)
    assert lines[0].split() == ["TOPIC", "REMOTE", "TOPIC", "PARTITIONS", "RECORDS", "NOT", "COPIED", "VERDICT"]
    assert len({line.rindex(" ") for line in lines[: len(CASES) + 1]}) == 1
    said = "verify.swapped-0: swapped at upstream offset 3 and downstream offset 3"
    assert any(line.startswith(said) for line in lines)
    topics = json.loads(as_json(planted))["topics"]
    (swapped,) = [topic for topic in topics if topic["topic"] == "verify.swapped"]
    assert (swapped["verdict"], len(swapped["partitions"]), swapped["records"]) == ("differs", 2, 10)
    assert "swapped" in [each["difference"]["kind"] for each in swapped["partitions"] if each["difference"]]


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        deleted.result()


def test_what_expired_on_a_side_is_counted_and_the_rest_is_still_compared(lab: Lab) -> None:
    names = ["verify.expired-source", "verify.expired-remote", "verify.expired-all", "verify.expired-and-changed"]
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    lab.create(upstream, names)
    lab.create(downstream, [f"primary.{name}" for name in names])
    lab.write(upstream, {(name, 0): TEN for name in names})
    lab.write(downstream, {(f"primary.{name}", 0): TEN for name in names[:3]})
    lab.write(downstream, {(f"primary.{names[3]}", 0): with_nth(6, value=b"other")})
    lab.enter(lab.copied(names), {(name, 0): [(0, 0, 10)] for name in names})
    delete_before(upstream, names[0], 4)
    delete_before(downstream, f"primary.{names[1]}", 7)
    delete_before(upstream, names[2], 10)
    delete_before(upstream, names[3], 5)

    source, remote, everything, changed = lab.verify(names).topics

    assert (source.verdict, source.records) == ("equal", 6)
    assert unknown(source) == ["4 copied records expired on the source and cannot be compared"]
    assert (remote.verdict, remote.records) == ("equal", 3)
    assert unknown(remote) == ["7 copied records expired on the remote log and cannot be compared"]
    assert (everything.verdict, everything.records) == ("expired", 0)
    (difference,) = changed.differences
    assert (difference.kind, difference.upstream_offset) == ("changed value", 6)


def transactions(bootstrap: str, topic: str) -> None:
    """Offsets 0-2 committed, 3 marker, 4-6 aborted, 7 marker, 8-9 committed, 10 marker."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for values, commit in ((["a", "b", "c"], True), (["x", "y", "z"], False), (["d", "e"], True)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0, timestamp=1_700_000_000_000)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def test_aborted_records_and_markers_are_gaps_and_an_aborted_record_that_was_copied_is_red(lab: Lab) -> None:
    names = ["verify.transactions", "verify.aborted-copied"]
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    lab.create(upstream, names)
    lab.create(downstream, [f"primary.{name}" for name in names])
    for name in names:
        transactions(upstream, name)
    good = [Rec(v.encode(), None, (), 1_700_000_000_000) for v in "abcde"]
    bad = [*good[:3], Rec(b"x", None, (), 1_700_000_000_000), *good[3:]]
    lab.write(downstream, {("primary.verify.transactions", 0): good, ("primary.verify.aborted-copied", 0): bad})
    lab.enter(
        lab.copied(names),
        {(names[0], 0): [(0, 0, 3), (8, 3, 2), (11, 5, 0)], (names[1], 0): [(0, 0, 3), (4, 3, 1), (8, 4, 2)]},
    )

    committed, aborted = lab.verify(names).topics

    assert (committed.verdict, committed.records) == ("equal", 5)
    (difference,) = aborted.differences
    assert (difference.kind, difference.upstream_offset, difference.downstream_offset) == ("not on the source", 4, 3)


@pytest.mark.long
def test_records_lost_between_what_expired_and_what_is_left_are_red_and_markers_there_are_not(lab: Lab) -> None:
    names = ["verify.edge-lost", "verify.edge-added", "verify.edge-markers"]
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    lab.create(upstream, names)
    lab.create(downstream, [f"primary.{name}" for name in names])
    lab.write(upstream, {(name, 0): TEN for name in names[:2]})
    transactions(upstream, names[2])
    kept = [*TEN[:4], *TEN[6:]]
    committed = [Rec(v.encode(), None, (), 1_700_000_000_000) for v in "abcde"]
    logs = (kept, [*TEN[:4], STRANGER, *TEN[4:]], committed)
    lab.write(downstream, {(f"primary.{name}", 0): log for name, log in zip(names, logs)})
    runs = ([(0, 0, 4), (6, 4, 4)], [(0, 0, 4), (4, 5, 6)], [(0, 0, 3), (8, 3, 2), (11, 5, 0)])
    lab.enter(lab.copied(names), {(name, 0): of for name, of in zip(names, runs)})
    for name, start in zip(names, (5, 4, 5)):
        delete_before(upstream, name, start)

    lost, added, markers = lab.verify(names).topics

    assert [(d.kind, d.upstream_offset) for d in lost.differences] == [("lost", 5)]
    assert [(d.kind, d.downstream_offset) for d in added.differences] == [("not on the source", 4)]
    assert (markers.verdict, markers.records) == ("equal", 2)


@pytest.mark.long
def test_what_is_out_of_scope_is_not_compared_and_what_is_in_it_is(lab: Lab) -> None:
    """A record is lost early in the log. Records are a millisecond apart."""
    name = "verify.scope"
    lab.create(lab.flow.source.bootstrap_servers, [name])
    lab.create(lab.flow.target.bootstrap_servers, [f"primary.{name}"])
    many = numbered(40)
    lab.write(lab.flow.source.bootstrap_servers, {(name, 0): many})
    lab.write(lab.flow.target.bootstrap_servers, {(f"primary.{name}", 0): [*many[:3], *many[4:]]})
    lab.enter(lab.copied([name]), {(name, 0): [(0, 0, 3), (4, 3, 36)]})

    def verdict(**scope: Any) -> Tuple[str, int]:
        copied, found = lab.copied([name]), Scope(**scope)
        (topic,) = lab.compare(lab.flow, copied, scope=found).topics
        return topic.verdict, topic.records

    assert verdict() == ("differs", 39)
    assert verdict(since=many[20].timestamp) == ("equal", 20)
    assert verdict(since=many[2].timestamp) == ("differs", 37)
    assert verdict(since=many[-1].timestamp + 1) == ("not compared", 0)


def test_copy_of_which_nothing_can_be_compared_is_not_called_equal(lab: Lab) -> None:
    """As with a folder of another mirror under `state:`. Compacted logs cannot be compared without a ledger."""
    name = "verify.no-ledger"
    compacted = {"cleanup.policy": "compact"}
    lab.create(lab.flow.source.bootstrap_servers, [name], compacted)
    lab.create(lab.flow.target.bootstrap_servers, [f"primary.{name}"], compacted)
    lab.write(lab.flow.source.bootstrap_servers, {(name, 0): TEN})
    before = lab.verify([name])
    lab.write(lab.flow.target.bootstrap_servers, {(f"primary.{name}", 0): TEN})

    without_ledger = lab.verify([name])
    lab.enter(lab.copied([name]), {(name, 0): [(0, 0, 10)]})
    begun_later = f"{name}.latest"
    lab.create(lab.flow.source.bootstrap_servers, [begun_later])
    lab.create(lab.flow.target.bootstrap_servers, [f"primary.{begun_later}"])
    lab.write(lab.flow.source.bootstrap_servers, {(begun_later, 0): TEN})
    lab.enter(lab.copied([begun_later]), {(begun_later, 0): [(10, 0, 0)]})
    latest = replace(lab.flow, auto_offset_reset="latest")
    later = lab.compare(latest, lab.copied([begun_later]))

    assert [topic.verdict for topic in before.topics] == ["not compared"]  # nothing is copied yet
    assert not without_ledger.equal
    assert without_ledger.topics[0].verdict == "not compared"
    assert unknown(without_ledger.topics[0]) == [
        "10 records in the remote log are after the ledger's last row: not compared"
    ]
    assert lab.verify([name]).equal
    assert [topic.verdict for topic in later.topics] == ["not compared"]
    assert any("offset 10" in sentence for sentence in unknown(later.topics[0]))


def test_remote_partition_that_the_source_has_not_is_not_passed_over(lab: Lab) -> None:
    name = "verify.wider"
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    lab.create(upstream, [name])
    lab.create(downstream, [f"primary.{name}"], partitions=4)
    lab.write(upstream, {(name, 0): TEN})
    lab.write(downstream, {(f"primary.{name}", 0): TEN})
    lab.enter(lab.copied([name]), {(name, 0): [(0, 0, 10)]})

    empty = lab.verify([name])
    lab.write(downstream, {(f"primary.{name}", 2): [STRANGER]})
    filled, shared = (lab.verify([name], replace(lab.flow, shared_remote_topics=each)) for each in (False, True))

    assert empty.equal and shared.equal and not filled.equal
    (topic,) = filled.topics
    assert (topic.verdict, topic.records) == ("not compared", 10)
    assert [(each.partition, each.verdict) for each in topic.partitions if each.unknown] == [(2, "not compared")]


def test_the_timestamps_of_a_log_append_time_source_must_be_those_that_its_readers_see(lab: Lab) -> None:
    names = ["verify.append-time", "verify.append-time-wrong"]
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    lab.create(upstream, names, {"message.timestamp.type": "LogAppendTime"})
    lab.create(downstream, [f"primary.{name}" for name in names])
    lab.write(upstream, {(name, 0): TEN for name in names})
    seen = [replace(record, timestamp=stamp) for record, stamp in zip(TEN, timestamps(upstream, names[0]))]
    lab.write(downstream, {("primary.verify.append-time", 0): seen, ("primary.verify.append-time-wrong", 0): TEN})
    lab.enter(lab.copied(names), {(name, 0): [(0, 0, 10)] for name in names})

    right, wrong = lab.verify(names).topics

    assert right.verdict == "equal"
    assert [d.kind for d in wrong.differences] == ["changed timestamp"]


def timestamps(bootstrap: str, topic: str) -> List[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "verify-test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.timestamp()[1] for message in consumer.consume(10, timeout=30)]
    consumer.close()
    return found


@pytest.mark.long
def test_records_that_compaction_took_are_skipped_and_others_that_are_missing_are_red(lab: Lab) -> None:
    """The remote log is compacted for real; in the second topic it also misses a record that compaction keeps."""
    names = ["verify.compacted", "verify.compacted-lost"]
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    old, kept = [Rec(f"old{n}".encode(), b"a") for n in range(5)], [Rec(b"only", b"b"), Rec(b"last", b"a")]
    # A segment is rolled when a record's timestamp is this much later than the first one's.
    later = [Rec(b"roll", f"r{n}".encode(), timestamp=1_700_000_010_000 + 10_000 * n) for n in range(3)]
    source = [*old, *kept, *later]
    lab.create(upstream, names, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"})
    cleaned = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
    lab.create(downstream, [f"primary.{name}" for name in names], cleaned)
    lab.write(upstream, {(name, 0): source for name in names})
    lost = [*old, *source[6:]]
    lab.write(downstream, {(f"primary.{names[0]}", 0): source[:8], (f"primary.{names[1]}", 0): lost[:7]})
    lab.write(downstream, {(f"primary.{names[0]}", 0): source[8:], (f"primary.{names[1]}", 0): lost[7:]})
    wait_until_compacted(downstream, [f"primary.{name}" for name in names])
    lab.enter(lab.copied(names), {(names[0], 0): [(0, 0, 10)], (names[1], 0): [(0, 0, 5), (6, 5, 4)]})

    right, wrong = lab.verify(names).topics

    assert right.verdict == "equal"
    assert unknown(right) == ["5 copied records were compacted away on a side and cannot be compared"]
    assert [(d.kind, d.upstream_offset) for d in wrong.differences] == [("lost", 5)]

    # The control: were the log not one that is compacted, the same records would be missed.
    lab.target.alter_topic_configs({f"primary.{names[0]}": {"cleanup.policy": "delete"}})
    (uncompacted,) = lab.verify(names[:1]).topics
    assert [(d.kind, d.upstream_offset) for d in uncompacted.differences] == [("lost", 0)]


def wait_until_compacted(bootstrap: str, topics: Sequence[str]) -> None:
    deadline = time.monotonic() + 60
    for topic in topics:
        while first_offset(bootstrap, topic) == 0:
            assert time.monotonic() < deadline, f"{topic} was not compacted"
            time.sleep(0.5)


def first_offset(bootstrap: str, topic: str) -> int:
    """The offset of the first record that is still there."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "verify-test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = consumer.consume(1, timeout=30)
    consumer.close()
    return int(message.offset() or 0)


@pytest.mark.long
def test_a_remote_topic_begun_by_someone_else_is_compared_from_where_the_ledger_begins(lab: Lab) -> None:
    name = "verify.taken-over"
    lab.create(lab.flow.source.bootstrap_servers, [name])
    lab.create(lab.flow.target.bootstrap_servers, [f"primary.{name}"])
    lab.write(lab.flow.source.bootstrap_servers, {(name, 0): TEN})
    lab.write(lab.flow.target.bootstrap_servers, {(f"primary.{name}", 0): [Rec(b"by another"), *TEN[4:]]})
    lab.enter(lab.copied([name]), {(name, 0): [(4, 1, 6)]})

    (topic,) = lab.verify([name]).topics

    assert (topic.verdict, topic.records) == ("equal", 6)
    assert unknown(topic) == [
        "4 records on the source are before the ledger's first row: not compared",
        "1 records in the remote log are before the ledger's first row: not compared",
    ]


@pytest.mark.long
def test_records_of_other_writers_are_no_difference_where_remote_topics_are_shared(lab: Lab) -> None:
    name = "verify.shared"
    lab.create(lab.flow.source.bootstrap_servers, [name])
    lab.create(lab.flow.target.bootstrap_servers, [f"primary.{name}"])
    lab.write(lab.flow.source.bootstrap_servers, {(name, 0): TEN})
    mixed = [Rec(b"other"), *TEN[:4], Rec(b"other"), *TEN[4:], Rec(b"other")]
    lab.write(lab.flow.target.bootstrap_servers, {(f"primary.{name}", 0): mixed})
    lab.enter(lab.copied([name]), {(name, 0): [(0, 1, 4), (4, 6, 6)]})

    shared, alone = (
        lab.verify([name], replace(lab.flow, shared_remote_topics=flag)).topics[0] for flag in (True, False)
    )

    assert (shared.verdict, shared.records) == ("equal", 10)
    assert alone.verdict == "differs"


def test_a_timestamp_that_spark_cannot_hold_is_one_clear_error(lab: Lab) -> None:
    name = "verify.timestamp-too-far"
    lab.create(lab.flow.source.bootstrap_servers, [name], ANY_TIME)
    lab.create(lab.flow.target.bootstrap_servers, [f"primary.{name}"])
    lab.write(lab.flow.source.bootstrap_servers, {(name, 0): [Rec(b"far", timestamp=2**62)]})
    lab.enter(lab.copied([name]), {(name, 0): [(0, 0, 1)]})

    with pytest.raises(ClusterError, match=r"primary->backup: Spark could not read both logs to the end.*294247"):
        lab.verify([name])


# The remote logs here are written by hand, without the header that says where records came from.
CHANGE = RecordChange(
    where="cast(value as string) <> 'v5'", select="*, upper(cast(value as string)) as value", provenance=False
)
MADE = [replace(each, value=(each.value or b"").upper()) for each in TEN]
KEPT = [*MADE[:5], *MADE[6:]]
# What is on the remote log where the flow drops v5 and writes the others in capitals, and what that must come to.
CHANGED: Mapping[str, Case] = {
    "made-equal": Case(TEN, KEPT, [(0, 0, 5), (6, 5, 4)]),
    "made-not": Case(TEN, [*MADE[:3], TEN[3], *KEPT[4:]], [(0, 0, 5), (6, 5, 4)], ("changed value", 3, 3)),
    "made-dropped": Case(TEN, MADE, [(0, 0, 10)], ("not made by the flow", 5, 5)),
    "made-lost": Case(TEN, [*KEPT[:7], *KEPT[8:]], [(0, 0, 5), (6, 5, 4)], ("lost", 8, 7)),
}


def test_what_a_flow_makes_of_its_records_is_made_again_and_compared(lab: Lab) -> None:
    names = [topic_of(case) for case in CHANGED]
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    lab.create(upstream, names)
    lab.create(downstream, [f"primary.{name}" for name in names])
    lab.write(upstream, {(topic_of(name), 0): case.source for name, case in CHANGED.items()})
    lab.write(downstream, {(f"primary.{topic_of(name)}", 0): case.remote for name, case in CHANGED.items()})
    lab.enter(lab.copied(names), {(topic_of(name), 0): case.runs for name, case in CHANGED.items()})

    report = lab.verify(names, replace(lab.flow, change=CHANGE))

    found = {
        topic.topic: [(d.kind, d.upstream_offset, d.downstream_offset) for d in topic.differences]
        for topic in report.topics
    }
    assert found == {topic_of(name): [case.expected] * (case.expected is not None) for name, case in CHANGED.items()}
    assert verdict_of(report, "made-equal").records == 9


@pytest.mark.long
def test_record_that_the_sources_cleaner_took_for_one_that_the_flow_drops_is_no_difference(lab: Lab) -> None:
    """In the second topic the remote log misses a record that the source still has."""
    names = ["verify.made-cleaned", "verify.made-cleaned-lost"]
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    cleaned = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
    lab.create(upstream, names, cleaned)
    lab.create(downstream, [f"primary.{name}" for name in names])
    # The second record of `a` is dropped, and the first one is cleaned away for it.
    source = [Rec(b"v0", b"a"), Rec(b"only", b"b"), Rec(b"v5", b"a")]
    source += [Rec(b"roll", f"r{n}".encode(), timestamp=1_700_000_010_000 + 10_000 * n) for n in range(3)]
    made = [replace(each, value=(each.value or b"").upper()) for each in source if each.value != b"v5"]
    for part in (source[:4], source[4:]):
        lab.write(upstream, {(name, 0): part for name in names})
    lab.write(downstream, {(f"primary.{names[0]}", 0): made, (f"primary.{names[1]}", 0): [made[0], *made[2:]]})
    lab.enter(lab.copied(names), {(names[0], 0): [(0, 0, 2), (3, 2, 3)], (names[1], 0): [(0, 0, 1), (3, 1, 3)]})
    wait_until_compacted(upstream, names)

    right, wrong = lab.verify(names, replace(lab.flow, change=CHANGE)).topics

    assert (right.verdict, right.records) == ("equal", 4)
    assert unknown(right) == ["1 copied records were compacted away on a side and cannot be compared"]
    assert [(d.kind, d.upstream_offset) for d in wrong.differences] == [("lost", 1)]


def test_what_cannot_be_made_again_is_not_called_equal(lab: Lab) -> None:
    flow = replace(lab.flow, change=RecordChange(where="rand() < 2", provenance=False))
    with pytest.raises(RefusedError, match="cannot be computed again for the comparison: rand"):
        lab.verify([], flow)


MANY = 6_000


@pytest.fixture(scope="module")
def filtered(lab: Lab) -> List[str]:
    """Topics with a copy of every other record, so that each is a range: one copied right, and one with an error."""
    names = ["verify.filtered", "verify.filtered-and-changed"]
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    lab.create(upstream, names)
    lab.create(downstream, [f"primary.{name}" for name in names])
    records = numbered(2 * MANY)
    lab.write(upstream, {(name, 0): records for name in names})
    kept = records[::2]
    changed = [*kept[:5000], replace(kept[5000], value=b"other"), *kept[5001:]]
    lab.write(downstream, {(f"primary.{name}", 0): log for name, log in zip(names, (kept, changed))})
    lab.enter(lab.copied(names), {(name, 0): [(2 * n, n, 1) for n in range(MANY)] for name in names})
    return names


@pytest.mark.long
@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param({"verify.comparison.RUNS_IN_A_PLAN": 3 * MANY}, id="as text"),
        pytest.param({"spark.jobs.SMALL_BYTES": 0}, id="from a worker to every executor"),
        pytest.param(
            {"spark.jobs.SMALL_BYTES": 0, "verify.comparison.MOST_EVERYWHERE": 0}, id="from a worker in parts"
        ),
    ],
)
def test_copy_with_a_run_for_each_record_is_compared_whatever_way_they_take_and_leaves_no_file(
    lab: Lab, filtered: Sequence[str], bounds: Mapping[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, bound in bounds.items():
        monkeypatch.setattr(f"mirror_lib.{name}", bound)
    folder = str(lab.spark.sparkContext._temp_dir)
    lying = os.listdir(folder)

    flow = replace(lab.flow, change=RecordChange(where="cast(key as string) rlike '[02468]$'", provenance=False))
    right, wrong = lab.verify(filtered, flow).topics

    assert os.listdir(folder) == lying
    assert (right.verdict, right.records) == ("equal", MANY)
    assert (wrong.verdict, wrong.records) == ("differs", MANY)
    found = [(d.kind, d.upstream_offset, d.downstream_offset, d.records) for d in wrong.differences]
    assert found == [("changed value", 10_000, 5000, 1)]


def placed_log(records: Sequence[Rec]) -> Dict[int, List[Rec]]:
    """Where Kafka's partitioner would put `records` among two partitions."""
    logs: Dict[int, List[Rec]] = {0: [], 1: []}
    for record in records:
        logs[partition_of_key(record.key, 0, 2)].append(record)
    return logs


MORE = [replace(each, key=TEN[n].key) for n, each in enumerate(numbered(6, "w"))]
ALL, REST = placed_log(TEN), placed_log(MORE)
# What partitions 0 and 1 of the source come to, one after the other and one between the other: each keeps its order.
LOGS = {n: [*ALL[n], *REST[n]] for n in (0, 1)}
MIXED = {n: [*REST[n][:1], *ALL[n][:2], *REST[n][1:], *ALL[n][2:]] for n in (0, 1)}
STRANGER = Rec(b"stranger")


@dataclass(frozen=True)
class PlacedCase:
    """What is in both remote partitions of a flow that places TEN and MORE by their keys. What is found: partition,
    kind, both offsets, and how many places differ."""

    logs: Mapping[int, Sequence[Rec]]
    found: Sequence[Tuple[int, str, Optional[int], Optional[int], int]] = ()


def swapped(log: Sequence[Rec], n: int) -> List[Rec]:
    return [*log[:n], log[n + 1], log[n], *log[n + 2 :]]


def offset_of(record: Rec) -> int:
    """Its offset on the source."""
    return ORIGINS[record][1]


OTHER_VALUE = replace(LOGS[0][1], value=b"other")
# What a record is a copy of: 0 for TEN, 1 for MORE, and the offset.
ORIGINS: Mapping[Rec, Tuple[int, int]] = {
    **{record: (n, at) for n, log in enumerate((TEN, MORE)) for at, record in enumerate(log)},
    OTHER_VALUE: (0, TEN.index(LOGS[0][1])),
}


def copies_of(topic: TopicDescription, log: Sequence[Rec], cluster: str = "primary") -> List[Rec]:
    """`log` as a flow writes it, with origins: TEN are of partition 0 of the topic, MORE of partition 1. Others stay as
    they are."""
    found: List[Rec] = []
    for record in log:
        if record in ORIGINS:
            number, offset = ORIGINS[record]
            origin = f"{cluster}/{topic.name}/{number}/{offset}/{topic.topic_id[:6]}".encode()
            record = replace(record, headers=(*record.headers, ("mirror.origin", origin)))
        found.append(record)
    return found


FIRST_LOST = offset_of(LOGS[0][0])
PLACED: Mapping[str, PlacedCase] = {
    "placed-equal": PlacedCase(LOGS),
    "placed-mixed": PlacedCase(MIXED),
    "placed-lost": PlacedCase({0: LOGS[0], 1: LOGS[1][:-1]}, [(1, "lost", offset_of(LOGS[1][-1]), None, 1)]),
    "placed-doubled": PlacedCase(
        {0: [*LOGS[0], LOGS[0][1]], 1: LOGS[1]}, [(0, "doubled", offset_of(LOGS[0][1]), len(LOGS[0]), 1)]
    ),
    "placed-tripled": PlacedCase(
        {0: [LOGS[0][0], LOGS[0][0], *LOGS[0]], 1: LOGS[1]}, [(0, "doubled", FIRST_LOST, 1, 2)]
    ),
    "placed-elsewhere": PlacedCase(
        {0: LOGS[0][1:], 1: [LOGS[0][0], *LOGS[1]]},
        [(0, "wrong partition", FIRST_LOST, None, 1), (1, "wrong partition", FIRST_LOST, 0, 1)],
    ),
    "placed-both-ways": PlacedCase(
        {0: LOGS[0], 1: [LOGS[0][0], *LOGS[1]]}, [(1, "wrong partition", FIRST_LOST, 0, 1)]
    ),
    "placed-swapped": PlacedCase(
        {0: swapped(ALL[0], 1) + REST[0], 1: LOGS[1]}, [(0, "swapped", offset_of(ALL[0][2]), 1, 1)]
    ),
    "placed-changed": PlacedCase(
        {0: [LOGS[0][0], OTHER_VALUE, *LOGS[0][2:]], 1: LOGS[1]},
        [(0, "changed value", offset_of(LOGS[0][1]), 1, 1)],
    ),
    "placed-stranger": PlacedCase({0: [STRANGER, *LOGS[0]], 1: LOGS[1]}, [(0, "not on the source", None, 0, 1)]),
}


def enter_ranges(lab: Lab, names: Sequence[str], ends: Mapping[Tuple[str, int], int]) -> None:
    """What a flow writes down that copied TEN and MORE in one micro-batch; `ends` are the ones of remote partitions."""
    rows: List[LedgerRow] = []
    for each in lab.copied(names):
        topics = (each.source.name, each.remote_topic)
        ids = (each.source.topic_id, each.remote_topic_id)
        rows += [LedgerRow(*topics, -1, *ids, 0, 0, 0, there, 0, 0) for there in (0, 1)]
        for n, count in enumerate((len(TEN), len(MORE))):
            rows.append(LedgerRow(*topics, n, *ids, 0, 0, 0, -1, 0, 0))
            to = ((there, ends[each.source.name, there]) for there in (0, 1))
            rows += [LedgerRow(*topics, n, *ids, 0, 0, 1, there, count, end) for there, end in to]
    lab.append(rows)


@pytest.fixture(scope="module")
def placed(lab: Lab) -> List[CopiedTopic]:
    """Every case of PLACED, copied by a flow that places records by their keys."""
    names = [topic_of(case) for case in PLACED]
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    lab.create(upstream, names)
    lab.create(downstream, [f"primary.{name}" for name in names])
    lab.write(upstream, {(name, n): records for name in names for n, records in enumerate((TEN, MORE))})
    logs = {(topic_of(name), n): case.logs[n] for name, case in PLACED.items() for n in (0, 1)}
    sources = lab.source.topics()
    lab.write(downstream, {(f"primary.{name}", n): copies_of(sources[name], log) for (name, n), log in logs.items()})
    enter_ranges(lab, names, {place: len(log) for place, log in logs.items()})
    return [replace(each, keyed_over=2) for each in lab.copied(names)]


def test_records_that_are_placed_anew_are_compared_in_each_remote_partition_with_their_order(
    lab: Lab, placed: List[CopiedTopic]
) -> None:
    flow = replace(lab.flow, change=RecordChange(partitioner=KEY))

    report = lab.compare(flow, placed)

    found = {
        topic.topic: [
            (d.partition, d.kind, d.upstream_offset, d.downstream_offset, d.records) for d in topic.differences
        ]
        for topic in report.topics
    }
    assert found == {topic_of(name): list(case.found) for name, case in PLACED.items()}
    assert {verdict_of(report, name).records for name in ("placed-equal", "placed-mixed")} == {16}


@pytest.mark.long
def test_records_that_are_placed_anew_are_compared_as_far_as_the_flow_lets_them_be_known(
    lab: Lab, placed: List[CopiedTopic]
) -> None:
    copied, flow = placed, replace(lab.flow, change=RecordChange(partitioner=KEY))

    # Where others may write, what has no origin is theirs, and nothing else is.
    sharing = replace(flow, shared_remote_topics=True)
    shared = lab.compare(sharing, copied)
    stranger = verdict_of(shared, "placed-stranger")
    assert stranger.verdict == "equal"
    assert unknown(stranger) == ["1 records of other writers are in between: not compared"]
    others = [name for name, case in PLACED.items() if name != "placed-stranger" and case.found]
    assert {verdict_of(shared, name).verdict for name in others} == {"differs"}

    # What is not the same each time is not compared, and the rest is.
    random = replace(flow, change=RecordChange(partitioner=KEY, select="*, string(rand()) as value"))
    changing = lab.compare(random, copied)
    assert verdict_of(changing, "placed-changed").verdict == verdict_of(changing, "placed-equal").verdict == "equal"
    (sentence, *_) = unknown(verdict_of(changing, "placed-equal"))
    assert "the flow may change a record differently each time" in sentence
    expected = [name for name in others if name != "placed-changed"]
    assert {verdict_of(changing, name).verdict for name in expected} == {"differs"}
    choosing = replace(flow, change=RecordChange(partitioner=KEY, where="rand() < 2"))
    chosen = lab.compare(choosing, copied)
    assert {verdict_of(chosen, name).verdict for name in ("placed-equal", "placed-lost")} == {"equal"}
    assert verdict_of(chosen, "placed-doubled").verdict == "differs"
    # Another mirror's copies are none of this one's; and without origins nothing is known of them.
    another = lab.compare(flow, copied[:1], mirror="other")
    assert {d.kind for d in another.topics[0].differences} == {"lost"}
    bare = replace(flow, change=RecordChange(partitioner=KEY, provenance=False))
    nothing = lab.compare(bare, copied)
    assert {topic.verdict for topic in nothing.topics} == {"not compared"}


@pytest.mark.long
def test_placed_records_that_expired_on_a_side_are_told_and_the_rest_is_compared(lab: Lab) -> None:
    names = ["verify.placed-old-source", "verify.placed-old-remote", "verify.placed-old-and-lost"]
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    lab.create(upstream, names)
    lab.create(downstream, [f"primary.{name}" for name in names])
    lab.write(upstream, {(name, n): records for name in names for n, records in enumerate((TEN, MORE))})
    logs = {(name, n): LOGS[n] for name in names for n in (0, 1)}
    logs[names[2], 0] = [each for each in LOGS[0] if each != ALL[0][-1]]
    sources = lab.source.topics()
    lab.write(downstream, {(f"primary.{name}", n): copies_of(sources[name], log) for (name, n), log in logs.items()})
    enter_ranges(lab, names, {place: len(log) for place, log in logs.items()})
    copied = [replace(each, keyed_over=2) for each in lab.copied(names)]
    flow = replace(lab.flow, change=RecordChange(partitioner=KEY))
    delete_before(upstream, names[0], 4)
    for name in names[1:]:
        delete_before(downstream, f"primary.{name}", 2)

    report = lab.compare(flow, copied)

    source, remote, lost = report.topics
    assert (source.verdict, source.records, remote.verdict, remote.records) == ("equal", 12, "equal", 14)
    assert any("4 offsets of its sources expired" in sentence for sentence in unknown(source))
    assert any("2 records of the source may have expired" in sentence for sentence in unknown(remote))
    assert [(d.kind, d.partition, d.upstream_offset) for d in lost.differences] == [("lost", 0, offset_of(ALL[0][-1]))]


@pytest.mark.long
def test_placed_copy_of_which_nothing_can_be_compared_is_not_called_equal(lab: Lab) -> None:
    """Without ranges, as with a folder of another mirror under `state:`; and one that lacks all its records, where
    compaction might have taken them."""
    names = ["verify.placed-unknown", "verify.placed-empty"]
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    lab.create(upstream, names)
    lab.create(downstream, [f"primary.{name}" for name in names], {"cleanup.policy": "compact"})
    lab.write(upstream, {(name, n): records for name in names for n, records in enumerate((TEN, MORE))})
    lab.write(downstream, {(f"primary.{names[0]}", n): LOGS[n] for n in (0, 1)})
    copied = [replace(each, keyed_over=2) for each in lab.copied(names)]
    flow = replace(lab.flow, change=RecordChange(partitioner=KEY))

    alone, shared = (
        lab.compare(each, copied)
        for each in (flow, replace(flow, shared_remote_topics=True))
    )
    enter_ranges(lab, names[1:], {(names[1], n): 0 for n in (0, 1)})
    lacking = lab.compare(flow, copied)

    assert [topic.verdict for topic in alone.topics] == ["not compared", "not compared"]
    assert [topic.verdict for topic in shared.topics] == ["not compared", "not compared"]
    assert [topic.verdict for topic in lacking.topics] == ["not compared", "not compared"]


@pytest.mark.long
def test_remote_topic_that_grew_is_compared_wherever_its_records_lie(lab: Lab) -> None:
    name = "verify.placed-grown"
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    lab.create(upstream, [name])
    lab.create(downstream, [f"primary.{name}"])
    lab.write(upstream, {(name, n): records for n, records in enumerate((TEN, MORE))})
    # As if all of it had been copied while there was one partition.
    (each,), sources = lab.copied([name]), lab.source.topics()
    lab.write(downstream, {(f"primary.{name}", 0): copies_of(sources[name], [*TEN, *MORE[:-1], MORE[0]])})
    topics, ids = (name, each.remote_topic), (each.source.topic_id, each.remote_topic_id)
    begun = [LedgerRow(*topics, n, *ids, 0, 0, 10, 0, end, 16) for n, end in ((0, 10), (1, 6))]
    lab.append([LedgerRow(*topics, -1, *ids, 0, 0, 0, 0, 0, 0), *begun])
    lab.append([LedgerRow(*topics, -1, *ids, 0, 0, 0, 1, 0, 0)])
    flow = replace(lab.flow, change=RecordChange(partitioner=KEY))

    report = lab.compare(flow, [replace(each, keyed_over=2)])

    (topic,) = report.topics
    place = partition_of_key(MORE[-1].key, 0, 2)
    wanted = {(place, "lost", 5), (0, "doubled", 0)} if place else {(0, "lost", 5)}
    assert {(d.partition, d.kind, d.upstream_offset) for d in topic.differences} == wanted
    assert any("the remote topic grew" in sentence for sentence in unknown(topic))


@pytest.mark.long
def test_records_whose_content_is_not_the_same_each_time_are_compared_by_their_origins(lab: Lab) -> None:
    names = [f"verify.kept-{case}" for case in ("equal", "lost", "doubled", "stranger")]
    upstream, downstream = lab.flow.source.bootstrap_servers, lab.flow.target.bootstrap_servers
    lab.create(upstream, names)
    lab.create(downstream, [f"primary.{name}" for name in names])
    lab.write(upstream, {(name, 0): TEN for name in names})
    logs = (TEN, [*TEN[:3], *TEN[4:]], [*TEN, TEN[3]], [*TEN, STRANGER])
    sources = lab.source.topics()
    written = {(f"primary.{name}", 0): copies_of(sources[name], log) for name, log in zip(names, logs)}
    lab.write(downstream, {at: [replace(each, value=b"random") for each in log] for at, log in written.items()})
    runs = {name: [(0, 0, 10)] for name in names}
    runs[names[1]] = [(0, 0, 3), (4, 3, 6)]
    lab.enter(lab.copied(names), {(name, 0): own for name, own in runs.items()})
    flow = replace(lab.flow, change=RecordChange(select="*, string(rand()) as value"))

    report = lab.verify(names, flow)

    found = [[(d.kind, d.upstream_offset, d.downstream_offset) for d in topic.differences] for topic in report.topics]
    assert found == [[], [("lost", 3, None)], [("doubled", 3, 10)], [("not on the source", None, 10)]]
    assert (report.topics[0].verdict, report.topics[0].records) == ("equal", 10)
    assert "may change a record differently each time" in unknown(report.topics[0])[0]
