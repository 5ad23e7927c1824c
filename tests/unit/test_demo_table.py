"""The demo's table lines up, and the demo is red for anything but an exact copy of what should be copied."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List

import pytest

from tests.lab.dataset import MadeTopic
from tests.lab.demo import Demo, table

MADE = [MadeTopic("orders", 2, 10, "plain"), MadeTopic("audit", 1, 1, "excluded", copied=False)]


def topic(name: str = "orders", verdict: str = "equal") -> Dict[str, object]:
    return {"topic": name, "partitions": 2, "records": 12_345, "verdict": verdict}


def test_table_lines_up_and_sums() -> None:
    lines = table([topic(), topic("payments.and.more", "differs")], {"orders": 9876.5}, 1234.5).splitlines()
    assert lines[0].split() == ["topic", "partitions", "records", "records/s", "verified"]
    assert lines[-1].split() == ["all", "4", "24,690", "1,234", "1", "of", "2"]
    assert lines[2].index("12,345") + len("12,345") == lines[0].index("records") + len("records")
    assert lines[2].split()[-2:] == ["9,876", "equal"]
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    ("topics", "code", "said"),
    [
        ([topic()], 0, "1 topics are equal"),
        ([topic(verdict="differs")], 1, "orders: differs"),
        ([], 1, "orders: not copied"),
        ([topic(), topic("audit")], 1, "audit: copied, but should be skipped"),
    ],
)
def test_demo_is_green_only_for_an_exact_copy(
    topics: List[Dict[str, object]], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Demo(Path("unused")).conclude({"topics": topics}, MADE) == code
    assert said in capsys.readouterr().out
