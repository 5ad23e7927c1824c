"""The commands about groups and positions on real clusters, and Kafka's own tool next to them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from pyspark.sql import DataFrame

from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.group_offsets import GroupOffsetTable
from mirror_lib.ledger.records import GroupOffset, MirrorRun
from mirror_lib.ledger.runs import RunTable
from tests.integration.conftest import Command, Ground, Names
from tests.lab.brokers import KafkaBroker
from tests.lab.flow_lab import values
from tests.lab.group_lab import GroupLab, commit, member


@pytest.fixture(scope="module")
def lab(shared_ground: Ground) -> GroupLab:
    """`orders`, two partitions, one with gaps, copied whole in two runs, and `idle` without a record."""
    made = GroupLab(*shared_ground, "commands")
    made.settings["groups"] = [f"{made.name}.*"]
    made.create("orders", 2)
    made.create("idle")
    made.create("uncopied")
    for stem in ("first", "second"):
        for partition in (0, 1):
            made.write("orders", values(50, stem), partition)
        made.settings["topics"] = [f"{made.name}[.](orders|idle)"]
        made.copy()
    del made.settings["topics"]
    return made


def test_plan_shows_then_moves_and_rollback_puts_back(lab: GroupLab, topic_name: Names, command: Command) -> None:
    group, config = f"{lab.name} {topic_name('plan')}", str(lab.config)
    commit(lab.source, group, lab.topic("orders"), 30, 0)
    commit(lab.source, group, lab.topic("orders"), 101, 1)
    commit(lab.source, group, lab.topic("idle"), 0)  # as Java's client does
    commit(lab.source, group, lab.topic("uncopied"), 0)
    place = next(o for o, r in lab.read_remote("orders")[0].items() if r.value == b"first 30")

    shown = command("groups", "plan", config, "--group", group)
    assert shown.code == 0, shown.err
    _, _, *rows, summary, _ = shown.out.splitlines()
    reported = [row.replace(group, "").split() for row in rows]
    orders, remote = lab.topic("orders"), lab.remote("orders")
    assert reported.pop(0) == [f"{lab.topic('idle')}-0", "0", f"{lab.remote('idle')}-0", "0", "exact", "commit"]
    assert reported[0] == [f"{orders}-0", "30", f"{remote}-0", str(place), "exact", "commit"]
    words = ["held:", "ahead", "of", "the", "ledger", "by", "1", "none"]
    assert reported[1] == [f"{orders}-1", "101", f"{remote}-1", "-", *words]
    assert reported[2][:3] == [f"{lab.topic('uncopied')}-0", "0", f"{lab.remote('uncopied')}-0"]
    assert "untranslatable: " in rows[3] and "does not exist yet" in rows[3]
    assert summary == "4 positions: 2 exact, 1 held, 1 untranslatable"
    assert lab.at_target(group, "orders", 2) == {}

    moved = command("groups", "plan", config, "--group", group, "--execute", "--json", "--flow", "source->target")
    # A consumer that starts on the target has no offset on two partitions, and a script has to know.
    assert moved.code == 1
    assert f"2 positions could not be committed, the first of group {group} on {orders}-1: held" in moved.err
    (document,) = moved.documents
    assert [row["action"] for row in document["positions"]] == ["committed", "committed", "left alone", "left alone"]
    assert document["positions"][1] == {
        **{"group": group, "topic": orders, "partition": 0, "offset": 30},
        **{"to_topic": remote, "to_partition": 0, "to_offset": place, "present_offset": None},
        **{"re_read": 0, "lost": 0, "metadata_dropped": False, "verdict": "exact", "action": "committed"},
    }
    assert lab.at_target(group, "orders", 2) == {0: (place, "")} and lab.at_target(group, "idle") == {0: (0, "")}

    back = command("groups", "rollback", config, "--run", document["run_id"], "--execute")
    assert back.code == 0, back.err
    assert "put back" in back.out and "to undo it: mirror groups rollback " in back.out
    assert lab.at_target(group, "orders", 2) == {} == lab.at_target(group, "idle")
    assert command("groups", "plan", config, "--group", f"{group} misspelt").code == 1


# --- undo of a translation: groups go back to where they stood, and no one is disturbed by it ---------------------


@pytest.fixture(scope="module")
def moved(shared_ground: Ground) -> GroupLab:
    """`orders`, copied whole, whose groups are moved and moved back. The tests have groups of their own."""
    made = GroupLab(*shared_ground, "undo")
    made.directory = made.directory / "undo"
    made.directory.mkdir()
    made.settings["groups.simple"] = "include"
    made.create("orders")
    made.write("orders", values(100))
    made.copy()
    return made


def undo(moved: GroupLab, command: Command, run_id: str, execute: bool = True) -> Tuple[Dict[str, str], Any]:
    """What became of each group, and the run that undid."""
    done = command("groups", "rollback", moved.config, "--run", run_id, "--json", *(["--execute"] if execute else []))
    (said,) = done.documents
    assert done.code == 0
    assert (said["flow"], said["cluster"], said["run_id"]) == ("source->target", "target", run_id)
    return {row["group"]: row["action"] for row in said["positions"]}, said["undo_run_id"]


def test_offsets_and_metadata_are_put_back_first_writes_deleted_and_the_undo_undone(
    moved: GroupLab, topic_name: Names, command: Command
) -> None:
    new, old, far, live = groups = [topic_name(stem) for stem in ("new", "old", "far", "live")]
    commit(moved.target, old, moved.remote("orders"), 5, note="before")
    for group in groups:
        commit(moved.source, group, moved.topic("orders"), 40, note="after")
    moved.translate()
    first, there = moved.run_id, moved.at_target(new, "orders")
    assert there[0][1] == "after" and all(moved.at_target(group, "orders") == there for group in groups)

    shown, nobody = undo(moved, command, first, execute=False)
    assert {shown[group] for group in groups} == {"put back by --execute"} and nobody is None
    assert all(moved.at_target(group, "orders") == there for group in groups)

    commit(moved.target, far, moved.remote("orders"), 77)
    with member(moved.target, live, moved.remote("orders")):
        done, second = undo(moved, command, first)
    assert (done[new], done[old]) == ("put back", "put back")
    assert done[far] == "another client or a later run committed since: left unchanged"
    assert done[live] == "the group has members: left alone"
    assert moved.at_target(new, "orders") == {} and moved.at_target(old, "orders") == {0: (5, "before")}
    assert moved.at_target(far, "orders") == {0: (77, "")} and moved.at_target(live, "orders") == there
    undone = {(move.group, move.new_offset) for move in moved.moves() if move.action == "rollback"}
    assert {(new, None), (old, 5)} <= undone

    done, _ = undo(moved, command, second)
    assert (done[new], done[old]) == ("put back", "put back")
    assert moved.at_target(new, "orders") == moved.at_target(old, "orders") == there


def test_group_that_was_put_back_is_moved_again_by_the_next_translation(
    moved: GroupLab, topic_name: Names, command: Command
) -> None:
    group = topic_name("again")
    commit(moved.source, group, moved.topic("orders"), 40)
    moved.translate(group=group)
    first, there = moved.run_id, moved.at_target(group, "orders")
    undo(moved, command, first)
    assert moved.at_target(group, "orders") == {}
    again, nobody = undo(moved, command, first)
    assert (again[group], nobody) == ("already there", None)
    assert moved.translate(group=group, simple_groups="exclude") == {(group, "orders", 0): "exact"}
    assert moved.at_target(group, "orders") == there
    assert [move.action for move in moved.moves() if move.group == group] == ["commit", "rollback", "commit"]
    refused = command("groups", "rollback", moved.config, "--run", "nonsense", "--execute")
    assert refused.code == 2
    assert "run nonsense committed no offset" in refused.err and "tables.md" in refused.err


@pytest.mark.long
def test_move_that_is_made_again_after_an_operator_reversed_it_is_written_down_and_can_be_undone_by_its_own_run(
    moved: GroupLab, topic_name: Names, command: Command
) -> None:
    group = topic_name("reversed")
    commit(moved.source, group, moved.topic("orders"), 40)
    with moved.translation() as life, KafkaCluster(life.flow.target) as target:
        for _ in range(2):
            assert moved.passed(life, group=group) == {(group, "orders", 0): "exact"}
            target.delete_offsets(group, [(moved.remote("orders"), 0)])
    assert len([move for move in moved.moves() if move.group == group]) == 2
    moved.translate(group=group, own_rows=True)
    assert moved.at_target(group, "orders") != {}
    done, _ = undo(moved, command, moved.run_id)
    assert done == {group: "put back"} and moved.at_target(group, "orders") == {}


def test_undo_leaves_a_cluster_alone_that_is_not_the_one_where_the_run_moved_groups(
    moved: GroupLab, topic_name: Names, command: Command, tmp_path: Path
) -> None:
    elsewhere, group = replace(moved, directory=tmp_path), topic_name("rebuilt")
    place, state = ("target", group, moved.remote("orders"), 0), str(tmp_path / "state")
    move = GroupOffset(*place, None, "", 100, "", moved.topic("orders"), 100, "exact", "commit")
    commit(moved.target, group, moved.remote("orders"), 100)
    GroupOffsetTable(moved.spark, state).append("source->target", [move], run_id="old", append_number=0)
    of_old = MirrorRun("old", "source->target", 1, "exactly-once", "the source", "before it was rebuilt", "")
    RunTable(moved.spark, state).started(of_old)
    refused = command("groups", "rollback", elsewhere.config, "--run", "old", "--execute")
    assert refused.code == 3 and "the ledger was written for before it was rebuilt" in refused.err
    assert moved.at_target(group, "orders") == {0: (100, "")}


# --- lag of groups -----------------------------------------------------------------------------------------------


def test_lag_of_markers_at_the_end_of_a_remote_log_is_explained(
    lab: GroupLab, topic_name: Names, command: Command
) -> None:
    group, config, remote = f"{lab.name} {topic_name('quiet')}", str(lab.config), lab.remote("orders")
    commit(lab.source, group, lab.topic("orders"), 100, 1)
    assert command("groups", "plan", config, "--group", group, "--execute").code == 0
    after_last = max(lab.read_remote("orders")[1]) + 1
    commit(lab.target, group, remote, after_last, 1)

    own = status_of(lab, command)[0][group]
    assert own["target_lag"] == own["target_markers"] > 0
    commit(lab.target, group, remote, after_last - 1, 1)
    assert status_of(lab, command)[0][group]["target_markers"] == 0


def test_status_names_a_group_that_the_mirror_does_not_move(
    lab: GroupLab, topic_name: Names, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign, followed = f"{lab.name} {topic_name('foreign')}", f"{lab.name} {topic_name('followed')}"
    monkeypatch.setitem(lab.settings, "groups", [foreign, followed])
    monkeypatch.setitem(lab.settings, "sync.group.offsets.enabled", "true")
    for group in (foreign, followed):
        commit(lab.source, group, lab.topic("orders"), 30)
    commit(lab.target, foreign, lab.remote("orders"), 3)

    done = command("groups", "plan", lab.config, "--group", followed, "--execute", "--json")
    groups, problems = status_of(lab, command)
    assert groups[followed]["verdict"] == "exact" and groups[followed]["moved_at"] is not None
    assert (groups[foreign]["verdict"], groups[foreign]["moved_at"]) == ("committed by another client", None)
    assert "group not moved" in problems
    # A script that names the group would start its consumers next.
    assert command("groups", "plan", lab.config, "--group", foreign, "--execute").code == 1
    monkeypatch.setitem(lab.settings, "groups.simple", "include")
    assert command("groups", "plan", lab.config, "--group", foreign, "--execute").code == 0
    groups, problems = status_of(lab, command)
    assert groups[foreign]["verdict"] == "exact" and "group not moved" not in problems
    commit(lab.source, followed, lab.topic("orders"), 40)
    again = command("groups", "plan", lab.config, "--group", followed, "--execute", "--json")
    for each, is_there in ((again, True), (done, False)):
        run = each.documents[-1]["run_id"]
        assert command("groups", "rollback", lab.config, "--run", run, "--execute").code == 0
        assert (status_of(lab, command)[0][followed]["moved_at"] is not None) is is_there


def status_of(lab: GroupLab, command: Command) -> Tuple[Dict[str, Any], List[str]]:
    """What `mirror status` says of each group, and the codes of its problems."""
    document = command("status", lab.config, "--json").documents[-1]
    return {each["group"]: each for each in document["groups"]}, [each["code"] for each in document["problems"]]


# --- positions kept outside Kafka --------------------------------------------------------------------------------


def read_kafka(lab: GroupLab, broker: KafkaBroker, topic: str, **options: str) -> DataFrame:
    settings = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
    return lab.spark.read.format("kafka").options(**settings).load()


def values_of(frame: DataFrame) -> List[Tuple[int, bytes]]:
    return [(row["partition"], bytes(row["value"])) for row in frame.orderBy("partition", "offset").collect()]


def test_command_answers_one_position_and_many_in_the_form_in_which_they_came(lab: GroupLab, command: Command) -> None:
    config, orders = str(lab.config), lab.topic("orders")
    place = next(o for o, r in lab.read_remote("orders")[1].items() if r.value == b"second 10")
    one = command("translate-position", config, "--topic", orders, "--partition", "1", "--offset", "60")
    assert one.code == 0, one.err
    assert one.out.splitlines()[1].split() == [orders, "1", "60", lab.remote("orders"), "1", str(place), "exact", "0"]
    text = f"topic,partition,offset\n{orders},1,60\n{orders},0,4711\nnowhere,0,1\n"
    many = command("translate-position", config, "--file", "-", given=text)
    assert many.code == 1, many.err
    assert many.out.splitlines()[1:] == [
        f"{orders},1,60,{lab.remote('orders')},1,{place},exact,0",
        f"{orders},0,4711,{lab.remote('orders')},0,,held: ahead of the ledger by 4611,0",
        "nowhere,0,1,-,,,untranslatable: the flow copies no such partition,0",
    ]
    unknown = command("translate-position", config, "--file", "-", given=f'{{"{orders}":{{"0":4711}}}}')
    assert unknown.code == 3 and unknown.out == ""
    assert f"{orders}-0 at 4711: held: ahead of the ledger by 4611" in unknown.err
    assert lab.spark.range(3).count() == 3, "a command that found a session leaves it"


@pytest.mark.parametrize(
    "reverse", [pytest.param(False, id="to downstream"), pytest.param(True, id="to upstream", marks=pytest.mark.long)]
)
def test_spark_batch_goes_on_from_the_translated_offsets(reverse: bool, lab: GroupLab, command: Command) -> None:
    here, there = (lab.source, lab.topic("orders")), (lab.target, lab.remote("orders"))
    if reverse:
        here, there = there, here
    stop = json.dumps({here[1]: {"0": 20, "1": 77}})
    first = values_of(read_kafka(lab, *here, endingOffsets=stop))
    start = command("translate-position", lab.config, "--file", "-", *(["--reverse"] if reverse else []), given=stop)
    then = values_of(read_kafka(lab, *there, startingOffsets=start.out.strip()))
    assert sorted([*first, *then]) == sorted(values_of(read_kafka(lab, lab.source, lab.topic("orders"))))


def test_spark_stream_goes_on_on_the_remote_topic_from_its_translated_checkpoint(
    lab: GroupLab, tmp_path: Path, command: Command
) -> None:
    topic, remote = lab.create("stream"), lab.remote("stream")
    lab.write("stream", values(60))
    seen: List[bytes] = []

    def run(broker: KafkaBroker, name: str, checkpoint: Path) -> None:
        stream = lab.spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        rows = stream.option("subscribe", name).option("startingOffsets", "earliest").load()
        query = rows.writeStream.foreachBatch(
            lambda batch, _: seen.extend(bytes(row["value"]) for row in batch.orderBy("offset").collect())
        )
        query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    run(lab.source, topic, tmp_path / "one")
    assert seen == values(60)
    lab.write("stream", values(40, "later"))
    lab.copy()
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    last = max((tmp_path / "other" / "offsets").glob("[0-9]*"))
    *before, offsets = last.read_text().splitlines()
    translated = command("translate-position", lab.config, "--file", "-", given=offsets)
    last.write_text("\n".join([*before, translated.out.strip()]))
    for sums in (tmp_path / "other").rglob(".*.crc"):
        sums.unlink()
    run(lab.target, remote, tmp_path / "other")
    assert seen == [*values(60), *values(40, "later")]
