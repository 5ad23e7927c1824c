"""Whatever bytes come from a broker, a topic or a file: an answer or a declared error, never another exception.

Bytes are tried as they come, and as something whole in which a few bytes are others. `MIRROR_EXAMPLES` sets how many.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
from array import array
from pathlib import Path
from typing import Any, Callable, List, Tuple, Type

import pytest
from google_crc32c import value as crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirror_lib.config.loader import load
from mirror_lib.config.security import pem_blocks, sasl_options
from mirror_lib.errors import BatchError, ConfigError, MirrorError, StateError
from mirror_lib.groups.mm2_format import (
    Checkpoint,
    PointSync,
    decode_checkpoint,
    decode_offset_sync,
    encode_checkpoint,
)
from mirror_lib.groups.position_formats import read_positions
from mirror_lib.kafka.codecs import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.kafka.reencoder import Outgoing, RecordTooLarge, last_offset, read_messages
from mirror_lib.kafka.wire import FetchAnswer
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.replication.encoder import Encoder
from mirror_lib.rows.origin import headers_of, origin_of
from tests.lab.offset_sync import sync_bytes
from tests.unit.logs import Rec, batch_of, marker, task_of
from tests.unit.test_wire import kafkas_answer

EXAMPLES = int(os.environ.get("MIRROR_EXAMPLES", "150"))
# What a reader of something broken may take, next to what it was given.
LIMIT = 1 << 20
# Where the part of a batch begins that its checksum is of.
CHECKED_FROM = 21
Errors = Tuple[Type[BaseException], ...]

many = settings(max_examples=EXAMPLES)


def damaged(*whole: bytes) -> st.SearchStrategy[bytes]:
    """Any bytes, or one of these with some bytes changed, left out or put in."""

    @st.composite
    def changed(draw: Any) -> bytes:
        data = bytearray(draw(st.sampled_from(whole)))
        for _ in range(draw(st.integers(0, 4))):
            at = draw(st.integers(0, len(data)))
            kind = draw(st.sampled_from(("set", "cut", "put", "end")))
            if kind == "set" and at < len(data):
                data[at] = draw(st.integers(0, 255))
            elif kind == "cut":
                del data[at : at + draw(st.integers(1, 8))]
            elif kind == "put":
                data[at:at] = draw(st.binary(max_size=8))
            else:
                del data[at:]
        return bytes(data)

    return st.one_of(st.binary(max_size=200), changed())


def texts(*whole: str) -> st.SearchStrategy[str]:
    """The same of texts."""
    changed = damaged(*(each.encode() for each in whole)).map(lambda raw: raw.decode("latin-1"))
    return st.one_of(st.text(max_size=200), changed)


def tried(read: Callable[[], object], errors: Errors) -> None:
    with contextlib.suppress(*errors):
        read()


ANSWERS = {version: bytes(kafkas_answer().encode(version=version)) for version in (4, 7, 11, 12, 13)}


@many
@given(st.sampled_from(sorted(ANSWERS)), st.data())
def test_answer_to_a_fetch(version: int, data: st.DataObject) -> None:
    # What the connection takes for no answer, and breaks.
    answer = memoryview(data.draw(damaged(ANSWERS[version])))
    tried(lambda: FetchAnswer.read(answer, version), (struct.error, ValueError, LookupError))


RECORDS = [Rec(b"value", b"key", headers=(("trace", b"1"), ("none", None))), Rec(None, b"key"), Rec(b"v" * 300)]
BATCHES = [bytes(batch_of(10, RECORDS, codec=codec).raw()) for codec in (0, GZIP, SNAPPY, LZ4, ZSTD)]


def encoded(data: bytes, max_message_bytes: int = 1_000_000) -> List[Outgoing]:
    task = task_of(end=1000, max_message_bytes=max_message_bytes)
    return list(Encoder(task, Producer(1, 1), 0, 0).encode(Fetched(0, 100, (), data)))


def sealed(raw: bytes) -> bytes:
    """The batch with the length and the checksum that it should have: its writer did it so."""
    if len(raw) <= CHECKED_FROM:
        return raw
    checked = raw[CHECKED_FROM:]
    return raw[:8] + struct.pack(">i", len(raw) - 12) + raw[12:17] + struct.pack(">I", crc32c(checked)) + checked


SEQUENCES = damaged(*BATCHES, BATCHES[0] + BATCHES[3], bytes(marker(4).raw()))


@many
@given(st.one_of(SEQUENCES, damaged(*BATCHES).map(sealed)), st.sampled_from([1_000_000, 100]))
def test_record_batches_of_every_codec(data: bytes, room: int) -> None:
    tried(lambda: encoded(data, room), (BatchError, RecordTooLarge))


def test_record_batches_that_are_whole_are_encoded() -> None:
    """The control of the one above: a seal alone changes nothing."""
    for raw in BATCHES:
        assert sealed(raw) == raw and sum(each.record_count for each in encoded(raw)) == len(RECORDS)


@many
@given(damaged(struct.pack(">qiIbb", 5, 22, 0, 1, 0) + struct.pack(">q", 7) + struct.pack(">ii", -1, 2) + b"vv"))
def test_messages_of_old_magics(data: bytes) -> None:
    tried(lambda: read_messages(data), (BatchError, struct.error))
    tried(lambda: last_offset(data), (BatchError, struct.error))


@many
@given(st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]), st.data())
def test_compressed_payload(codec: int, data: st.DataObject) -> None:
    packed = data.draw(damaged(compress(codec, b"payload " * 50)))
    tried(lambda: decompress(codec, packed, LIMIT), (BatchError,))


CHECKPOINT = encode_checkpoint(Checkpoint("billing", "A.orders", 3, 17, 19, "metadata"))
SYNC = sync_bytes(PointSync("orders", 3, 17, 19))


DECODERS = [(decode_checkpoint, *CHECKPOINT), (decode_offset_sync, *SYNC)]


@many
@given(st.sampled_from(DECODERS), st.data())
def test_record_of_an_internal_topic(of: Any, data: st.DataObject) -> None:
    decode, (key, value) = of[0], (data.draw(damaged(each)) for each in of[1:])
    tried(lambda: decode(key, value), (StateError,))


@many
@given(damaged(b"\x00\x00\x00\x01\x02\x01\x0ev\x02\x1amirror.origin\x28A/orders/3/1234/Qx7f2k"))
def test_headers_of_a_record(body: bytes) -> None:
    # Of records whose batch has a right checksum, so they were written so; a wrong varint ends in a declared error.
    tried(lambda: (list(headers_of(body)), origin_of(body)), (BatchError, IndexError, ValueError))


YAML = b"""\
clusters:
  A: {bootstrap.servers: 'a:9092'}
  B: {bootstrap.servers: 'b:9092'}
