"""What a group's offsets tell of passes: read back as it was told, and the newer of it and the own table counts."""

from __future__ import annotations

from typing import Dict, List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.errors import RefusedError
from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.records.packed_offsets import packed, unpacked
from mirror_lib.records.pass_notes import LONGEST_NOTE, last_pass, notes_of, pass_told, read_pass_note
from mirror_lib.replicate.starts import read_note
from mirror_lib.state.row_passes import REMOTE, SOURCE, PassRow, RowPass

COPIED: Dict[TopicPartition, List[str]] = {("a", 0): ["A.a"], ("a", 1): ["A.a"]}


def planned(number: int, *ranges: int, partitions: int = 2) -> RowPass:
    """A pass over two partitions of `a`, each from and until."""
    sources = [PassRow(SOURCE, "a", "s-_1", n, *ranges[2 * n : 2 * n + 2]) for n in (0, 1)]
    return RowPass(number, (*sources, *(PassRow(REMOTE, "A.a", "r1", n, 100 + n) for n in range(partitions))))


def test_pass_is_read_back_as_it_was_told() -> None:
    begun = planned(7, 3, 9, 0, 4)
    told = notes_of(begun, COPIED)
    assert {place: at.offset for place, at in told.items()} == {("a", 0): 3, ("a", 1): 0}
    assert pass_told(told) == begun
    done = notes_of(begun, COPIED, {("A.a", 0): 120, ("A.a", 1): 101})
    assert {place: at.offset for place, at in done.items()} == {("a", 0): 9, ("a", 1): 4}
    after = pass_told(done)
    assert after is not None and after.empty and after.number == 7
    assert [row.from_offset for row in after.of(REMOTE)] == [120, 101]


def test_partition_that_a_later_pass_does_not_name_stands_where_it_was_left() -> None:
    earlier, later = notes_of(planned(7, 3, 9, 0, 4), COPIED), notes_of(planned(8, 9, 20, 4, 5), {("a", 0): ["A.a"]})
    told = pass_told({**earlier, **later})
    assert told is not None and told.number == 8
    assert {row.partition: (row.from_offset, row.stands) for row in told.of(SOURCE)} == {0: (9, 20), 1: (4, 4)}


def test_notes_of_others_tell_of_no_pass() -> None:
    assert pass_told({("a", 0): CommittedOffset(3, "")}) is None
    assert last_pass(None, {("a", 0): CommittedOffset(3, "mirror: something")}, "g") is None
    (note, _) = notes_of(planned(7, 3, 9, 0, 4), COPIED).values()
    assert read_note(note.metadata) is None and read_pass_note(note.metadata + "x") is None


@pytest.mark.parametrize(
    ("own", "told", "counts"),
    [
        pytest.param(None, planned(3, 0, 5, 0, 5), 3, id="no table"),
        pytest.param(planned(3, 0, 5, 0, 5), None, 3, id="no notes"),
        pytest.param(planned(3, 0, 5, 0, 5), planned(9, 5, 6, 5, 6), 9, id="another went on"),
        pytest.param(planned(4, 5, 6, 5, 6), planned(3, 0, 5, 0, 5), 4, id="died before it was told"),
    ],
)
def test_newer_one_counts(own: Optional[RowPass], told: Optional[RowPass], counts: int) -> None:
    found = last_pass(own, {} if told is None else notes_of(told, COPIED), "g")
    assert found is not None and found.number == counts


def test_of_one_number_the_notes_count_where_another_planned_it() -> None:
    own, other = planned(4, 5, 6, 5, 6), planned(4, 5, 8, 5, 6)
    assert last_pass(own, notes_of(other, COPIED), "g") == other
    done = notes_of(own, COPIED, {("A.a", 0): 120, ("A.a", 1): 101})
    assert last_pass(own, done, "g") == own


def wide(number: int, partitions: int, step: int, sources: int = 2) -> RowPass:
    """A pass into a topic of many partitions, which stand `step` apart, to and fro."""
    ranges = [PassRow(SOURCE, "a", "s", n, 5, 6 + n) for n in range(sources)]
    stands = [10**12 + (step if n % 2 else 0) + n for n in range(partitions)]
    return RowPass(number, (*ranges, *(PassRow(REMOTE, "A.a", "r1", n, at) for n, at in enumerate(stands))))


@pytest.mark.parametrize(
    ("partitions", "step", "sources", "parts"), [(1500, 50, 2, 1), (1000, 10**9, 3, 3), (5000, 50, 40, 40)]
)
def test_many_remote_partitions_are_told_in_a_denser_form_and_in_parts(
    partitions: int, step: int, sources: int, parts: int
) -> None:
    begun = wide(4, partitions, step, sources)
    told = notes_of(begun, {("a", n): ["A.a"] for n in range(sources)})
    assert max(len(at.metadata) for at in told.values()) <= LONGEST_NOTE
    assert sum(len(at.metadata) for at in told.values()) <= 200_000
    assert pass_told(told) == begun == last_pass(None, told, "g")
    assert {note.parts for note in (read_pass_note(at.metadata) for at in told.values()) if note} == {parts}
    # Not a part less: who would go on from what is left would copy again what the other one did.
    for place in told if parts > 1 else ():
        left = {each: at for each, at in told.items() if each != place}
        assert pass_told(left) is None
        with pytest.raises(RefusedError):
            last_pass(None, left, "g")


def test_without_room_for_all_of_a_pass_nobody_goes_on_but_with_the_ledger_that_knows_it() -> None:
    begun = wide(4, 3000, 10**11)
    told = notes_of(begun, COPIED)
    assert {at.offset for at in told.values()} == {5} and max(len(at.metadata) for at in told.values()) < 100
    assert last_pass(begun, told, "g") == begun
    assert last_pass(wide(5, 3, 1), told, "g") == wide(5, 3, 1)
    for own in (None, wide(3, 3000, 10**11)):
        with pytest.raises(RefusedError, match="this ledger does not know of the last of them"):
            last_pass(own, told, "g")
    # Also where another topic's notes tell all of theirs.
    both = {**told, **notes_of(RowPass(4, (PassRow(SOURCE, "b", "s2", 0, 1, 2), PassRow(REMOTE, "A.b", "r2", 0, 9))),
                               {("b", 0): ["A.b"]})}  # fmt: skip
    with pytest.raises(RefusedError):
        last_pass(None, both, "g")
    assert pass_told(notes_of(planned(4, 5, 6, 5, 6), {("a", 0): ["A.a", "more"]})) is not None


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_packed_offsets_come_back(offsets: List[int]) -> None:
    assert unpacked(packed(offsets)) == offsets


@pytest.mark.parametrize("text", ["a", "gA", "AQ", "____________________"])
def test_what_was_not_packed_is_not_read(text: str) -> None:
    assert unpacked(text) is None
