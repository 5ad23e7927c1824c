"""`mirror mm1` where remote topics have other partition counts: records go by their keys, as MirrorMaker 1's did."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from mirror_lib.records.pass_notes import LONGEST_NOTE, last_pass, notes_of

from mirror_lib.cluster import clusters_of
from mirror_lib.commands.verify import verify_command
from mirror_lib.config.offset_choice import OffsetChoice
from mirror_lib.state.row_passes import SOURCE, RowPass
from mirror_lib.translate.flow import FlowTranslation, Selection
from mirror_lib.translate.verdicts import TranslationRules
from tests.integration.conftest import Ground
from tests.lab.brokers import KafkaBroker
from tests.lab.crash import CrashPoint, driver
from tests.lab.group_lab import commit
from tests.lab.java_producer import produce_by_java
from tests.lab.mm1_lab import Mm1Lab, config_of
from tests.lab.moving_group import work
from tests.lab.one_flow import until
from tests.lab.readers import read_topic
from tests.unit.test_pass_notes import wide

pytestmark = pytest.mark.long

SOURCE_PARTITIONS, REMOTE_PARTITIONS = 3, 5
KEYS = [f"key {number}" for number in range(40)]
# Records from this number on are others' who write to the remote topic.
FOREIGN = 1_000_000
# A value tells the partition and the place that its record had on the source.
Origin = Tuple[int, int]


@pytest.fixture
def lab(ground: Ground, topic_name: Callable[[str], str]) -> Mm1Lab:
    topic = ground[0].create_topic(topic_name("mm1"), SOURCE_PARTITIONS, retention_ms="-1")
    ground[1].create_topic(topic, REMOTE_PARTITIONS, retention_ms="-1")
    return Mm1Lab(*ground, f"group-{topic}", topic)


def write(broker: KafkaBroker, topic: str, first: int, count: int, partitions: int = SOURCE_PARTITIONS) -> None:
    """Records `first` to `first + count` of each partition; every fifth has no key."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "log_level": 0})
    for number in range(first, first + count):
        key = None if number % 5 == 4 else KEYS[number * 7 % len(KEYS)]
        for partition in range(partitions):
            producer.produce(topic, b"%d %d " % (partition, number) + b"x" * 900, key, partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def copied(lab: Mm1Lab, topic: str) -> Dict[int, List[Tuple[Optional[bytes], Origin]]]:
    """Key and origin of each record on the target, those of others left out; nothing where there is no topic."""
    found: Dict[int, List[Tuple[Optional[bytes], Origin]]] = {}
    try:
        logs = read_topic(lab.target, topic)
    except KeyError:
        return {}
    for number, log in logs.items():
        words = [(each.key, (each.value or b"").split(b" ")) for each in log.values()]
        found[number] = [(key, (int(each[0]), int(each[1]))) for key, each in words if int(each[1]) < FOREIGN]
    return found


def committed(lab: Mm1Lab, topic: str) -> List[int]:
    """What the group has committed on the source, by partition."""
    consumer = Consumer({"bootstrap.servers": lab.source.bootstrap, "group.id": lab.group})
    found = consumer.committed([TopicPartition(topic, number) for number in range(SOURCE_PARTITIONS)], timeout=30)
    consumer.close()
    return [each.offset for each in found]


def listed(arguments: Sequence[str], *topics: str) -> List[str]:
    """The arguments with another list of topics."""
    return [*(each for each in arguments if "--whitelist" not in each), f"--whitelist={','.join(topics)}"]


def assert_placed_once_and_in_order(lab: Mm1Lab, starts: Sequence[int], end: int) -> None:
    """Every record from `starts` to `end` of each partition is there once, where a Java producer puts its key."""
    probe = lab.target.create_topic(f"{lab.topic}-placed-{end}", REMOTE_PARTITIONS)
    produce_by_java(lab.target, probe, KEYS)
    places = {record.key: number for number, log in read_topic(lab.target, probe).items() for record in log.values()}
    found = copied(lab, lab.topic)
    assert sorted(origin for log in found.values() for _, origin in log) == [
        (partition, number) for partition, start in enumerate(starts) for number in range(start, end)
    ]
    for place, log in found.items():
        assert all(places[key] == place for key, _ in log if key is not None)
        for partition in range(SOURCE_PARTITIONS):
            assert [origin for _, origin in log if origin[0] == partition] == sorted(
                origin for _, origin in log if origin[0] == partition
            )


def test_position_of_an_old_mirrormaker_and_a_kill_where_counts_differ_lose_and_double_nothing(
    lab: Mm1Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    same = lab.source.create_topic(f"{lab.topic}-same", SOURCE_PARTITIONS)
    write(lab.source, lab.topic, 0, 800)
    write(lab.source, same, 0, 50)
    # An old MirrorMaker had come so far, and others write to the remote topic too.
    for number, offset in enumerate((30, 0)):
        commit(lab.source, lab.group, lab.topic, offset, number)
    starts = [30, 0, 0]
    write(lab.target, lab.topic, FOREIGN, 10)
    arguments, others = (listed(lab.arguments(state), lab.topic, same) for state in ("state", "other"))
    crash = CrashPoint("mirror_lib.log.append:_produce_request", "after", 2, lab.directory / "died", "kill driver")
    with driver(["-m", "mirror_lib.cli", "mm1", *arguments, "--once"], crash) as first:
        assert first.wait(120) == -9 and crash.reached
    assert sum(map(len, copied(lab, lab.topic).values())) > 0
    assert committed(lab, lab.topic) == starts  # nothing is told before it is whole
    write(lab.target, lab.topic, FOREIGN, 10)
    write(lab.source, lab.topic, 800, 30)

    end = OffsetChoice(offsets=tuple(((lab.topic, number), 820) for number in range(SOURCE_PARTITIONS)))
    # Another process takes over, whose ledger knows nothing; what it found written counts as copied.
    (outcome,) = lab.run_with(others, until=end)
    assert outcome.error is None
    assert_placed_once_and_in_order(lab, starts, 820)
    assert committed(lab, lab.topic) == [820] * SOURCE_PARTITIONS
    # Counts are equal, so partitions keep their numbers, and the whole is an exact copy.
    ours, theirs = (read_topic(broker, same) for broker in (lab.source, lab.target))
    assert [list(log.values()) for log in theirs.values()] == [list(log.values()) for log in ours.values()]
    assert committed(lab, same) == [50] * SOURCE_PARTITIONS
    # The first one comes back with its old ledger.
    (outcome,) = lab.run_with(arguments)
    assert (outcome.error, outcome.records) == (None, 10 * SOURCE_PARTITIONS)
    assert_placed_once_and_in_order(lab, starts, 830)
    # Its ledger tells where the copy began; whoever went on in between, all of it is there, beside others' records.
    assert verify_command(argparse.Namespace(flow=None, json=True), config_of(*arguments)) == 0
    placed = json.loads(capsys.readouterr().out)["topics"][-1]
    assert (placed["topic"], placed["records"]) == (lab.topic, 830 * SOURCE_PARTITIONS - sum(starts))
    assert sum(int(each["reason"].split()[0]) for each in placed["unknown"]) == 10 * SOURCE_PARTITIONS


def test_topic_that_appears_with_another_count_is_copied_while_others_are_tailed(
    lab: Mm1Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    same, late = lab.source.create_topic(f"{lab.topic}-same", SOURCE_PARTITIONS), f"{lab.topic}-late"
    arguments = listed(lab.arguments("state"), same, late)
    write(lab.source, same, 0, 10)

    def arrived(topic: str, count: int) -> Callable[[], bool]:
        return lambda: sum(map(len, copied(lab, topic).values())) == count * SOURCE_PARTITIONS

    with lab.running_with(arguments) as outcomes:
        until(arrived(same, 10), 60)
        lab.target.create_topic(late, REMOTE_PARTITIONS)
        lab.source.create_topic(late, SOURCE_PARTITIONS)
        write(lab.source, late, 0, 10)
        until(arrived(late, 10), 60)
        write(lab.source, same, 10, 10)
        write(lab.source, late, 10, 10)
        until(lambda: arrived(same, 20)() and arrived(late, 20)(), 60)
    assert [each.error for each in outcomes] == [None]
    assert (committed(lab, same), committed(lab, late)) == ([20] * 3, [20] * 3)
    # One that is stopped behind its last pass has not written down yet that this is whole.
    assert [each.error for each in lab.run_with(arguments)] == [None]
    assert verify_command(argparse.Namespace(flow=None, json=False), config_of(*arguments)) == 0
    said = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(lab.topic)]
    assert [(line[0], line[3], line[-1]) for line in said] == [(same, "60", "equal"), (late, "60", "equal")]


def moved(lab: Mm1Lab, group: str) -> Dict[str, int]:
    """Move the group to the target; by topic how many records it may read again there."""
    config = config_of(*lab.arguments("state"))
    config = replace(config, flows=tuple(replace(each, topics=(f"{lab.topic}.*",)) for each in config.flows))
    with clusters_of(config.flows[0]) as (source, target):
        translation = FlowTranslation(config, config.flows[0], lab.spark, source, target)
        decisions = translation.decide(translation.look(Selection(group)), TranslationRules())
        assert {each.done for each in translation.execute(decisions)} == {"committed"}
        translation.close()
    again: Dict[str, int] = {}
    for each in decisions:
        again[each.there[0]] = again.get(each.there[0], 0) + (each.translation.reread or 0)
    return again


def test_group_of_a_flow_like_mirrormaker_1_goes_on_behind_nothing_that_it_has_not_read(lab: Mm1Lab) -> None:
    same = lab.source.create_topic(f"{lab.topic}-same", SOURCE_PARTITIONS)
    group, topics = f"{lab.topic}-readers", [lab.topic, same]
    arguments = listed(lab.arguments("state"), *topics)

    def pass_over(first: int) -> None:
        for topic in topics:
            write(lab.source, topic, first, 60)
        assert [each.error for each in lab.run_with(arguments)] == [None]

    pass_over(0)
    read = Counter(record for log in work(lab.source, group, topics).values() for record in log)
    pass_over(60)
    for name in topics:
        read += Counter(record for log in work(lab.source, group, [name], 40).values() for record in log)
    pass_over(120)
    again = moved(lab, group)
    # Where counts are equal whole batches are copied, and positions are exact; where keys decide it is within a pass.
    assert again[same] == 0 < again[lab.topic] <= 2 * 60 * SOURCE_PARTITIONS
    rest = Counter(record for log in work(lab.target, group, topics).values() for record in log)
    every = Counter(
        record for name in topics for log in read_topic(lab.source, name).values() for record in log.values()
    )
    assert every - read <= rest and rest <= every
    assert sum(rest.values()) - (sum(every.values()) - sum(read.values())) <= sum(again.values())


def test_broker_takes_the_notes_of_a_pass_into_a_thousand_partitions_and_they_are_read_back(lab: Mm1Lab) -> None:
    places = [(lab.topic, number) for number in range(SOURCE_PARTITIONS)]
    (flow,) = config_of(*lab.arguments("state")).flows
    for step, parts in ((5_000, 1), (10**9, SOURCE_PARTITIONS)):
        made = wide(4, 1_450, step, SOURCE_PARTITIONS)
        rows = [replace(row, topic=lab.topic) if row.side == SOURCE else row for row in made.rows]
        begun = RowPass(4, tuple(rows))
        told = notes_of(begun, {place: ["A.a"] for place in places})
        assert all(f"of {parts} " in at.metadata and len(at.metadata) > 0.7 * LONGEST_NOTE for at in told.values())
        with clusters_of(flow) as (source, _):
            assert set(source.commit_offsets(lab.group, told).values()) == {None}
            found = source.committed_offsets([lab.group])[lab.group]
        assert last_pass(None, found, lab.group) == begun


def test_record_that_the_target_refuses_is_left_out_alone_where_counts_differ(lab: Mm1Lab) -> None:
    topic = lab.source.create_topic(f"{lab.topic}-odd", SOURCE_PARTITIONS, retention_ms="-1")
    bounds = {"max_message_bytes": "4000", "message_timestamp_before_max_ms": str(3_600_000), "retention_ms": "-1"}
    lab.target.create_topic(topic, REMOTE_PARTITIONS, **bounds)
    write(lab.source, topic, 0, 20)
    producer = Producer({"bootstrap.servers": lab.source.bootstrap, "log_level": 0})
    for partition, size, timestamp in ((0, 9_000, 0), (1, 10, 1_600_000_000_000)):
        producer.produce(topic, b"%d 20 " % partition + b"x" * size, KEYS[0], partition, timestamp=timestamp)
        producer.flush(30)
    write(lab.source, topic, 21, 20)
    arguments = [*listed(lab.arguments("state"), topic), "--abort.on.send.fail=false"]
    # What is left out is known; nothing behind it is appended yet.
    crash = CrashPoint("mirror_lib.replicate.journal:Journal.note", "after", 1, lab.directory / "died", "kill driver")
    with driver(["-m", "mirror_lib.cli", "mm1", *arguments, "--once"], crash) as first:
        assert first.wait(120) == -9 and crash.reached
    (outcome,) = lab.run_with(arguments)
    assert outcome.error is None
    numbers = [*range(20), *range(21, 41)]
    found = sorted(origin for log in copied(lab, topic).values() for _, origin in log)
    assert found == [(partition, number) for partition in range(SOURCE_PARTITIONS) for number in numbers]
    incidents = lab.spark.read.format("delta").load(str(lab.directory / "state" / "incidents"))
    rows = incidents.where("kind = 'offsets skipped'").select("topic", "partition", "from_offset", "until_offset")
    assert sorted(map(tuple, rows.distinct().collect())) == [(topic, 0, 20, 21), (topic, 1, 20, 21)]


def test_refused_record_fails_the_run_where_it_is_not_to_be_left_out(lab: Mm1Lab) -> None:
    lab.target.create_topic(f"{lab.topic}-odd", REMOTE_PARTITIONS, max_message_bytes="4000")
    lab.source.create_topic(f"{lab.topic}-odd", SOURCE_PARTITIONS)
    producer = Producer({"bootstrap.servers": lab.source.bootstrap, "log_level": 0})
    producer.produce(f"{lab.topic}-odd", b"0 0 " + b"x" * 9_000, KEYS[0], 0)
    assert producer.flush(30) == 0
    (outcome,) = lab.run_with(listed(lab.arguments("state"), f"{lab.topic}-odd"))
    assert "4000" in str(outcome.error)
