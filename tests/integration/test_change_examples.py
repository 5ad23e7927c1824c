"""Every file of conf/examples/changes on two real clusters: what its first line says has become of the records. And the
filters and masks of docs/run/transform.md that say what becomes of NULL."""

from __future__ import annotations

import json
import signal
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import pytest
from pyspark.sql import SparkSession

from mirror_lib.cli import main
from tests.integration.conftest import Command
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
        producer = broker.producer()
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


@pytest.mark.parametrize("remote", COPIES)
def test_records_are_what_the_example_says(site: Site, remote: str) -> None:
    there, expected = records(site.downstream(remote)), COPIES[remote].of(site)
    if COPIES[remote].dead:
        assert {record.headers[-1][0] for _, record in there} == {"mirror.error"}
        there = [(number, record._replace(headers=record.headers[:-1])) for number, record in there]
    assert there == expected and there


def test_filter_counts_what_it_leaves_out(site: Site, command: Command) -> None:
    (status,) = command("status", site.config, "--flow", "page0->backup", "--json").documents
    assert status["run"]["filtered"] == 10
    (status,) = command("status", site.config, "--flow", "dead-letters->backup", "--json").documents
    assert status["run"]["dead_letters"] == len(records(site.downstream("orders.dead")))
    reasons = [record.headers[-1][1] or b"" for _, record in records(site.downstream("orders.dead"))]
    assert all(each.startswith(b"select: value cannot be computed: ") for each in reasons)


def test_sampling_takes_all_records_of_some_customers(site: Site) -> None:
    taken = {record.key for _, record in records(site.downstream("sampling.clicks"))}
    assert 0 < len(taken) < 10
    assert records(site.downstream("sampling.clicks")) == Copy("clicks", lambda r: r.key in taken).of(site)


def test_provenance(site: Site) -> None:
    for number, log in site.upstream("orders").items():
        there = list(read_topic(site.target, "provenance.orders")[number].values())
        reported = [(origin_of(copy) or "").rpartition("/")[0].partition("/")[2] for copy in there]
        assert reported == [f"orders/{number}/{offset}" for offset in log]
    assert differences(site.upstream("orders"), site.downstream("provenance.orders")) == []


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
    site: Site, command: Command, flow: str, records: int
) -> None:
    verified = command("verify", site.config, "--flow", f"{flow}->backup", "--json")
    assert verified.code == 0
    assert sum(topic["records"] for topic in verified.documents[0]["topics"]) == records
