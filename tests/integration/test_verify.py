"""Verify on real brokers: an equal copy is green, each planted difference red, with its kind and both offsets.

Both logs are filled by hand and the ledger gets what a copier would have reported, so no code that copies takes part.
"""

from __future__ import annotations

import json
import os
from array import array
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.record_change import KEY, SOURCE, RecordChange
from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import OffsetRange
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow
from mirror_lib.spark.jobs import local_rows
from mirror_lib.text import as_json
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.comparison import compare
from mirror_lib.verify.digests import DigestReader, Slice
from mirror_lib.verify.flow import FlowComparison
from mirror_lib.verify.ranges import Bounds, CopiedPartition, CopiedRange, Scope
from mirror_lib.verify.verdicts import TopicVerdict, VerifyReport
from tests.lab.brokers import KafkaBroker
from tests.lab.dataset import wait_compacted
from tests.lab.murmur2 import partition_of_key
from tests.lab.readers import read_topic

pytestmark = pytest.mark.usefixtures("compiled_statements")

NOON = 1_700_000_000_000
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
COMPACTED = {"cleanup.policy": "compact"}
CLEANED = {**COMPACTED, "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
Found = Tuple[str, Optional[int], Optional[int]]
Rows = Callable[[CopiedTopic], Sequence[LedgerRow]]


@dataclass(frozen=True)
class Rec:
    """One record to write."""

    value: Optional[bytes]
    key: Optional[bytes] = b"k"
    headers: Tuple[Tuple[str, Optional[bytes]], ...] = (("h", b"1"),)
    timestamp: int = NOON


Log = Sequence[Rec]


@dataclass(frozen=True)
class Case:
    """A topic of two partitions on both clusters, and the verdict on it.

    `runs`: the ledger's ranges of partition 0. `others`: the logs of further partitions, recorded as copied in order.
    `found`: kind and both offsets of the first difference of partition 0; `other_found`: of partition 1. `places`: how
    many places differ. `unknown`: a part of each sentence on what was not compared.
    """

    source: Log
    remote: Log
    runs: Sequence[Tuple[int, int, int]] = ((0, 0, 10),)
    found: Optional[Found] = None
    others: Mapping[int, Tuple[Log, Log]] = field(default_factory=dict)
    other_found: Optional[Found] = None
    verdict: str = ""
    records: Optional[int] = None
    not_copied: Optional[int] = None
    places: Optional[int] = None
    unknown: Optional[Sequence[str]] = None
    # What is planted otherwise than as above: the ledger's rows, topic configs of either side, the offsets of partition
    # 0 before which each side is deleted in the end.
    rows: Optional[Rows] = None
    configs: Tuple[Mapping[str, str], Mapping[str, str]] = (ANY_TIME, ANY_TIME)
    expires: Tuple[int, int] = (0, 0)
    remote_partitions: int = 2
    transactions: bool = False  # The source is written by `write_transactions`.
    stamped: bool = False  # Copies have the timestamps that readers of the source see.
    origins: bool = False  # Copies have the header `mirror.origin`.

    @property
    def expected(self) -> str:
        return self.verdict or ("differs" if self.found or self.other_found else "equal")


def topic_of(case: str) -> str:
    return f"verify.{case}"


def refuse_failure(error: object, _message: object) -> None:
    assert error is None, error


class Lab:
    """Two clusters and a ledger, filled by hand."""

    def __init__(self, spark: SparkSession, source: KafkaBroker, target: KafkaBroker, state: Path) -> None:
        self.spark, self.brokers = spark, (source, target)
        self.flow = ReplicationFlow(
            ClusterConfig("primary", {"bootstrap.servers": source.bootstrap}),
            ClusterConfig("backup", {"bootstrap.servers": target.bootstrap}),
        )
        self.source, self.target = KafkaCluster(self.flow.source), KafkaCluster(self.flow.target)
        self.ledger = OffsetSyncTable(spark, str(state))

    def plant(self, cases: Mapping[str, Case], batch: int = 10_000) -> None:
        """Make the topics and the ledger's rows of all cases. `batch`: the records of a record batch at most."""
        at = {topic_of(name): case for name, case in cases.items()}
        self._create(0, [NewTopic(name, 2, 1, config=dict(case.configs[0])) for name, case in at.items()])
        remote = [(f"primary.{name}", case) for name, case in at.items()]
        self._create(1, [NewTopic(name, e.remote_partitions, 1, config=dict(e.configs[1])) for name, e in remote])
        for name in (name for name, case in at.items() if case.transactions):
            write_transactions(self.brokers[0], name)
        upstream = {(name, 0): case.source for name, case in at.items() if not case.transactions}
        upstream.update({(name, n): logs[0] for name, case in at.items() for n, logs in case.others.items()})
        self._write(0, upstream, batch)
        copied = self.copied(cases)
        downstream: Dict[Tuple[str, int], Log] = {}
        rows: List[LedgerRow] = []
        for each, case in zip(copied, at.values()):
            for n, log in ((0, case.remote), *((n, logs[1]) for n, logs in case.others.items())):
                downstream[each.remote_topic, n] = self._as_copied(each, case, log)
            rows += (case.rows or in_order(case))(each)
        self._write(1, downstream, batch)
        self.append(rows)
        for each, case in zip(copied, at.values()):
            for broker, topic, offset in zip(self.brokers, (each.source.name, each.remote_topic), case.expires):
                if offset:
                    broker.expire(topic, {0: offset})

    def append(self, rows: Sequence[LedgerRow]) -> None:
        self.ledger.append(self.flow.name, rows, run_id="by hand", query_id="", batch_id=-1)

    def _create(self, side: int, topics: List[NewTopic]) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers[side].bootstrap})
        for created in admin.create_topics(topics).values():
            created.result()

    def _write(self, side: int, logs: Mapping[Tuple[str, int], Log], batch: int) -> None:
        """Write in order. librdkafka takes a timestamp of 0 or less for "now", so kafka-python writes those."""
        servers = self.brokers[side].bootstrap
        # Idempotent: a batch that is sent again must not come behind the next one.
        usual = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "batch.num.messages": batch})
        odd = KafkaProducer(bootstrap_servers=servers)
        for (topic, partition), log in logs.items():
            for record in log:
                headers: List[Any] = list(record.headers)
                value, key, when = record.value, record.key, record.timestamp
                if when > 0:
                    usual.produce(topic, value, key, partition, refuse_failure, headers=headers, timestamp=when)
                else:
                    usual.flush()
                    odd.send(topic, value, key, headers, partition, when).get(timeout=30)
        usual.flush()
        odd.close()

    def _as_copied(self, topic: CopiedTopic, case: Case, log: Log) -> Log:
        if case.stamped:
            seen = read_topic(self.brokers[0], topic.source.name)[0]
            return [replace(record, timestamp=seen[offset].timestamp) for offset, record in enumerate(log)]
        return [with_origin(topic, record) for record in log] if case.origins else log

    def copied(self, cases: Mapping[str, Case], **fields: Any) -> List[CopiedTopic]:
        sources, remotes = self.source.topics(), self.target.topics()
        return [
            CopiedTopic(sources[name], f"primary.{name}", remotes[f"primary.{name}"].topic_id, 2, **fields)
            for name in map(topic_of, cases)
        ]

    def verify(self, cases: Mapping[str, Case], change: Optional[RecordChange] = None, **settings: Any) -> VerifyReport:
        """Compare by the flow with this change and these settings. A flow that repartitions knows it of each topic."""
        if change is not None:
            settings["change"] = change
        keyed = {"keyed_over": 2} if change is not None and change.partitioner == KEY else {}
        return self.compare(replace(self.flow, **settings), self.copied(cases, **keyed))

    def compare(self, flow: ReplicationFlow, copied: Sequence[CopiedTopic], **more: Any) -> VerifyReport:
        clusters = self.source, self.target
        return FlowComparison(self.spark, flow, self.ledger, copied, *clusters, **more).report()


