"""Every test of MirrorMaker 2's own is answered: by tests that are there, or by a reason why there is none."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import FrozenSet, List, Sequence, Set

from tools.docs.mm2_tests import Answer, answers

TESTS = Path(__file__).parents[1]
ITS_TESTS = Path(__file__).parent / "data" / "mm2-tests.txt"


def its_tests() -> Set[str]:
    """`Class.test` of each test that Kafka has."""
    lines = [line for line in ITS_TESTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {f"{of}.{test}" for of, _, tests in (line.partition(": ") for line in lines) for test in tests.split()}


def found_in(file: str) -> FrozenSet[str]:
    path = TESTS / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.exists() else ast.Module([], [])
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def not_there(rows: Sequence[Answer]) -> List[str]:
    """Tests of ours that a row names and no file has."""
    named = sorted({test for row in rows for test in row.ours})
    return [test for test in named if test.partition("::")[2] not in found_in(test.partition("::")[0])]


def unanswered(rows: Sequence[Answer]) -> Set[str]:
    return its_tests() - {f"{row.of}.{test}" for row in rows for test in row.tests}


def test_every_test_that_is_named_is_there() -> None:
    assert not_there(answers()) == []


def test_every_test_of_mirrormaker_2_is_answered_and_no_other() -> None:
    assert unanswered(answers()) == set()
    assert {f"{row.of}.{test}" for row in answers() for test in row.tests} == its_tests()
    assert len(its_tests()) > 140
