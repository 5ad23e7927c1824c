"""The demo is red for anything but an exact copy of what should be copied."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List

import pytest

from tests.lab.dataset import MadeTopic
from tests.lab.demo import Demo

MADE = [MadeTopic("orders", 2, 10, "plain"), MadeTopic("audit", 1, 1, "excluded", copied=False)]


def topic(name: str = "orders", verdict: str = "equal") -> Dict[str, object]:
    return {"topic": name, "partitions": 2, "records": 12_345, "verdict": verdict}


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
