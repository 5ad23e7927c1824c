"""A translating driver killed with `kill -9` at each step: the next run ends right, and the third has no work left."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from tests.integration.conftest import Ground, Names
from tests.lab.crash import CrashPoint, mirror
from tests.lab.flow_lab import values
from tests.lab.group_lab import JobLab, commit, commit_with_note
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
    for group, offsets in POSITIONS.items():
        for partition, offset in enumerate(offsets):
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
    for name, offsets in POSITIONS.items():
        at = lab.at_target(f"{lab.name}-{name}", "orders", 2)
        expected += [(f"{lab.name}-{name}", number, offsets[number], *at[number]) for number in range(2)]
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
