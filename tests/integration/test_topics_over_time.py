"""Topics that come, grow, vanish and come back, on either side: followed, or refused with a sentence. Where a copy
begins, and how much it may fetch."""

from __future__ import annotations

import logging
import shutil
import threading
from typing import Any, Dict, List, Optional, Sequence

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.utils import IllegalArgumentException  # type: ignore[attr-defined]  # Spark 3.3 has no pyspark.errors

from mirror_lib.metrics import FlowMetrics
from mirror_lib.topics.filters import first_match
from tests.integration.conftest import Command, Ground, Names
from tests.lab.flow_lab import FlowLab, run_config, values
from tests.lab.one_flow import until
from tests.unit.pattern_cases import ALIKE


@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> FlowLab:
    return FlowLab(*ground, topic_name("time"))


def test_running_flow_follows_new_topics_and_new_partitions(
    lab: FlowLab, caplog: pytest.LogCaptureFixture, command: Command
) -> None:
    verified = command("verify", lab.config)
    assert verified.code == 1 and "nothing was compared" in verified.err
    lab.trigger = "1 second"
    caplog.set_level(logging.INFO, "mirror.events")
    lab.create("orders")
    lab.write("orders", values(50))
    with lab.running() as outcomes:
        until(lambda: lab.remote_values("orders") == values(50))
        lab.create("payments", 2)
        lab.write("payments", values(50), 1)
        lab.grow("orders", 3)
        lab.write("orders", values(20, "new partition"), 2)
        lab.write("orders", values(20, "old partition"), 0)
        until(lambda: len(lab.remote_values("payments", 1)) == 50 and len(lab.remote_values("orders", 2)) == 20)
        until(lambda: lab.differences("orders") == [])
        assert lab.differences("payments") == []
    assert [outcome.error for outcome in outcomes] == [None]
    assert sorted(row[:2] for row in lab.incidents()) == [("partitions added", "orders"), ("topic added", "payments")]
    status = command("status", lab.config)
    assert status.code == 0
    for code, topic in (("MIR-608", "payments"), ("MIR-609", "orders")):
        assert [f"({code}): {lab.name}.{topic}" in each.message for each in caplog.records].count(True) == 1
    shown = [line for line in status.out.splitlines() if line.startswith("  event")]
    assert sorted(line.split("(")[1][:7] for line in shown) == ["MIR-608", "MIR-609"]
    # The way back has nothing to copy, as is usual.
    lab.flows = ("source->target", "target->source")
    verified = command("verify", lab.config)
    assert verified.code == 0 and "target->source: nothing was compared" in verified.err


def test_source_topic_created_anew_is_refused_with_a_sentence_or_appended_where_asked(lab: FlowLab) -> None:
    lab.create("orders")
    lab.create("others")
    lab.write("orders", values(50, "old"))
    lab.copy()
    lab.source.delete_topic(f"{lab.name}.orders")
    lab.create("orders")
    lab.write("orders", values(20, "new"))
    lab.write("others", values(20))
    outcome = lab.run()
    assert outcome.error is not None and (outcome.error.code, outcome.error.exit_code) == ("MIR-316", 3)
    assert lab.remote_values("orders") == values(50, "old")
    assert lab.remote_values("others") == values(20)

    lab.copy(on_data_loss="continue")
    assert lab.remote_values("orders") == [*values(50, "old"), *values(20, "new")]
    assert lab.incidents() == [("partition stopped", "orders", 0, 0, -1), ("topic recreated", "orders", 0, 0, 20)]
    lab.write("orders", values(20, "later"))
    lab.copy(on_data_loss="fail")
    assert lab.remote_values("orders") == [*values(50, "old"), *values(20, "new"), *values(20, "later")]
    # The remote topic is filled again.
    lab.target.delete_topic(lab.remote("orders"))
    lab.copy()
    assert lab.differences("orders") == [] and lab.incidents()[2:] == [("topic recreated", "orders", 0, 0, 40)]


