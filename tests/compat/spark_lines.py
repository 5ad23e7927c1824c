"""`python -m tests.compat.spark_lines [LINE...]`: the same tests on each Spark line.

Each line has an environment of its own, `.venv-sparkLINE`, made by tests/lab/setup.sh. Ends with 1 where a test failed,
or a line could not be set up; one whose Python the machine lacks is left out, but not in CI.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence
from xml.etree import ElementTree

from tests.lab.checkout import CACHE, ROOT

LINES = ("3.3", "3.4", "3.5", "4.0", "4.1", "4.2")
FIRST = "4.0"  # its environment has no name of its own
FOLDER = CACHE / "compat"
NO_PYTHON = 77
INTEGRATION = "tests/integration"
# What each column of the table is, as pytest is asked for it.
CHECKS: Mapping[str, Sequence[str]] = {
    "unit": ["tests/unit"],
    "copy": [f"{INTEGRATION}/test_copy.py"],
    "state": [f"{INTEGRATION}/test_state_tables.py", f"{INTEGRATION}/test_ledger_compaction.py"],
    "translation": [f"{INTEGRATION}/test_translate_job.py"],
    "groups": [f"{INTEGRATION}/test_groups_commands.py"],
    "records": [f"{INTEGRATION}/test_records_flow.py"],
    "changes": [f"{INTEGRATION}/test_changes.py"],
    "verify": [f"{INTEGRATION}/test_verify.py"],
}
# A quick row: what the lines differ in, of each check.
QUICK = (
    "remote_log_is_an_exact_copy",
    *("table_that_was_made_empty", "positions_are_reduced_beside"),
    *("stream_survives", "two_that_merge", "compaction_of_the_ledger_meanwhile", "plan_shows_then_moves"),
    *("left_out_because_it_could_not_be_changed", "where_keeps_what_is_true", "keys_go_where"),
    *("each_case_has_its_verdict", "what_a_flow_makes_of_its_records"),
)
VERSIONS = """
import importlib.metadata as m, json, platform
names = ("pyspark", "delta-spark", "pyarrow", "pandas", "numpy", "cramjam", "kafka-python")
print(json.dumps({"python": platform.python_version(), **{name: m.version(name) for name in names}}))
"""


@dataclass
class Count:
    """How many tests of a check passed, were skipped, and which failed."""

    passed: int = 0
    skipped: int = 0
    failed: List[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.passed and not self.failed:
            return "none ran"
        return f"{self.passed} passed" + (f", {len(self.failed)} failed" if self.failed else "")


@dataclass
class Line:
    """The result of one line. `refused` says why it could not be set up; `checks` are empty then."""

    spark: str
    refused: Optional[str] = None
    skipped: bool = False
    versions: Dict[str, str] = field(default_factory=dict)
    checks: Dict[str, Count] = field(default_factory=dict)

    @property
    def green(self) -> bool:
        """Whether every check ran and no test failed, or the machine of a developer lacks the line's Python."""
        if self.refused is not None:
            return self.skipped and not os.environ.get("CI")
        return all(count.passed and not count.failed for count in self.checks.values())


def environment(spark: str) -> Path:
    """Where setup.sh puts the line's Python packages."""
    return ROOT / (".venv" if spark == FIRST else f".venv-spark{spark}")


def counted(report: Path, tests: Sequence[str]) -> Count:
    """The cases of `tests` in what pytest wrote down as JUnit XML."""
    count = Count()
    modules = tuple(each.replace(".py", "").replace("/", ".") for each in tests)
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        # A module that could not be imported has its name alone.
        if not str(case.get("classname") or case.get("name")).startswith(modules):
            continue
        if kinds & {"failure", "error"}:
            count.failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif "skipped" in kinds:
            count.skipped += 1
        else:
            count.passed += 1
    return count


def run_line(spark: str, checks: Mapping[str, Sequence[str]], quick: bool) -> Line:
    """Set the line up and run the checks on it, or of each the tests in QUICK."""
    venv = environment(spark)
    own = {**os.environ, "SPARK": spark, "VENV": venv.name, "MIRROR_VENV": str(venv)}
    own.pop("PYTHON", None)  # one Python does not fit all lines
    ready = subprocess.run(["bash", "tests/lab/setup.sh"], cwd=ROOT, env=own, stderr=subprocess.PIPE, text=True)
    if ready.returncode:
        said = ready.stderr.strip().splitlines()[-1:] or ["setup failed"]
        return Line(spark, said[0], ready.returncode == NO_PYTHON)
    python = str(venv / "bin" / "python")
    versions = subprocess.run([python, "-c", VERSIONS], env=own, stdout=subprocess.PIPE, text=True, check=True).stdout
    line = Line(spark, versions=json.loads(versions))
    report = FOLDER / f"spark-{spark}-{os.getpid()}.xml"
    print(f"compat: Spark {spark}: {', '.join(checks)}", flush=True)
    tests = [each for some in checks.values() for each in some]
    chosen = ["-k", " or ".join(QUICK)] if quick else ["-n", "2", "--dist", "loadfile"]
    # A row is complete: it has the long tests of its files too.
    options = ["-q", "-m", "", "--durations=10", *chosen, f"--junitxml={report}"]
    subprocess.run([python, "-m", "pytest", *options, *tests], cwd=ROOT, env=own)
    ended = report.is_file()
    line.checks = {
        name: counted(report, some) if ended else Count(failed=["pytest did not end"]) for name, some in checks.items()
    }
    if ended:
        report.unlink()
    return line


def main(arguments: Sequence[str]) -> int:
    """Run the lines, or all. In the environment `CHECKS="copy state"` names checks, `QUICK=1` takes a few tests of each
    but the unit tests."""
    quick = bool(os.environ.get("QUICK"))
    wanted = os.environ.get("CHECKS", "").split() or [name for name in CHECKS if not (quick and name == "unit")]
    unknown = [each for each in arguments if each not in LINES] + [each for each in wanted if each not in CHECKS]
    if unknown:
        print(f"compat: {', '.join(unknown)} is not one of {', '.join([*LINES, *CHECKS])}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    results = []
    for spark in arguments or LINES:
        results.append(run_line(spark, {name: CHECKS[name] for name in wanted}, quick))
    for line in results:
        print(f"compat: Spark {line.spark}:", ", ".join(f"{name} {each}" for name, each in line.versions.items()))
        for name, count in line.checks.items():
            print(f"compat: Spark {line.spark}: {name}: {count}", *count.failed, sep="\n  ")
        if line.refused is not None:
            print(f"compat: Spark {line.spark} was {'skipped' if line.skipped else 'not run'}: {line.refused}")
    return 0 if all(line.green for line in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