def in_order(case: Case) -> Rows:
    """What a flow records that keeps partitions."""

    def rows(topic: CopiedTopic) -> List[LedgerRow]:
        names, ids = (topic.source.name, topic.remote_topic), (topic.source.topic_id, topic.remote_topic_id)
        found = [LedgerRow(*names, 0, *ids, *run) for run in case.runs]
        return found + [LedgerRow(*names, n, *ids, 0, 0, len(logs[0])) for n, logs in case.others.items() if logs[0]]

    return rows


def write_transactions(broker: KafkaBroker, topic: str) -> None:
    """Offsets 0-2 committed, 3 marker, 4-6 aborted, 7 marker, 8-9 committed, 10 marker."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for values, end in (
        ("abc", producer.commit_transaction), ("xyz", producer.abort_transaction), ("de", producer.commit_transaction)
    ):  # fmt: skip
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0, timestamp=NOON)
        producer.flush()
        end()


def verdict_of(report: VerifyReport, case: str) -> TopicVerdict:
    (found,) = [topic for topic in report.topics if topic.topic == topic_of(case)]
    return found


def unknown(topic: TopicVerdict) -> List[str]:
    return [reason for partition in topic.partitions for reason in partition.unknown]


def verdicts(report: VerifyReport, *cases: str) -> List[str]:
    return [verdict_of(report, case).verdict for case in cases]


def wrong(report: VerifyReport, cases: Mapping[str, Case]) -> Dict[str, TopicVerdict]:
    """The verdicts that are not as their cases expect."""
    found = {name: verdict_of(report, name) for name in cases}
    return {name: topic for name, topic in found.items() if not is_right(topic, cases[name])}


def is_right(topic: TopicVerdict, case: Case) -> bool:
    differences = {d.partition: (d.kind, d.upstream_offset, d.downstream_offset) for d in topic.differences}
    expected = {n: each for n, each in enumerate((case.found, case.other_found)) if each}
    places, sentences = sum(d.records for d in topic.differences), unknown(topic)
    counted = [(case.records, topic.records), (case.not_copied, topic.not_copied), (case.places, places)]
    return (
        (topic.verdict, differences) == (case.expected, expected)
        and (case.expected == "not compared" or topic.fine == (case.expected != "differs"))
        and all(wanted in (None, count) for wanted, count in counted)
        and (case.unknown is None or len(sentences) == len(case.unknown))
        and all(part in sentence for part, sentence in zip(case.unknown or (), sentences))
    )


def numbered(count: int = 10, prefix: str = "v") -> List[Rec]:
    return [Rec(f"{prefix}{n}".encode(), f"k{n}".encode(), timestamp=NOON + n) for n in range(count)]


TEN, LONG, STRANGER = numbered(), numbered(12, "p"), Rec(b"stranger")
HARD = [
    Rec(b"", b""),
    Rec(None, None, ()),
    Rec(b"", None, (("", b""), ("h", None), ("h", b""), ("h", b"2"), ("h", b"1"))),
    Rec(b"x" * 50_000, b"k", (("n\u00e4me", b"\x00\xff"),), 0),
    Rec(b"\x00", b"\xff", (), -1),
    Rec(b"old", b"k", (), -5_000_000_000),
    Rec(b"future", b"k", (), 4_102_444_800_000),
]
COMMITTED = [Rec(value.encode(), None, ()) for value in "abcde"]
WITHOUT_4, FOREIGN_AT_5 = [*TEN[:4], *TEN[5:]], [*TEN[:5], STRANGER, *TEN[5:]]
SHARED_LOG = [STRANGER, *TEN[:4], STRANGER, *TEN[4:], STRANGER]
AFTER_THE_LEDGER = "records in the remote log after the ledger's last row: "
BEFORE_THE_LEDGER = "before the ledger's first row: not compared"
EXPIRED = "copied records expired on the {} and cannot be compared"
GAPS = [(0, 0, 3), (8, 3, 2), (11, 5, 0)]  # What a flow records of `write_transactions`.
STAMPED = ({"message.timestamp.type": "LogAppendTime"}, ANY_TIME)


def with_nth(n: int, **changes: object) -> List[Rec]:
    return [*TEN[:n], replace(TEN[n], **changes), *TEN[n + 1 :]]  # type: ignore[arg-type]


def changed(kind: str, there: Mapping[str, object], here: Optional[Mapping[str, object]] = None) -> Case:
    """Record 2 with fields `there` on the remote log, and `here` on the source."""
    return Case(with_nth(2, **(here or {})), with_nth(2, **there), found=(f"changed {kind}", 2, 2))


CASES: Mapping[str, Case] = {
    "equal": Case(TEN, TEN, records=10, not_copied=0),
    "equal-hard": Case(HARD, HARD, [(0, 0, len(HARD))]),
    "equal-in-runs": Case(TEN, TEN, [(4, 4, 6), (0, 0, 4)]),
    "equal-partitions": Case(TEN, TEN, others={1: (LONG, LONG)}, records=22),
    "equal-empty": Case([], [], [], records=0),
    "partly-copied": Case(TEN, TEN[:6], [(0, 0, 6)], records=6, not_copied=4),
    "ahead-of-ledger": Case(
        TEN, TEN[:8], [(0, 0, 6)], records=8, not_copied=2, unknown=[f"2 {AFTER_THE_LEDGER}compared"]
    ),
    "never-in-ledger": Case(TEN, TEN[:3], [], records=3),
    "lost": Case(TEN, WITHOUT_4, found=("lost", 4, 4)),
    "lost-first": Case(TEN, TEN[1:], [(1, 0, 9)], ("lost", 0, None)),
    "lost-last": Case(TEN, TEN[:9], found=("lost", 9, 9)),
    "lost-between-runs": Case(TEN, WITHOUT_4, [(0, 0, 4), (5, 4, 5)], ("lost", 4, None)),
    "doubled": Case(TEN, [*TEN[:5], TEN[4], *TEN[5:]], found=("doubled", 5, 5)),
    "doubled-last": Case(TEN, [*TEN, TEN[9]], found=("doubled", None, 10)),
    "doubled-between-runs": Case(TEN, [*TEN[:5], TEN[4], *TEN[5:]], [(0, 0, 5), (5, 6, 5)], ("doubled", None, 5)),
    "doubled-first": Case(TEN, [TEN[0], *TEN], found=("doubled", 1, 1)),
    "swapped": Case(TEN, [*TEN[:3], TEN[4], TEN[3], *TEN[5:]], found=("swapped", 3, 3)),
    "swapped-far": Case(TEN, [TEN[9], *TEN[1:9], TEN[0]], found=("swapped", 0, 0)),
    "key": changed("key", {"key": b"other"}),
    "key-null": changed("key", {"key": b""}, {"key": None}),
    "value": changed("value", {"value": b"other"}),
    "value-null": changed("value", {"value": None}, {"value": b""}),
    "boundary": changed("key, value", {"key": b"a", "value": b"bc"}, {"key": b"ab", "value": b"c"}),
    "header-value": changed("headers", {"headers": (("h", b"2"),)}),
    "header-name": changed("headers", {"headers": (("g", b"1"),)}),
    "header-null": changed("headers", {"headers": (("h", b""),)}, {"headers": (("h", None),)}),
    "header-lost": changed("headers", {"headers": ()}),
    "header-order": changed(
        "headers", {"headers": (("h", b"2"), ("h", b"1"))}, {"headers": (("h", b"1"), ("h", b"2"))}
    ),
    "timestamp": changed("timestamp", {"timestamp": NOON + 3}),
    "timestamp-none": changed("timestamp", {"timestamp": 0}, {"timestamp": -1}),
    "wrong-partition": Case(
        TEN, WITHOUT_4, found=("wrong partition", 4, 4),
        others={1: (LONG, [*LONG[:7], TEN[4], *LONG[7:]])}, other_found=("wrong partition", 7, 7),
    ),
    "foreign": Case(TEN, FOREIGN_AT_5, [(0, 0, 5), (5, 6, 5)], ("not on the source", None, 5)),
    "foreign-behind": Case(TEN, [*TEN, STRANGER], found=("not on the source", None, 10)),
    "foreign-before-more": Case(TEN, [*TEN[:6], STRANGER], [(0, 0, 6)], ("not on the source", 6, 6)),
    "not-in-ledger": Case(TEN, TEN, [(0, 0, 4), (6, 6, 4)], ("ledger is wrong", 4, 4)),
    "contradiction": Case(TEN, TEN, [(0, 0, 10), (3, 7, 1)], ("ledger is wrong", None, None)),
    # Aborted records and markers are gaps; an aborted record that was copied is none.
    "transactions": Case([], COMMITTED, GAPS, transactions=True, records=5),
    "aborted-copied": Case(
        [], [*COMMITTED[:3], Rec(b"x", None, ()), *COMMITTED[3:]], [(0, 0, 3), (4, 3, 1), (8, 4, 2)],
        ("not on the source", 4, 3), transactions=True,
    ),
    # What expired on a side is counted, and the rest is compared, from the edge on.
    "expired-source": Case(TEN, TEN, expires=(4, 0), records=6, unknown=[f"4 {EXPIRED.format('source')}"]),
    "expired-remote": Case(TEN, TEN, expires=(0, 7), records=3, unknown=[f"7 {EXPIRED.format('remote log')}"]),
    "expired-all": Case(TEN, TEN, expires=(10, 0), verdict="expired", records=0),
    "expired-and-changed": Case(TEN, with_nth(6, value=b"other"), found=("changed value", 6, 6), expires=(5, 0)),
    "edge-lost": Case(TEN, [*TEN[:4], *TEN[6:]], [(0, 0, 4), (6, 4, 4)], ("lost", 5, None), expires=(5, 0)),
    "edge-added": Case(
        TEN, [*TEN[:4], STRANGER, *TEN[4:]], [(0, 0, 4), (4, 5, 6)], ("not on the source", None, 4), expires=(4, 0)
    ),
    "edge-markers": Case([], COMMITTED, GAPS, transactions=True, expires=(5, 0), records=2),
    # What cannot be compared is not called equal.
    "wider": Case(TEN, TEN, remote_partitions=4),
    "wider-filled": Case(
        TEN, TEN, remote_partitions=4, others={2: ([], [STRANGER])}, verdict="not compared", records=10
    ),
    # The ledger begins where another tool ended.
    "taken-over": Case(
        TEN, [Rec(b"by another"), *TEN[4:]], [(4, 1, 6)], records=6,
        unknown=[f"4 records on the source {BEFORE_THE_LEDGER}", f"1 record in the remote log {BEFORE_THE_LEDGER}"],
    ),
    "shared": Case(TEN, SHARED_LOG, [(0, 1, 4), (4, 6, 6)], ("not on the source", None, 5)),
    "append-time": Case(TEN, TEN, configs=STAMPED, stamped=True),
    "append-time-wrong": Case(TEN, TEN, found=("changed timestamp", 0, 0), configs=STAMPED),
}  # fmt: skip


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


@pytest.fixture(scope="module")
def filled(lab: Lab) -> Mapping[str, Case]:
    lab.plant(CASES)
    return CASES


@pytest.mark.parametrize("by_record", [False, pytest.param(True, marks=pytest.mark.long)])
def test_each_case_has_its_verdict_and_the_report_says_the_same_as_json(
    lab: Lab, filled: Mapping[str, Case], by_record: bool
) -> None:
    report = lab.compare(lab.flow, lab.copied(filled), scope=Scope(by_record=by_record))

    assert wrong(report, CASES) == {}
    assert not report.equal and not verdict_of(report, "wider-filled").fine
    assert [each.partition for each in verdict_of(report, "wider-filled").partitions if each.unknown] == [2]
    (swapped,) = [topic for topic in json.loads(as_json(report))["topics"] if topic["topic"] == "verify.swapped"]
    assert (swapped["verdict"], len(swapped["partitions"]), swapped["records"]) == ("differs", 2, 10)
    assert "swapped" in [each["difference"]["kind"] for each in swapped["partitions"] if each["difference"]]


def test_records_of_other_writers_are_no_difference_where_remote_topics_are_shared(
    lab: Lab, filled: Mapping[str, Case]
) -> None:
    names = {name: filled[name] for name in ("shared", "wider-filled", "lost")}
    report = lab.verify(names, shared_remote_topics=True)

    assert verdicts(report, *names) == ["equal", "equal", "differs"]
    assert verdict_of(report, "shared").records == 10


@pytest.mark.long
def test_what_is_out_of_scope_is_not_compared_and_what_is_in_it_is(lab: Lab, filled: Mapping[str, Case]) -> None:
    """A record is lost in the middle of the log. Records are a millisecond apart."""

    def verdict(**scope: Any) -> Tuple[str, int]:
        copied = lab.copied({"lost-between-runs": filled["lost-between-runs"]})
        (topic,) = lab.compare(lab.flow, copied, scope=Scope(**scope)).topics
        return topic.verdict, topic.records

    assert verdict() == ("differs", 9)
    assert verdict(since=TEN[5].timestamp) == ("equal", 5)
    assert verdict(since=TEN[3].timestamp) == ("differs", 6)
    assert verdict(since=TEN[-1].timestamp + 1) == ("not compared", 0)


BOTH_COMPACTED = (COMPACTED, COMPACTED)
NO_LEDGER: Mapping[str, Case] = {
    "equal-compacted": Case(TEN, TEN, configs=BOTH_COMPACTED),
    "nothing-copied": Case(TEN, [], [], verdict="not compared", configs=BOTH_COMPACTED),
    "no-ledger": Case(TEN, TEN, [], verdict="not compared", unknown=[f"10 {AFTER_THE_LEDGER}not compared"],
                      configs=BOTH_COMPACTED),
}  # fmt: skip


def test_copy_of_which_nothing_can_be_compared_is_not_called_equal(lab: Lab) -> None:
    """Compacted logs without a ledger, as with another mirror's `state:`, and a copy that began after all records."""
    later = {"begun-later": Case(TEN, [], [(10, 0, 0)])}
    lab.plant({**NO_LEDGER, **later})
    report = lab.verify(NO_LEDGER)
    assert wrong(report, NO_LEDGER) == {} and not verdict_of(report, "no-ledger").fine
    (topic,) = lab.verify(later, auto_offset_reset="latest").topics
    assert topic.verdict == "not compared" and any("start at 10, by" in sentence for sentence in unknown(topic))


