"""The second job: it follows groups, ledger and clock, outlives a cluster that is away, and ends when asked to.
Processes that move groups, killed with `kill -9` at each step."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

import pytest
from pyspark.sql import DataFrame

from mirror_lib.groups.translation import TO_UPSTREAM
from mirror_lib.ledger import offset_syncs
from mirror_lib.ledger.compaction import LedgerCompaction
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.tables import OFFSET_SYNCS
from tests.integration.conftest import Command, Ground, Names
from tests.lab.brokers import clusters
from tests.lab.checkout import ROOT
from tests.lab.crash import CrashPoint, mirror, run_mirror
from tests.lab.flow_lab import values
from tests.lab.group_lab import GroupLab, JobLab, commit, offsets, read_on
from tests.lab.jvm import quick_spark
from tests.lab.one_flow import stopped_process, until
from tests.lab.readers import read_if_there

if TYPE_CHECKING:
    from mirror_lib.ledger.intervals import Numbers
    from mirror_lib.ledger.records import PartitionKey

@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> JobLab:
    """A topic with a hundred records, not copied yet."""
    lab = JobLab(*ground, topic_name("job"))
    lab.create("orders")
    lab.write("orders", values(100))
    return lab


def at(lab: JobLab, group: str, offset: int) -> None:
    """The group has read as far as that on the source."""
    commit(lab.source, group, lab.topic("orders"), offset)


def test_groups_that_commit_are_followed_and_so_are_rows_that_another_run_adds(lab: JobLab) -> None:
    lab.settings["refresh.groups.interval.seconds"] = 600  # so it is the stream that brings rows
    lab.copy()
    other = f"{lab.name}-other"
    at(lab, lab.name, 10)
    at(lab, other, 10)
    with lab.translating() as errors:
        until(lambda: lab.done(lab.name) == lab.done(other) == 10)
        lab.write("orders", values(50))
        at(lab, lab.name, 150)
        at(lab, other, 20)
        until(lambda: lab.done(other) == 20)
        assert lab.done(lab.name) == 10  # not a guess ahead of the mirror
        lab.copy()
        until(lambda: lab.done(lab.name) == 150 and lab.checkpoints()[-1].upstream_offset == 150)
    assert errors == []
    assert [each.upstream_offset for each in lab.checkpoints() if each.group == other] == [10, 20]
    # Each process has a folder of its own, which no other one continues with.
    assert list((lab.directory / "state" / "checkpoints" / "translate-source-target").iterdir()) == []


@pytest.mark.long
def test_compaction_of_the_ledger_meanwhile_is_no_reason_to_start_again(
    lab: JobLab, caplog: pytest.LogCaptureFixture
) -> None:
    """Delta 2.3 hands the translation all rows that a compaction or a deletion rewrote; Delta 2.4 and later none."""
    lab.settings["refresh.groups.interval.seconds"] = 600  # so it is the stream that brings rows
    lab.copy()
    at(lab, lab.name, 10)
    compaction = LedgerCompaction(lab.spark, str(lab.directory / "state"), "source->target")
    ledger = OffsetSyncTable(lab.spark, str(lab.directory / "state"))
    with lab.translating() as errors:
        until(lambda: lab.done(lab.name) == 10)
        for step in (1, 2, 3):
            lab.write("orders", values(50))
            lab.copy()
            if step == 2:  # rewrites the file as well; the next copy finds these records in the remote log
                (key,) = ledger.triples("source->target")
                ledger.void_from("source->target", key, 150)
            else:
                assert compaction.tidy(2)
            committed = 40 + 50 * step
            at(lab, lab.name, committed)
            until(lambda wanted=committed: lab.done(lab.name) == wanted)  # type: ignore[misc]
    assert errors == [] and "starts again" not in caplog.text


@pytest.mark.long
def test_group_moved_by_a_command_meanwhile_is_followed_again_and_a_new_one_is_found(lab: JobLab) -> None:
    lab.copy()
    at(lab, lab.name, 10)
    with lab.translating():
        until(lambda: lab.done(lab.name) == 10)
        at(lab, lab.name, 30)
        until(lambda: lab.translate() == {(lab.name, "orders", 0): "exact"})
        at(lab, lab.name, 50)
        until(lambda: lab.done(lab.name) == 50)
        # What this test did not write comes from a client at work.
        commit(lab.target, lab.name, lab.remote("orders"), 55)
        at(lab, lab.name, 60)
        until(lambda: lab.reports[-1].verdicts == {"committed by another client": 1})
        at(lab, f"{lab.name}-new", 20)
        until(lambda: lab.done(f"{lab.name}-new") == 20)
    assert lab.offset(lab.name) == 55


def submitted(lab: JobLab) -> subprocess.Popen[str]:
    command = ["./spark-submit.sh", "--conf", "spark.driver.memory=512m", "jobs/translate_offsets.py", str(lab.config)]
    env = {**os.environ, **quick_spark(interpreted=False), "MIRROR_VENV": sys.prefix}
    return subprocess.Popen([*command, "--json"], env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.long
@pytest.mark.parametrize("whole", [True, pytest.param(False, id="negative control: file by file")])
def test_translation_is_a_streaming_query_whose_first_micro_batch_is_the_whole_ledger(
    whole: bool, lab: JobLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: List[int] = []
    triples_of = OffsetSyncTable.triples_of

    def seen(table: OffsetSyncTable, flow: str, batch: DataFrame) -> Mapping[PartitionKey, Numbers]:
        batches.append(batch.count())
        return triples_of(table, flow, batch)

    def not_asked(table: OffsetSyncTable, flow: str) -> Mapping[PartitionKey, Numbers]:
        raise AssertionError("the ledger was read without the stream")

    lab.settings["refresh.groups.interval.seconds"] = 600
    for written in (50, 100, 150):
        lab.copy()
        lab.write("orders", values(50))
        at(lab, lab.name, written)
    monkeypatch.setattr(OffsetSyncTable, "triples_of", seen)
    monkeypatch.setattr(OffsetSyncTable, "triples", not_asked)
    if not whole:
        monkeypatch.setitem(offset_syncs.STREAM, "maxFilesPerTrigger", "1")
    assert lab.pass_once().verdicts == {"exact": 1}
    assert lab.done(lab.name) == 150
    rows = lab.spark.read.format("delta").load(str(lab.directory / "state" / "offset_syncs"))
    assert sum(batches) == rows.count() > 1
    assert (len(batches) == 1) == whole
    # No later query continues with its checkpoint.
    assert list((lab.directory / "state" / "checkpoints" / "translate-source-target").iterdir()) == []


def test_read_of_rows_that_fails_is_an_error_of_the_flow(lab: JobLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark matches the text of an error by a pattern that takes a frame for each character. A stop interrupts a read,
    and the trace of that error overflowed Java's stack."""
    lab.copy()

    def interrupted(table: OffsetSyncTable, flow: str, batch: DataFrame) -> Mapping[PartitionKey, Numbers]:
        raise InterruptedError("the read was interrupted")

    monkeypatch.setattr(OffsetSyncTable, "triples_of", interrupted)
    (error,) = lab.job("1 second", threading.Event())
    assert error.message == "translation of source->target: InterruptedError: the read was interrupted"


