"""Flows that bring topics together and give one several remote topics: each record once in each, whatever is killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, List

import pytest

from mirror_lib.cli import main
from mirror_lib.config.loader import load
from mirror_lib.groups.position_formats import TopicPosition
from mirror_lib.groups.positions import translate_positions
from mirror_lib.kafka.admin import clusters_of
from tests.lab.brokers import KafkaBroker
from tests.lab.crash import CrashPoint, run_mirror
from tests.lab.one_flow import OneFlow
from tests.lab.readers import Log, LogRecord, read_topic, without_origins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

# So many that a remote partition takes several batches.
RECORDS = 3000
MID_PASS = ("mirror_lib.kafka.producer:_produce_request", "after", 2)


def assert_once_and_in_order(sources: List[Dict[int, Log]], remote: Dict[int, Log]) -> None:
    for number, log in remote.items():
        left = [list(source[number].values()) for source in sources if number in source]
        for copy in log.values():
            own = next((records for records in left if records and records[0] == copy), None)
            assert own is not None, f"partition {number} holds a record that is not the next one of a topic"
            own.pop(0)
        assert not any(left)


@pytest.fixture
def topics(
    source_cluster: KafkaBroker, target_cluster: KafkaBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> List[OneFlow]:
    """Two topics of unlike width; the first one's flow copies both into `<topic>-all` and `<topic>-also`."""
    name = topic_name("renamed")
    first = OneFlow(source_cluster, target_cluster, name, tmp_path, patterns=f"'{name}.*'")
    first.settings["rename"] = f"['{name}.* -> {name}-all {name}-also']"
    second = OneFlow(source_cluster, target_cluster, f"{name}-more", tmp_path, partitions=2)
    second.first_timestamp += 1_000_000
    for each in (first, second):
        each.fill(RECORDS)
    return [first, second]


def test_topics_in_several_remote_topics_are_exact_after_driver_died_mid_pass(
    spark: SparkSession, topics: List[OneFlow]
) -> None:
    first = topics[0]
    for remote in ("all", "also"):  # old records must outlive the test
        first.target.create_topic(f"{first.topic}-{remote}", 1, retention_ms="-1")
    crash = CrashPoint(*MID_PASS, first.directory / "died", "kill driver")
    assert run_mirror(first.config, crash=crash) == -9
    assert crash.reached
    for each in topics:
        each.fill(100)
    assert first.run(spark).error is None
    logs = (read_topic(first.target, f"{first.topic}-{remote}") for remote in ("all", "also"))
    one, other = map(without_origins, logs)
    for remote_log in (one, other):
        assert sorted(remote_log) == [0, 1, 2]
        assert_once_and_in_order([each.original() for each in topics], remote_log)
    assert main(["verify", str(first.config)]) == 0

    # A reader of one of the remote topics that has read it all has read all of both topics.
    config, places = load(str(first.config)), [(f"{first.topic}-all", number) for number in one]
    with clusters_of(config.flows[0]) as (_, target):
        ends = {place: log.end for place, log in target.offsets(places, "read_uncommitted").items()}
    at_ends = [TopicPosition(*place, end) for place, end in ends.items()]
    back = translate_positions(spark, config, config.flows[0], at_ends, reverse=True)
    originals = {(each.topic, n): max(log) + 1 for each in topics for n, log in each.original().items()}
    assert {(a.remote_topic, a.remote_partition): a.translated for a in back} == originals
    there = [TopicPosition(*at, end) for at, end in originals.items()]
    found = translate_positions(spark, config, config.flows[0], there)
    assert [a.remote_topic for a in found] == [f"{first.topic}-all"] * 3 + [f"{first.topic}-also"] * 3
    assert {(a.remote_topic, a.remote_partition): a.translated for a in found[:3]} == ends


def test_judge_sees_a_record_that_is_lost_doubled_or_out_of_order() -> None:
    records = [LogRecord(None, b"%d" % at, (), at) for at in range(4)]
    source = {0: dict(enumerate(records))}
    assert_once_and_in_order([source], source)
    for wrong in (records[:3], [*records, records[3]], [records[1], records[0], *records[2:]]):
        with pytest.raises(AssertionError):
            assert_once_and_in_order([source], {0: dict(enumerate(wrong))})