def test_a_timestamp_that_spark_cannot_hold_is_one_clear_error(lab: Lab) -> None:
    case = {"timestamp-too-far": Case([Rec(b"far", timestamp=2**62)], [], [(0, 0, 1)])}
    lab.plant(case)
    with pytest.raises(ClusterError, match=r"primary->backup: Spark could not read both logs to the end.*294247"):
        lab.verify(case)


# Flows that change records. The remote logs have no header that says where records came from.
CHANGE = RecordChange(
    where="cast(value as string) <> 'v5'", select="*, upper(cast(value as string)) as value", provenance=False
)


def made_of(log: Log) -> List[Rec]:
    """What the flow would write."""
    return [replace(each, value=(each.value or b"").upper()) for each in log if each.value != b"v5"]


MADE, BOTH_RUNS = made_of(TEN), [(0, 0, 5), (6, 5, 4)]
CHANGED: Mapping[str, Case] = {
    "made-equal": Case(TEN, MADE, BOTH_RUNS, records=9),
    "made-not": Case(TEN, [*MADE[:3], TEN[3], *MADE[4:]], BOTH_RUNS, ("changed value", 3, 3)),
    "made-dropped": Case(
        TEN, [*MADE[:5], replace(TEN[5], value=b"V5"), *MADE[5:]], found=("not made by the flow", 5, 5)
    ),
    "made-lost": Case(TEN, [*MADE[:7], *MADE[8:]], BOTH_RUNS, ("lost", 8, 7)),
}


