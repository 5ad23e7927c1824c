"""Patterns that Java and Python read alike are taken; the others are refused with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror_lib.config.loader import load
from mirror_lib.config.values import check_pattern
from mirror_lib.errors import ConfigError
from tests.unit.pattern_cases import ALIKE, JAVA_ONLY, PYTHON_ONLY


@pytest.mark.parametrize("pattern", ALIKE)
def test_pattern_that_both_read_alike_is_taken(pattern: str) -> None:
    check_pattern(pattern, 1)


@pytest.mark.parametrize("pattern", [*PYTHON_ONLY, *JAVA_ONLY])
def test_pattern_of_one_language_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="item 7"):
        check_pattern(pattern, 7)


def test_refusal_names_the_file_the_line_the_part_and_what_to_write(tmp_path: Path) -> None:
    text = "clusters: {A: {bootstrap.servers: 'a:1'}, B: {bootstrap.servers: 'b:1'}}\nstate: /tmp/state\n"
    path = tmp_path / "mirror.yaml"
    path.write_text(text + "flows:\n  A->B:\n    topics: ['(?P<team>sales|billing)[.].*']\n")
    with pytest.raises(ConfigError) as refused:
        load(str(path))
    assert "(?P at character 1; write a group without a name" in str(refused.value)
    assert "mirror.yaml:5" in str(refused.value)