@pytest.mark.long
def test_one_pass_looks_at_every_group_where_the_ledger_has_nothing_new_or_nothing_at_all(lab: JobLab) -> None:
    at(lab, lab.name, 10)
    assert lab.pass_once().verdicts == {"untranslatable": 1}  # no ledger
    StateTable(lab.spark, str(lab.directory / "state"), OFFSET_SYNCS).make()
    assert lab.pass_once().verdicts == {"untranslatable": 1}  # no row, so no micro-batch
    lab.copy()
    assert lab.pass_once().committed == 1
    at(lab, lab.name, 60)
    at(lab, f"{lab.name}-new", 20)
    assert lab.pass_once().committed == 2
    assert (lab.done(lab.name), lab.done(f"{lab.name}-new")) == (60, 20)
    assert lab.pass_once().committed == 0


@pytest.mark.long
def test_submitted_job_ends_within_thirty_seconds_of_sigterm_though_the_target_hangs(
    lab: JobLab, tmp_path: Path
) -> None:
    with clusters(["target"], tmp_path) as (target,):
        lab.target = target
        lab.copy()
        lab.trigger = "1 second"
        at(lab, lab.name, 25)
        with submitted(lab) as running:
            until(lambda: lab.done(lab.name) == 25, 120)
            target.pause()
            threading.Event().wait(2)
            try:
                running.send_signal(signal.SIGTERM)
                assert running.wait(30) == 0
            finally:
                target.resume()


@pytest.mark.long
def test_mirror_run_once_moves_a_group_that_was_ahead_when_it_began(lab: JobLab, tmp_path: Path) -> None:
    at(lab, lab.name, 100)
    after_the_copy = CrashPoint("mirror_lib.copy_job:run_flows", "after", 1, tmp_path / "here", "stop")
    with mirror("run", lab.config, "--once", crash=after_the_copy) as running:
        pid = stopped_process(tmp_path / "here", 120)
        lab.write("orders", values(50))
        at(lab, lab.name, 150)
        os.kill(pid, signal.SIGCONT)
        assert running.wait() == 0
    assert lab.done(lab.name) == 100
    # Who comes later cannot know that the group was ever there.
    lab.settings["groups"] = f'["{lab.name}-late"]'
    at(lab, f"{lab.name}-late", 150)
    assert lab.pass_once().verdicts == {"held": 1}


