"""`mirror mm1` on real brokers: an old group's position, progress that Kafka shows, a killed process, published
commands."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Callable, Dict, List

import pytest

from tests.integration.conftest import Ground, Names
from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import ROOT
from tests.lab.crash import CrashPoint, driver
from tests.lab.flow_lab import FlowLab, Mm1Lab, values
from tests.lab.group_lab import commit, member, offsets
from tests.lab.one_flow import until
from tests.lab.readers import read_topic

EXAMPLES = ROOT / "conf" / "examples" / "mm1"
Write = Callable[..., None]


@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> Mm1Lab:
    topic = ground[0].create_topic(topic_name("mm1"), 2, retention_ms="-1")
    return Mm1Lab(*ground, f"group-{topic}", topic)


@pytest.fixture
def write(lab: Mm1Lab) -> Write:
    writer = FlowLab(lab.source, lab.target, lab.spark, lab.directory, lab.topic)

    def to(broker: KafkaBroker, *args: object, topic: str = lab.topic) -> None:
        writer.write_to(broker, topic, *args)  # type: ignore[arg-type]

    return to


def committed(lab: Mm1Lab) -> Dict[int, int]:
    """What the group has committed on the source, by partition."""
    return offsets(lab.source, lab.group, lab.topic, 2)


def test_position_of_an_old_mirrormaker_is_gone_on_from_and_survives_a_lost_ledger(lab: Mm1Lab, write: Write) -> None:
    write(lab.source, values(50), 0)
    write(lab.source, values(30), 1)
    commit(lab.source, lab.group, lab.topic, 20, 0)
    # The old one had 20 records of partition 0, which it wrote where it liked, and none of partition 1.
    lab.target.create_topic(lab.topic, 2, retention_ms="-1")
    write(lab.target, values(20), 0)
    with member(lab.source, lab.group, lab.topic):
        (outcome,) = lab.run()
        assert outcome.error is not None and outcome.error.code == "MIR-301" and lab.copied(1) == []
    (outcome,) = lab.run()
    assert outcome.error is None and outcome.records == 60
    assert (lab.copied(0), lab.copied(1)) == (values(50), values(30))
    assert committed(lab) == {0: 50, 1: 30}

    shutil.rmtree(lab.directory / "state")
    write(lab.source, values(5, "later"), 0)
    (outcome,) = lab.run()
    assert outcome.error is None and outcome.records == 5
    assert lab.copied(0) == [*values(50), *values(5, "later")]
    assert committed(lab) == {0: 55, 1: 30}

    # The old one runs once more: what it copies is not in the ledger.
    for broker in (lab.source, lab.target):
        write(broker, values(4, "again"), 0)
    commit(lab.source, lab.group, lab.topic, 59, 0)
    assert [each.error and each.error.code for each in lab.run()] == ["MIR-329"]
    (outcome,) = lab.run("another")
    assert outcome.error is None and lab.copied(0) == [*values(50), *values(5, "later"), *values(4, "again")]


@pytest.mark.long
def test_what_a_killed_process_wrote_is_found_by_one_with_another_ledger(lab: Mm1Lab, write: Write) -> None:
    write(lab.source, values(500), 0)
    # The first dies when the second part of the records is written and not in its ledger, nor is any offset of it in
    # the group. Before the first part the lane of partition 0 had its producer id written down, before the second that
    # of partition 1, which is tailed too.
    crash = CrashPoint("mirror_lib.ledger.offset_syncs:OffsetSyncTable.append", "before", 4, lab.directory / "died")
    with driver(["-m", "mirror_lib.cli", "mm1", *lab.arguments("first")], crash) as first:
        until(lambda: len(lab.copied(0)) == 500, 90)
        write(lab.source, values(500, "more"), 0)
        assert first.wait(120) == -9 and crash.reached
    left = len(lab.copied(0))
    assert left > 500 and committed(lab).get(0, 0) <= 500
    write(lab.source, values(500, "last"), 0)
    (outcome,) = lab.run("second")
    assert outcome.error is None and outcome.records == 1500 - left
    assert lab.copied(0) == [*values(500), *values(500, "more"), *values(500, "last")]
    assert committed(lab)[0] == 1500


@pytest.mark.parametrize(
    ("script", "topics"),
    [
        ("hdinsight/mirror.sh", ["testtopic"]),
        pytest.param("hortonworks/mirror.sh", ["topic1", "topic2"], marks=pytest.mark.long),
        pytest.param("hortonworks/options.sh", ["my-topic"], marks=pytest.mark.long),
    ],
)
def test_published_command_copies_what_its_guide_says(
    lab: Mm1Lab, write: Write, script: str, topics: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {**dict.fromkeys(("PRIMARY_BROKERHOSTS", "SOURCE_BROKERS"), lab.source.bootstrap)}
    words.update(dict.fromkeys(("SECONDARY_BROKERHOSTS", "TARGET_BROKERS"), lab.target.bootstrap))
    words.update({name: f"{name}-{lab.topic}" for name in topics})
    words.update({group: lab.group for group in ("mirrorgroup", "KafkaMirror", "dp-MirrorMaker-test-datapl")})
    for file in (EXAMPLES / script).parent.glob("*.*"):
        text = file.read_text()
        for word, meant in words.items():
            text = text.replace(word, meant)
        (lab.directory / file.name).write_text(text)
    monkeypatch.chdir(lab.directory)
    command = shlex.split((lab.directory / Path(script).name).read_text().splitlines()[-1])
    for name in topics:
        lab.source.create_topic(words[name], 1)
        # The consumer of these guides begins at the end; the group's position is what a first run left behind.
        commit(lab.source, lab.group, words[name], 0)
        write(lab.source, values(20), topic=words[name])
    outcomes = lab.run_with([*command[2:], f"--state={lab.directory / 'state'}"])
    assert [(each.error, each.records) for each in outcomes] == [(None, 20 * len(topics))]
    for name in topics:
        copied = read_topic(lab.target, words[name])
        assert [record.value for record in copied[0].values()] == values(20)
