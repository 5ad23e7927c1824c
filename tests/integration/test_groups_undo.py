"""Undo of a translation on real clusters: groups go back to where they stood, and no one is disturbed by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.group_offsets import GroupOffsetTable
from mirror_lib.ledger.records import GroupOffset, MirrorRun
from mirror_lib.ledger.runs import RunTable
from tests.integration.conftest import Command, Ground, Names
from tests.lab.flow_lab import values
from tests.lab.group_lab import GroupLab, commit, commit_with_note, member


@pytest.fixture(scope="module")
def lab(shared_ground: Ground) -> GroupLab:
    """`orders`, copied whole. The tests have groups of their own."""
    made = GroupLab(*shared_ground, "undo")
    made.settings["groups.simple"] = "include"
    made.create("orders")
    made.write("orders", values(100))
    made.copy()
    return made


def undo(lab: GroupLab, command: Command, run_id: str, execute: bool = True) -> Tuple[Dict[str, str], Any]:
    """What became of each group, and the run that undid."""
    done = command("groups", "rollback", lab.config, "--run", run_id, "--json", *(["--execute"] if execute else []))
    (said,) = done.documents
    assert done.code == 0
    assert (said["flow"], said["cluster"], said["run_id"]) == ("source->target", "target", run_id)
    return {row["group"]: row["action"] for row in said["positions"]}, said["undo_run_id"]


def test_offsets_and_metadata_are_put_back_first_writes_deleted_and_the_undo_undone(
    lab: GroupLab, topic_name: Names, command: Command
) -> None:
    new, old, moved, live = groups = [topic_name(stem) for stem in ("new", "old", "moved", "live")]
    commit_with_note(lab.target, old, lab.remote("orders"), 5, "before")
    for group in groups:
        commit_with_note(lab.source, group, lab.topic("orders"), 40, "after")
    lab.translate()
    first, there = lab.run_id, lab.at_target(new, "orders")
    assert there[0][1] == "after" and all(lab.at_target(group, "orders") == there for group in groups)

    shown, nobody = undo(lab, command, first, execute=False)
    assert {shown[group] for group in groups} == {"put back by --execute"} and nobody is None
    assert all(lab.at_target(group, "orders") == there for group in groups)

    commit(lab.target, moved, lab.remote("orders"), 77)
    with member(lab.target, live, lab.remote("orders")):
        done, second = undo(lab, command, first)
    assert (done[new], done[old]) == ("put back", "put back")
    assert done[moved] == "another client or a later run committed since: left unchanged"
    assert done[live] == "the group has members: left alone"
    assert lab.at_target(new, "orders") == {} and lab.at_target(old, "orders") == {0: (5, "before")}
    assert lab.at_target(moved, "orders") == {0: (77, "")} and lab.at_target(live, "orders") == there
    undone = {(move.group, move.new_offset) for move in lab.moves() if move.action == "rollback"}
    assert {(new, None), (old, 5)} <= undone

    done, _ = undo(lab, command, second)
    assert (done[new], done[old]) == ("put back", "put back")
    assert lab.at_target(new, "orders") == lab.at_target(old, "orders") == there


def test_group_that_was_put_back_is_moved_again_by_the_next_translation(
    lab: GroupLab, topic_name: Names, command: Command
) -> None:
    group = topic_name("again")
    commit(lab.source, group, lab.topic("orders"), 40)
    lab.translate(group=group)
    first, moved = lab.run_id, lab.at_target(group, "orders")
    undo(lab, command, first)
    assert lab.at_target(group, "orders") == {}
    again, nobody = undo(lab, command, first)
    assert (again[group], nobody) == ("already there", None)
    assert lab.translate(group=group, simple_groups="exclude") == {(group, "orders", 0): "exact"}
    assert lab.at_target(group, "orders") == moved
    assert [move.action for move in lab.moves() if move.group == group] == ["commit", "rollback", "commit"]
    refused = command("groups", "rollback", lab.config, "--run", "nonsense", "--execute")
    assert refused.code == 2
    assert "run nonsense committed no offset" in refused.err and "tables.md" in refused.err


@pytest.mark.long
def test_move_that_is_made_again_after_an_operator_reversed_it_is_written_down_and_can_be_undone_by_its_own_run(
    lab: GroupLab, topic_name: Names, command: Command
) -> None:
    group = topic_name("reversed")
    commit(lab.source, group, lab.topic("orders"), 40)
    with lab.translation() as life, KafkaCluster(life.flow.target) as target:
        for _ in range(2):
            assert lab.passed(life, group=group) == {(group, "orders", 0): "exact"}
            target.delete_offsets(group, [(lab.remote("orders"), 0)])
    assert len([move for move in lab.moves() if move.group == group]) == 2
    lab.translate(group=group, own_rows=True)
    assert lab.at_target(group, "orders") != {}
    done, _ = undo(lab, command, lab.run_id)
    assert done == {group: "put back"} and lab.at_target(group, "orders") == {}


def test_undo_leaves_a_cluster_alone_that_is_not_the_one_where_the_run_moved_groups(
    lab: GroupLab, topic_name: Names, command: Command, tmp_path: Path
) -> None:
    elsewhere, group = replace(lab, directory=tmp_path), topic_name("rebuilt")
    place, state = ("target", group, lab.remote("orders"), 0), str(tmp_path / "state")
    move = GroupOffset(*place, None, "", 100, "", lab.topic("orders"), 100, "exact", "commit")
    commit(lab.target, group, lab.remote("orders"), 100)
    GroupOffsetTable(lab.spark, state).append("source->target", [move], run_id="old", append_number=0)
    of_old = MirrorRun("old", "source->target", 1, "exactly-once", "the source", "before it was rebuilt", "")
    RunTable(lab.spark, state).started(of_old)
    refused = command("groups", "rollback", elsewhere.config, "--run", "old", "--execute")
    assert refused.code == 3 and "the ledger was written for before it was rebuilt" in refused.err
    assert lab.at_target(group, "orders") == {0: (100, "")}