@pytest.mark.long
def test_what_a_flow_makes_of_its_records_is_made_again_and_compared(lab: Lab) -> None:
    lab.plant(CHANGED)
    assert wrong(lab.verify(CHANGED, CHANGE), CHANGED) == {}


@pytest.mark.parametrize("partitioner", [SOURCE, KEY])
def test_what_cannot_be_made_again_is_not_called_equal(lab: Lab, partitioner: str) -> None:
    with pytest.raises(RefusedError, match="cannot be computed again for the comparison: rand"):
        lab.verify({}, RecordChange(where="rand() < 2", partitioner=partitioner))


# A segment is rolled when a record's timestamp is a second later than the first one's.
ROLLING = [Rec(b"roll", f"r{n}".encode(), timestamp=NOON + 10_000 * (n + 1)) for n in range(3)]
# The remote log is compacted of the first, and the source of the second log: of DROPPED the flow drops `v5`, and
# compaction removes `v0` for it.
OLDEST = [*(Rec(f"old{n}".encode(), b"a") for n in range(5)), Rec(b"only", b"b"), Rec(b"last", b"a"), *ROLLING]
DROPPED = [Rec(b"v0", b"a"), Rec(b"only", b"b"), Rec(b"v5", b"a"), *ROLLING]
TAKEN = "compacted away on a side: not compared"
REMOTE_CLEANED: Mapping[str, Case] = {
    "compacted": Case(OLDEST, OLDEST, configs=(COMPACTED, CLEANED), unknown=[f"5 copied records {TAKEN}"]),
    "compacted-lost": Case(
        OLDEST, [*OLDEST[:5], *OLDEST[6:]], [(0, 0, 5), (6, 5, 4)], ("lost", 5, None), configs=(COMPACTED, CLEANED)
    ),
}
SOURCE_CLEANED: Mapping[str, Case] = {
    "made-cleaned": Case(
        *(DROPPED, made_of(DROPPED), [(0, 0, 2), (3, 2, 3)]),
        configs=(CLEANED, {}), records=4, unknown=[f"1 copied record {TAKEN}"],
    ),
    "made-cleaned-lost": Case(
        DROPPED, made_of(DROPPED[:1] + DROPPED[2:]), [(0, 0, 1), (3, 1, 3)], ("lost", 1, None), configs=(CLEANED, {})
    ),
}