flows:
  A->B:
    topics: ['o.*']
"""
PROPERTIES = b"""\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
A->B.topics = o.*
"""
CONNECTOR = (
    b'{"name": "mm2", "config": {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector", '
    b'"source.cluster.alias": "A", "target.cluster.alias": "B", "source.cluster.bootstrap.servers": "a:9092", '
    b'"target.cluster.bootstrap.servers": "b:9092", "topics": "o.*"}}'
)


@many
@given(st.sampled_from([(".yaml", YAML), (".properties", PROPERTIES), (".json", CONNECTOR)]), st.data())
def test_configuration_file(of: Tuple[str, bytes], data: st.DataObject) -> None:
    ending, whole = of
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"mirror{ending}"
        path.write_bytes(data.draw(damaged(whole)))
        tried(lambda: load(str(path), {}), (MirrorError,))


@pytest.mark.parametrize(("ending", "whole"), [(".yaml", YAML), (".properties", PROPERTIES), (".json", CONNECTOR)])
def test_configuration_file_that_is_whole_is_read(ending: str, whole: bytes, tmp_path: Path) -> None:
    """The control of the one above."""
    path = tmp_path / f"mirror{ending}"
    path.write_bytes(whole)
    assert [flow.topics for flow in load(str(path), {}).flows] == [("o.*",)]


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p\\"w";'


@many
@given(st.sampled_from(["PLAIN", "SCRAM-SHA-256", "GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM"]), texts(JAAS))
@example("PLAIN", JAAS.replace(";", "") + " " * 3000)
def test_login_line(mechanism: str, line: str) -> None:
    props = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": line}
    tried(lambda: sasl_options(props), (ConfigError,))


@many
@given(texts("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"))
def test_pem_text(text: str) -> None:
    pem_blocks(text, "CERTIFICATE")


@many
@given(texts('{"orders": {"0": 17, "1": -2}}', "topic,partition,offset\norders,0,17\n"))
def test_positions_of_a_user(text: str) -> None:
    tried(lambda: read_positions(text, "positions"), (MirrorError,))


NUMBERS = st.one_of(st.integers(-3, 40), st.integers(-(2**63) - 1, 2**63), st.none(), st.text(max_size=2))


@many
@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=8), st.lists(st.integers(-5, 60), max_size=9))
def test_rows_of_the_ledger(rows: List[Any], more: List[int]) -> None:
    """Rows make a map in which every record has one place, or they are damaged."""
    with contextlib.suppress(StateError):
        found = PartitionMap.of(rows, "orders-0").extended(array("q", more), "orders-0")
        assert all(run.record_count >= 0 <= run.upstream_offset for run in found)
        ends = [run.upstream_end for run in found]
        assert ends == sorted(ends)
