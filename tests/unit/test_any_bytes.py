"""Whatever bytes come from a broker, a topic or a file: an answer or a declared error, never another exception.

Bytes are tried as they come, and as something whole in which a few bytes are others. `MIRROR_EXAMPLES` sets how many.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple, Type

import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_lib.config.loader import load
from mirror_lib.config.model import MirrorConfig
from mirror_lib.config.security import pem_blocks, sasl_options
from mirror_lib.errors import BatchError, ConfigError, MirrorError, StateError
from mirror_lib.groups.mm2_format import Checkpoint, PointSync, decode_checkpoint, decode_offset_sync, encode_checkpoint
from mirror_lib.groups.position_formats import read_positions
from mirror_lib.kafka.codecs import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.kafka.reencoder import Outgoing, RecordTooLarge, last_offset, read_messages
from mirror_lib.kafka.wire import FetchAnswer
from mirror_lib.replication.encoder import Encoder
from mirror_lib.rows.origin import headers_of, origin_of
from tests.lab.offset_sync import sync_bytes
from tests.unit.configs import FLOW, IN_YAML
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


ANSWERS = {version: bytes(kafkas_answer().encode(version=version)) for version in (4, 7, 11, 12, 13)}
RECORDS = [Rec(b"value", b"key", headers=(("trace", b"1"), ("none", None))), Rec(None, b"key"), Rec(b"v" * 300)]
BATCHES = [bytes(batch_of(10, RECORDS, codec=codec).raw()) for codec in (0, GZIP, SNAPPY, LZ4, ZSTD)]
SEQUENCES = damaged(*BATCHES, BATCHES[0] + BATCHES[3], bytes(marker(4).raw()))
OLD = struct.pack(">qiIbb", 5, 22, 0, 1, 0) + struct.pack(">q", 7) + struct.pack(">ii", -1, 2) + b"vv"
CHECKPOINT = encode_checkpoint(Checkpoint("billing", "A.orders", 3, 17, 19, "metadata"))
SYNC = sync_bytes(PointSync("orders", 3, 17, 19))
HEADERS = b"\x00\x00\x00\x01\x02\x01\x0ev\x02\x1amirror.origin\x28A/orders/3/1234/Qx7f2k"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p\\"w";'
MECHANISMS = st.sampled_from(["PLAIN", "SCRAM-SHA-256", "GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM"])
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
POSITIONS = ('{"orders": {"0": 17, "1": -2}}', "topic,partition,offset\norders,0,17\n")
CONNECTOR = (
    b'{"name": "mm2", "config": {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector", '
    b'"source.cluster.alias": "A", "target.cluster.alias": "B", "source.cluster.bootstrap.servers": "a:9092", '
    b'"target.cluster.bootstrap.servers": "b:9092", "topics": "o.*"}}'
)
FILES = {
    ".yaml": f"{IN_YAML}    topics: ['o.*']\n".encode(),
    ".properties": f"{FLOW}A->B.topics = o.*\n".encode(),
    ".json": CONNECTOR,
}


def encoded(data: bytes, max_message_bytes: int = 1_000_000) -> List[Outgoing]:
    task = task_of(end=1000, max_message_bytes=max_message_bytes)
    return list(Encoder(task, Producer(1, 1), 0, 0).encode(Fetched(0, 100, (), data)))


def sealed(raw: bytes) -> bytes:
    """The batch with the length and the checksum of its bytes, as if its writer had damaged it."""
    if len(raw) <= CHECKED_FROM:
        return raw
    checked = raw[CHECKED_FROM:]
    return raw[:8] + struct.pack(">i", len(raw) - 12) + raw[12:17] + struct.pack(">I", crc32c(checked)) + checked


def loaded(ending: str, content: bytes) -> MirrorConfig:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"mirror{ending}"
        path.write_bytes(content)
        return load(str(path), {})


def login(mechanism: str, line: str) -> object:
    return sasl_options({"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": line})


Reader = Tuple[st.SearchStrategy[Any], Callable[[Any], object], Errors]
LIMITS = st.sampled_from([1_000_000, 100])


def of_fetch(version: int, whole: bytes) -> Reader:
    """The connection takes its errors for no answer, and breaks."""
    errors = (struct.error, ValueError, LookupError)
    return damaged(whole), lambda raw: FetchAnswer.read(memoryview(raw), version), errors


def of_payload(codec: int) -> Reader:
    packed = compress(codec, b"payload " * 50)
    return damaged(packed), lambda raw: decompress(codec, raw, LIMIT), (BatchError,)


def of_file(ending: str, whole: bytes) -> Reader:
    return damaged(whole), lambda raw: loaded(ending, raw), (MirrorError,)


# Input, what reads it, and its declared errors. Those of headers are of records whose batch has a right checksum.
READERS: Dict[str, Reader] = {
    **{f"a fetch answer of version {each}": of_fetch(each, whole) for each, whole in ANSWERS.items()},
    **{f"a payload of codec {codec}": of_payload(codec) for codec in (GZIP, SNAPPY, LZ4, ZSTD)},
    **{f"a {ending} file": of_file(ending, whole) for ending, whole in FILES.items()},
    "record batches": (
        st.tuples(SEQUENCES | damaged(*BATCHES).map(sealed), LIMITS), lambda two: encoded(*two),
        (BatchError, RecordTooLarge),
    ),
    "messages of old magics": (damaged(OLD), read_messages, (BatchError, struct.error)),
    "the last offset of old messages": (damaged(OLD), last_offset, (BatchError, struct.error)),
    "a checkpoint": (st.tuples(*map(damaged, CHECKPOINT)), lambda two: decode_checkpoint(*two), (StateError,)),
    "an offset sync": (st.tuples(*map(damaged, SYNC)), lambda two: decode_offset_sync(*two), (StateError,)),
    "headers": (
        damaged(HEADERS), lambda body: (list(headers_of(body)), origin_of(body)), (BatchError, IndexError, ValueError)
    ),
    "a login line": (st.tuples(MECHANISMS, texts(JAAS)), lambda two: login(*two), (ConfigError,)),
    "PEM text": (texts(PEM), lambda text: pem_blocks(text, "CERTIFICATE"), ()),
    "positions of a user": (texts(*POSITIONS), lambda text: read_positions(text, "positions"), (MirrorError,)),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_damaged_input_is_read_or_ends_in_a_declared_error(name: str) -> None:
    whole, read, errors = READERS[name]

    @many
    @given(whole)
    def check(given_input: Any) -> None:
        with contextlib.suppress(*errors):
            read(given_input)

    check()


def test_whole_input_is_read() -> None:
    """The control of the one above: a seal alone changes nothing."""
    for raw in BATCHES:
        assert sealed(raw) == raw and sum(each.record_count for each in encoded(raw)) == len(RECORDS)
    for ending, whole in FILES.items():
        assert [flow.topics for flow in loaded(ending, whole).flows] == [("o.*",)]


def test_login_line_of_many_blanks_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError):
        login("PLAIN", JAAS.replace(";", "") + " " * 3000)