@pytest.mark.long
def test_records_that_compaction_took_are_skipped_and_others_that_are_missing_are_red(lab: Lab) -> None:
    lab.plant({**REMOTE_CLEANED, **SOURCE_CLEANED}, batch=1)
    for name in REMOTE_CLEANED:
        wait_compacted(lab.brokers[1], f"primary.{topic_of(name)}")
    for name in SOURCE_CLEANED:
        wait_compacted(lab.brokers[0], topic_of(name))

    assert wrong(lab.verify(REMOTE_CLEANED), REMOTE_CLEANED) == {}
    assert wrong(lab.verify(SOURCE_CLEANED, CHANGE), SOURCE_CLEANED) == {}
    # The control: were the log not one that is compacted, the same records would be missed.
    lab.target.alter_topic_configs({"primary.verify.compacted": {"cleanup.policy": "delete"}})
    uncompacted = verdict_of(lab.verify(REMOTE_CLEANED), "compacted")
    assert [(d.kind, d.upstream_offset) for d in uncompacted.differences] == [("lost", 0)]


class Held(NamedTuple):
    """A record that a log holds."""

    offset: int
    digest: str
    key: str
    tombstone: bool = False


@dataclass(frozen=True)
class HeldLog:
    """One partition's, as a `DigestReader` reads it."""

    spark: SparkSession
    records: Sequence[Held]

    def digests(self, slices: Sequence[Slice]) -> DataFrame:
        (part,) = slices
        columns = [("slot", "int"), ("offset", "bigint"), ("digest", "string"), ("key_digest", "string")]
        columns += [("tombstone", "boolean"), ("bytes", "bigint")]
        read = [each for each in self.records if part.from_offset <= each.offset < part.until_offset]
        return local_rows(self.spark, columns, [(part.slot, *each, 10) for each in read])


