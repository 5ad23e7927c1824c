"""Every example file on two real clusters: what its document or its first line says of topics, groups and records is
so."""

from __future__ import annotations

import json
import re
import shlex
import signal
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType
from pyspark.sql import SparkSession

from mirror_lib.cli import main
from mirror_lib.facts import TopicPartition
from mirror_lib.groups.mm2_format import decode_checkpoint
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.crash import mirror
from tests.lab.examples import CHANGES, CONNECTORS, EXAMPLES, filled_in, joined
from tests.lab.group_lab import commit, read_on
from tests.lab.murmur2 import partition_of_key
from tests.lab.one_flow import until
from tests.lab.readers import Log, LogRecord, differences, origin_of, read_topic, without_origins

CHECKPOINTS = "emrsource.checkpoints.internal"
Sites = Tuple[KafkaBroker, KafkaBroker]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """Clusters of this module alone: the examples copy every topic there is."""
    with clusters(["one", "two"], tmp_path_factory.mktemp("sites")) as (one, two):
        yield one, two


# --- conf/examples/changes, and the filters and masks of docs/run/transform.md that say what becomes of NULL ----------

Logs = Dict[int, Log]
FIRST = 1_700_000_000_000
STATUS = ("paid", "open", "paid", "void")


class Site(NamedTuple):
    """Both clusters, filled and copied. A remote topic is called `<example>.<topic>`."""

    source: KafkaBroker
    target: KafkaBroker

    def upstream(self, topic: str) -> Logs:
        return read_topic(self.source, topic)

    def downstream(self, topic: str) -> Logs:
        """Without the headers that say where records came from."""
        return without_origins(read_topic(self.target, topic))


