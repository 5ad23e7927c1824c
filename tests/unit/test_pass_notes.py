"""What a group's offsets tell of passes: read back as it was told, and the newer of it and the own table counts."""

from __future__ import annotations

from typing import Dict, List, Optional

import pytest

from mirror_lib.errors import RefusedError
from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.records.pass_notes import BARE, LONGEST_NOTE, last_pass, notes_of, pass_told, read_pass_note
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
    assert pass_told({("a", 0): CommittedOffset(3, ""), ("a", 1): CommittedOffset(3, BARE)}) is None
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


def test_note_that_is_too_long_is_left_out_and_without_its_ledger_nobody_goes_on() -> None:
    wide = planned(4, 5, 6, 5, 6, partitions=1500)
    told = notes_of(wide, COPIED)
    assert {at.metadata for at in told.values()} == {BARE} and len(BARE) < LONGEST_NOTE
    assert last_pass(wide, told, "g") == wide
    assert notes_of(planned(4, 5, 6, 5, 6), {("a", 0): ["A.a", "more"]}) == {("a", 0): CommittedOffset(5, BARE)}
    with pytest.raises(RefusedError, match="this ledger does not know of them"):
        last_pass(None, told, "g")
