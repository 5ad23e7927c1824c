"""When an answer without data is a gap of the log, and when only its tiered storage was too slow."""

from __future__ import annotations

from typing import List

from mirror_lib.kafka.fetcher import EMPTY_ANSWERS, Gaps

PARTITION = ("orders", 0)


def silent(gaps: Gaps, times: int, position: int = 40) -> List[bool]:
    return [gaps.answered(PARTITION, position, empty=True) for _ in range(times)]


def test_gap_is_one_when_the_leader_was_silent_again_and_again_about_what_it_keeps_itself() -> None:
    for kept_from in (-1, 0, 40):
        starts = {PARTITION: kept_from}
        reported = silent(Gaps(starts.__getitem__), EMPTY_ANSWERS)
        assert reported == [False] * (EMPTY_ANSWERS - 1) + [True]


def test_silence_about_what_lies_in_tiered_storage_is_never_a_gap() -> None:
    gaps = Gaps(lambda _: 41)
    assert not any(silent(gaps, 50)) and gaps.stored(PARTITION)
    assert not gaps.answered(PARTITION, 40, empty=False)
    assert not gaps.stored(PARTITION)


def test_silence_at_other_positions_or_before_an_answer_does_not_count() -> None:
    gaps = Gaps(lambda _: -1)
    assert not any(silent(gaps, EMPTY_ANSWERS - 1, 40) + silent(gaps, EMPTY_ANSWERS - 1, 41))
    gaps.answered(PARTITION, 41, empty=False)
    assert not any(silent(gaps, EMPTY_ANSWERS - 1, 41))