@pytest.fixture(scope="module")
def site(both: Sites, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """All examples in one run."""
    folder, (source, target) = tmp_path_factory.mktemp("changes"), both
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for topic, values in topics().items():
        source.create_topic(topic, 2)
        producer = source.producer()
        for number, value in enumerate(values):
            headers: List[Tuple[str, Any]] = [("region", "eu" if number % 3 else "us")] if number % 5 else []
            key = b"customer-%d" % (number % 20)
            producer.produce(topic, value, key, headers=headers, partition=number % 2, timestamp=FIRST + number)
        assert producer.flush(30) == 0
    assert main(["run", str(joined(CHANGES, [source.bootstrap, target.bootstrap], folder)), "--once"]) == 0
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return Site(source, target)


def topics() -> Mapping[str, List[Optional[bytes]]]:
    numbers = range(60)
    orders = [_json(id=n, status=STATUS[n % 4], total=f"{n}.50", secret="s") for n in numbers]
    return {
        "orders": [b"no order" if n % 10 == 9 else orders[n] for n in numbers],
        "payments": [None if n % 10 == 9 else b"card 12345678%08d paid" % n for n in numbers],
        "clicks": [b"click %d" % n for n in numbers],
        "legacy-eu": [b"%d" % n for n in numbers],
        "legacy-us": [b"us %d" % n for n in numbers],
        "audit": [b"%d" % n for n in numbers],
        "customers": [customer(n) for n in numbers],
        "readings": [b"?" if n % 10 == 9 else _json(sensor=f"s{n}", fahrenheit=32 + 9 * n) for n in numbers],
    }


def customer(n: int) -> Optional[bytes]:
    """In turn: German, the same with other spacing, foreign, no JSON, without the fields, a tombstone."""
    german = _json(id=n, country="DE", card=f"41111111{n:08d}")
    spaced = b'{ "card" : "41111111%08d","country":"DE"  ,\n"id":%d}' % (n, n)
    return (german, spaced, german.replace(b"DE", b"US"), b"no customer", _json(id=n), None)[n % 6]


def _json(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def records(logs: Logs) -> List[Tuple[int, LogRecord]]:
    """(partition, record) in the order of timestamps, which is that of writing."""
    found = [(number, record) for number, log in logs.items() for record in log.values()]
    return sorted(found, key=lambda each: each[1].timestamp)


Change = Callable[[LogRecord], Optional[bytes]]


class Copy(NamedTuple):
    """What a remote topic must hold: the records of `source` that `keep` leaves, with the fields that a function makes.
    A dead letter has the reason as a header of its own."""

    source: str
    keep: Callable[[LogRecord], object] = lambda record: True
    key: Change = lambda record: record.key
    value: Change = lambda record: record.value
    dead: bool = False

    def of(self, site: Site) -> List[Tuple[int, LogRecord]]:
        kept = [(number, record) for number, record in records(site.upstream(self.source)) if self.keep(record)]
        return [(number, each._replace(key=self.key(each), value=self.value(each))) for number, each in kept]


def text_of(record: LogRecord) -> bytes:
    return record.value or b""


def compact(**fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def masked(record: LogRecord) -> Optional[bytes]:
    return record.value and b"card ************" + record.value[17:]


def card_masked(record: LogRecord) -> Optional[bytes]:
    number = record.timestamp - FIRST
    return record.value and b'{"id":%d,"card":"****%04d"}' % (number, number)


def fewer(record: LogRecord) -> bytes:
    read = json.loads(text_of(record))
    return compact(id=str(read["id"]), total=read["total"])


def as_number(record: LogRecord) -> bytes:
    found = json.loads(text_of(record), parse_float=Decimal)
    return f'{{"id":{found["id"]},"total":{Decimal(found["total"])}}}'.encode()


def celsius(record: LogRecord) -> bytes:
    read = json.loads(text_of(record))
    return compact(sensor=read["sensor"], celsius=(read["fahrenheit"] - 32) * 5 / 9)


COPIES = {
    "masking.payments": Copy("payments", key=lambda r: sha256(r.key or b"").hexdigest().encode(), value=masked),
    "header-filter.orders": Copy("orders", lambda r: ("region", b"eu") in r.headers),
    "json-fields.orders": Copy("orders", lambda r: b'"paid"' in text_of(r), value=fewer),
    "sales.eu": Copy("legacy-eu"),
    "sales.us": Copy("legacy-us"),
    "audit.rename": Copy("audit"),
    "dead-letters.orders": Copy("orders", lambda r: r.value != b"no order", value=as_number),
    "orders.dead": Copy("orders", lambda r: r.value == b"no order", dead=True),
    "transform.readings": Copy("readings", lambda r: r.value != b"?", value=celsius),
    "page0.customers": Copy("customers", lambda r: r.value is None or b"DE" in r.value),
    "customers.unread": Copy("customers", lambda r: r.value is not None and b"country" not in r.value, dead=True),
    "page1.customers": Copy("customers", lambda r: r.value is None or b"card" in r.value, value=card_masked),
    "customers.failed": Copy("customers", lambda r: r.value and b"card" not in r.value, dead=True),
    "de.customers": Copy("customers", lambda r: b"DE" in text_of(r)),
    "rest.customers": Copy("customers", lambda r: b"DE" not in text_of(r)),
}


@pytest.mark.long
@pytest.mark.parametrize("remote", COPIES)
def test_records_are_what_the_example_says(site: Site, remote: str) -> None:
    there, expected = records(site.downstream(remote)), COPIES[remote].of(site)
    if COPIES[remote].dead:
        assert {record.headers[-1][0] for _, record in there} == {"mirror.error"}
        there = [(number, record._replace(headers=record.headers[:-1])) for number, record in there]
    assert there == expected and there


@pytest.mark.long
def test_sampling_takes_all_records_of_some_customers(site: Site) -> None:
    taken = {record.key for _, record in records(site.downstream("sampling.clicks"))}
    assert 0 < len(taken) < 10
    assert records(site.downstream("sampling.clicks")) == Copy("clicks", lambda r: r.key in taken).of(site)


@pytest.mark.long
def test_provenance(site: Site) -> None:
    for number, log in site.upstream("orders").items():
        there = list(read_topic(site.target, "provenance.orders")[number].values())
        reported = [(origin_of(copy) or "").rpartition("/")[0].partition("/")[2] for copy in there]
        assert reported == [f"orders/{number}/{offset}" for offset in log]
    assert differences(site.upstream("orders"), site.downstream("provenance.orders")) == []


@pytest.mark.long
def test_keyed_repartition(site: Site) -> None:
    ours, there = site.upstream("orders"), site.downstream("keyed-repartition.orders")
    assert sorted(there) == list(range(6))
    expected = [(partition_of_key(record.key, number, 6), record) for number, record in records(ours)]
    assert records(there) == expected
    for log in there.values():
        for key in {record.key for record in log.values()}:
            times = [record.timestamp for record in log.values() if record.key == key]
            assert times == sorted(times)


# --- MirrorMaker 2, Connect and MirrorMaker 1: each begins with empty clusters ----------------------------------------


@pytest.fixture
def sites(both: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Sites:
    """Both clusters, empty. The files are filled in in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    for broker in both:
        for topic in broker.topics:
            broker.delete_topic(topic)
    return both


def run(files: Sequence[Path], sites: Sites, *options: str) -> None:
    """`mirror run FILES --once`, in this process."""
    paths = filled_in(files, sites)
    assert main(["run", *paths, "--once", *options]) == 0


def plan(files: Sequence[Path], sites: Sites) -> None:
    """`mirror plan FILES`, which changes neither cluster."""
    before = [broker.topics for broker in sites]
    assert main(["plan", *filled_in(files, sites)]) == 0
    assert [broker.topics for broker in sites] == before


def fill(broker: KafkaBroker, topic: str, count: int = 20, partitions: int = 0, **configs: str) -> str:
    """Records of an application; the topic is made where `partitions` are given."""
    if partitions:
        broker.create_topic(topic, partitions, **configs)
    producer = broker.producer()
    for number in range(count):
        producer.produce(topic, b"%d" % number, b"key %d" % (number % 7))
    assert producer.flush(30) == 0
    return topic


def assert_copied(source: KafkaBroker, topic: str, target: KafkaBroker, remote: str) -> None:
    ours = read_topic(source, topic)
    assert sum(len(log) for log in ours.values()) > 0
    assert differences(ours, read_topic(target, remote)) == []


def count_of(found: Mapping[TopicPartition, Sequence[object]]) -> int:
    return sum(len(records) for records in found.values())


@pytest.mark.long
@pytest.mark.parametrize(("file", "back"), [("hdinsight/one-way", []), ("dzone/active-active", ["target.there"])])
def test_every_topic_is_copied_one_way_or_both_and_internal_ones_are_left(
    sites: Sites, file: str, back: List[str]
) -> None:
    source, target = sites
    fill(source, "orders", partitions=2)
    fill(source, "app.internal", partitions=1)
    fill(target, "there", partitions=1)
    plan([EXAMPLES / f"{file}.properties"], sites)
    run([EXAMPLES / f"{file}.properties"], sites)
    assert_copied(source, "orders", target, "source.orders")
    for copy in back:
        assert_copied(target, "there", source, copy)
    own = [{name for name in site.topics if not re.search("internal$|heartbeats", name)} for site in sites]
    assert own == [{"orders", *back}, {"there", "source.orders"}] and "source.app.internal" not in target.topics


def test_hdinsight_both_ways_a_group_goes_on_where_it_left(sites: Sites) -> None:
    primary, secondary = sites
    files = [EXAMPLES / "hdinsight" / "both-ways-with-groups.properties"]
    topic = fill(primary, "TestMirrorMakerTopic", 20, partitions=2)
    fill(secondary, "orders", 20, partitions=1)
    assert count_of(read_on(primary, "my-group", [topic])) == 20
    run(files, sites)
    remote = f"primary-kafka-cluster.{topic}"
    assert_copied(primary, topic, secondary, remote)
    assert_copied(secondary, "orders", primary, "secondary-kafka-cluster.orders")
    assert count_of(read_on(secondary, "my-group", [remote])) == 0
    fill(primary, topic, 5)
    run(files, sites)
    assert count_of(read_on(secondary, "my-group", [remote])) == 5
    assert not {name for site in sites for name in site.topics if name.count("-kafka-cluster.") > 1}


@pytest.mark.long
def test_dzone_active_passive_copies_topics_with_their_configs(sites: Sites) -> None:
    source, target = sites
    sizes = {"topic_1": 1, "topic_2": 2, "compact_3": 5, "compacted_topic_1": 1, "compacted_topic_2": 1}
    for topic, partitions in sizes.items():
        policy = "compact" if topic.startswith("compacted") else "delete"
        fill(source, topic, partitions=partitions, cleanup_policy=policy)
    fill(target, "stays", partitions=1)
    assert count_of(read_on(source, "app", ["topic_2"])) == 20
    run([EXAMPLES / "dzone" / "active-passive.properties"], sites)
    for topic, partitions in sizes.items():
        assert_copied(source, topic, target, f"source.{topic}")
        assert len(read_topic(target, f"source.{topic}")) == partitions
    resource, admin = ConfigResource(ResourceType.TOPIC, "source.compacted_topic_1"), target.admin()
    assert admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value == "compact"
    assert not {name for name in source.topics if name.startswith("target.")}
    # "A heartbeat topic on each side", and the copy of the source's.
    assert "heartbeats" in source.topics
    assert {"heartbeats", "source.heartbeats"} <= target.topics
    assert read_topic(target, "source.checkpoints.internal")[0]


@pytest.mark.long
def test_mirrormaker_1_command_for_all_topics_copies_each_under_its_name(sites: Sites) -> None:
    source, target = sites
    topics = [fill(source, name, partitions=1) for name in ("test-topic", "orders")]
    for topic in topics:  # these client files begin at the end where the group has no offset
        commit(source, "KafkaMirror", topic, 0)
    folder = EXAMPLES / "mm1" / "hortonworks"
    for file in folder.glob("*.properties"):
        text = file.read_text().replace("SOURCE_BROKERS", source.bootstrap)
        Path(file.name).write_text(text.replace("TARGET_BROKERS", target.bootstrap))
    command = shlex.split((folder / "all-topics.sh").read_text().splitlines()[-1])
    assert main([*command[1:], "--once", "--state", str(Path.cwd() / "state")]) == 0
    assert target.topics == set(topics)
    for topic in topics:
        assert_copied(source, topic, target, topic)


def test_the_three_connectors_together_are_one_flow(sites: Sites) -> None:
    source, target = sites
    fill(source, "foo", partitions=1)
    fill(source, "foo-2", partitions=3)
    fill(source, "bar-foo", partitions=1)
    assert count_of(read_on(source, "app", ["foo"])) == 20
    run(CONNECTORS, sites)
    assert_copied(source, "foo", target, "emrsource.foo")
    assert_copied(source, "foo-2", target, "emrsource.foo-2")
    assert "emrsource.bar-foo" not in target.topics
    assert "heartbeats" in target.topics
    # What `curl …/status` is for.
    assert main(["verify", *filled_in(CONNECTORS, sites)]) == 0
    assert read_topic(target, CHECKPOINTS)[0]


@pytest.mark.long
def test_each_connector_alone_does_its_part(sites: Sites) -> None:
    source, target = sites
    copying, translating, beating = ([file] for file in CONNECTORS)
    fill(source, "foo", partitions=1)
    assert count_of(read_on(source, "app", ["foo"])) == 20
    plan(translating, sites)
    run(translating, sites)
    assert target.topics == {CHECKPOINTS}
    assert not read_topic(target, CHECKPOINTS)[0]  # nothing is copied yet
    run(copying, sites)
    assert_copied(source, "foo", target, "emrsource.foo")
    fill(source, "foo", 5)
    run(translating, sites)
    assert target.topics == {"emrsource.foo", CHECKPOINTS}
    copies = read_topic(target, "emrsource.foo")[0]
    (record,) = read_topic(target, CHECKPOINTS)[0].values()
    found = decode_checkpoint(record.key or b"", record.value or b"")
    assert (found.group, found.topic, found.upstream_offset) == ("app", "emrsource.foo", 20)
    assert len(copies) == sum(offset < found.downstream_offset for offset in copies) == 20
    plan(beating, sites)
    run(beating, sites)
    assert target.topics == {"emrsource.foo", CHECKPOINTS, "heartbeats"} and source.topics == {"foo"}
    assert len(read_topic(target, "heartbeats")[0]) == 1
    # Those that copy nothing go on until they are stopped.
    commit(source, "app", "foo", 10)
    paths = filled_in(CONNECTORS[1:], sites)
    with mirror("run", *paths) as running:
        until(lambda: len(read_topic(target, "heartbeats")[0]) > 1, 60)
        until(lambda: len(read_topic(target, CHECKPOINTS)[0]) > 1, 60)
        assert running.process.poll() is None
        running.process.terminate()
        assert running.wait(30) == 0
    assert "copies nothing" in running.output
