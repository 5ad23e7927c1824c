"""What travels between us and a broker: answers received where they stay, fetches read there, requests in pieces;
answers that take too long, and a broker that throttles."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from kafka.errors import InvalidReceiveError, KafkaError
from kafka.protocol.api_header import ResponseHeader
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceRequest as KafkasProduceRequest

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka import fetcher
from mirror_lib.kafka.fetcher import BY_TOPIC_ID, KNOWS_NEAREST, MAX_WAIT_MS, READ_UNCOMMITTED, fetch_request
from mirror_lib.kafka.producer import ProduceRequest
from mirror_lib.kafka.wire import (
    BEGINNING_BYTES,
    BrokerConnection,
    BrokerLoop,
    BulkTransport,
    FetchAnswer,
    FrameProtocol,
    Throttle,
)

DATA = b"r" * 300
TOPIC_ID = uuid.UUID(int=0x1234567890ABCDEF)


def kafkas_answer() -> Any:
    """Two topics: one partition has aborted transactions and records, another has nothing."""
    topic, part = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData
    aborted = [part.AbortedTransaction(producer_id=1 << 40, first_offset=17)]
    known: Dict[str, int] = {"high_watermark": 90, "last_stable_offset": 80}
    some: Dict[str, Any] = {**known, "aborted_transactions": aborted, "preferred_read_replica": -1, "records": DATA}
    none: Dict[str, Any] = {**known, "aborted_transactions": None, "preferred_read_replica": 7, "records": None}
    parts = [
        part(partition_index=3, error_code=0, log_start_offset=5, **some),
        part(partition_index=4, error_code=6, log_start_offset=-1, **none),
    ]
    orders = topic(topic="orders", topic_id=TOPIC_ID, partitions=parts)
    other = topic(topic="o", topic_id=None, partitions=[])
    return FetchResponse(throttle_time_ms=12, error_code=70, session_id=99, responses=[orders, other])


@pytest.mark.parametrize("version", range(4, 14))
def test_an_answer_is_read_as_kafkas_own_classes_wrote_it(version: int) -> None:
    raw = bytes(kafkas_answer().encode(version=version))
    found = FetchAnswer.read(memoryview(raw), version)
    assert found.throttle_time_ms == 12
    assert (found.error_code, found.session_id) == ((70, 99) if version >= 7 else (0, 0))
    orders, other = found.responses
    assert (orders.topic, orders.topic_id) == (("", TOPIC_ID) if version >= BY_TOPIC_ID else ("orders", None))
    full, empty = orders.partitions
    assert (full.partition_index, full.high_watermark, full.last_stable_offset) == (3, 90, 80)
    assert full.log_start_offset == (5 if version >= 5 else -1)
    assert [(each.producer_id, each.first_offset) for each in full.aborted_transactions] == [(1 << 40, 17)]
    assert bytes(full.records or b"") == DATA
    assert (empty.error_code, empty.aborted_transactions or [], empty.records) == (6, [], None)
    named = (full.preferred_read_replica, empty.preferred_read_replica)
    assert named == ((-1, 7) if version >= KNOWS_NEAREST else (-1, -1))
    assert other.partitions == []


def test_an_answer_that_is_cut_off_is_refused() -> None:
    raw = bytes(kafkas_answer().encode(version=12))
    for size in range(len(raw)):
        with pytest.raises((struct.error, IndexError)):
            FetchAnswer.read(memoryview(raw)[:size], 12)


@pytest.mark.parametrize("version", range(3, 9))
def test_a_request_of_batches_in_pieces_is_what_kafkas_own_class_reads(version: int) -> None:
    batches: List[Tuple[TopicPartition, Tuple[bytes, ...]]] = [
        (("orders", 1), (b"head", b"payload")),
        (("orders", 7), (b"built",)),
        (("päyments", 0), (b"h", b"p")),
    ]
    request = ProduceRequest(batches, 30_000)
    request.API_VERSION = version
    request.with_header(5, "mirror")
    whole = request.encode()
    assert struct.unpack_from(">ihhi", whole) == (len(whole) - 4, 0, version, 5)
    read = KafkasProduceRequest.decode(memoryview(whole)[4 + 8 + 2 + len("mirror") :], version=version)
    assert (read.transactional_id, read.acks, read.timeout_ms) == (None, -1, 30_000)
    sent = [(topic.name, part.index, part.records) for topic in read.topic_data for part in topic.partition_data]
    assert sent == [("orders", 1, b"headpayload"), ("orders", 7, b"built"), ("päyments", 0, b"hp")]


class Asked:
    """A request whose answer is bytes."""

    def __init__(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id
        self.api_key = self.api_version = 0

    def get_response_class(self) -> Asked:
        return self

    def parse_header(self, frame: Any) -> Any:
        return ResponseHeader.decode(frame)

    def decode(self, frame: Any) -> Any:
        return frame.read()


def protocol(answers: int) -> FrameProtocol:
    found = FrameProtocol(receive_message_max_bytes=10_000_000)
    found.in_flight_requests.extend(map(Asked, range(answers)))
    return found


def frame(number: int, content: bytes) -> bytes:
    return struct.pack(">ii", len(content) + 4, number) + content


SIZES = [0, 1, 40, BEGINNING_BYTES - 8, BEGINNING_BYTES - 7, BEGINNING_BYTES, 3, 300_000, 0, 2_000_000, 100, 1_900_000]


@pytest.mark.parametrize("seed", range(6))
def test_answers_come_out_whole_however_they_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    expected = [bytes(chance.getrandbits(8) for _ in range(min(size, 50))).ljust(size, b".") for size in SIZES]
    stream = memoryview(b"".join(frame(number, content) for number, content in enumerate(expected)))
    read, found, at = protocol(len(SIZES)), [], 0
    while at < len(stream):
        room = read.room()
        size = min(len(room), len(stream) - at, chance.choice([1, 3, 5000, 70_000, 1_000_000]))
        room[:size] = stream[at : at + size]
        at += size
        found += [bytes(answer) for _, answer in read.receive_bytes(room[:size])]
        del room
    assert found == expected


def test_an_answer_that_is_still_read_is_not_written_over() -> None:
    read, kept = protocol(3), []
    for number in range(3):
        stream = memoryview(frame(number, bytes([number]) * 2_000_000))
        while len(stream):
            room = read.room()[: len(stream)]
            room[:], stream = stream[: len(room)], stream[len(room) :]
            kept += [answer for _, answer in read.receive_bytes(room)]
    assert [set(bytes(answer)) for answer in kept] == [{0}, {1}, {2}]


@pytest.mark.parametrize("size", [-1, 3, 10_000_001])
def test_an_answer_of_an_impossible_size_is_refused(size: int) -> None:
    read = protocol(1)
    read.room()[:4] = struct.pack(">i", size)
    with pytest.raises(InvalidReceiveError, match=str(size)):
        read.receive_bytes(read.room()[:4])


def test_a_small_answer_is_heard_at_once_after_a_large_one() -> None:
    with connected(30_000) as (loop, connection, theirs):
        theirs.setblocking(False)
        for number, size in enumerate((900_000, 1, 1), 1):
            answered, left = asked(connection), memoryview(whole_answer(number, b"r" * size))
            for _ in range(2000):
                with suppress(BlockingIOError):
                    left = left[theirs.send(left) :] if len(left) else left
                loop.poll(timeout_ms=5)
                if answered.is_done:
                    break
            (topic,) = answered.value.responses
            assert len(topic.partitions[0].records) == size


def test_pieces_arrive_in_order_however_slowly_they_are_taken() -> None:
    with connected(30_000) as (loop, connection, theirs):
        sent = [(b"%d." % number) * (1 + 200 * number) for number in range(300)]
        for each in sent:
            connection.transport.write(each)
        expected, found = b"".join(sent), bytearray()
        theirs.setblocking(False)
        while len(found) < len(expected):
            loop.poll(timeout_ms=1)
            with suppress(BlockingIOError):
                found += theirs.recv(100_000)
        assert bytes(found) == expected


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
    return frame(number, bytes(answer.encode(version=VERSION)))


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
    wanted = fetcher.Asked(positions={("orders", 0): 0})
    return connection.send_request(fetch_request(wanted, READ_UNCOMMITTED, 1_000_000, 1_000_000, MAX_WAIT_MS))


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