def test_mirror_run_follows_groups_alongside_the_copy_and_status_shows_it_and_its_death(
    lab: JobLab, command: Command
) -> None:
    def status() -> Dict[str, Any]:
        done = command("status", lab.config, "--json")
        return {**done.documents[-1], "code": done.code}

    lab.trigger = "1 second"
    at(lab, lab.name, 10)
    with mirror("run", lab.config) as running:
        until(lambda: lab.done(lab.name) == 10, 120)
        lab.write("orders", values(50))
        at(lab, lab.name, 150)
        until(lambda: lab.done(lab.name) == 150)
        until(lambda: status()["lag"] == 0)
        found = status()
        assert (found["code"], found["run"]["running"], found["run"]["ended"]) == (0, True, None)
        assert found["run"]["records_per_second"] > 0
        assert found["run"]["driver"].endswith(f"process {running.pid}")
        os.kill(running.pid, signal.SIGKILL)
        assert running.wait(30) == -9
    lab.write("orders", values(5, "later"))
    found = status()
    assert (found["code"], [each["code"] for each in found["problems"]], found["lag"]) == (1, ["run died"], 5)


# --- processes that move groups, killed at each step: the next run ends right, and the third has no work left --------

POSITIONS = {"a": (10, 20), "b": (33, 7), "c": (50, 50)}
MOVES = 6

AUDIT = "mirror_lib.ledger.group_offsets:GroupOffsetTable.append"
COMMIT = "mirror_lib.kafka.groups:ClusterGroups.commit_offsets"
CHECKPOINTS = "mirror_lib.groups.mm2_topics:CheckpointWriter.write"


@pytest.fixture
def three(ground: Ground, topic_name: Names) -> JobLab:
    """Three groups on two partitions; copied, and never translated."""
    lab = JobLab(*ground, topic_name("crash"))
    lab.create("orders", 2)
    for partition in range(2):
        lab.write("orders", values(50), partition)
    lab.copy()
    for group, read in POSITIONS.items():
        for partition, offset in enumerate(read):
            of = f"{lab.name}-{group}", lab.topic("orders")
            commit(lab.source, *of, offset, partition, f"note {offset}")
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


@pytest.mark.long
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
    three: JobLab, tmp_path: Path, function: str, when: str, call: int, rows: int, made: int
) -> None:
    crash = CrashPoint(function, when, call, tmp_path / "died")
    with mirror("translate", three.config, "--once", crash=crash) as running:
        assert running.wait() == -9
    assert crash.reached
    assert (len(three.moves()), commits(three)) == (rows, made)

    three.pass_once()
    assert standing(three) == POSITIONS
    assert sorted(reported(three)) == right(three)
    assert len(three.moves()) == len(set(three.moves())) == MOVES
    assert commits(three) == MOVES

    report = three.pass_once()
    assert (report.committed, report.refused, report.checkpoints) == (0, 0, 0)
    assert (len(three.moves()), commits(three), len(reported(three))) == (MOVES, MOVES, MOVES)


@pytest.mark.long
def test_group_that_went_on_after_the_kill_is_moved_to_where_it_is_now(three: JobLab, tmp_path: Path) -> None:
    crash = CrashPoint(AUDIT, "after", 1, tmp_path / "died")
    with mirror("translate", three.config, "--once", crash=crash) as running:
        assert running.wait() == -9
    commit(three.source, f"{three.name}-a", three.topic("orders"), 15)
    three.pass_once()
    assert standing(three) == {**POSITIONS, "a": (15, 20)}
    # Six rows of the run that died, one for a commit that was never made, and the commit that was made in its place.
    assert (len(three.moves()), commits(three)) == (MOVES + 1, MOVES)


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
    commit(lab.target, f"{lab.name}-c", lab.remote("orders"), 5)
    return lab


def run(moves: JobLab, *command: str, crash: Optional[CrashPoint] = None) -> Tuple[int, str]:
    """The exit code, and the id of the run that the command named."""
    with mirror("groups", *command, "--execute", crash=crash) as running:
        code = running.wait(300)
    named = re.findall(r"--run (\w+)", running.output)
    return code, named[-1] if named else ""


def on_target(moves: JobLab) -> Dict[str, Optional[int]]:
    return {group: moves.at_target(f"{moves.name}-{group}", "orders").get(0, (None, ""))[0] for group in READ}


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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
    home = [remote, "0", str(end), quiet, "0", str(QUIET_RECORDS), "exact", "0"]
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
