"""A case in, its topic filled on a broker out."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List

from confluent_kafka import Producer

from tests.bench.cases import Case
from tests.bench.changes import ONE_IN, PLACED, PLACED_HEADER, SEEN, SELECT_ALL
from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import LabError
from tests.lab.dataset import produce

# Large batches, as a busy topic has them; a fetch holds many.
PRODUCER = {"linger.ms": 50, "batch.size": 131_072, "queue.buffering.max.messages": 500_000}
HEADERS = [("trace", b"0123456789abcdef"), ("kind", b"order placed"), ("schema", b"\x00\x00\x00\x07")]
TRANSACTION_RECORDS = 5000


def fill(broker: KafkaBroker, case: Case) -> None:
    broker.create_topic(case.name, case.partitions)
    writer = _Writer(broker, case)
    if case.aborted:
        writer.transactions()
    else:
        writer.records(0, case.records)
    writer.flush()


class _Writer:
    def __init__(self, broker: KafkaBroker, case: Case) -> None:
        self._case = case
        self._noise = os.urandom(case.value_bytes * 64)
        self._failed: List[str] = []
        own: Dict[str, Any] = {"batch.num.messages": case.batch_records} if case.batch_records else {}
        if case.aborted:
            own["transactional.id"] = f"fill-{case.name}"
        settings = {"bootstrap.servers": broker.bootstrap, "compression.type": case.codec, **PRODUCER, **own}
        self._producer = Producer(settings)

    def records(self, first: int, last: int) -> None:
        case, producer = self._case, self._producer
        fixed = HEADERS if case.keys_and_headers else []
        for number in range(first, last):
            key = b"customer-%07d" % (number % 9_999_991) if case.keys_and_headers else None
            partition = number % case.partitions
            if case.hot:  # of ten records the first partition gets the most
                partition = 0 if number % 10 < 10 * case.hot else 1 + number // 10 % (case.partitions - 1)
            # For a filter that cannot look into a value.
            headers = [*fixed, (PLACED_HEADER, b"")] if case.is_filtered and self._is_placed(number) else fixed
            done = self._delivered
            produce(producer, case.name, self._value(number), key, partition, on_delivery=done, headers=headers)
            if not number % 1000:
                producer.poll(0)

    def transactions(self) -> None:
        """The case's records in transactions, and between them some whose records are aborted."""
        self._producer.init_transactions(30)
        for turn, first in enumerate(range(0, self._case.records, TRANSACTION_RECORDS)):
            self._producer.begin_transaction()
            self.records(first, min(first + TRANSACTION_RECORDS, self._case.records))
            self._producer.commit_transaction(60)
            if not turn % self._case.aborted:
                self._producer.begin_transaction()
                self.records(0, TRANSACTION_RECORDS)
                self._producer.flush()
                self._producer.abort_transaction(60)

    def flush(self) -> None:
        self._producer.flush()
        if self._failed:
            raise LabError(f"{len(self._failed)} records were not delivered: {self._failed[0]}")

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(str(error))

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
