"""Groups that have read a remote log to its end, which the markers of killed processes have moved: they go home."""

from __future__ import annotations

from pathlib import Path
from typing import Tuple

import pytest

from mirror_lib.config.loader import load
from mirror_lib.groups.position_formats import TopicPosition
from mirror_lib.groups.translation import TO_UPSTREAM
from tests.integration.conftest import Command, Ground, Names
from tests.lab.crash import CrashPoint, run_mirror
from tests.lab.flow_lab import values
from tests.lab.group_lab import GroupLab, commit, committed, read_on

pytestmark = pytest.mark.long

# The first stage that tails has fenced all lanes by then, and the driver has not taken its reports.
FENCED = ("mirror_lib.replication.flow_state:judged_by_topics", "before", 1)
COPIED = ("mirror_lib.replication.stage:run_tasks", "after", 1)
QUIET_RECORDS = 20


@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> GroupLab:
    """A flow of two topics whose ledger is complete."""
    made = GroupLab(*ground, topic_name("home"))
    made.settings["groups"] = [f"{made.name}.*"]
    made.create("quiet")
    made.create("busy")
    made.write("quiet", values(QUIET_RECORDS))
    made.write("busy", values(10))
    made.copy()
    return made


def killed(lab: GroupLab, point: Tuple[str, str, int], token: Path, how: str, trigger: str) -> None:
    lab.trigger, lab.settings["tail.seconds"] = trigger, 60
    crash = CrashPoint(*point, token, how)
    assert run_mirror(lab.config, crash=crash) == -9
    assert crash.reached
    lab.trigger = "availableNow"


def ends(lab: GroupLab) -> Tuple[int, int]:
    """The ledger's end of the quiet topic on the target, and that of its remote log."""
    rows = lab.spark.read.format("delta").load(str(lab.directory / "state" / "offset_syncs"))
    of_quiet = rows.where(rows.source_topic == lab.topic("quiet")).collect()
    in_ledger = max(row["downstream_offset"] + row["record_count"] for row in of_quiet)
    return in_ledger, lab.remote_ends()[(lab.remote("quiet"), 0)]


def read_to_the_end(lab: GroupLab) -> int:
    """What a group has committed that has read the quiet remote topic."""
    read_on(lab.target, lab.name, [lab.remote("quiet")])
    return committed(lab.target, lab.name, {lab.remote("quiet"): 1})[(lab.remote("quiet"), 0)][0]


def at_home(lab: GroupLab) -> int:
    found = committed(lab.source, lab.name, {lab.topic("quiet"): 1})
    return found.get((lab.topic("quiet"), 0), (-1, ""))[0]


def verdict(lab: GroupLab) -> str:
    return lab.translate(TO_UPSTREAM)[(lab.name, "source.quiet", 0)]


def test_group_that_has_read_the_markers_of_a_killed_run_goes_to_the_end_of_the_source(
    lab: GroupLab, tmp_path: Path, command: Command
) -> None:
    """It was held for ever, ahead of the ledger by the markers: no run has anything to copy of a quiet topic. A group
    that has read all on the source kept a lag on the target."""
    follows = f"{lab.name}-follows"
    commit(lab.source, follows, lab.topic("quiet"), QUIET_RECORDS)
    lab.translate()
    lab.write("busy", values(10, "more"))
    killed(lab, FENCED, tmp_path / "died", "kill", "1 second")
    lab.write("busy", values(10, "last"))
    lab.copy()
    in_ledger, end = ends(lab)
    assert in_ledger < end
    for _ in range(2):
        assert lab.translate() == {(follows, "quiet", 0): "exact"}
        assert lab.at_target(follows, "quiet") == {0: (end, "")}
    assert len(lab.moves()) == 2
    assert read_to_the_end(lab) == end
    assert answer(lab, end) == ("exact", QUIET_RECORDS)
    planned = command("groups", "plan", lab.config, "--reverse", "--group", lab.name)
    (row,) = [line.split() for line in planned.out.splitlines() if line.startswith(f"{lab.name} ")]
    assert planned.code == 0
    assert row[2:6] == [str(end), f"{lab.topic('quiet')}-0", str(QUIET_RECORDS), "exact"]
    assert (verdict(lab), at_home(lab)) == ("exact", QUIET_RECORDS)
    # What comes next is read once, on the source.
    lab.write("quiet", values(3, "late"))
    late = read_on(lab.source, lab.name, [lab.topic("quiet")])
    assert [each.value for records in late.values() for each in records] == values(3, "late")


def answer(lab: GroupLab, offset: int) -> Tuple[str, object]:
    """Verdict and offset of `mirror translate-position --reverse`."""
    from mirror_lib.groups.positions import translate_positions

    config = load(str(lab.config))
    asked = [TopicPosition(lab.remote("quiet"), 0, offset)]
    (found,) = translate_positions(lab.spark, config, config.flows[0], asked, reverse=True)
    return found.verdict, found.remote_offset


def test_group_that_has_read_records_which_the_ledger_lacks_is_held(lab: GroupLab, tmp_path: Path) -> None:
    lab.write("quiet", values(5, "unrecorded"))
    killed(lab, COPIED, tmp_path / "died", "kill", "availableNow")
    in_ledger, end = ends(lab)
    assert end >= in_ledger + 5
    assert read_to_the_end(lab) == end
    assert verdict(lab).startswith("held: ahead of the ledger by ") and at_home(lab) == -1
    assert answer(lab, end)[0] == verdict(lab)
    lab.copy()
    assert (verdict(lab), at_home(lab)) == ("exact", QUIET_RECORDS + 5)
    # A foreign record after the markers.
    lab.write("busy", values(10, "more"))
    killed(lab, FENCED, tmp_path / "died again", "kill", "1 second")
    in_ledger, end = ends(lab)
    assert in_ledger < end
    lab.write_to(lab.target, lab.remote("quiet"), [b"foreign"])
    assert read_to_the_end(lab) == end + 1
    assert (verdict(lab), at_home(lab)) == ("held: ahead of the ledger by 1", QUIET_RECORDS + 5)