@pytest.mark.parametrize(("deleted", "differing", "compacted"), [(True, 0, 2), (False, 2, 0)])
def test_key_that_was_deleted_and_cleaned_on_the_target_is_not_lost_where_the_source_has_it_again(
    spark: SparkSession, deleted: bool, differing: int, compacted: int
) -> None:
    """The source's next record of the key is not copied yet. The control: its last copied one was no tombstone."""
    source = [Held(0, "was", "k"), Held(1, "gone", "k", deleted), Held(2, "x", "other"), Held(3, "is again", "k")]
    ends = OffsetRange(0, 4), OffsetRange(0, 3)
    known = CopiedPartition("orders", "A.orders", 0, array("q"), *ends, source_compacted=True, remote_compacted=True)
    copied = CopiedRange(known, PartitionMap.of([(0, 0, 3)]), Bounds(0, 0, 3, 4), Bounds(0, 0, 3, 3))
    logs = [cast(DigestReader, HeldLog(spark, records)) for records in (source, [Held(2, "x", "other")])]
    found = compare(spark, logs[0], logs[1], {0: copied})[0]
    assert (found.records, found.differing, found.compacted) == (1, differing, compacted)


MANY = 6_000


@pytest.fixture(scope="module")
def filtered(lab: Lab) -> Mapping[str, Case]:
    """Topics with a copy of every other record, so that each is a range: one copied right, and one with an error."""
    records, runs = numbered(2 * MANY), [(2 * n, n, 1) for n in range(MANY)]
    kept = records[::2]
    altered = [*kept[:5000], replace(kept[5000], value=b"other"), *kept[5001:]]
    cases = {
        "filtered": Case(records, kept, runs, records=MANY),
        "filtered-and-changed": Case(records, altered, runs, ("changed value", 10_000, 5000), records=MANY, places=1),
    }
    lab.plant(cases)
    return cases


