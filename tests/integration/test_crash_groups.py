"""`mirror groups plan --execute` and `rollback` killed with `kill -9` at each step: the same command again finishes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Optional, Tuple

import pytest

from tests.integration.conftest import Ground, Names
from tests.lab.crash import CrashPoint, mirror
from tests.lab.flow_lab import values
from tests.lab.group_lab import JobLab, commit, commit_with_note

pytestmark = pytest.mark.long

AUDIT = "mirror_lib.ledger.group_offsets:GroupOffsetTable.append"
COMMIT = "mirror_lib.kafka.groups:ClusterGroups.commit_offsets"
READ = {"a": 10, "b": 33, "c": 50}
# Group `c` had an offset on the target before.
BEFORE: Dict[str, Optional[int]] = {"a": None, "b": None, "c": 5}
# A group that had no offset before gets its offset deleted, so that one commit is left.
UNDO_POINTS = [(function, when, 1) for function in (AUDIT, COMMIT) for when in ("before", "after")]


@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> JobLab:
    lab = JobLab(*ground, topic_name("moves"))
    lab.settings["groups.simple"] = "include"
    lab.create("orders")
    lab.write("orders", values(50))
    lab.copy()
    for group, offset in READ.items():
        commit(lab.source, f"{lab.name}-{group}", lab.topic("orders"), offset)
    commit_with_note(lab.target, f"{lab.name}-c", lab.remote("orders"), 5, "")
    return lab


def run(lab: JobLab, *command: str, crash: Optional[CrashPoint] = None) -> Tuple[int, str]:
    """The exit code, and the id of the run that the command named."""
    with mirror("groups", *command, "--execute", crash=crash) as running:
        code = running.wait(300)
    named = re.findall(r"--run (\w+)", running.output)
    return code, named[-1] if named else ""


def on_target(lab: JobLab) -> Dict[str, Optional[int]]:
    return {group: lab.at_target(f"{lab.name}-{group}", "orders").get(0, (None, ""))[0] for group in READ}


def test_plan_that_was_killed_is_undone_by_the_run_that_it_named_and_executed_again(
    lab: JobLab, tmp_path: Path
) -> None:
    """Between two groups; `test_crash_translate` has the other moments."""
    config = str(lab.config)
    code, named = run(lab, "plan", config, crash=CrashPoint(COMMIT, "after", 2, tmp_path / "died"))
    assert code == -9 and named
    assert on_target(lab) != BEFORE
    assert run(lab, "rollback", config, "--run", named)[0] == 0
    assert on_target(lab) == BEFORE
    code, second = run(lab, "plan", config)
    assert code == 0 and second
    assert {group: lab.done(f"{lab.name}-{group}") for group in READ} == READ


@pytest.mark.parametrize(("function", "when", "call"), UNDO_POINTS)
def test_rollback_that_was_killed_is_executed_again(
    lab: JobLab, tmp_path: Path, function: str, when: str, call: int
) -> None:
    config = str(lab.config)
    code, moved = run(lab, "plan", config)
    assert code == 0
    crash = CrashPoint(function, when, call, tmp_path / "died")
    assert run(lab, "rollback", config, "--run", moved, crash=crash)[0] == -9
    assert crash.reached
    assert run(lab, "rollback", config, "--run", moved)[0] == 0
    assert on_target(lab) == BEFORE
