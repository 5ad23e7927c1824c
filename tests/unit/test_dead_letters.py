"""Which record of a dead letter topic is a letter that is to be appended, so that it is not appended again."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.log.varint import encode_varint
from mirror_lib.records.known_letters import KnownLetters, Letter, letter_of

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


def letter(made: bytes, timestamp: Optional[int] = NOON) -> Letter:
    told = letter_of(made, timestamp)
    assert told is not None
    return told


def there(*found: Letter) -> KnownLetters:
    known = KnownLetters("A", {("orders", 0): 0})
    for each in found:
        known.add(each)
    return known


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(letter(body()), id="as it was written"),
        pytest.param(letter(body(reason=b"said in other words")), id="with another reason"),
        pytest.param(letter(body(reason=b"r" * 9000)), id="with a long reason"),
        pytest.param(letter(body(), None), id="with the broker's time"),
    ],
)
def test_letter_that_was_appended_before_is_known_again(found: Letter) -> None:
    assert there(letter(body(offset=4)), found).has(letter(body()))


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
def test_other_record_at_an_offset_that_comes_again_is_a_letter_of_its_own(new: Letter) -> None:
    assert not there(letter(body())).has(new)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(body(reason=None), id="without a reason"),
        pytest.param(sized(None) + sized(None) + encode_varint(0), id="without headers"),
        pytest.param(body().replace(b"mirror.source.offset", b"mirror.source.ofsett"), id="without an origin"),
        pytest.param(body().replace(sized(b"5"), sized(b"V")), id="at an offset that is no number"),
    ],
)
def test_record_that_is_no_letter_is_none(made: bytes) -> None:
    assert letter_of(made, NOON) is None


# Where a pass begins, how far it goes, and whether what it did is then written down.
PASSES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8), st.booleans()), max_size=30)


@given(passes=PASSES, first=st.integers(0, 40))
def test_letters_are_there_once_wherever_a_life_falls_back_to(
    passes: List[Tuple[int, int, bool]], first: int
) -> None:
    """The topic is a list here; everything a life does with it is what is tested."""
    topic: Dict[Letter, int] = {letter(body(offset=each)): 1 for each in range(first)}
    known: Optional[KnownLetters] = None
    stood = {("orders", 0): first}
    for back, count, written_down in passes:
        start = max(0, stood[("orders", 0)] - back) if back > 30 else stood[("orders", 0)]
        given_again = [letter(body(offset=each)) for each in range(start, start + count)]
        stands = {("orders", 0): start}
        if known is not None:
            known.stands(stands)
            known = known if known.tells_of(given_again) else None
        if known is None:
            known = KnownLetters("A", stands)
            for each in topic:
                known.add(each)
        for each in given_again:
            if not known.has(each):
                topic[each] = topic.get(each, 0) + 1
                known.add(each)
        stood[("orders", 0)] = start + count if written_down else start
    assert set(topic.values()) <= {1}


def test_life_remembers_no_more_letters_than_one_pass_gave() -> None:
    known = KnownLetters("A", {("orders", 0): 0})
    for start in range(0, 1000, 10):
        known.stands({("orders", 0): start})
        for offset in range(start, start + 10):
            known.add(letter(body(offset=offset)))
    assert len(known) == 10


def test_letters_of_partitions_that_have_nothing_to_copy_and_of_other_clusters_take_no_memory() -> None:
    known = KnownLetters("A", {("payments", 0): 0})
    for offset in range(1000):
        known.add(letter(body(offset=offset)))
        known.add(letter(body(offset=offset, alias=b"C")))
    assert len(known) == 0
    assert known.tells_of([letter(body(offset=1000))]) and not known.has(letter(body(offset=1000)))
    assert not known.tells_of([letter(body(offset=999))])
