"""Every file of conf/examples/changes on two real clusters: what its first line says has become of the records. And the
filters and masks of docs/run/transform.md that say what becomes of NULL."""

from __future__ import annotations

import json
import signal
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from mirror_lib.cli import main
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.change_examples import CHANGES, joined
from tests.lab.murmur2 import partition_of_key
from tests.lab.readers import Log, LogRecord, differences, origin_of, read_topic, without_origins

pytestmark = pytest.mark.long

Logs = Dict[int, Log]
FIRST = 1_700_000_000_000
STATUS = ("paid", "open", "paid", "void")


class Site:
    """Both clusters, filled and copied. A remote topic is called `<example>.<topic>`."""

    def __init__(self, source: KafkaBroker, target: KafkaBroker, config: Path) -> None:
        self.source, self.target, self.config = source, target, config

    def upstream(self, topic: str) -> Logs:
        return read_topic(self.source, topic)

    def downstream(self, topic: str) -> Logs:
        """Without the headers that say where records came from."""
        return without_origins(read_topic(self.target, topic))


@pytest.fixture(scope="module")
def site(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """All examples in one run."""
    folder = tmp_path_factory.mktemp("changes")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with clusters(["one", "two"], folder) as (source, target):
        fill(source)
        config = joined(CHANGES, [source.bootstrap, target.bootstrap], folder)
        assert main(["run", str(config), "--once"]) == 0
        yield Site(source, target, config)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def fill(broker: KafkaBroker) -> None:
    for topic, values in topics().items():
        broker.create_topic(topic, 2)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for number, value in enumerate(values):
            headers: List[Tuple[str, Any]] = [("region", "eu" if number % 3 else "us")] if number % 5 else []
            key = b"customer-%d" % (number % 20)
            producer.produce(topic, value, key, headers=headers, partition=number % 2, timestamp=FIRST + number)
        assert producer.flush(30) == 0


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


def where(logs: Logs, keep: Any, **changes: Any) -> List[Tuple[int, LogRecord]]:
    """The source's records that `keep` leaves, with the fields that `changes` make of a record."""
    kept = [(number, record) for number, record in records(logs) if keep(record)]
    return [(n, r._replace(**{field: made(r) for field, made in changes.items()})) for n, r in kept]


def test_masking(site: Site) -> None:
    def masked(record: LogRecord) -> Optional[bytes]:
        return record.value and b"card ************" + record.value[17:]

    hashed = where(
        site.upstream("payments"), lambda r: True, key=lambda r: sha256(r.key).hexdigest().encode(), value=masked
    )
    assert records(site.downstream("masking.payments")) == hashed


def test_sampling_takes_all_records_of_some_customers(site: Site) -> None:
    taken = {record.key for _, record in records(site.downstream("sampling.clicks"))}
    assert 0 < len(taken) < 10
    assert records(site.downstream("sampling.clicks")) == where(site.upstream("clicks"), lambda r: r.key in taken)


def test_header_filter(site: Site) -> None:
    ours = where(site.upstream("orders"), lambda r: ("region", b"eu") in r.headers)
    assert records(site.downstream("header-filter.orders")) == ours
    assert 0 < len(ours) < 60


def test_json_fields(site: Site) -> None:
    def fewer(record: LogRecord) -> bytes:
        read = json.loads(record.value or b"")
        return json.dumps({"id": str(read["id"]), "total": read["total"]}, separators=(",", ":")).encode()

    paid = where(site.upstream("orders"), lambda r: b'"paid"' in r.value, value=fewer)
    assert records(site.downstream("json-fields.orders")) == paid


def test_rename(site: Site) -> None:
    for region in ("eu", "us"):
        assert differences(site.upstream(f"legacy-{region}"), site.downstream(f"sales.{region}")) == []
    assert differences(site.upstream("audit"), site.downstream("audit.rename")) == []


def test_provenance(site: Site) -> None:
    for number, log in site.upstream("orders").items():
        there = list(read_topic(site.target, "provenance.orders")[number].values())
        reported = [(origin_of(copy) or "").rpartition("/")[0].partition("/")[2] for copy in there]
        assert reported == [f"orders/{number}/{offset}" for offset in log]
    assert differences(site.upstream("orders"), site.downstream("provenance.orders")) == []


def test_dead_letters(site: Site) -> None:
    def read(record: LogRecord) -> bytes:
        found = json.loads(record.value or b"", parse_float=Decimal)
        return f'{{"id":{found["id"]},"total":{Decimal(found["total"])}}}'.encode()

    good = where(site.upstream("orders"), lambda r: r.value != b"no order", value=read)
    assert records(site.downstream("dead-letters.orders")) == good
    dead = [record for _, record in records(site.downstream("orders.dead"))]
    bad = [record for _, record in where(site.upstream("orders"), lambda r: r.value == b"no order")]
    assert [record._replace(headers=record.headers[:-1]) for record in dead] == bad
    assert {record.headers[-1][0] for record in dead} == {"mirror.error"}
    assert all((record.headers[-1][1] or b"").startswith(b"select: value cannot be computed: ") for record in dead)


def test_filter_of_the_page_loses_nothing_in_silence(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    ours = site.upstream("customers")
    kept = where(ours, lambda r: r.value is None or b"DE" in r.value)
    unread = where(ours, lambda r: r.value is not None and b"country" not in r.value)
    assert records(site.downstream("page0.customers")) == kept
    dead = records(site.downstream("customers.unread"))
    assert [(n, record._replace(headers=record.headers[:-1])) for n, record in dead] == unread
    assert len(kept) + len(unread) == 50
    main(["status", str(site.config), "--flow", "page0->backup", "--json"])
    assert json.loads(capsys.readouterr().out)["run"]["filtered"] == 10


def test_mask_of_the_page_lets_no_card_pass(site: Site) -> None:
    def masked(record: LogRecord) -> Optional[bytes]:
        number = record.timestamp - FIRST
        return record.value and b'{"id":%d,"card":"****%04d"}' % (number, number)

    ours = site.upstream("customers")
    assert records(site.downstream("page1.customers")) == where(
        ours, lambda r: r.value is None or b"card" in r.value, value=masked
    )
    dead = [record.value for _, record in records(site.downstream("customers.failed"))]
    assert dead == [record.value for _, record in where(ours, lambda r: r.value and b"card" not in r.value)]


def test_filters_of_the_page_that_are_complements_take_each_record_once(site: Site) -> None:
    ours = site.upstream("customers")
    german, rest = (records(site.downstream(f"{alias}.customers")) for alias in ("de", "rest"))
    assert german == where(ours, lambda r: r.value is not None and b"DE" in r.value)
    assert sorted([*german, *rest], key=lambda each: each[1].timestamp) == records(ours)


def test_transform(site: Site) -> None:
    def celsius(record: LogRecord) -> bytes:
        read = json.loads(record.value or b"")
        made = {"sensor": read["sensor"], "celsius": (read["fahrenheit"] - 32) * 5 / 9}
        return json.dumps(made, separators=(",", ":")).encode()

    readings = where(site.upstream("readings"), lambda r: r.value != b"?", value=celsius)
    assert records(site.downstream("transform.readings")) == readings


def test_keyed_repartition(site: Site) -> None:
    ours, there = site.upstream("orders"), site.downstream("keyed-repartition.orders")
    assert sorted(there) == list(range(6))
    expected = [(partition_of_key(record.key, number, 6), record) for number, record in records(ours)]
    assert records(there) == expected
    for log in there.values():
        for key in {record.key for record in log.values()}:
            times = [record.timestamp for record in log.values() if record.key == key]
            assert times == sorted(times)


@pytest.mark.parametrize(
    "flow, records",
    [
        *(("json-fields", 30), ("dead-letters", 54), ("keyed-repartition", 60)),
        *(("page0", 30), ("page1", 40), ("rest", 40)),
    ],
)
def test_a_copy_is_proven_by_making_the_change_again(
    site: Site, capsys: pytest.CaptureFixture[str], flow: str, records: int
) -> None:
    assert main(["verify", str(site.config), "--flow", f"{flow}->backup", "--json"]) == 0
    topics = json.loads(capsys.readouterr().out)["topics"]
    assert sum(topic["records"] for topic in topics) == records
