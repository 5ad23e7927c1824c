"""The two outside clients of `make bench-latency`, each a process of its own: one writes, one reads.

Record *n* carries its number. Each process leaves one 64-bit time in ns for each number, or 0, in a file: the writer
when the source acknowledged the record, the reader when it had the copy. The reader also counts records it had twice.
"""

from __future__ import annotations

import sys
import threading
import time
from array import array
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List

from confluent_kafka import Consumer, Producer, TopicPartition

NUMBER_BYTES = 8
SILENCE_SECONDS = 60.0


def acknowledgements(producer: Producer) -> None:
    """Call what waits for them, for ever."""
    while True:
        producer.poll(1.0)


def write(bootstrap: str, topic: str, partitions: int, rate: int, records: int, record_bytes: int, file: str) -> None:
    """`records` records at `rate` a second, in turn to all partitions."""
    acknowledged = array("q", bytes(8 * records))
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1, "log_level": 0})
    failed: List[str] = []
    filling = b"x" * (record_bytes - NUMBER_BYTES)
    # In a thread of its own it takes each acknowledgement when it arrives, without a core for the waiting.
    threading.Thread(target=partial(acknowledgements, producer), daemon=True).start()
    began = time.monotonic()
    for number in range(records):

        def delivered(error: Any, _: Any, number: int = number) -> None:
            acknowledged[number] = time.time_ns()
            if error is not None:
                failed.append(str(error))

        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        value = number.to_bytes(8, "big") + filling
        producer.produce(topic, value, partition=number % partitions, on_delivery=delivered)
    producer.flush(60)
    if failed:
        sys.exit(f"{len(failed)} records were not written: {failed[0]}")
    Path(file).write_bytes(acknowledged.tobytes())


def read(bootstrap: str, topic: str, partitions: int, records: int, file: str) -> None:
    """Until all are there, or nothing came for a while. Says `ready` when it reads."""
    seen, doubled = array("q", bytes(8 * records)), 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "latency",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    print("ready", flush=True)
    left, last = records, time.monotonic()
    while left and time.monotonic() - last < SILENCE_SECONDS:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        last, number = time.monotonic(), int.from_bytes((message.value() or b"")[:NUMBER_BYTES], "big")
        if seen[number]:
            doubled += 1
        else:
            seen[number] = time.time_ns()
            left -= 1
    # What is doubled may come a little later.
    for message in iter(partial(consumer.poll, 1.0), None):
        doubled += message.error() is None
    consumer.close()
    Path(file).write_bytes(seen.tobytes())
    print(doubled, flush=True)


if __name__ == "__main__":
    what, where, name, *numbers, out = sys.argv[1:]
    calls: Dict[str, Callable[..., None]] = {"write": write, "read": read}
    calls[what](where, name, *map(int, numbers), out)
