"""What the benchmarks make of what they saw: counts into rates, processes into seconds, rounds into ratios."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List

import pytest

from tests.bench.cases import CASES, Case, chosen
from tests.bench.digests import differences, parsed, records
from tests.bench.figures import Observed, Seen, Spread, Used, observed, ratios, spread, without_markers
from tests.bench.fill import partition_of
from tests.bench.page import BY_HAND, HEAD, LIMITS, METHOD, PAGE, RESULTS, SCALE, page, write
from tests.bench.plot import chart_of, svg, ticks
from tests.bench.processes import SessionMeter
from tests.bench.processes import parsed as parsed_stat
from tests.bench.results import Results, Run, loaded, save
from tests.bench.rounds import in_turn
from tests.lab.checkout import LabError


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


def test_a_process_with_an_odd_name_is_read() -> None:
    line = "7 (a) b (c) S 1 7 5 0 -1 0 0 0 0 0 200 100 9 9 20 0 1 0 77 4096 3 0"
    found = parsed_stat(line)
    assert (found.session, found.started) == (5, 77)
    assert found.cpu_seconds == pytest.approx(300 / os.sysconf("SC_CLK_TCK"))


def test_a_session_is_counted_with_children_that_lost_their_parent() -> None:
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\ntime.sleep(60)"
    shell = f"{sys.executable} -c '{burn}' & exec sleep 0.1"
    process = subprocess.Popen(["sh", "-c", shell], start_new_session=True)
    process.wait()
    meter = SessionMeter(process.pid)
    try:
        while meter.look().cpu_seconds < 0.2:  # the kernel counts in ticks
            time.sleep(0.02)
        assert meter.look().resident_bytes > 1_000_000
    finally:
        os.killpg(process.pid, 9)


@pytest.mark.parametrize("answer", ["0:3:ab 1:2:ce", "0:3:ab 1:1:cd", "0:3:ab", "0:3:ab 1:2:cd 2:1:00"])
def test_a_copy_that_is_not_one_is_seen(answer: str) -> None:
    source = parsed("0:3:ab 1:2:cd")
    assert records(source) == 5
    assert not differences(source, source)
    assert len(differences(source, parsed(answer))) == 1


def test_a_hot_partition_gets_its_share_and_the_others_the_rest() -> None:
    found = [partition_of(Case("hot", "", 100, 1, hot=0.9), number) for number in range(3000)]
    assert [found.count(number) for number in range(4)] == [2700, 100, 100, 100]


def test_a_case_that_is_measured_again_replaces_only_itself(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    figures = Observed(*range(9))
    runs = [Run(case, engine, 1, 10, figures) for case in ("a", "b") for engine in ("mirror", "tuned")]
    save(Results({"processor": "2 cores"}, runs), file)
    again = loaded(file).without("a", ["mirror"]).with_run(Run("a", "mirror", 1, 20, figures))
    save(again, file)
    assert {(run.case, run.engine): run.payload_bytes for run in loaded(file).runs} == {
        ("a", "mirror"): 20,
        ("a", "tuned"): 10,
        ("b", "mirror"): 10,
        ("b", "tuned"): 10,
    }
    assert loaded(file).machine == {"processor": "2 cores"}


def measured(rates: Dict[str, float], cpu: Dict[str, float]) -> Results:
    runs = [
        Run("bytes100", engine, number, 100, Observed(1, 1.0, 2.0, rate, cpu[engine], 1.0, 1.0, 1.0, 10))
        for number in (1, 2)
        for engine, rate in rates.items()
    ]
    return Results({"processor": "2 cores"}, runs)


@pytest.mark.parametrize(("rate", "verdict"), [(4e6, "4.0 met"), (3.9e6, "4.0 **missed**")])
def test_the_page_says_whether_a_target_was_met(rate: float, verdict: str) -> None:
    text = page(measured({"mirror": rate, "tuned": 1e6, "loop": 2e6}, {"mirror": 0.5, "tuned": 2.0, "loop": 1.0}), "")
    ratio = f"{rate / 1e6:.1f}"
    assert f"| 100 B | {rate:,.0f} | 1,000,000 | {ratio} | 1.0 | 0.50/2.0 | 0.25 | {verdict} |" in text
    assert "Target for the CPU ratio, at most 0.25: met." in text
    assert "Peak memory: this mirror 10 B; MirrorMaker 2, tuned 10 B." in text
    assert "| 100 B | Java loop | 2,000,000 | 2.0 | 1.0 |" in text
    assert "Machine: 2 cores. Rounds: 2. Load average: 0.00." in text
    assert "| 10 KB |" not in text


def test_a_missed_target_of_cpu_is_named() -> None:
    text = page(measured({"mirror": 4e6, "tuned": 1e6}, {"mirror": 1.0, "tuned": 2.0}), "")
    assert "Target for the CPU ratio, at most 0.25: missed by 100 B (0.50), met by the other 0 cases." in text


def test_a_new_page_keeps_the_sections_that_are_written_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"# Old\n\n{BY_HAND}\n\nkept\n")
    write(measured({"mirror": 4e6, "tuned": 1e6}, {"mirror": 0.5, "tuned": 2.0}), file)
    text = file.read_text()
    assert text.startswith(HEAD) and text.endswith(f"\n\n{BY_HAND}\n\nkept\n")
    file.write_text("# Old\n")
    with pytest.raises(ValueError, match="has no section"):
        write(Results(), file)


def test_the_page_has_the_texts_that_its_generator_has() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert not [each for each in (HEAD, METHOD, RESULTS, LIMITS, SCALE, f"\n{BY_HAND}\n") if each not in text]


def test_a_picture_has_every_point_inside_and_says_its_names() -> None:
    chart = chart_of({"name": "rows", "title": "<Rows>", "x": "rows", "y": "s", "series": {"read": [[0, 0], [9e6, 4]]}})
    picture = svg(chart)
    assert "&lt;Rows&gt;" in picture and ">read<" in picture and ">10 M<" in picture
    points = re.findall(r'<circle cx="([0-9.]+)" cy="([0-9.]+)"', picture)
    assert len(points) == 2
    assert all(0 < float(x) < 640 and 0 < float(y) < 360 for x, y in points)


@pytest.mark.parametrize(("most", "last"), [(0, 1), (1, 1), (9.3, 10), (10_000, 10_000), (0.031, 0.04)])
def test_axes_end_at_round_numbers(most: float, last: float) -> None:
    assert ticks(most)[-1] == pytest.approx(last)
    assert len(ticks(most)) <= 6


def test_engines_take_turns_and_those_that_give_the_scale_only_at_first() -> None:
    engines = ["mirror", "mm2", "tuned", "loop"]
    assert in_turn(engines, 1) == ["mm2", "tuned", "loop", "mirror"]
    assert [in_turn(engines, number) for number in (2, 3)] == [["mirror", "tuned"], ["tuned", "mirror"]]
    assert in_turn(["loop"], 3) == []


def test_big_cases_are_left_out_unless_asked_for() -> None:
    assert [case.name for case in CASES if case not in chosen([], big=False)] == ["backlog"]
    assert chosen([], big=True) == CASES
    assert [case.name for case in chosen(["backlog", "far"], big=False)] == ["far", "backlog"]
    with pytest.raises(LabError, match="there is no case nothing"):
        chosen(["nothing"], big=False)