@pytest.mark.long
def test_topic_that_is_gone_from_the_source_is_named_by_verify(lab: FlowLab, command: Command) -> None:
    for stem in ("orders", "others"):
        lab.create(stem, 2)
        lab.write(stem, values(20))
    lab.copy()
    lab.source.delete_topic(f"{lab.name}.orders")

    verified = command("verify", lab.config)
    assert verified.code == 1 and f"{lab.name}.orders-0: the topic was copied and is not seen" in verified.out


@pytest.mark.long
def test_flow_that_lost_its_ledger_knows_its_own_records_by_the_ids_it_wrote_down(lab: FlowLab) -> None:
    """In a remote topic with several writers. Without transactional ids each life is given other producer ids."""
    lab.settings.update({"shared.remote.topics": "true", "delivery": "at-least-once"})
    lab.create("orders")
    lab.write("orders", values(50))
    lab.copy()
    lab.write_to(lab.target, lab.remote("orders"), [b"of another flow"])
    shutil.rmtree(lab.directory / "state" / "offset_syncs")
    lab.write("orders", values(50, "later"))
    lab.copy()
    assert lab.remote_values("orders") == [*values(50), b"of another flow", *values(50, "later")]


@pytest.mark.long
def test_flow_whose_place_has_left_the_remote_topic_is_told_how_to_go_on_and_does(lab: FlowLab) -> None:
    lab.settings["shared.remote.topics"] = "true"
    lab.create("orders")
    lab.write("orders", values(50))
    lab.copy()
    # What others write drives all that was there out of the remote topic, while the flow has nothing to copy.
    lab.write_to(lab.target, lab.remote("orders"), values(20, "of another flow"))
    lab.target.expire(lab.remote("orders"), {0: -1})
    lab.write("orders", values(5, "later"))
    refused = str(lab.run().error)
    assert "which an interrupted attempt may have written" in refused and "set on.data.loss: continue" in refused
    assert lab.remote_values("orders") == []
    assert lab.copy(on_data_loss="continue").records == 5
    assert lab.remote_values("orders") == values(5, "later")
    assert [row for row in lab.incidents() if row[0] == "copied again"] == [("copied again", "orders", 0, 50, -1)]
    lab.write("orders", values(5, "last"))
    assert lab.copy(on_data_loss="fail").records == 5


# --- where a copy begins: times, groups, offsets; a re-run never jumps ------------------------------------------------

AT_20 = "2023-11-14T22:13:20.020Z"  # the time of record 20 of a lab's topic


@pytest.fixture
def starts(lab: FlowLab) -> FlowLab:
    lab.create("orders", 2, retention_ms="-1")
    for partition in (0, 1):
        lab.write("orders", values(50), partition)
    return lab


def copied(starts: FlowLab) -> List[List[Optional[bytes]]]:
    return [starts.remote_values("orders", partition) for partition in (0, 1)]


def all_of(logs: Sequence[Sequence[Optional[bytes]]]) -> List[Optional[bytes]]:
    return sorted((value for log in logs for value in log), key=str)


def test_time_begins_at_its_first_record_and_the_next_run_goes_on_from_there(starts: FlowLab) -> None:
    starts.settings["start.position"] = AT_20
    starts.copy()
    assert copied(starts) == [values(50)[20:]] * 2
    starts.settings["start.position"] = "earliest"
    starts.write("orders", values(5, "later"))
    assert starts.copy().records == 5
    assert copied(starts)[0] == [*values(50)[20:], *values(5, "later")]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"where": '"true"'}, id="rows"),
        pytest.param({"partitioner": "key"}, id="placed", marks=pytest.mark.long),
    ],
)
def test_rows_begin_where_they_are_told_and_the_next_run_goes_on(starts: FlowLab, settings: Dict[str, str]) -> None:
    topic = f"{starts.name}.orders"
    starts.settings.update({**settings, "start.position": f"{topic}:0=10, {topic}:1=0"})
    starts.copy()
    assert all_of(copied(starts)) == all_of([values(50)[10:], values(50)])
    starts.settings["start.position"] = "latest"
    starts.write("orders", values(5, "later"))
    starts.copy()
    assert all_of(copied(starts)) == all_of([values(50)[10:], values(50), values(5, "later")])


