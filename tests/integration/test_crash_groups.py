"""Processes that move groups, killed with `kill -9` at each step: the next run ends right, and the third has no work
left."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import pytest

from mirror_lib.groups.translation import TO_UPSTREAM
from tests.integration.conftest import Command, Ground, Names
from tests.lab.crash import CrashPoint, mirror, run_mirror
from tests.lab.flow_lab import values
from tests.lab.group_lab import GroupLab, JobLab, commit, commit_with_note, offsets, read_on
from tests.lab.readers import read_if_there

pytestmark = pytest.mark.long

POSITIONS = {"a": (10, 20), "b": (33, 7), "c": (50, 50)}
MOVES = 6

AUDIT = "mirror_lib.ledger.group_offsets:GroupOffsetTable.append"
COMMIT = "mirror_lib.kafka.groups:ClusterGroups.commit_offsets"
CHECKPOINTS = "mirror_lib.groups.mm2_topics:CheckpointWriter.write"


@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> JobLab:
    """Three groups on two partitions; copied, and never translated."""
    lab = JobLab(*ground, topic_name("crash"))
    lab.create("orders", 2)
    for partition in range(2):
        lab.write("orders", values(50), partition)
    lab.copy()
    for group, read in POSITIONS.items():
        for partition, offset in enumerate(read):
            of = f"{lab.name}-{group}", lab.topic("orders")
            commit_with_note(lab.source, *of, offset, f"note {offset}", partition)
    return lab


def standing(lab: JobLab) -> Dict[str, Tuple[object, ...]]:
    return {name: tuple(lab.done(f"{lab.name}-{name}", partition=number) for number in range(2)) for name in POSITIONS}


def commits(lab: JobLab) -> int:
    """Records about this lab's groups and remote topic that the target's coordinator ever wrote."""
    logs = read_if_there(lab.target, "__consumer_offsets").values()
    keys = [record.key or b"" for log in logs for record in log.values() if record.value is not None]
    return sum(lab.remote("orders").encode() in key and lab.name.encode() + b"-" in key for key in keys)


def reported(lab: JobLab) -> List[Tuple[str, int, int, int, str]]:
    """Checkpoints: group, partition, upstream and downstream offset, metadata, in log order."""
    return [(c.group, c.partition, c.upstream_offset, c.downstream_offset, c.metadata) for c in lab.checkpoints()]


def right(lab: JobLab) -> List[Tuple[str, int, int, int, str]]:
    """A checkpoint for each position, as it is committed on the target."""
    expected = []
    for name, read in POSITIONS.items():
        at = lab.at_target(f"{lab.name}-{name}", "orders", 2)
        expected += [(f"{lab.name}-{name}", number, read[number], *at[number]) for number in range(2)]
    return expected


@pytest.mark.parametrize(
    ("function", "when", "call", "rows", "made"),
    [
        (AUDIT, "before", 1, 0, 0),
        (AUDIT, "after", 1, MOVES, 0),
        (COMMIT, "after", 2, MOVES, 4),
        (CHECKPOINTS, "before", 1, MOVES, MOVES),
        (CHECKPOINTS, "after", 1, MOVES, MOVES),
    ],
)
def test_groups_end_right_after_a_driver_killed(
    lab: JobLab, tmp_path: Path, function: str, when: str, call: int, rows: int, made: int
) -> None:
    crash = CrashPoint(function, when, call, tmp_path / "died")
    with mirror("translate", lab.config, "--once", crash=crash) as running:
        assert running.wait() == -9
    assert crash.reached
    assert (len(lab.moves()), commits(lab)) == (rows, made)

    lab.pass_once()
    assert standing(lab) == POSITIONS
    assert sorted(reported(lab)) == right(lab)
    assert len(lab.moves()) == len(set(lab.moves())) == MOVES
    assert commits(lab) == MOVES

    report = lab.pass_once()
    assert (report.committed, report.refused, report.checkpoints) == (0, 0, 0)
    assert (len(lab.moves()), commits(lab), len(reported(lab))) == (MOVES, MOVES, MOVES)


def test_group_that_went_on_after_the_kill_is_moved_to_where_it_is_now(lab: JobLab, tmp_path: Path) -> None:
    crash = CrashPoint(AUDIT, "after", 1, tmp_path / "died")
    with mirror("translate", lab.config, "--once", crash=crash) as running:
        assert running.wait() == -9
    commit(lab.source, f"{lab.name}-a", lab.topic("orders"), 15)
    lab.pass_once()
    assert standing(lab) == {**POSITIONS, "a": (15, 20)}
    # Six rows of the run that died, one for a commit that was never made, and the commit that was made in its place.
    assert (len(lab.moves()), commits(lab)) == (MOVES + 1, MOVES)


# --- `mirror groups plan --execute` and `rollback`: the same command again finishes ----------------------------------

READ = {"a": 10, "b": 33, "c": 50}
# Group `c` had an offset on the target before.
BEFORE: Dict[str, Optional[int]] = {"a": None, "b": None, "c": 5}


@pytest.fixture
def moves(ground: Ground, topic_name: Names) -> JobLab:
    lab = JobLab(*ground, topic_name("moves"))
    lab.settings["groups.simple"] = "include"
    lab.create("orders")
    lab.write("orders", values(50))
    lab.copy()
    for group, offset in READ.items():
        commit(lab.source, f"{lab.name}-{group}", lab.topic("orders"), offset)
    commit_with_note(lab.target, f"{lab.name}-c", lab.remote("orders"), 5, "")
    return lab


def run(moves: JobLab, *command: str, crash: Optional[CrashPoint] = None) -> Tuple[int, str]:
    """The exit code, and the id of the run that the command named."""
    with mirror("groups", *command, "--execute", crash=crash) as running:
        code = running.wait(300)
    named = re.findall(r"--run (\w+)", running.output)
    return code, named[-1] if named else ""


def on_target(moves: JobLab) -> Dict[str, Optional[int]]:
    return {group: moves.at_target(f"{moves.name}-{group}", "orders").get(0, (None, ""))[0] for group in READ}


def test_plan_that_was_killed_is_undone_by_the_run_that_it_named_and_executed_again(
    moves: JobLab, tmp_path: Path
) -> None:
    """Between two groups; the tests above have the other moments."""
    config = str(moves.config)
    code, named = run(moves, "plan", config, crash=CrashPoint(COMMIT, "after", 2, tmp_path / "died"))
    assert code == -9 and named
    assert on_target(moves) != BEFORE
    assert run(moves, "rollback", config, "--run", named)[0] == 0
    assert on_target(moves) == BEFORE
    code, second = run(moves, "plan", config)
    assert code == 0 and second
    assert {group: moves.done(f"{moves.name}-{group}") for group in READ} == READ


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("function", [AUDIT, COMMIT])
def test_rollback_that_was_killed_is_executed_again(moves: JobLab, tmp_path: Path, function: str, when: str) -> None:
    """A group that had no offset before gets its offset deleted, so that one commit is left."""
    config = str(moves.config)
    code, moved = run(moves, "plan", config)
    assert code == 0
    crash = CrashPoint(function, when, 1, tmp_path / "died")
    assert run(moves, "rollback", config, "--run", moved, crash=crash)[0] == -9
    assert crash.reached
    assert run(moves, "rollback", config, "--run", moved)[0] == 0
    assert on_target(moves) == BEFORE


# --- a run that died behind its fence -----------------------------------------------------------------------------

# The first stage that tails has fenced all lanes by then, and the driver has not taken its reports.
FENCED = ("mirror_lib.replication.flow_state:judged_by_topics", "before", 1)
QUIET_RECORDS = 20


def test_group_that_has_read_the_markers_of_a_killed_run_goes_to_the_end_of_the_source(
    ground: Ground, topic_name: Names, tmp_path: Path, command: Command
) -> None:
    """A group that has read a remote log to its end, which the markers have moved, goes home. It was held for ever,
    ahead of the ledger by the markers: no run has anything to copy of a quiet topic. A group that has read all on the
    source kept a lag on the target."""
    lab = GroupLab(*ground, topic_name("home"))
    group, follows = lab.name, f"{lab.name}-follows"
    lab.settings["groups"] = [f"{lab.name}.*"]
    quiet, remote, _ = lab.create("quiet"), lab.remote("quiet"), lab.create("busy")
    lab.write("quiet", values(QUIET_RECORDS))
    lab.write("busy", values(10))
    lab.copy()
    commit(lab.source, follows, quiet, QUIET_RECORDS)
    lab.translate()
    before = lab.remote_ends()[remote, 0]
    lab.write("busy", values(10, "more"))
    lab.trigger, lab.settings["tail.seconds"] = "1 second", 60
    crash = CrashPoint(*FENCED, tmp_path / "died")
    assert run_mirror(lab.config, crash=crash) == -9 and crash.reached
    lab.trigger = "availableNow"
    lab.write("busy", values(10, "last"))
    lab.copy()
    end = lab.remote_ends()[remote, 0]
    assert before < end
    for _ in range(2):
        assert lab.translate() == {(follows, "quiet", 0): "exact"}
        assert lab.at_target(follows, "quiet") == {0: (end, "")}
    assert len(lab.moves()) == 2
    read_on(lab.target, group, [remote])
    assert offsets(lab.target, group, remote) == {0: end}
    home = [remote, "0", str(end), quiet, "0", str(QUIET_RECORDS), "exact"]
    place = ("--topic", remote, "--partition", 0, "--offset", end)
    asked = command("translate-position", lab.config, "--reverse", *place)
    assert asked.code == 0 and asked.out.splitlines()[1].split() == home
    planned = command("groups", "plan", lab.config, "--reverse", "--group", group)
    (row,) = [line.split() for line in planned.out.splitlines() if line.startswith(f"{group} ")]
    assert planned.code == 0 and row[2:6] == [str(end), f"{quiet}-0", str(QUIET_RECORDS), "exact"]
    assert lab.translate(TO_UPSTREAM)[group, "source.quiet", 0] == "exact"
    assert offsets(lab.source, group, quiet) == {0: QUIET_RECORDS}
    # What comes next is read once, on the source.
    lab.write("quiet", values(3, "late"))
    late = read_on(lab.source, group, [quiet])
    assert [each.value for records in late.values() for each in records] == values(3, "late")
