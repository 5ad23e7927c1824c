"""Which record of a dead letter topic is a letter that is to be appended, so that it is not appended again."""

from __future__ import annotations

from typing import Optional, Set, Tuple

import pytest

from mirror_lib.log.varint import encode_varint
from mirror_lib.records.dead_letters import DeadLetter, identity, is_there

NOON = 1_700_000_000_000


def sized(data: Optional[bytes]) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def body(
    value: bytes = b"x",
    offset: int = 5,
    reason: Optional[bytes] = b"no number",
    own: Tuple[Tuple[bytes, Optional[bytes]], ...] = (),
    alias: bytes = b"A",
) -> bytes:
    """As letters were always written: the record, its own headers, where it came from, and last the reason."""
    origin = ((b"cluster", alias), (b"topic", b"orders"), (b"partition", b"0"), (b"offset", b"%d" % offset))
    headers = [*own, *((b"mirror.source." + name, each) for name, each in origin)]
    headers += [] if reason is None else [(b"mirror.error", reason)]
    told = b"".join(sized(name) + sized(each) for name, each in headers)
    return sized(b"key") + sized(value) + encode_varint(len(headers)) + told


def letter(made: bytes, timestamp: int = NOON) -> DeadLetter:
    return DeadLetter(("orders", 0, 5), 0, timestamp, made)


def there(*found: Tuple[bytes, Optional[int]]) -> Set[Tuple[bytes, Optional[int]]]:
    return {told for told in (identity(*each) for each in found) if told is not None}


@pytest.mark.parametrize(
    "found",
    [
        pytest.param((body(), NOON), id="as it was written"),
        pytest.param((body(reason=b"said in other words"), NOON), id="with another reason"),
        pytest.param((body(reason=b"r" * 9000), NOON), id="with a long reason"),
        pytest.param((body(), None), id="with the broker's time"),
    ],
)
def test_letter_that_was_appended_before_is_known_again(found: Tuple[bytes, Optional[int]]) -> None:
    assert is_there(letter(body()), there((body(offset=4), NOON), found))


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(letter(body(value=b"y")), id="another value"),
        pytest.param(letter(body(), NOON + 1), id="another time"),
        pytest.param(letter(body(own=((b"n", None),))), id="other headers"),
        pytest.param(letter(body(alias=b"C")), id="another cluster"),
        pytest.param(letter(body(offset=6)), id="another offset"),
    ],
)
def test_other_record_at_an_offset_that_comes_again_is_a_letter_of_its_own(new: DeadLetter) -> None:
    assert not is_there(new, there((body(), NOON)))


def test_record_that_is_no_letter_is_none() -> None:
    assert there((body(reason=None), NOON), (sized(None) + sized(None) + encode_varint(0), NOON)) == set()
