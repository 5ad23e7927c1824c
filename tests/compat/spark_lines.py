"""`python -m tests.compat.spark_lines [LINE...]`: the same tests on each Spark line.

Each line has an environment of its own, `.venv-sparkLINE`, made by tests/lab/setup.sh. Ends with 1 where a test failed,
or a line could not be set up; one whose Python the machine lacks is left out, but not in CI.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Mapping, Sequence
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
    "state": [f"{INTEGRATION}/test_state_tables.py"],
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
import importlib.metadata as m, platform
names = ("pyspark", "delta-spark", "pyarrow", "pandas", "numpy", "cramjam", "kafka-python")
print("python", platform.python_version(), *(f", {name} {m.version(name)}" for name in names))
"""


def environment(spark: str) -> Path:
    return ROOT / (".venv" if spark == FIRST else f".venv-spark{spark}")


def run_line(spark: str, checks: Mapping[str, Sequence[str]], quick: bool) -> bool:
    """Set the line up and run the checks on it, or of each the tests in QUICK. Whether all passed, and each check has a
    test that ran."""
    venv = environment(spark)
    own = {**os.environ, "SPARK": spark, "VENV": venv.name, "MIRROR_VENV": str(venv)}
    own.pop("PYTHON", None)  # one Python does not fit all lines
    ready = subprocess.run(["bash", "tests/lab/setup.sh"], cwd=ROOT, env=own).returncode
    if ready:
        print(f"compat: Spark {spark} was not run", flush=True)
        return ready == NO_PYTHON and not os.environ.get("CI")
    python = str(venv / "bin" / "python")
    versions = subprocess.check_output([python, "-c", VERSIONS], env=own, text=True).strip()
    report = FOLDER / f"spark-{spark}-{os.getpid()}.xml"
    print(f"compat: Spark {spark}: {versions}: {', '.join(checks)}", flush=True)
    tests = [each for some in checks.values() for each in some]
    chosen = ["-k", " or ".join(QUICK)] if quick else ["-n", "2", "--dist", "loadfile"]
    # A row is complete: it has the long tests of its files too.
    options = ["-q", "-m", "", "--durations=10", *chosen, f"--junitxml={report}"]
    if subprocess.run([python, "-m", "pytest", *options, *tests], cwd=ROOT, env=own).returncode:
        return False
    ran = [case.get("classname", "") for case in ElementTree.parse(report).iter("testcase") if not list(case)]
    modules = [each.replace(".py", "").replace("/", ".") for each in tests]
    empty = [module for module in modules if not any(name.startswith(module) for name in ran)]
    print(f"compat: Spark {spark}: {f'no test ran of {empty}' if empty else 'all passed'}", flush=True)
    return not empty


def main(arguments: Sequence[str]) -> int:
    """Run the lines, or all. In the environment `CHECKS="copy state"` names checks, `QUICK=1` takes a few tests of each
    but the unit tests."""
    quick = bool(os.environ.get("QUICK"))
    wanted = os.environ.get("CHECKS", "").split() or [name for name in CHECKS if not (quick and name == "unit")]
    checks = {name: CHECKS[name] for name in wanted}
    FOLDER.mkdir(parents=True, exist_ok=True)
    return 0 if all([run_line(spark, checks, quick) for spark in arguments or LINES]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
