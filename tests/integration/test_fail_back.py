"""A group that has read a remote log to its end, which the markers of a killed process have moved: it goes home."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror_lib.groups.translation import TO_UPSTREAM
from tests.integration.conftest import Command, Ground, Names
from tests.lab.crash import CrashPoint, run_mirror
from tests.lab.flow_lab import values
from tests.lab.group_lab import GroupLab, commit, offsets, read_on

pytestmark = pytest.mark.long

# The first stage that tails has fenced all lanes by then, and the driver has not taken its reports.
FENCED = ("mirror_lib.replication.flow_state:judged_by_topics", "before", 1)
QUIET_RECORDS = 20


def test_group_that_has_read_the_markers_of_a_killed_run_goes_to_the_end_of_the_source(
    ground: Ground, topic_name: Names, tmp_path: Path, command: Command
) -> None:
    """It was held for ever, ahead of the ledger by the markers: no run has anything to copy of a quiet topic. A group
    that has read all on the source kept a lag on the target."""
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
