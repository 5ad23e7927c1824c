"""Every error of a file is reported at once, in the order of its lines, and none that only follows from another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List

import pytest

from mirror_lib.cli import main
from mirror_lib.config.loader import load
from mirror_lib.errors import ConfigError

YAML = """\
clusters:
  primary:
    bootstrap.servers: localhost:9092
    ssl.truststore.pasword: hunter2
  backup:
    bootstrap.server: localhost:9192
flows:
  primary->backup:
    topic: [orders]
    replicaton.factor: 1
    batch.max.seconds: soon
    delivery: ${env:ABSENT}
  primary->bakup:
    topics: [a]
state: ./s
state: ./t
trigger:
"""
MM2 = """\
clusters = A, B
A.bootstrap.servers = localhost:9092
B.bootstrap.servers = localhost
A->B.enabled = true
A->C.enabled = true
A->B.topic = orders
tasks.max = many
A->B.refresh.topics.enabled = ${env:ABSENT}
"""


def lines_of(text: str, path: Path) -> List[int]:
    """The line of each error that is listed."""
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(str(path), {})
    assert "hunter2" not in str(caught.value)
    return [int(line) for line in re.findall(rf"\({re.escape(str(path))}:(\d+)\)", str(caught.value))]


GOOD = "clusters: {A: {bootstrap.servers: 'h:1'}, B: {bootstrap.servers: 'h:2'}}\nflows: {A->B: {}}\n"
# One cluster has no servers, and no error that causes it.
UNCAUSED = YAML.replace("    bootstrap.server: localhost:9192\n", "    client.id: m\n").split("  primary->bakup")[0]


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        # The cluster without bootstrap.servers only follows from line 6.
        ("a.yaml", YAML, [4, 6, 9, 10, 11, 12, 13, 16, 17]),
        ("a.yaml", UNCAUSED, [4, 8, 9, 10, 11, 12]),
        ("a.yaml", GOOD + "topic: a\n", [3]),
        # MirrorMaker ignores lines 5 and 6.
        ("a.properties", MM2, [3, 7, 8]),
        ("a.properties", MM2.replace("localhost:9092", "localhost"), [2, 3, 7, 8]),
    ],
)
def test_every_error_of_a_file_is_reported_with_its_line(
    tmp_path: Path, name: str, text: str, lines: List[int]
) -> None:
    assert lines_of(text, tmp_path / name) == lines


def test_each_error_has_a_line_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(YAML)
    assert main(["plan", str(tmp_path / "a.yaml")]) == 2
    first, *listed = capsys.readouterr().err.splitlines()
    assert "9 errors" in first and len(listed) == 9 and all(line.startswith("    ") for line in listed)
