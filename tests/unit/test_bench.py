"""What the benchmarks make of what they saw: counts into rates, processes into seconds, rounds into ratios."""

from __future__ import annotations

from typing import List

import pytest

from tests.bench.digests import differences, parsed, records
from tests.bench.figures import Seen, Spread, Used, observed, ratios, spread, without_markers
from tests.bench.page import BY_HAND, HEAD, LIMITS, METHOD, PAGE, RESULTS, SCALE


def copy_of(per_second: float, seconds: int, start: float) -> List[Seen]:
    """Looks at a copy that begins `start` seconds after the command and continues evenly."""
    return [Seen(float(at), max(0.0, (at - start) * per_second)) for at in range(seconds + 1)]


def test_steady_state_knows_nothing_of_the_start_up() -> None:
    used = [Used(float(at), cpu=2.0 * at, broker_cpu=0.5 * at, resident_bytes=at) for at in range(21)]
    found = observed(0.0, 1000, copy_of(100, 20, start=10), used)
    assert found.steady_rate == pytest.approx(100)
    assert (found.first_seconds, found.last_seconds) == (11, 20)
    assert found.whole_rate == pytest.approx(50)
    assert found.steady_cpu == pytest.approx(2.0 / 100 * 1e6)
    assert found.steady_broker_cpu == pytest.approx(0.5 / 100 * 1e6)
    assert found.whole_cpu == pytest.approx(40 / 1000 * 1e6)
    assert found.peak_bytes == 20


def test_markers_of_a_fence_are_not_taken_for_records() -> None:
    ends = [Seen(0, 0), Seen(1, 4), Seen(2, 54), Seen(3, 104)]
    assert [sample.records for sample in without_markers(ends, 100)] == [0, 0, 50, 100]


def test_ratios_are_of_rounds_that_have_both() -> None:
    assert ratios({1: 4.0, 2: 9.0, 3: 5.0}, {1: 2.0, 2: 3.0}) == [2.0, 3.0]
    assert spread([3.0, 2.0, 10.0]) == Spread(2.0, 3.0, 10.0)
    assert str(Spread(0.5, 2.25, 13.4)) == "0.50–2.2–13"
    assert spread([]) is None


@pytest.mark.parametrize("answer", ["0:3:ab 1:2:ce", "0:3:ab 1:1:cd", "0:3:ab", "0:3:ab 1:2:cd 2:1:00"])
def test_a_copy_that_is_not_one_is_seen(answer: str) -> None:
    source = parsed("0:3:ab 1:2:cd")
    assert records(source) == 5
    assert not differences(source, source)
    assert len(differences(source, parsed(answer))) == 1


def test_the_page_has_the_texts_that_its_generator_has() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert not [each for each in (HEAD, METHOD, RESULTS, LIMITS, SCALE, f"\n{BY_HAND}\n") if each not in text]
