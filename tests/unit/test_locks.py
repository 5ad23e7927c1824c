"""The files in locks/ agree with setup.py, with the Spark lines, and with each other."""

from __future__ import annotations

import re
from typing import Dict, Set

from tests.compat.spark_lines import LINES
from tests.lab.checkout import ROOT
from tools.supply import LOCKS

SETUP = (ROOT / "setup.py").read_text(encoding="utf-8")
SCRIPT = (ROOT / "tests/lab/setup.sh").read_text(encoding="utf-8")
# What Spark's line decides itself, and what is pinned for every line.
NOT_FLOORS = {"pyspark", "delta-spark", "kafka-python"}


def bounds() -> Dict[str, str]:
    """The runtime packages of setup.py with their lower bounds."""
    runtime = SETUP[: SETUP.index('"test":')]
    found = dict(re.findall(r'"([a-z0-9-]+)[=>]=([\d.]+)', runtime))
    both = set(re.findall(r'"([a-z0-9-]+)(?:==[\d.]+|>=[\d.]+,<[\d.]+)"', runtime))
    assert found.keys() == both, "a runtime package has one bound alone"
    return found


def pinned(name: str) -> Dict[str, str]:
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", (LOCKS / name).read_text(), re.MULTILINE))


def jars(name: str) -> Set[str]:
    lines = (LOCKS / name).read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  [\w.-]+\.jar", line) for line in lines)
    return {line.split("  ")[1] for line in lines}


def test_oldest_line_runs_with_the_lower_bounds() -> None:
    (floors,) = re.findall(r"^floors=\((.*?)\)", SCRIPT, re.MULTILINE | re.DOTALL)
    wanted = {name: low for name, low in bounds().items() if name not in NOT_FLOORS}
    assert dict(re.findall(r"'([\w-]+)==([\d.]+)'", floors)) == wanted
    assert pinned("spark-3.3-python-3.8.txt").items() >= {**wanted, "pyspark": "3.3.1", "delta-spark": "2.3.0"}.items()


def test_each_line_has_a_lock_for_its_first_python_and_a_list_of_jars() -> None:
    lines = re.findall(r"^    (\d\.\d)\) spark=(\S+) .*?pythons='([\d.]+)", SCRIPT, re.MULTILINE)
    assert tuple(line for line, *_ in lines) == LINES
    for line, spark, python in lines:
        assert pinned(f"spark-{line}-python-{python}.txt")["pyspark"] == spark
        assert any(jar.startswith("spark-sql-kafka-0-10_") for jar in jars(f"spark-{spark}-jars.sha256"))


def test_runtime_lock_is_a_part_of_the_lock_that_the_tests_run_with() -> None:
    assert pinned("spark-4.0-python-3.11.txt").items() >= pinned("runtime.txt").items()
    assert pinned("runtime.txt").keys() >= bounds().keys()
