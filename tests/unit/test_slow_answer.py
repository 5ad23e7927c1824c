"""An answer that takes longer than a request may wait, and a broker that throttles: waited for, then given up."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any, Iterator, List

import pytest
from kafka.errors import KafkaError
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import FetchResponse

from mirror_lib.kafka.fetcher import READ_UNCOMMITTED, fetch_request
from mirror_lib.kafka.wire import BrokerConnection, BrokerLoop, BulkTransport, Throttle

VERSION = 10
REQUEST_MS = 300
PIECES, PAUSE_SECONDS = 20, 0.05
RECORDS = b"r" * 600_000
ANSWERS, THROTTLED_MS = 4, 500


def whole_answer(number: int, records: bytes = RECORDS) -> bytes:
    topic, part = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData
    reported = part(partition_index=0, error_code=0, high_watermark=9, last_stable_offset=9, log_start_offset=0,
                aborted_transactions=None, preferred_read_replica=-1, records=records)  # fmt: skip
    answer = FetchResponse(0, 0, 0, [topic(topic="orders", topic_id=None, partitions=[reported])])
    return framed(number, answer)


def framed(number: int, answer: FetchResponse) -> bytes:
    content = struct.pack(">i", number) + bytes(answer.encode(version=VERSION))
    return struct.pack(">i", len(content)) + content


@contextmanager
def connected(timeout_ms: int = REQUEST_MS) -> Iterator[Any]:
    """A loop, a connection over it that is ready, and the other end."""
    loop, listener = BrokerLoop(slow_task_threshold_secs=0), socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listener.getsockname())
    theirs, _ = listener.accept()
    listener.close()
    ours.setblocking(False)
    versions = BrokerVersionData(api_versions={1: (4, VERSION)})
    connection = BrokerConnection(loop, node_id=1, broker_version_data=versions, request_timeout_ms=timeout_ms)
    connection.throttle = Throttle()
    connection.connection_made(BulkTransport(loop, ours))
    connection._init_complete()
    try:
        yield loop, connection, theirs
    finally:
        connection.close()
        theirs.close()
        loop.close()


def give(theirs: socket.socket, pieces: int) -> None:
    """So many of the `PIECES` of the answer to the first request."""
    theirs.recv(1000)
    answer = whole_answer(1)
    size = -(-len(answer) // PIECES)
    with suppress(OSError):
        for number in range(pieces):
            theirs.sendall(answer[number * size : (number + 1) * size])
            time.sleep(PAUSE_SECONDS)


def asked(connection: Any) -> Any:
    return connection.send_request(fetch_request({("orders", 0): 0}, READ_UNCOMMITTED, 1_000_000, 1_000_000))


def test_answer_is_waited_for_while_it_comes() -> None:
    with connected() as (loop, connection, theirs):
        future = asked(connection)
        threading.Thread(target=give, args=(theirs, PIECES), daemon=True).start()
        loop.poll(timeout_ms=20_000, future=future)
        (topic,) = future.value.responses
        assert bytes(topic.partitions[0].records) == RECORDS
        assert not connection.closed and not connection.in_flight_requests


@pytest.mark.parametrize("pieces", [0, PIECES // 2])
def test_answer_that_stops_coming_is_given_up(pieces: int) -> None:
    with connected() as (loop, connection, theirs):
        future = asked(connection)
        threading.Thread(target=give, args=(theirs, pieces), daemon=True).start()
        loop.poll(timeout_ms=20_000, future=future)
        assert isinstance(future.exception, KafkaError) and connection.closed


@pytest.mark.parametrize("sent", ["before", "meanwhile"])
def test_broker_that_throttles_gets_that_time_once_however_many_answers_ask_for_it(sent: str) -> None:
    with connected() as (loop, connection, theirs):
        answered = [asked(connection) for _ in range(ANSWERS)]
        seen: List[str] = []
        unanswered = asked(connection) if sent == "before" else None
        for number in range(ANSWERS):
            theirs.sendall(framed(number + 1, FetchResponse(THROTTLED_MS, 0, 0, [])))
        loop.poll(timeout_ms=20_000, future=answered[-1])
        now, unanswered = time.monotonic(), unanswered or asked(connection)
        unanswered.add_both(lambda _: seen.append("given up"))
        loop.call_at(now + THROTTLED_MS / 1000, lambda: seen.append("reads again"))
        loop.call_at(now + ANSWERS * THROTTLED_MS / 1000, lambda: seen.append("too late"))
        loop.poll(timeout_ms=20_000, future=unanswered)
        assert seen == ["reads again", "given up"] and connection.closed
        assert all(each.succeeded() for each in answered)


def test_waits_that_overlap_are_counted_once() -> None:
    throttle = Throttle()
    throttle.reported(10.0, 2.0)
    throttle.reported(11.0, 3.0)
    throttle.reported(12.0, 0.5)
    throttle.reported(20.0, 1.0)
    assert throttle.taken(30.0) == pytest.approx(5.0)


def test_wait_that_goes_on_counts_as_far_as_it_has_come_and_each_second_is_told_once() -> None:
    throttle = Throttle()
    throttle.reported(10.0, 4.0)
    assert (throttle.left(11.0), throttle.taken(11.0)) == (3.0, 1.0)
    assert (throttle.left(13.0), throttle.taken(13.0)) == (1.0, 2.0)
    assert (throttle.left(15.0), throttle.taken(15.0), throttle.taken(16.0)) == (0.0, 1.0, 0.0)