# --- patterns of topics as Java reads them, which Spark subscribes by ------------------------------------------------


@pytest.mark.parametrize("pattern", [*ALIKE, "a|b"])
def test_pattern_that_the_mirror_takes_means_the_same_to_java(spark: SparkSession, pattern: str) -> None:
    java: Any = spark.sparkContext._jvm
    names = ["orders", "sales.eu", "abc.v12", "aa", "aaa", "Orders", "a", "b", "a{b}", "^a", "]a", "a&b", "&", "test"]
    wanted = [name for name in names if first_match([pattern], name)]
    assert [name for name in names if java.java.util.regex.Pattern.matches(pattern, name)] == wanted


@pytest.mark.parametrize("pattern", ["(?P<team>a)", "a{,3}", "{team}", "(?a)a", "(?#note)a", r"\U00000061", "[a[b]"])
def test_java_refuses_what_the_mirror_refuses(spark: SparkSession, pattern: str) -> None:
    java: Any = spark.sparkContext._jvm
    with pytest.raises((Py4JJavaError, IllegalArgumentException)):  # the latter since Spark 3.4
        java.java.util.regex.Pattern.compile(pattern)


# --- a rate limit -----------------------------------------------------------------------------------------------

# Record batches of less than 20 KB; no answer can bring less than one of them.
BATCH = {"batch_size": 16_000, "linger_ms": 50}
LARGEST_BATCH = 20_000


def test_flow_fetches_no_more_a_second_than_it_may_and_says_so(lab: FlowLab) -> None:
    rate = 60_000  # far below what a busy machine brings
    lab.create("orders", retention_ms="-1")
    lab.settings["batch.max.seconds"] = 2
    lab.write("orders", [b"%06d" % number + b"x" * 994 for number in range(250)], **BATCH)
    lab.settings["max.bytes.per.second"] = "60 KB"
    lab.copy()
    passes = [each for each in lab.seen if each.records]
    assert all(each.bytes <= rate * (each.seconds + 1) + LARGEST_BATCH for each in passes), passes
    # What one pass saves up or fetches too much counts for the next.
    assert sum(each.bytes for each in passes) <= rate * (sum(each.seconds for each in lab.seen) + 1) + LARGEST_BATCH
    assert "rate-limited to 60.0 KB/s" in {each.waiting for each in passes}
    assert lab.differences("orders") == []


@pytest.mark.long
def test_every_partition_of_a_backlog_gets_its_turn_though_a_cycle_reaches_few_of_them(lab: FlowLab) -> None:
    lab.create("wide", 8, retention_ms="-1")
    # Record batches of 50 KB: a cycle copies about two.
    for _ in range(8):
        for number in range(8):
            lab.write("wide", [b"x" * 50_000], number)
    lab.settings.update({"max.bytes.per.second": "100 KB", "tasks.max": 1, "batch.max.seconds": 1})
    stop = threading.Event()

    def watch(snapshot: FlowMetrics) -> None:
        lab.seen.append(snapshot)
        if sum(each.records for each in lab.seen) >= 16:
            stop.set()

    (outcome,) = run_config(lab.config, lab.spark, watch, stop)
    assert outcome.error is None
    ends = {place: end for place, end in lab.remote_ends().items() if "wide" in place[0]}
    assert sum(each.records for each in lab.seen) < 40 and len(ends) == 8
    copied = [len(log) for log in lab.read_remote("wide").values()]
    assert len(copied) == 8 and min(copied) > 0, copied