@pytest.mark.long
@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param({}, id="with the function"),
        pytest.param({"spark.jobs.SMALL_BYTES": 0}, id="from a worker to every executor"),
        pytest.param(
            {"spark.jobs.SMALL_BYTES": 0, "verify.comparison.MOST_EVERYWHERE": 0}, id="from a worker in parts"
        ),
    ],
)
def test_copy_with_a_run_for_each_record_is_compared_whatever_way_they_take_and_leaves_no_file(
    lab: Lab, filtered: Mapping[str, Case], bounds: Mapping[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, bound in bounds.items():
        monkeypatch.setattr(f"mirror_lib.{name}", bound)
    folder = str(lab.spark.sparkContext._temp_dir)
    lying = os.listdir(folder)
    report = lab.verify(filtered, RecordChange(where="cast(key as string) rlike '[02468]$'", provenance=False))
    assert os.listdir(folder) == lying
    assert wrong(report, filtered) == {}


# A flow that repartitions TEN, of partition 0, and MORE, of partition 1, by their keys.
MORE = [replace(each, key=TEN[n].key) for n, each in enumerate(numbered(6, "w"))]


def placed_log(records: Log) -> Dict[int, List[Rec]]:
    """Where Kafka's partitioner would put `records` among two partitions."""
    return {n: [record for record in records if partition_of_key(record.key, 0, 2) == n] for n in (0, 1)}


ALL, REST = placed_log(TEN), placed_log(MORE)
# What partitions 0 and 1 of the source come to, one after the other and one between the other: each keeps its order.
LOG0, LOG1 = ([*ALL[n], *REST[n]] for n in (0, 1))
MIXED = [[*REST[n][:1], *ALL[n][:2], *REST[n][1:], *ALL[n][2:]] for n in (0, 1)]
OTHER_VALUE = replace(LOG0[1], value=b"other")
# Records and other contents of them, and the place that they were copied from.
ORIGINS: Mapping[Rec, Tuple[int, int]] = {
    **{record: (n, at) for n, log in enumerate((TEN, MORE)) for at, record in enumerate(log)},
    **{replace(record, value=b"random"): (0, at) for at, record in enumerate(TEN)},
    OTHER_VALUE: (0, TEN.index(LOG0[1])),
}


def offset_of(record: Rec) -> int:
    """Its offset on the source."""
    return ORIGINS[record][1]


def with_origin(topic: CopiedTopic, record: Rec) -> Rec:
    if record not in ORIGINS:
        return record
    number, offset = ORIGINS[record]
    origin = f"primary/{topic.source.name}/{number}/{offset}/{topic.source.topic_id[:6]}".encode()
    return replace(record, headers=(*record.headers, ("mirror.origin", origin)))


def placed(log0: Log, log1: Log, found: Optional[Found] = None, **more: Any) -> Case:
    """The case of these remote logs, which one micro-batch wrote."""
    ends = len(log0), len(log1)

    def rows(topic: CopiedTopic) -> List[LedgerRow]:
        names, ids = (topic.source.name, topic.remote_topic), (topic.source.topic_id, topic.remote_topic_id)
        found = [LedgerRow(*names, -1, *ids, 0, 0, 0, there, 0, 0) for there in (0, 1)]
        for n, count in enumerate((len(TEN), len(MORE))):
            found.append(LedgerRow(*names, n, *ids, 0, 0, 0, -1, 0, 0))
            found += [LedgerRow(*names, n, *ids, 0, 0, 1, there, count, end) for there, end in enumerate(ends)]
        return found

    defaults: Dict[str, Any] = {"rows": rows, "origins": True, "configs": ({}, {})}
    return Case(TEN, log0, found=found, others={1: (MORE, log1)}, **{**defaults, **more})


def nothing(_: CopiedTopic) -> List[LedgerRow]:
    return []


FIRST_LOST, LAST_LOST = offset_of(LOG0[0]), offset_of(ALL[0][-1])
PLACED: Mapping[str, Case] = {
    "placed-equal": placed(LOG0, LOG1, records=16),
    "placed-mixed": placed(MIXED[0], MIXED[1], records=16),
    "placed-lost": placed(LOG0, LOG1[:-1], other_found=("lost", offset_of(LOG1[-1]), None), places=1),
    "placed-doubled": placed([*LOG0, LOG0[1]], LOG1, ("doubled", offset_of(LOG0[1]), len(LOG0)), places=1),
    "placed-tripled": placed([LOG0[0], LOG0[0], *LOG0], LOG1, ("doubled", FIRST_LOST, 1), places=2),
    "placed-elsewhere": placed(
        LOG0[1:], [LOG0[0], *LOG1], ("wrong partition", FIRST_LOST, None),
        other_found=("wrong partition", FIRST_LOST, 0), places=2,
    ),
    "placed-both-ways": placed(LOG0, [LOG0[0], *LOG1], other_found=("wrong partition", FIRST_LOST, 0), places=1),
    "placed-swapped": placed(
        [ALL[0][0], ALL[0][2], ALL[0][1], *ALL[0][3:], *REST[0]], LOG1, ("swapped", offset_of(ALL[0][2]), 1), places=1
    ),
    "placed-changed": placed(
        [LOG0[0], OTHER_VALUE, *LOG0[2:]], LOG1, ("changed value", offset_of(LOG0[1]), 1), places=1
    ),
    "placed-stranger": placed([STRANGER, *LOG0], LOG1, ("not on the source", None, 0), places=1),
    "placed-old-source": placed(LOG0, LOG1, expires=(4, 0), records=12),
    "placed-old-remote": placed(LOG0, LOG1, expires=(0, 2), records=14),
    "placed-old-and-lost": placed(
        [each for each in LOG0 if each != ALL[0][-1]], LOG1, ("lost", LAST_LOST, None), expires=(0, 2)
    ),
}  # fmt: skip
# What cannot be compared: without ranges, and a copy that lacks all records, which compaction might have removed.
PLACED_UNKNOWN: Mapping[str, Case] = {
    "placed-unknown": placed(LOG0, LOG1, rows=nothing, origins=False, verdict="not compared"),
    "placed-empty": placed([], [], configs=({}, COMPACTED), verdict="not compared"),
}


@pytest.fixture(scope="module")
def repartitioned(lab: Lab) -> Mapping[str, Case]:
    lab.plant(PLACED)
    return PLACED


def test_repartitioned_records_are_compared_in_each_remote_partition_with_their_order(
    lab: Lab, repartitioned: Mapping[str, Case]
) -> None:
    report = lab.verify(repartitioned, RecordChange(partitioner=KEY))

    assert wrong(report, PLACED) == {}
    for name, part in (("source", "4 offsets of its sources expired"), ("remote", "2 records of the source may have")):
        assert any(part in sentence for sentence in unknown(verdict_of(report, f"placed-old-{name}")))


@pytest.mark.long
def test_repartitioned_records_are_compared_as_far_as_the_flow_lets_them_be_known(
    lab: Lab, repartitioned: Mapping[str, Case]
) -> None:
    whole = {name: case for name, case in PLACED.items() if not any(case.expires)}
    others = [name for name, case in whole.items() if name != "placed-stranger" and case.expected == "differs"]
    by_key = RecordChange(partitioner=KEY)

    # Where others may write, what has no origin is theirs, and nothing else is.
    shared = lab.verify(whole, by_key, shared_remote_topics=True)
    stranger = verdict_of(shared, "placed-stranger")
    assert stranger.verdict == "equal"
    assert unknown(stranger) == ["1 record of other writers in between: not compared"]
    assert set(verdicts(shared, *others)) == {"differs"}

    # Another mirror's copies are none of this one's; and without origins nothing is known of them.
    first = lab.copied({"placed-equal": whole["placed-equal"]}, keyed_over=2)
    another = lab.compare(replace(lab.flow, change=by_key), first, mirror="other")
    assert {d.kind for d in another.topics[0].differences} == {"lost"}
    bare = lab.verify(whole, replace(by_key, provenance=False))
    assert {topic.verdict for topic in bare.topics} == {"not compared"}
    lab.plant(PLACED_UNKNOWN)
    assert wrong(lab.verify(PLACED_UNKNOWN, by_key), PLACED_UNKNOWN) == {}
    lost = lab.verify({"placed-unknown": PLACED_UNKNOWN["placed-unknown"]}, by_key, shared_remote_topics=True)
    assert verdicts(lost, "placed-unknown") == ["not compared"]
