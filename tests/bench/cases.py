"""The topics that are copied, each with the target that the page holds it to; what a case changes in its records, for
this mirror, for MirrorMaker 2 as far as it can, and for the reader; and how a topic is filled.

MirrorMaker's single message transforms see a value as bytes: they can drop, by header or topic, and not look into JSON.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from confluent_kafka import Producer

from tests.lab.brokers import KafkaBroker
from tests.lab.dataset import produce

# Both are in every value that `fill` writes as JSON; one record in ten is PLACED, and has a header of this name too.
PLACED, SEEN = "order placed", "order seen"
PLACED_HEADER = "placed"
ONE_IN = 10
AS_IT_IS = "all"


@dataclass(frozen=True)
class Change:
    """`flow` are settings of our flow, `transforms` MirrorMaker's. `rule` is how `Digest.java` makes of a source record
    what ours has to write, `rule_of_mm2` what MirrorMaker has to. One record in `one_in` is copied."""

    flow: Mapping[str, str]
    transforms: Mapping[str, str] = field(default_factory=dict)
    rule: str = AS_IT_IS
    rule_of_mm2: str = AS_IT_IS
    one_in: int = 1


SELECT_ALL = Change({"select": '"*"'})

_KEEPS_PLACED = {
    "transforms": "keep",
    "transforms.keep.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.keep.predicate": "placed",
    "transforms.keep.negate": "true",
    "predicates": "placed",
    "predicates.placed.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "predicates.placed.name": PLACED_HEADER,
}
_IN_JSON = f"get_json_object(cast(value as string), '$.kind') = '{PLACED}'"
_IN_BYTES = f"contains(value, cast('{PLACED}' as binary))"


def _filter(where: str) -> Change:
    return Change({"where": f'"{where}"'}, _KEEPS_PLACED, rule="placed", rule_of_mm2="placed", one_in=ONE_IN)


# Equal results, unlike work: there the header says what here is looked for in the JSON.
FILTER = _filter(_IN_JSON)
# The same, where JSON is taken apart only of values that have the word somewhere.
FILTER_BYTES_FIRST = _filter(f"{_IN_BYTES} and {_IN_JSON}")
# Equal work.
FILTER_BY_HEADER = _filter(f"exists(headers, header -> header.key = '{PLACED_HEADER}')")

# MaskField wants a struct or a map, so MirrorMaker copies the records as they are: the field stays readable there.
_CUSTOMER = r'"customer": "[^"]*"'
MASK = Change(
    {"select": f"|-\n      *, regexp_replace(cast(value as string), '{_CUSTOMER}', '\"customer\": \"***\"') as value"},
    rule="masked",
)


PARTITIONS = 4


@dataclass(frozen=True)
class Case:
    """A topic to fill and copy: `records` of `value_bytes` each.

    `hot`: the share of the first partition. `batch_records`: at most so many in a batch of the source, 0 for Kafka's
    own way. `aborted`: one transaction in so many, 0 for no transactions. `far`: the source is 50 ms away.
    `target`: how many times tuned MirrorMaker 2's rate ours is to be, in steady state, or from the command if `whole`.
    `big`: only when asked for.
    `change`: what the engine `records` does to the records.
    """

    name: str
    records: int
    value_bytes: int
    target: Optional[float] = None
    codec: str = "none"
    partitions: int = PARTITIONS
    hot: float = 0.0
    batch_records: int = 0
    keys_and_headers: bool = False
    aborted: int = 0
    far: bool = False
    big: bool = False
    whole: bool = False
    change: Optional[Change] = None

    @property
    def isolation(self) -> str:
        """What every engine reads with: the records of aborted transactions belong to no copy."""
        return "read_committed" if self.aborted else "read_uncommitted"

    @property
    def is_filtered(self) -> bool:
        return self.change is not None and self.change.one_in > 1

    @property
    def copied(self) -> int:
        return self.records if self.change is None else self.records // self.change.one_in


# So many records that the fastest engine copies for about ten seconds: Java has compiled by then what it will compile.
CASES: Tuple[Case, ...] = (
    Case("bytes100", 14_000_000, 100, 4.0),
    Case("bytes1000", 4_000_000, 1000, 2.0),
    Case("bytes10000", 400_000, 10_000, 1.5),
    Case("json.lz4", 5_000_000, 1000, 3.0, codec="lz4"),
    Case("json.zstd", 5_000_000, 1000, 4.0, codec="zstd"),
    Case("single", 1_000_000, 100, 1.0, batch_records=1),
    Case("partitions1000", 2_000_000, 1000, partitions=1000),
    Case("hot", 4_000_000, 1000, hot=0.9),
    Case("headers", 6_000_000, 300, keys_and_headers=True),
    Case("transactions", 6_000_000, 300, 3.0, aborted=10),
    Case("far", 3_000_000, 1000, 2.0, far=True),
    Case("select", 5_000_000, 1000, 1.0, change=SELECT_ALL),
    Case("filter", 5_000_000, 1000, 1.0, change=FILTER),
    Case("filter.bytes", 5_000_000, 1000, 1.0, change=FILTER_BYTES_FIRST),
    Case("filter.header", 5_000_000, 1000, 1.0, change=FILTER_BY_HEADER),
    Case("mask", 5_000_000, 1000, 1.0, change=MASK),
    Case("small", 10_000, 1000, 1.0, whole=True),
    Case("backlog", 10_000_000, 1000, 2.0, whole=True, big=True),
)


def chosen(names: Sequence[str], big: bool) -> Tuple[Case, ...]:
    """The cases of these names; without names all of them, the big ones only if asked for."""
    by_name = {case.name: case for case in CASES}
    return tuple(by_name[name] for name in names) or tuple(case for case in CASES if big or not case.big)


# Large batches, as a busy topic has them; a fetch holds many.
PRODUCER = {"linger.ms": 50, "batch.size": 131_072, "queue.buffering.max.messages": 500_000}
HEADERS = [("trace", b"0123456789abcdef"), ("kind", b"order placed"), ("schema", b"\x00\x00\x00\x07")]
TRANSACTION_RECORDS = 5000


def fill(broker: KafkaBroker, case: Case) -> None:
    """A record that was not delivered is missed by the reader, who counts them."""
    broker.create_topic(case.name, case.partitions)
    writer = _Writer(broker, case)
    if case.aborted:
        writer.transactions()
    else:
        writer.records(0, case.records)
    writer.producer.flush()


class _Writer:
    def __init__(self, broker: KafkaBroker, case: Case) -> None:
        self._case = case
        self._noise = os.urandom(case.value_bytes * 64)
        own: Dict[str, Any] = {"batch.num.messages": case.batch_records} if case.batch_records else {}
        if case.aborted:
            own["transactional.id"] = f"fill-{case.name}"
        settings = {"bootstrap.servers": broker.bootstrap, "compression.type": case.codec, **PRODUCER, **own}
        self.producer = Producer(settings)

    def records(self, first: int, last: int) -> None:
        case, producer = self._case, self.producer
        fixed = HEADERS if case.keys_and_headers else []
        for number in range(first, last):
            key = b"customer-%07d" % (number % 9_999_991) if case.keys_and_headers else None
            partition = number % case.partitions
            if case.hot:  # of ten records the first partition gets the most
                partition = 0 if number % 10 < 10 * case.hot else 1 + number // 10 % (case.partitions - 1)
            # For a filter that cannot look into a value.
            headers = [*fixed, (PLACED_HEADER, b"")] if case.is_filtered and self._is_placed(number) else fixed
            produce(producer, case.name, self._value(number), key, partition, headers=headers)
            if not number % 1000:
                producer.poll(0)

    def transactions(self) -> None:
        """The case's records in transactions, and between them some whose records are aborted."""
        self.producer.init_transactions(30)
        for turn, first in enumerate(range(0, self._case.records, TRANSACTION_RECORDS)):
            self.producer.begin_transaction()
            self.records(first, min(first + TRANSACTION_RECORDS, self._case.records))
            self.producer.commit_transaction(60)
            if not turn % self._case.aborted:
                self.producer.begin_transaction()
                self.records(0, TRANSACTION_RECORDS)
                self.producer.flush()
                self.producer.abort_transaction(60)

    def _is_placed(self, number: int) -> bool:
        """One in ten of each partition's records, where they come turn by turn: every task has some to write."""
        return not number // self._case.partitions % ONE_IN

    def _value(self, number: int) -> bytes:
        noise, size = self._noise, self._case.value_bytes
        if self._case.codec == "none" and self._case.change in (None, SELECT_ALL):
            start = number % 64
            return noise[start : start + size]
        # Half of it repeats from record to record and half does not, as in events with names and ids.
        start = (number * 37) % (len(noise) - 200)
        kind = SEEN if self._case.is_filtered and not self._is_placed(number) else PLACED
        varied = noise[start : start + 200].hex()
        return json.dumps({"id": number, "kind": kind, "customer": varied, "note": "n" * 480}).encode()
