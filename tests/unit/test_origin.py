"""The header that says where a copied record came from: its text, which of several counts, and what is none."""

from __future__ import annotations

from typing import Optional, Tuple

import pytest

from mirror_lib.kafka.reencoder import read_records
from mirror_lib.rows.origin import Origin, headers_of, origin_cluster, origin_of
from tests.unit.logs import Rec, batch_of

ORIGIN = Origin("A", "orders", 3, 1234, "Qx7f2k")
OWN = ("mirror.origin", b"A/orders/3/1234/Qx7f2k")


def body(
    *headers: Tuple[str, Optional[bytes]], key: Optional[bytes] = b"k", value: Optional[bytes] = b"v"
) -> bytes:
    """Of a record that is in a log."""
    (record,) = read_records(batch_of(0, [Rec(value, key, headers=headers)]).raw())
    return bytes(record.body)


@pytest.mark.parametrize("key", [None, b"", b"k" * 300])
@pytest.mark.parametrize("value", [None, b"", b"v" * 9000])
def test_origin_of_any_record_is_read(key: Optional[bytes], value: Optional[bytes]) -> None:
    before = (("trace", None), ("", b""), ("long", b"h" * 200))
    made = body(*before, OWN, key=key, value=value)
    assert origin_of(made) == ORIGIN
    assert list(headers_of(made)) == [(name.encode(), reported) for name, reported in (*before, OWN)]


def test_newest_of_several_origins_counts_also_where_it_cannot_be_read() -> None:
    assert origin_of(body(OWN, ("mirror.origin", b"?"))) is None
    hop = ("mirror.origin", b"B/A.orders/3/99/zzzzzz")
    assert origin_of(body(OWN, hop)) == Origin("B", "A.orders", 3, 99, "zzzzzz")
    assert origin_of(body(hop, ("trace", b"1"), OWN, ("trace", b"2"))) == ORIGIN


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(None, id="no headers"),
        pytest.param(("mirror.origin", None), id="null"),
        pytest.param(("mirror.origin", b""), id="empty"),
        pytest.param(("mirror.origin", b"A/orders/3/1234"), id="without an id"),
        pytest.param(("mirror.origin", b"A/orders/3/1234/Qx7f2k/more"), id="more parts"),
        pytest.param(("mirror.origin", b"A/orders/three/1234/Qx7f2k"), id="partition that is no number"),
        pytest.param(("mirror.origin", b"A/orders/3/-1/Qx7f2k"), id="negative offset"),
        pytest.param(("mirror.origin", b"A/orders/3//Qx7f2k"), id="no offset"),
        pytest.param(("mirror.origin", "A/orders/3/²/Qx7f2k".encode()), id="digit that is no decimal"),
        pytest.param(("mirror.origin", "A/orders/3/١٢/Qx7f2k".encode()), id="decimals of another script"),
        pytest.param(("mirror.origin", b"A/orders/3/" + b"9" * 5000 + b"/Qx7f2k"), id="number of 5000 digits"),
        pytest.param(("mirror.origin", b"\xff\xfe\x00"), id="no text"),
        pytest.param(("Mirror.Origin", OWN[1]), id="another name"),
        pytest.param(("mirror.origin.x", OWN[1]), id="longer name"),
    ],
)
def test_header_that_is_no_origin_is_none_and_fails_nothing(header: Optional[Tuple[str, Optional[bytes]]]) -> None:
    assert origin_of(body() if header is None else body(header)) is None


def test_origin_may_have_no_topic_id_and_the_name_of_a_mirror() -> None:
    assert origin_of(body(("mirror.origin", b"A/orders/3/1234/"))) == ORIGIN._replace(topic_id="")
    assert (origin_cluster("mirror", "A"), origin_cluster("eu", "A")) == ("A", "eu:A")
    assert origin_of(body(("mirror.origin", b"eu:A/orders/3/1234/Qx7f2k"))) == ORIGIN._replace(cluster="eu:A")
