"""How often a source is asked while records trickle in."""

from __future__ import annotations

from mirror_lib.kafka.fetcher import MAX_WAIT_MS, PAUSE_SECONDS, SMALL_BYTES, WHOLE_SHARE, FetchSchedule


def asked_of(pace: FetchSchedule, brought: int, answer_seconds: float, until: float = 1.0) -> int:
    """How often a broker is asked until then, whose answers take so long and bring so much."""
    now, count = 0.0, 0
    while now < until:
        wait = pace.wait(1, now)
        if not wait:
            pace.asked(1, now)
            count += 1
            now += answer_seconds
            pace.answered(1, brought, False, now)
        else:
            now += wait
    return count


def test_records_that_trickle_in_are_fetched_a_few_at_a_time() -> None:
    assert asked_of(FetchSchedule(), 200, 0.001) <= 1 / PAUSE_SECONDS + 1


def test_backlog_is_fetched_without_a_pause() -> None:
    assert asked_of(FetchSchedule(), SMALL_BYTES, 0.001) >= 999


def test_long_poll_that_ends_is_followed_by_the_next_at_once() -> None:
    pace = FetchSchedule()
    pace.asked(1, 0.0)
    pace.answered(1, 200, False, 0.001)
    pace.asked(1, 10.0)
    pace.answered(1, 0, False, 10.4)
    assert pace.wait(1, 10.5) == 0


def test_broker_that_waits_holds_up_no_other() -> None:
    pace = FetchSchedule()
    pace.asked(1, 0.0)
    pace.answered(1, 200, False, 0.001)
    assert pace.wait(1, 0.001) == PAUSE_SECONDS - 0.001
    assert pace.wait(2, 0.001) == 0


def test_requests_of_all_partitions_take_a_small_part_of_the_time_and_none_waits_for_long() -> None:
    pace = FetchSchedule()
    pace.asked(1, 0.0)
    pace.answered(1, 0, True, 0.02)
    assert pace.rest_ms(1, 0.02) == round(20 / WHOLE_SHARE)
    assert pace.rest_ms(1, 0.3) == pace.rest_ms(2, 0.02) == 0
    pace.asked(1, 1.0)
    pace.answered(1, 0, True, 3.0)
    assert pace.rest_ms(1, 3.0) == MAX_WAIT_MS
